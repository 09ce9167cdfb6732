"""`spml init`: what it makes of a folder, and that the preflight takes the profile as it is."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline import cli, config, own_profile
from pipeline.config import ConfigError
from stages import check, profile
from tests import copies

NAMES = [f"{number}.jpg" for number in range(12)]


def pictures(folder: Path, names: list[str]) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"picture")
    return folder


def classes(folder: Path) -> Path:
    """One folder for each class."""
    return pictures(folder, [f"{('cat', 'dog')[number % 2]}/{number}.jpg" for number in range(12)])


def table(folder: Path, *lines: str, name: str = "labels.csv") -> Path:
    pictures(folder, NAMES)
    (folder / name).write_text("\n".join(lines))
    return folder


def listed(folder: Path, mark: str = ",") -> Path:
    tags = ("cat|dog", "dog")
    return table(folder, f"file{mark}tags", *(f"{name}{mark}{tags[i % 2]}" for i, name in enumerate(NAMES)))


def ticked(folder: Path, *cells: str, split: bool = False) -> Path:
    """A table with a column for each of two classes, whose rows hold these cells in turn."""
    rows = [f"{name};{cells[number % len(cells)]}" for number, name in enumerate(NAMES)]
    parts = ["train", "Val", "test"]
    more = [f";{parts[number % 3]}" if split else "" for number in range(12)]
    head = "image;cat;dog" + (";part" if split else "")
    return table(folder, head, *(row + part for row, part in zip(rows, more, strict=True)))


def objects(folder: Path, lines: bool) -> Path:
    pictures(folder, NAMES)
    rows = [{"img": name, "labels": [("cat", "dog")[number % 2]], "absent": []} for number, name in enumerate(NAMES)]
    (folder / ("x.jsonl" if lines else "x.json")).write_text(
        "\n".join(map(json.dumps, rows)) if lines else json.dumps(rows)
    )
    return folder


COLUMNS = {"kind": "columns", "minus_one": "absent"}


@pytest.mark.parametrize(
    "make, exhaustive, wanted",
    [
        (classes, False, {"source": "folder", "split_folders": False}),
        (
            lambda folder: pictures(folder, [f"{part}/{kind}/1.jpg" for part in ("train", "Test") for kind in "ab"]),
            False,
            {"source": "folder", "split_folders": True},
        ),
        (
            listed,
            False,
            {
                **{"source": "csv", "file": "labels.csv", "delimiter": "comma", "path_column": "file"},
                **{"split_column": None, "labels": {"kind": "names", "column": "tags", "separator": "|"}},
            },
        ),
        (lambda folder: listed(folder, "\t"), True, {"delimiter": "tab", "exhaustive": True}),
        # 1 and 0 alone: what is not ticked is not known, unless the labels are exhaustive
        (
            lambda folder: ticked(folder, "1;0", "0;1"),
            False,
            {"delimiter": "semicolon", "labels": COLUMNS | {"zero": "unknown", "empty": "unknown"}},
        ),
        (
            lambda folder: ticked(folder, "1;0", "0;1"),
            True,
            {"labels": COLUMNS | {"zero": "absent", "empty": "unknown"}},
        ),
        # 1 and blank
        (lambda folder: ticked(folder, "1;", ";1"), True, {"labels": COLUMNS | {"zero": "absent", "empty": "absent"}}),
        # a blank or comma within a name parts nothing
        (
            lambda folder: table(
                folder, "f;k", *(f"{name};{('polar bear', 'dog, small')[i % 2]}" for i, name in enumerate(NAMES))
            ),
            False,
            {"labels": {"kind": "names", "column": "k", "separator": ";"}},
        ),
        (
            lambda folder: table(
                folder, "f,k", *(f"{name},{('dog; small', 'cat')[i % 2]}" for i, name in enumerate(NAMES))
            ),
            False,
            {"labels": {"kind": "names", "column": "k", "separator": "|"}},
        ),
        # names parted by the table's own mark, in quotes
        (
            lambda folder: table(
                folder, "f,k", *(f'{name},"{("dog,cat", "cat")[i % 2]}"' for i, name in enumerate(NAMES))
            ),
            False,
            {"labels": {"kind": "names", "column": "k", "separator": ","}},
        ),
        # 0 beside -1 is unknown, and beside nothing it is absent
        (
            lambda folder: ticked(folder, "1;0", "-1;1"),
            False,
            {"labels": COLUMNS | {"zero": "unknown", "empty": "unknown"}},
        ),
        (
            lambda folder: ticked(folder, "1;", "0;1", split=True),
            False,
            {"labels": COLUMNS | {"zero": "absent", "empty": "unknown"}, "split_column": "part"},
        ),
        (
            lambda folder: objects(folder, lines=False),
            False,
            {"source": "json", "path_key": "img", "labels_key": "labels", "absent_key": "absent", "split_key": None},
        ),
        (lambda folder: objects(folder, lines=True), False, {"source": "json", "file": "x.jsonl"}),
    ],
)
def test_what_lies_in_the_folder_decides_the_source(tmp_path: Path, make: Any, exhaustive: bool, wanted: dict) -> None:
    found = own_profile.find(make(tmp_path), exhaustive)
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    "make, exhaustive, words",
    [
        (lambda folder: folder / "no", False, "no: no such folder"),
        (lambda folder: folder, False, "holds no picture"),
        (lambda folder: pictures(folder, NAMES), False, "12 pictures, but neither class folders nor"),
        (classes, True, "one label an image, which is not exhaustive"),
        (
            lambda folder: table(listed(folder), "a,b", name="b.csv"),
            False,
            "which of b.csv, labels.csv holds the labels",
        ),
        (
            lambda folder: table(folder, "file,a,b", "0.jpg,x,y"),
            False,
            "labels.csv: expected one column .* has file, a, b",
        ),
        (lambda folder: table(folder, "file", "0.jpg"), False, "labels.csv: expected one column"),
        (lambda folder: table(folder, "{", name="a.json"), False, "a.json: neither a JSON list nor JSON lines"),
        (lambda folder: table(folder, '[{"a": 1}]', name="a.json"), False, "a.json: expected one key .* has a"),
    ],
)
def test_what_is_not_understood_is_said(tmp_path: Path, make: Any, exhaustive: bool, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        own_profile.find(make(tmp_path), exhaustive)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    root = tmp_path_factory.mktemp("original")
    copies.project(repository, root)
    return root


@pytest.mark.parametrize(
    "make, words",
    [
        (classes, []),
        (listed, []),
        (listed, ["--exhaustive"]),
        (lambda folder: objects(folder, lines=True), []),
    ],
)
def test_the_preflight_takes_the_profile_as_it_is(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, make: Any, words: list[str]
) -> None:
    project = Path(shutil.copytree(original, tmp_path / "project"))
    folder = make(tmp_path / "My photos, 2026")
    monkeypatch.chdir(project)
    assert cli.main(["init", str(folder), *words]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == "next: make repro PROFILE=my_photos_2026"
    profile.apply(project, "my_photos_2026")
    assert check.check(project) == ([], [])
    params = config.load(project / "params.yaml")
    assert params.settings("prepare", "my_photos_2026")["root"] == str(folder)
    assert params.settings("simulate", "my_photos_2026").protocol == ("seeded" if words else "given")
    assert ("full" in params.grid.linear_init) == bool(words)
    # nothing is overwritten, and a name that cannot be one is refused
    before = (project / "profiles" / "my_photos_2026.yaml").read_text()
    assert cli.main(["init", str(folder)]) == 1
    assert "is there; give another name" in capsys.readouterr().err
    assert (project / "profiles" / "my_photos_2026.yaml").read_text() == before
    for name in ("2nd", "digits", "null"):
        assert cli.main(["init", str(folder), "--name", name]) == 1
        assert f"{name}: a dataset's name is" in capsys.readouterr().err


def test_the_text_is_yaml_whatever_the_folder_is_called(tmp_path: Path) -> None:
    block = own_profile.find(classes(tmp_path), exhaustive=False)
    for root in ("/a b", "C: # é", '"', "- x", "{}"):
        text = own_profile.write("mine", root, block, exhaustive=False)
        assert YAML(typ="safe", pure=True).load(text)["prepare"]["mine"]["root"] == root
