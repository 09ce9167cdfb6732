"""What holds for every source that reads a folder; what only one of them knows is tested beside it."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.core.errors import SourceError
from pipeline.core.faults import FaultyData
from pipeline.sources import base, coco, csv, cub, digits, folder, json, nus, open_images, voc, xml, yolo
from tests.sources import (
    test_coco,
    test_csv,
    test_cub,
    test_folder,
    test_json,
    test_nus,
    test_open_images,
    test_voc,
    test_xml,
    test_yolo,
)


@dataclass(frozen=True)
class Case:
    """A source, how its tests set it up, and files of a tree: a picture that is a row, lists, one that is not read."""

    source: ModuleType
    settings: Callable[..., Any]
    write: Callable[[Path], Any]
    picture: str
    lists: tuple[str, ...]
    unread: str = "notes.txt"
    named: bool = True  # whether its lists name a picture in full, so that a missing one has a row


CASES = {
    "voc": Case(
        voc,
        test_voc.settings,
        test_voc.tree,
        "JPEGImages/2009_000004.jpg",
        ("ImageSets/Main/val.txt", "ImageSets/Main/cat_val.txt"),
        "ImageSets/Main/trainval.txt",
    ),
    "voc, annotations": Case(
        voc,
        lambda **changes: test_voc.settings(labels="annotations", classes=list(test_voc.CLASSES), **changes),
        lambda place: test_voc.annotated(test_voc.tree(place)),
        "JPEGImages/2009_000004.jpg",
        ("ImageSets/Main/val.txt", "Annotations/2008_000005.xml"),
        "ImageSets/Main/cat_val.txt",
    ),
    "coco": Case(
        coco,
        test_coco.settings,
        test_coco.tree,
        "train2014/" + test_coco.name("train", 9),
        ("annotations/instances_train2014.json", "annotations/instances_val2014.json"),
        "annotations/captions_train2014.json",
    ),
    "nus, official": Case(
        nus,
        test_nus.settings,
        test_nus.official,
        "Flickr/zoo/0007_33.jpg",
        (
            "ConceptsList/Concepts81.txt",
            "ImageList/TrainImagelist.txt",
            "Groundtruth/TrainTestLabels/Labels_sky_Test.txt",
        ),
    ),
    "nus, formatted": Case(
        nus,
        lambda **changes: test_nus.settings("formatted", **changes),
        test_nus.formatted,
        "Flickr/zoo/0007_33.jpg",
        ("Concepts81.txt", "formatted_val_labels.npy"),
    ),
    "cub": Case(
        cub,
        test_cub.settings,
        test_cub.tree,
        "CUB_200_2011/images/" + test_cub.IMAGES[3][0],
        tuple(f"CUB_200_2011/{name}" for name in ("images.txt", "train_test_split.txt", test_cub.LABELS))
        + ("attributes.txt",),
        "CUB_200_2011/classes.txt",
    ),
    "csv": Case(
        csv, test_csv.settings, lambda place: test_csv.read(place, test_csv.PLAIN), "sub/d.jpg", ("labels.csv",)
    ),
    "json": Case(
        json, test_json.settings, lambda place: test_json.read(place, test_json.ENTRIES), "sub/d.jpg", ("labels.json",)
    ),
    "xml": Case(xml, test_xml.settings, test_xml.tree, "cat/1.jpg", ("cat/1.xml",)),
    "yolo": Case(yolo, test_yolo.settings, test_yolo.tree, "images/other/e.jpg", ("data.yaml", "val.txt")),
    "yolo, folders": Case(
        yolo,
        test_yolo.settings,
        test_yolo.tree,
        "images/train/a.jpg",
        ("data.yaml", "labels/train/a.txt"),
        "images/notes.txt",
        named=False,
    ),
    "open_images": Case(
        open_images,
        lambda **changes: test_open_images.settings(**{"missing": "stop", "file": test_open_images.TRAIN} | changes),
        lambda place: test_open_images.tree(place, **test_open_images.WHOLE),
        "train/aa.jpg",
        (test_open_images.TRAIN, test_open_images.NAMES),
        "boxes.csv",
        named=False,
    ),
    "folder": Case(
        folder, test_folder.settings, lambda place: test_folder.write(place, *test_folder.PLAIN), "photos/cat/2.JPG", ()
    ),
}
EVERY = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
_WITH_LISTS = {name: case for name, case in CASES.items() if case.lists}
_FOUND = ("xml", "yolo", "yolo, folders")  # whose lists are whatever lies there
_NAMED = {name: case for name, case in _WITH_LISTS.items() if name not in _FOUND}
NAMED = pytest.mark.parametrize("case", _NAMED.values(), ids=_NAMED)
LISTED = pytest.mark.parametrize("case", _WITH_LISTS.values(), ids=_WITH_LISTS)


def written(case: Case, place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    case.write(place)
    return place


def test_every_source_is_tried():
    assert {case.source.__name__.rpartition(".")[2] for case in CASES.values()} | {"digits"} == set(base.names())


# ---------------------------------------------------------------------------------------------- rules
@EVERY
def test_rules_hold_in_the_table_of_every_source(case, tmp_path):
    """Of each pair of classes, as parent and child and as two that exclude each other."""
    root = written(case, tmp_path)
    plain = case.source.read(case.settings(), root).table
    classes = list(plain.classes)
    together = 0
    for child, parent in permutations(range(min(3, len(classes))), 2):
        found = case.source.read(case.settings(parents={classes[child]: classes[parent]}), root).table
        known = np.where(plain.scored, plain.truth * 2 - 1, 0)[[plain.paths.index(path) for path in found.paths]]
        known[known[:, child] == 1, parent] = 1
        known[known[:, parent] == -1, child] = -1
        assert np.array_equal(np.where(found.scored, found.truth * 2 - 1, 0), known)
        assert found.rules is not None and plain.rules is None
        pair = [classes[child], classes[parent]]
        if (plain.truth[:, child] & plain.truth[:, parent]).any():
            together += 1
            with pytest.raises(SourceError, match="images have labels that exclude each other"):
                case.source.read(case.settings(exclusive=[pair]), root)
        else:
            table = case.source.read(case.settings(exclusive=[pair]), root).table
            assert (table.scored[table.truth[:, child] == 1, parent]).all()
    assert together or case.source is not voc


@EVERY
@pytest.mark.parametrize("rules", [{"parents": {"no such": "class"}}, {"exclusive": [["no such", "class"]]}], ids=str)
def test_rules_of_classes_that_are_not_there_are_named(case, rules, tmp_path):
    (key,) = rules
    with pytest.raises(SourceError, match=f"prepare: {key}: no class (class, )?no such"):
        case.source.read(case.settings(**rules), written(case, tmp_path))


# ---------------------------------------------------------------------------------------------- settings
BLOCKS = {name: case.settings().model_dump() for name, case in CASES.items()}
BLOCKS["digits"] = {"source": "digits", "train": 20, "val": 20, "test": 20, "size": 48, "seed": 0}


@pytest.mark.parametrize("name, key", [(name, key) for name, block in BLOCKS.items() for key in block])
def test_no_setting_has_a_default(name, key):
    settings = CASES[name].source.Settings if name in CASES else digits.Settings
    with pytest.raises(ValidationError, match=key):
        settings.model_validate({other: value for other, value in BLOCKS[name].items() if other != key})


COMMON = [
    *({"size": value} for value in (0, 8.5, "8")),
    {"bad_images": "skip"},
    *({"val_fraction": value} for value in (-0.1, 1.0)),
    *({"split_seed": value} for value in (-1, 1.0)),
    {"extra": 1},
    {"source": "digits"},
    {"root": 3},
]


@EVERY
@pytest.mark.parametrize("changes", COMMON, ids=str)
def test_impossible_settings_are_refused(case, changes):
    with pytest.raises(ValidationError, match=next(iter(changes))):
        case.source.Settings.model_validate(case.settings().model_dump() | changes)


@EVERY
def test_root_counts_from_the_project_or_is_absolute(case, tmp_path):
    written(case, tmp_path / "raw")
    inner = case.settings().root
    one = case.source.read(case.settings(root=f"raw/{inner}"), tmp_path)
    other = case.source.read(case.settings(root=str(tmp_path / "raw" / inner)), Path("/elsewhere"))
    assert one.table.paths == other.table.paths and one.report == other.report
    for ask in (case.source.read, case.source.fingerprint):
        with pytest.raises(SourceError, match=r"^prepare: root: no folder .*nowhere$"):
            ask(case.settings(root="nowhere"), tmp_path)


# ---------------------------------------------------------------------------------------------- pictures
@EVERY
def test_a_picture_of_each_row_is_found_and_one_of_an_unread_ending_is_told(case, tmp_path):
    place = written(case, tmp_path)
    (place / case.picture).with_suffix(".jxl").touch()
    data = case.source.read(case.settings(), place)
    files = [data.image(row) for row in range(len(data.table.paths))]
    assert all(file.is_file() and str(file).endswith(path) for file, path in zip(files, data.table.paths, strict=True))
    assert place / case.picture in files
    (warning,) = (text for text in data.report["warnings"] if ".jxl" in text)
    assert "1 picture of endings that are not read was left out: " in warning


@LISTED
def test_a_missing_picture_is_named_or_left_to_the_packing(case, tmp_path):
    place = written(case, tmp_path)
    whole = case.source.read(case.settings(), place)
    (place / case.picture).unlink()
    with pytest.raises(FaultyData, match=Path(case.picture).stem) as caught:
        case.source.read(case.settings(), place)
    assert len(caught.value.lines) == 1
    data = case.source.read(case.settings(bad_images="drop"), place)
    files = list(map(data.image, range(len(data.table.paths))))
    if case.named:
        assert data.table.paths == whole.table.paths and place / case.picture in files
    else:
        assert set(data.table.paths) == set(whole.table.paths) - {case.picture}


@EVERY
def test_folders_of_systems_hold_no_row_and_are_counted(case, tmp_path):
    place = written(case, tmp_path)
    whole = case.source.read(case.settings(), place)
    thumbnail = (place / case.picture).parent / "@eaDir" / Path(case.picture).name
    thumbnail.parent.mkdir()
    thumbnail.write_bytes((place / case.picture).read_bytes())
    data = case.source.read(case.settings(), place)
    assert data.table.paths == whole.table.paths and data.table.classes == whole.table.classes
    (warning,) = (text for text in data.report["warnings"] if "@eaDir" in text)
    assert "1 picture in folders of systems and tools left out: " in warning


@EVERY
def test_links_out_of_the_folder_are_read_only_where_that_is_asked(case, tmp_path):
    place = written(case, tmp_path / "raw")
    (place / case.picture).rename(tmp_path / "elsewhere.jpg")
    (place / case.picture).symlink_to(tmp_path / "elsewhere.jpg")
    for ask in (case.source.read, case.source.fingerprint):
        with pytest.raises(SourceError, match="1 link leads out of the folder: .* prepare: links: follow"):
            ask(case.settings(), place)
    data = case.source.read(case.settings(links="follow"), place)
    assert place / case.picture in map(data.image, range(len(data.table.paths)))
    assert len(case.source.fingerprint(case.settings(links="follow"), place)) == 64


@pytest.fixture
def alarm():
    """Ends a test that waits for ever."""
    signal.alarm(20)
    yield
    signal.alarm(0)


@NAMED
def test_a_list_that_is_a_pipe_is_refused_and_not_waited_for(case, tmp_path, alarm):
    place = written(case, tmp_path)
    for name in case.lists:
        content = (place / name).read_bytes()
        (place / name).unlink()
        os.mkfifo(place / name)
        for ask in (case.source.fingerprint, case.source.read):
            with pytest.raises(SourceError):
                ask(case.settings(), place)
        (place / name).unlink()
        (place / name).write_bytes(content)
    assert case.source.read(case.settings(), place)


# ---------------------------------------------------------------------------------------------- its state
@EVERY
def test_the_fingerprint_tells_what_changed_but_not_where_it_lies(case, tmp_path):
    def state() -> str:
        return case.source.fingerprint(case.settings(), one)

    one, other = written(case, tmp_path / "one"), written(case, tmp_path / "deep" / "two")
    before = state()
    assert len(before) == 64 and before == case.source.fingerprint(case.settings(), other)
    assert before == case.source.fingerprint(case.settings(root=f"deep/two/{case.settings().root}"), tmp_path)
    for name in (case.unread, case.picture + ".txt"):
        (one / name).write_text("no part of it")
    assert state() == before
    seen = {before}
    for name in (*case.lists, case.picture):
        content = (one / name).read_bytes()
        (one / name).write_bytes(content + b"\n")
        seen.add(state())
        (one / name).write_bytes(content)
        assert state() == before
    content = (one / case.picture).read_bytes()
    (one / case.picture).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert state() not in seen, "an edit of equal size"
    (one / case.picture).write_bytes(content)
    assert state() == before
    (one / case.picture).rename((one / case.picture).with_name("other.jpg"))
    assert len(seen | {state()}) == len(case.lists) + 3


@NAMED
def test_a_missing_list_is_named(case, tmp_path):
    place = written(case, tmp_path)
    for name in case.lists[-2:]:
        content = (place / name).read_bytes()
        (place / name).unlink()
        for ask in (case.source.fingerprint, case.source.read):
            with pytest.raises(SourceError, match=Path(name).stem):
                ask(case.settings(), place)
        (place / name).write_bytes(content)
