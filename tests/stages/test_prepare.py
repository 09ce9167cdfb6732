import hashlib
import io
import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from pipeline.core.errors import ConfigError, FileError, SourceError
from pipeline.core.resume import Checkpoint
from pipeline.data import packing
from pipeline.data.images import ImageError, Pixels, decode, resize
from pipeline.labels.recipe import literature
from pipeline.labels.table import read_table
from pipeline.sources import voc
from stages import prepare as stage
from stages.prepare import prepare
from stages.simulate import simulate
from tests.stages import finished_runs
from tests.trees import PICTURES

VOC = {
    "source": "voc",
    "root": "raw",
    "labels": "lists",
    "difficult": "negative",
    "classes": None,
    "size": 8,
    **PICTURES,
    "val_fraction": 0.2,
    "split_seed": 1200,
}
REMEDY = r"leave them out: prepare\.pets\.bad_images: drop; see all: spml check-data pets"
FILES = ("splits.h5", "table.h5", "images.h5", "report.json", "summary.md", "manifest.json")


@pytest.fixture
def project(tmp_path, repository):
    """A project folder: the repository's params.yaml with one more block of `prepare` and settings of `simulate`."""

    def make(block: dict, name: str = "pets", **simulation) -> Path:
        shipped = finished_runs.shipped(repository)
        sections = {"prepare": shipped["prepare"] | {name: block}, "simulate": shipped["simulate"] | {name: simulation}}
        finished_runs.write_params(tmp_path, repository, **sections)
        return tmp_path

    return make


def jpeg(colour: tuple[int, int, int], size: tuple[int, int] = (20, 16)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "JPEG")
    return buffer.getvalue()


def voc_tree(folder: Path, names: list[str], classes: list[str], truth: np.ndarray, official: np.ndarray, data) -> None:
    """Write lists and pictures in VOC layout; `data` gives the bytes of each picture."""
    lists, pictures = folder / "ImageSets" / "Main", folder / "JPEGImages"
    lists.mkdir(parents=True)
    pictures.mkdir()
    for part, number in (("train", 0), ("val", 1)):
        rows = np.flatnonzero(official == number)
        (lists / f"{part}.txt").write_text("".join(f"{names[row]}\n" for row in rows))
        for column, name in enumerate(classes):
            labels = truth[rows, column].tolist()
            text = "".join(f"{names[row]} {label:2d}\n" for row, label in zip(rows, labels, strict=True))
            (lists / f"{name}_{part}.txt").write_text(text)
    for row, name in enumerate(names):
        (pictures / f"{name}.jpg").write_bytes(data(row))


def small_tree(folder: Path) -> None:
    truth = np.array([[1, -1], [1, 1], [-1, 1], [1, -1], [-1, -1], [1, 0], [1, -1], [-1, 1]])
    official = np.array([0, 0, 0, 0, 0, 1, 1, 1])
    colours = [(30 * row, 0, 0) for row in range(7)] + [(0, 0, 0)]  # the last looks like the first
    voc_tree(
        folder, [f"img_{row}" for row in range(8)], ["cat", "dog"], truth, official, lambda row: jpeg(colours[row])
    )


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


# ---------------------------------------------------------------------------------------------- a small set, whole
def test_prepare_writes_table_pictures_and_report(project):
    root = project(VOC)
    small_tree(root / "raw")
    prepare(root, "pets")
    folder = root / "data" / "prepare" / "pets"
    assert {path.name for path in folder.iterdir()} == set(FILES)

    table = read_table(folder / "table.h5")
    assert table.paths == tuple(f"JPEGImages/img_{row}.jpg" for row in (0, 1, 2, 3, 5, 6, 7))
    assert table.truth.tolist() == [[1, 0], [1, 1], [0, 1], [1, 0], [1, 0], [1, 0], [0, 1]]
    pixels = Pixels(folder / "images.h5")
    for row, path in enumerate(table.paths):
        assert np.array_equal(pixels[[row]][0], resize(decode(root / "raw" / path, 10**8), 8))
    with h5py.File(folder / "images.h5") as file:
        assert (file.attrs["size"], file.attrs["source"]) == (8, "voc")

    report = json.loads((folder / "report.json").read_text())
    assert (report["dataset"], report["source"], report["size"]) == ("pets", "voc", 8)
    assert report["raw_sha256"] == voc.fingerprint(voc.Settings.model_validate(VOC), root)
    train, test = report["splits"]["train"], report["splits"]["test"]
    assert (train["images"], report["splits"]["val"]["images"], test["images"]) == (3, 1, 3)
    assert test["labels_per_image"] == 1 and test["images_by_labels"] == [0, 3]
    assert [row["test"] for row in report["classes"]] == [2, 1]
    assert [row["train"] + row["val"] for row in report["classes"]] == [3, 2]
    assert report["images"]["height"] == {"least": 16, "median": 16, "most": 16}
    assert report["images"]["width"] == {"least": 20, "median": 20, "most": 20}
    assert report["read"]["parts"]["train"]["skipped_without_positive"] == {"count": 1, "first": ["img_4"]}
    assert report["read"]["difficult"] == {"policy": "negative", "cells": 1}
    assert report["duplicates"]["groups"] == 1
    assert report["duplicates"]["first"] == [["JPEGImages/img_0.jpg", "JPEGImages/img_7.jpg"]]
    assert (report["duplicates"]["across_splits"], report["duplicates"]["with_different_labels"]) == (1, 1)
    assert any("different labels" in text for text in report["warnings"])

    summary = (folder / "summary.md").read_text()
    assert "| test | 3 | 1.000 | 0 | 2 | 0 |" in summary
    assert str(root) not in summary + (folder / "report.json").read_text()


def test_the_same_input_gives_the_same_bytes(project, monkeypatch):
    root = project(VOC)
    small_tree(root / "raw")
    found = []
    for workers in ("1", "5", ""):
        monkeypatch.setenv("SPML_WORKERS", workers)
        prepare(root, "pets")
        simulate(root, "pets", 0)
        found.append([digests(root / "data" / folder) for folder in ("prepare/pets", "simulate/pets-0")])
    assert found[0] == found[1] == found[2]
    assert [len(files) for files in found[0]] == [6, 4]


def test_difficult_cells_of_unknown_truth_are_counted(project):
    root = project(VOC | {"difficult": "ignore"})
    small_tree(root / "raw")
    prepare(root, "pets")
    folder = root / "data" / "prepare" / "pets"
    table = read_table(folder / "table.h5")
    assert np.argwhere(~table.scored).tolist() == [[4, 1]] and table.truth[4, 1] == 0
    report = json.loads((folder / "report.json").read_text())
    assert report["splits"]["test"]["cells_unscored"] == 1
    assert [row["unscored"] for row in report["classes"]] == [0, 1]


# ---------------------------------------------------------------------------------------------- nothing is lost
def spoil_picture(raw: Path) -> None:
    for name in ("img_2", "img_6"):
        (raw / "JPEGImages" / f"{name}.jpg").write_bytes(jpeg((1, 2, 3))[:400])


def spoil_list(raw: Path) -> None:
    (raw / "ImageSets" / "Main" / "dog_val.txt").write_text("img_5  1\n")


def spoil_all(raw: Path) -> None:
    for picture in (raw / "JPEGImages").iterdir():
        picture.write_bytes(b"no picture")


def remove_picture(raw: Path) -> None:
    (raw / "JPEGImages" / "img_7.jpg").unlink()


@pytest.mark.parametrize(
    "spoil, error, words",
    [
        (
            spoil_picture,
            ImageError,
            rf"^2 of 7 images cannot be used:\nJPEGImages/img_2\.jpg: .*\nJPEGImages/img_6\.jpg: .*\n{REMEDY}$",
        ),
        (spoil_list, SourceError, r"dog_val\.txt: 2 of the 3 ids .*: img_6, img_7$"),
        (remove_picture, SourceError, rf"^JPEGImages: images have no file: img_7\n{REMEDY}$"),
        (spoil_all, ImageError, r"^7 of 7 images cannot be used:\n(.*\n){7}see all: spml check-data pets$"),
    ],
)
def test_bad_input_leaves_earlier_outputs_alone(project, spoil, error, words):
    root = project(VOC)
    small_tree(root / "raw")
    prepare(root, "pets")
    before = digests(root / "data" / "prepare" / "pets")
    spoil(root / "raw")
    with pytest.raises(error, match=words):
        prepare(root, "pets")
    assert digests(root / "data" / "prepare" / "pets") == before


def test_bad_pictures_drop_out_where_that_is_asked(project):
    root = project(VOC | {"bad_images": "drop"}, protocol="literature")
    small_tree(root / "raw")
    spoil_picture(root / "raw")
    remove_picture(root / "raw")
    prepare(root, "pets")
    folder = root / "data" / "prepare" / "pets"
    table = read_table(folder / "table.h5")
    assert table.paths == tuple(f"JPEGImages/img_{row}.jpg" for row in (0, 1, 3, 5))
    assert table.truth.tolist() == [[1, 0], [1, 1], [1, 0], [1, 0]]
    assert Pixels(folder / "images.h5").shape == (4, 8, 8, 3)
    report = json.loads((folder / "report.json").read_text())
    assert report["unusable"]["count"] == 3
    assert [line.split(":")[0] for line in report["unusable"]["first"]] == [
        f"JPEGImages/img_{row}.jpg" for row in (2, 6, 7)
    ]
    assert any(
        text.startswith("3 images left out, since files cannot be used; a published draw")
        for text in report["warnings"]
    )
    assert "- left out: JPEGImages/img_2.jpg: " in (folder / "summary.md").read_text()
    assert not (root / ".pipeline").exists() or not any((root / ".pipeline" / "checkpoints").iterdir())


def test_of_ones_own_data_no_published_draw_is_told(project):
    block = {"source": "folder", "root": "raw", "split_folders": True, "same_name": "separate", "classes": None}
    block |= {
        "size": 8,
        "bad_images": "drop",
        "links": "inside",
        "max_pixels": 10**8,
        "parents": {},
        "exclusive": [],
        "val_fraction": 0.0,
        "test_fraction": 0.0,
        "split_seed": 0,
        "unlabelled": None,
    }
    root = project(block, protocol="given")
    for part in ("train", "val", "test"):
        for number, label in enumerate(("cat", "dog")):
            (root / "raw" / part / label).mkdir(parents=True)
            (root / "raw" / part / label / f"{part}.jpg").write_bytes(jpeg((40 * number, len(part), 0)))
    (root / "raw/train/dog/bad.jpg").write_bytes(b"no picture")
    prepare(root, "pets")
    report = json.loads((root / "data/prepare/pets/report.json").read_text())
    assert report["warnings"] == [
        "the labels are not exhaustive: what is not given is unknown; no score is against the truth; a sample labelled "
        "in full, as val and test, would tell",
        "1 image left out, since files cannot be used",
        "6 pictures of one colour throughout",
    ]


def test_what_rules_imply_is_counted_by_split(project):
    """Of a puppy in train and val, and a cat that excludes it: an animal and a dog each, and what each excludes."""
    block = {"source": "folder", "root": "raw", "split_folders": True, "same_name": "separate", "classes": None}
    block |= {"size": 8, "bad_images": "stop", "links": "inside", "max_pixels": 10**8, "val_fraction": 0.0}
    block |= {
        "test_fraction": 0.0,
        "split_seed": 0,
        "unlabelled": None,
        "parents": {"puppy": ["dog"]},
        "exclusive": [["cat", "dog"]],
    }
    root = project(block, protocol="given")
    held = {"train": {"puppy": 3, "cat": 2}, "val": {"puppy": 1, "cat": 1}, "test": {"cat": 2, "dog": 1}}
    for part, labels in held.items():
        for label, count in labels.items():
            (root / "raw" / part / label).mkdir(parents=True)
            for number in range(count):
                picture = jpeg((40 * number, len(part), len(label)))
                (root / "raw" / part / label / f"{label}{number}.jpg").write_bytes(picture)
    prepare(root, "pets")
    report = json.loads((root / "data/prepare/pets/report.json").read_text())
    # a puppy is a dog and no cat; a cat is no dog and so no puppy; a dog is no cat
    wanted = {
        split: (labels.get("puppy", 0), labels.get("puppy", 0) + 2 * labels.get("cat", 0) + labels.get("dog", 0))
        for split, labels in held.items()
    }
    assert {split: (row["made_present"], row["made_absent"]) for split, row in report["splits"].items()} == wanted
    table = [
        line for line in (root / "data/prepare/pets/summary.md").read_text().splitlines() if line.startswith("| t")
    ]
    assert table[0].startswith("| train | 5 |") and table[0].endswith("| 3 | 7 |")
    draw = root / "data/simulate/pets-0"
    simulate(root, "pets", 0)
    by_split = json.loads((draw / "report.json").read_text())["implied"]["splits"]
    assert {split: (row["made_present"], row["made_absent"]) for split, row in by_split.items()} == wanted
    lines = (draw / "summary.md").read_text().splitlines()
    assert all(f"| {split} | {present} | {absent} |" in lines for split, (present, absent) in wanted.items())


@pytest.mark.parametrize("longer", [0, 100])
def test_a_mended_picture_is_read_and_no_other_again(project, capsys, monkeypatch, longer):
    """Also one of equal size; there is one resume point at most."""
    root = project(VOC)
    small_tree(root / "raw")
    picture, scratch = root / "raw" / "JPEGImages" / "img_2.jpg", root / ".pipeline" / "checkpoints"
    whole, decoded, read = picture.read_bytes(), packing.decode_noting, []
    monkeypatch.setattr(
        packing, "decode_noting", lambda file, most, name: (read.append(name), decoded(file, most, name))[1]
    )
    for number in range(3):
        picture.write_bytes(bytes([number]) * (len(whole) + number * longer))
        with pytest.raises(ImageError, match="1 of 7"):
            prepare(root, "pets")
        told = capsys.readouterr().out.splitlines()
        assert len(told) == min(number, 1)
        assert all(line.startswith("prepare pets: going on with an interrupted run") for line in told)
        assert len(list((scratch / "prepare-pets").iterdir())) == 1
    picture.write_bytes(whole)
    prepare(root, "pets")
    assert len(read) == 7 + 3 and set(read[7:]) == {"JPEGImages/img_2.jpg"}
    assert np.array_equal(Pixels(root / "data/prepare/pets/images.h5")[[2]][0], resize(decode(picture, 10**8), 8))
    assert list(scratch.iterdir()) == []


def test_suspicious_pictures_are_told(project):
    root = project(VOC)
    truth, official = np.ones((26, 1), int), np.repeat([0, 1], 13)
    shapes = {0: (20, 15), 1: (200, 20)}
    colours = [(9 * min(row, 14), 0, 0) if row != 2 else (128, 128, 128) for row in range(26)]
    names = [f"i_{row:02d}" for row in range(26)]
    voc_tree(root / "raw", names, ["cat"], truth, official, lambda row: jpeg(colours[row], shapes.get(row, (20, 16))))
    prepare(root, "pets")
    folder = root / "data" / "prepare" / "pets"
    report = json.loads((folder / "report.json").read_text())
    told = [
        "12 pictures are equal to JPEGImages/i_14.jpg: a placeholder of pictures that are gone?",
        "1 picture with a side below 16 pixels, as placeholders have",
        "1 picture of one side more than 8 times the other, packed as a square all the same",
        "25 pictures of one colour throughout",  # all but the tiny one
        "1 picture ending in plain grey, as files do that were cut short",
    ]
    assert [text for text in report["warnings"] if " picture" in text] == told
    assert all(f"- {text}\n" in (folder / "summary.md").read_text() for text in told)
    for row, note in ((0, "tiny"), (1, "extreme shape"), (2, "ends in plain grey")):
        assert report["notes"][note] == {"count": 1, "first": [f"JPEGImages/i_{row:02d}.jpg"]}


def test_a_picture_changed_after_an_interrupt_is_read_anew(project, monkeypatch):
    root = project(VOC)
    small_tree(root / "raw")
    first, decoded = root / "raw" / "JPEGImages" / "img_0.jpg", packing.decode_noting
    old, new = (jpeg(colour).ljust(700, b"\0") for colour in ((0, 0, 0), (255, 0, 0)))  # of one size
    first.write_bytes(old)

    def interrupt(picture, most, name):
        if name.endswith("img_3.jpg"):
            raise KeyboardInterrupt
        return decoded(picture, most, name)

    with monkeypatch.context() as patch:
        patch.setattr(packing, "decode_noting", interrupt)
        patch.setenv("SPML_WORKERS", "1")
        with pytest.raises(KeyboardInterrupt):
            prepare(root, "pets")
    first.write_bytes(new)
    prepare(root, "pets")
    assert np.array_equal(Pixels(root / "data/prepare/pets/images.h5")[[0]][0], resize(decode(new, 10**8), 8))


@pytest.mark.parametrize(
    "module, function", [(stage, "write_table"), (stage.statistics, "summarize_dataset"), (stage, "write_summary")]
)
def test_what_fails_after_packing_costs_no_second_pass(project, monkeypatch, module, function):
    def failing(*_, **__):
        raise FileError("no room")

    root = project(VOC)
    small_tree(root / "raw")
    prepare(root, "pets")
    wanted = digests(root / "data" / "prepare" / "pets")
    with monkeypatch.context() as patch:
        patch.setattr(module, function, failing)
        with pytest.raises(FileError, match="no room"):
            prepare(root, "pets")
    monkeypatch.setattr(packing, "decode_noting", lambda *_: pytest.fail("a picture was decoded again"))
    prepare(root, "pets")
    assert digests(root / "data" / "prepare" / "pets") == wanted
    assert list((root / ".pipeline" / "checkpoints").iterdir()) == []


def test_a_split_that_dropping_empties_leaves_earlier_outputs_and_the_resume_point(project):
    root = project(VOC | {"bad_images": "drop"})
    small_tree(root / "raw")
    prepare(root, "pets")
    before = digests(root / "data" / "prepare" / "pets")
    for name in ("img_5", "img_6", "img_7"):
        (root / "raw" / "JPEGImages" / f"{name}.jpg").write_bytes(b"none")
    with pytest.raises(ConfigError, match=r"no image in test \(3 train, 1 val, 0 test\)"):
        prepare(root, "pets")
    assert digests(root / "data" / "prepare" / "pets") == before
    assert len(list((root / ".pipeline" / "checkpoints" / "prepare-pets").iterdir())) == 1


def test_a_dataset_that_another_process_is_packing_stays(project):
    root = project(VOC)
    small_tree(root / "raw")
    with Checkpoint(root / ".pipeline/checkpoints/prepare-pets/0123456789abcdef") as other:
        prepare(root, "pets")
        assert other.path.is_dir()


@pytest.mark.parametrize(
    "change, words", [({"source": "../voc"}, r"source: no file pipeline/sources/\.\./voc\.py"), ({"size": "8"}, "size")]
)
def test_settings_that_do_not_fit_name_their_key(project, change, words):
    root = project(VOC | change)
    with pytest.raises(ConfigError, match=rf"prepare\.pets\.{words}"):
        prepare(root, "pets")
    assert not (root / "data").exists()


def test_a_dataset_without_a_block_is_an_error(project):
    with pytest.raises(ConfigError, match="neither `default` nor `birds`"):
        prepare(project(VOC), "birds")


def test_an_empty_split_is_an_error(project):
    root = project(VOC | {"val_fraction": 0.01})
    small_tree(root / "raw")
    with pytest.raises(ConfigError, match=r"prepare\.pets: no image in val \(4 train, 0 val, 3 test\)"):
        prepare(root, "pets")
    assert not (root / "data").exists()


def test_workers_must_be_a_number(project, monkeypatch):
    root = project(VOC)
    small_tree(root / "raw")
    monkeypatch.setenv("SPML_WORKERS", "many")
    with pytest.raises(ConfigError, match="SPML_WORKERS='many'"):
        prepare(root, "pets")


def test_simulate_before_prepare_names_the_missing_table(project):
    with pytest.raises(FileError, match=r"data/prepare/pets/table\.h5"):
        simulate(project(VOC), "pets", 0)


# ---------------------------------------------------------------------------------------------- true sizes, photographs
def test_a_set_of_the_size_of_voc2012(project, repository):
    """The real 11,540 x 20 label matrix, with tiny pictures, through both stages."""
    file = repository.parent / "shared" / "data" / "labels" / "voc2012_labels.npz"
    if not file.exists():
        pytest.skip("the VOC2012 label matrix is not at hand")
    with np.load(file) as archive:
        names, truth, classes = archive["image"].tolist(), archive["labels"], archive["category"].tolist()
    assert names == sorted(names) and truth.any(axis=1).all()
    official = np.random.default_rng(0).permutation(np.repeat([0, 1], [5717, 5823]))  # the official sizes
    root = project(VOC, "voc", protocol="literature")
    colours = [(40 * number, 255 - 40 * number, 90) for number in range(6)]
    pictures = [jpeg(colour, (12, 10)) for colour in colours]
    folder = root / "raw" / "VOCdevkit" / "VOC2012"
    voc_tree(folder, names, classes, 2 * truth.astype(int) - 1, official, lambda row: pictures[row % 6])

    prepare(root, "voc")
    folder = root / "data" / "prepare" / "voc"
    table = read_table(folder / "table.h5")
    order = np.argsort(official, kind="stable")
    assert table.classes == tuple(classes)
    assert table.paths == tuple(f"JPEGImages/{names[row]}.jpg" for row in order)
    assert np.array_equal(table.truth, truth[order])
    assert [len(table.rows(name)) for name in ("train", "val", "test")] == [4574, 1143, 5823]  # METHODS 1.1
    pixels = Pixels(folder / "images.h5")
    for row in (0, 4000, 11_539):
        assert np.abs(pixels[[row]].astype(int) - colours[order[row] % 6]).max() <= 6
    report = json.loads((folder / "report.json").read_text())
    assert sum(row["train"] + row["val"] + row["test"] for row in report["classes"]) == truth.sum()
    assert report["duplicates"]["groups"] == 6

    simulate(root, "voc", 0)
    with h5py.File(root / "data" / "simulate" / "voc-0" / "observed.h5") as file:
        single = file["single"][()]
    assert single.sum(axis=1).tolist() == [1] * 11_540
    assert np.array_equal(single[:5717], literature(table.truth[:5717], 1200))
    assert np.array_equal(single[5717:], literature(table.truth[5717:], 1200))


def test_real_photographs(project, repository):
    folder = repository.parent / "shared" / "data" / "voc_photos"
    if not folder.exists():
        pytest.skip("the VOC2012 photographs are not at hand")
    root = project(VOC | {"root": str(folder), "size": 32}, "voc")
    prepare(root, "voc")
    out = root / "data" / "prepare" / "voc"
    report = json.loads((out / "report.json").read_text())
    assert [report["splits"][name]["images"] for name in ("train", "val", "test")] == [528, 132, 440]
    assert len(report["classes"]) == 20
    lists = folder / "VOCdevkit" / "VOC2012" / "ImageSets" / "Main"
    for row in report["classes"]:
        texts = [(lists / f"{row['name']}_{part}.txt").read_text() for part in ("train", "val")]
        counts = [len(re.findall(r"\s1$", text, re.M)) for text in texts]
        assert [row["train"] + row["val"], row["test"]] == counts, row["name"]
    absent = {row["name"] for row in report["classes"] if not row["train"] + row["val"] + row["test"]}
    assert absent == {"aeroplane", "train"}
    assert sum("aeroplane" in text for text in report["warnings"]) == 3
    assert max(report["images"]["height"]["most"], report["images"]["width"]["most"]) <= 320
    pixels = Pixels(out / "images.h5")
    table = read_table(out / "table.h5")
    assert pixels.shape == (1100, 32, 32, 3)
    picture = decode(folder / "VOCdevkit" / "VOC2012" / table.paths[7], 10**8)
    assert np.array_equal(pixels[[7]][0], resize(picture, 32))
    assert "| test | 440 |" in (out / "summary.md").read_text()


# ---------------------------------------------------------------------------------------------- corrections
def test_corrections_are_known_through_prepare_and_simulate(project):
    root = project(VOC)
    small_tree(root / "raw")
    prepare(root, "pets")
    before = digests(root / "data" / "prepare" / "pets")
    file = root / "corrections" / "pets.csv"
    file.parent.mkdir()
    first, last = "JPEGImages/img_0.jpg", "JPEGImages/img_7.jpg"
    file.write_text(
        f"path,class,value,who,when\n{first},dog,present,Ann,\n{first},cat,present,Bob,\n{last},cat,absent,,\n"
    )
    prepare(root, "pets")
    folder = root / "data" / "prepare" / "pets"
    table, report = read_table(folder / "table.h5"), json.loads((folder / "report.json").read_text())
    assert table.truth[0].tolist() == [1, 1] and table.truth[6].tolist() == [0, 1]
    counts = {key: report["corrections"][key] for key in ("agree", "add", "overturn", "people")}
    assert counts == {"agree": 2, "add": 0, "overturn": 1, "people": {"Ann": 1, "Bob": 1, "nobody named": 1}}
    summary = (folder / "summary.md").read_text()
    assert (
        "answers for 3 labels, by Ann 1, Bob 1, nobody named 1." in summary and "| dog | train | 0 | 0 | 1 |" in summary
    )

    simulate(root, "pets", 0)
    with h5py.File(root / "data/simulate/pets-0/observed.h5") as stored:
        single = stored["single"][()]
        assert single[0].tolist() == [1, 1] and single[6].tolist() == [-1, 1]
    assert "## Known by corrections" in (root / "data/simulate/pets-0/summary.md").read_text()

    file.write_text("path,class,value,who,when\n")
    prepare(root, "pets")
    assert digests(folder) == before  # the data were never touched, and without an answer nothing is told of them

    file.write_text(f"path,class,value\n{first},bird,present\n")
    with pytest.raises(SourceError, match=r"corrections/pets\.csv: classes are not in the dataset .*: line 2 'bird'"):
        prepare(root, "pets")
