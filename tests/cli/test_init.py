"""`spml init`: what it makes of a folder, and that the preflight takes the profile as it is."""

import itertools
import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.cli import init, main, recognise
from pipeline.cli.label_files import Declared, Named
from pipeline.config import preflight, profiles
from pipeline.config.graph import LastRun
from pipeline.core.errors import ConfigError, SourceError
from pipeline.labels.table import Table
from pipeline.networks import timm_backbone
from tests.trees import write_files

NAMES = [f"{number}.jpg" for number in range(12)]


@pytest.fixture
def project(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the verb reads of the project; it is the working folder."""
    root = tmp_path / "project"
    shutil.copytree(repository / "profiles", root / "profiles")
    shutil.copytree(repository / "params", root / "params")
    shutil.copy(repository / "params.yaml", root / "params.yaml")
    monkeypatch.chdir(root)
    return root


def pictures(folder: Path, names: list[str]) -> Path:
    write_files(folder, *names, content=b"picture")
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


def entries(folder: Path, labels: Callable[[int], dict]) -> Path:
    """A JSON list with these keys beside the path."""
    return table(folder, json.dumps([{"img": name} | labels(i) for i, name in enumerate(NAMES)]), name="x.json")


def flat(block: dict[str, Any]) -> dict[str, Any]:
    """A block with the keys of its `content` beside the others."""
    return block | block.get("content", {})


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
        # a column called so holds groups, also where its values are numbers; of 1 and 0 it is a class
        (
            lambda folder: table(folder, "f,k,Patient_ID", *(f"{n},cat,{i // 3}7" for i, n in enumerate(NAMES))),
            False,
            {"group_column": "Patient_ID", "labels": {"kind": "names", "column": "k", "separator": ";"}},
        ),
        (
            lambda folder: table(folder, "f,product,cat", *(f"{n},{i % 2},1" for i, n in enumerate(NAMES))),
            False,
            {"group_column": None, "labels": COLUMNS | {"zero": "unknown", "empty": "unknown"}},
        ),
        # where nothing else could hold the labels, it does
        (
            lambda folder: table(folder, "f,product,id", *(f"{n},{'ab'[i % 2]},{i}" for i, n in enumerate(NAMES))),
            False,
            {"group_column": None, "labels": {"kind": "names", "column": "product", "separator": ";"}},
        ),
        (
            lambda folder: entries(folder, lambda i: {"tags": ["cat"], "video": i // 3}),
            False,
            {"labels_key": "tags", "group_key": "video"},
        ),
        (
            lambda folder: entries(folder, lambda i: {"product": "ab"[i % 2]}),
            False,
            {"labels_key": "product", "group_key": None},
        ),
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
        # a blank within a name parts nothing
        (
            lambda folder: table(
                folder, "f;k", *(f"{name};{('polar bear', 'brown bear')[i % 2]}" for i, name in enumerate(NAMES))
            ),
            False,
            {"labels": {"kind": "names", "column": "k", "separator": ";"}},
        ),
        # names parted by the table's own mark, in quotes
        (
            lambda folder: table(
                folder, "f,k", *(f'{name},"{("dog,cat", "cat")[i % 2]}"' for i, name in enumerate(NAMES))
            ),
            False,
            {"labels": {"kind": "names", "column": "k", "separator": ","}},
        ),
        # 0 beside nothing is absent
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
        # one name in place of a list; other lists and texts are no labels
        (
            lambda folder: entries(folder, lambda i: {"label": "cat", "box": [1, 2], "note": f"n{i}", "set": "val"}),
            False,
            {"path_key": "img", "labels_key": "label", "absent_key": None, "split_key": "set"},
        ),
        (lambda folder: entries(folder, lambda i: {"kind": "cat"}), False, {"labels_key": "kind"}),
        # the delimiter is the one that parts all rows alike, whatever marks names hold
        (
            lambda folder: table(folder, 'f;"a, b";"c, d"', *(f"{name};1;0" for name in NAMES)),
            False,
            {"delimiter": "semicolon", "path_column": "f"},
        ),
        # harmless forms of a table
        (
            lambda folder: table(folder, "\ufefff , k ", "", *(f'{name} ,  "ca\u2028t" ' for name in NAMES), ","),
            False,
            {"path_column": "f", "labels": {"kind": "names", "column": "k", "separator": ";"}},
        ),
        # a column called as labels are is the one, whatever others there are
        (
            lambda folder: table(
                folder,
                "id,path,Labels,photographer,note,split",
                *(f"{i},{name},cat,me,,{('train', 'dev', 'test')[i % 3]}" for i, name in enumerate(NAMES)),
            ),
            False,
            {
                **{"path_column": "path", "split_column": "split"},
                "labels": {"kind": "names", "column": "Labels", "separator": ";"},
            },
        ),
        # and labels is called so most exactly
        (
            lambda folder: table(folder, "f,tags,labels", *(f"{name},sunny,cat" for name in NAMES)),
            False,
            {"labels": {"kind": "names", "column": "labels", "separator": ";"}},
        ),
        (
            lambda folder: entries(folder, lambda i: {"tags": ["sunny"], "labels": ["cat"]}),
            False,
            {"labels_key": "labels"},
        ),
        # a class called as a split is
        (
            lambda folder: table(folder, "f,cat,Partition", *(f"{n},{i % 2},{1 - i % 2}" for i, n in enumerate(NAMES))),
            False,
            {"split_column": None, "labels": COLUMNS | {"zero": "unknown", "empty": "unknown"}},
        ),
        (
            lambda folder: table(folder, "f,subset", *(f"{n},{('1.0', '')[i % 2]}" for i, n in enumerate(NAMES))),
            False,
            {"split_column": None, "labels": COLUMNS | {"zero": "absent", "empty": "unknown"}},
        ),
        *(
            (
                lambda folder, marks=marks: entries(folder, lambda i: {"kind": "cat", "subset": marks[i % 2]}),
                False,
                {"labels_key": "kind", "split_key": None},
            )
            for marks in ((0, 1), ("1", ""), (True, None), (-1, 1.0))
        ),
        # no row says its split yet
        (
            lambda folder: table(folder, "f,split,k", *(f"{name},,cat" for name in NAMES)),
            False,
            {"split_column": "split"},
        ),
        # a row's split may be blank; hidden files are none
        (
            lambda folder: table(
                table(folder, "\0", name="._x.csv"),
                "f,s,k",
                *(f"{n},{('', 'test')[i % 2]},cat" for i, n in enumerate(NAMES)),
            ),
            False,
            {"split_column": "s", "labels": {"kind": "names", "column": "k", "separator": ";"}},
        ),
    ],
)
def test_what_lies_in_the_folder_decides_the_source(tmp_path: Path, make: Any, exhaustive: bool, wanted: dict) -> None:
    found = flat(recognise.recognise(make(tmp_path), exhaustive))
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    "make, exhaustive, words",
    [
        (lambda folder: folder / "no", False, "no: no such folder or file"),
        (
            lambda folder: table(folder, "cat", name="x.txt") / "x.txt",
            False,
            r"x.txt: not a file of labels \(.csv, .tsv",
        ),
        (lambda folder: folder, False, "holds no picture"),
        (lambda folder: pictures(folder, NAMES), False, "12 pictures, but neither class folders nor"),
        (lambda folder: pictures(folder, ["1.jpg"]), False, "1 picture, but neither class folders nor"),
        (classes, True, "one label an image, which is not exhaustive"),
        (
            lambda folder: table(listed(folder), "a,b", name="b.csv"),
            False,
            "which of b.csv, labels.csv holds the labels. name it: spml init .*/b.csv$",
        ),
        (  # `$(...)` and quotes, as a shell takes them
            lambda folder: table(listed(folder / "$(id) it's"), "a,b", name="b.csv"),
            False,
            r"""name it: spml init '.*/\$\(id\) it'"'"'s/b.csv'$""",
        ),
        (
            lambda folder: table(
                folder, "file,category,dog,sofa,id", *(f"{n},indoor,{i % 2},,{i}" for i, n in enumerate(NAMES))
            ),
            False,
            "1, 0, .* and empty in dog, sofa; something else in category, id. Name them with --path, --labels, "
            "--split and --group, delete the columns that are none of these, or write a profile",
        ),
        (  # whether flags are classes or splits nobody knows
            lambda folder: table(folder, "f,labels,split", *(f"{n},cat,{i % 2}" for i, n in enumerate(NAMES))),
            False,
            "1, 0, .* and empty in split; something else in labels. Name them",
        ),
        (
            lambda folder: table(folder, "f,labels,burst,video", *(f"{n},cat,a{i},b{i}" for i, n in enumerate(NAMES))),
            False,
            "groups in burst, video; something else in labels. Name them",
        ),
        (
            lambda folder: table(folder, "f,tag,class", *(f"{n},cat,dog" for n in NAMES)),
            False,
            "something else in tag, class. Name them with",
        ),
        (
            lambda folder: table(folder, "f,g,labels", *(f"{n},{n},dog" for n in NAMES)),
            False,
            "picture files in f, g; .*. Name them with --path",
        ),
        (
            lambda folder: table(folder, "file,a,b,c", "0.jpg,x,1,test"),
            False,
            "labels.csv: expected .* files in file; train, .* in c; 1, 0, .* in b; something else in a. Name",
        ),
        (lambda folder: table(folder, "file", "0.jpg"), False, "labels.csv: expected are one column"),
        (lambda folder: table(folder, "file|k", "0.jpg|cat"), False, r"files in none; .* something else in file\|k"),
        (lambda folder: table(folder, "f,k"), False, "labels.csv: no image in it"),
        (lambda folder: table(folder, *(f"{name},cat" for name in NAMES)), False, "first line must .* holds 0.jpg"),
        (lambda folder: table(folder, "{", name="a.json"), False, "a.json: not JSON, as a list or by line: line 1: "),
        (lambda folder: table(folder, '["a"]', name="a.json"), False, "a.json: no object in it"),
        (
            lambda folder: table(folder, '[{"a": 1, "b": "x", "c": "test"}]', name="a.json"),
            False,
            "a.json: expected .* files under none; train, .* under c; lists of names under none; text under b",
        ),
        (lambda folder: entries(folder, lambda i: {"a": ["x"], "b": ["y"]}), False, "lists of names under a, b; text"),
        (lambda folder: pictures(folder, ["all/a/1.jpg", "all/b/1.jpg"]), False, r"lie in all,.* spml init .*/all$"),
        (lambda folder: pictures(folder, ["a/1.JXL"]), False, "holds no picture .*; not read: a/1.JXL"),
    ],
)
def test_what_is_not_understood_is_said(tmp_path: Path, make: Any, exhaustive: bool, words: str) -> None:
    with pytest.raises((ConfigError, SourceError), match=words):
        recognise.recognise(make(tmp_path), exhaustive)


@pytest.mark.parametrize(
    "make, named, wanted",
    [
        (
            lambda folder: table(folder, "f,g,labels", *(f"{n},{n},dog" for n in NAMES)),
            Named(path="g"),
            {"path_column": "g", "labels": {"kind": "names", "column": "labels", "separator": ";"}},
        ),
        (
            lambda folder: table(folder, "f,category,dog,id", *(f"{n},in,{i % 2},{i}" for i, n in enumerate(NAMES))),
            Named(labels="category"),
            {"path_column": "f", "labels": {"kind": "names", "column": "category", "separator": ";"}},
        ),
        (  # the user knows that flags of this name are no split
            lambda folder: table(folder, "f,labels,split", *(f"{n},cat,{i % 2}" for i, n in enumerate(NAMES))),
            Named(labels="labels"),
            {"labels": {"kind": "names", "column": "labels", "separator": ";"}, "split_column": None},
        ),
        (
            lambda folder: table(
                folder, "f,k,a,b", *(f"{n},cat,train,{('val', 'test')[i % 2]}" for i, n in enumerate(NAMES))
            ),
            Named(labels="k", split="b"),
            {"path_column": "f", "split_column": "b"},
        ),
        (
            lambda folder: entries(folder, lambda i: {"a": ["x"], "b": ["y"], "absent": ["z"]}),
            Named(labels="b"),
            {"path_key": "img", "labels_key": "b", "absent_key": "absent", "split_key": None},
        ),
        (
            lambda folder: entries(folder, lambda i: {"thumb": "t.jpg", "k": "x", "part": "dev", "s": "test"}),
            Named("img", "k", "part"),
            {"path_key": "img", "labels_key": "k", "split_key": "part"},
        ),
    ],
)
def test_what_the_user_names_is_not_guessed(tmp_path: Path, make: Any, named: Named, wanted: dict) -> None:
    block = flat(recognise.recognise(make(tmp_path), False, named))
    assert {key: block[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    "make, named, words",
    [
        (listed, Named(split="fold"), r"^--split: labels.csv has no column 'fold'; there are file, tags$"),
        (
            lambda f: objects(f, lines=True),
            Named(path="p"),
            "^--path: x.jsonl has no key 'p'; there are img, labels, ab",
        ),
        (
            classes,
            Named(labels="k"),
            "no .csv or .json of labels whose columns or keys --path, --labels, --split or --group",
        ),
        *(
            (
                make,
                Named(**{one: name, other: name}),
                rf"^--{other}: {name} is what --{one} names, too; a {what} says one",
            )
            for make, name, what in ((listed, "tags", "column"), (partial(objects, lines=True), "labels", "key"))
            for one, other in itertools.combinations(vars(Named()), 2)
        ),
    ],
)
def test_names_that_the_file_lacks_are_an_error(tmp_path: Path, make: Any, named: Named, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        recognise.recognise(make(tmp_path), False, named)


@pytest.mark.parametrize(
    "head, cells, words",
    [
        (
            "f,label,patient",
            "cat,p{}",
            r"label of labels.csv is called as labels are; if it holds groups, say by --labels",
        ),
        ("f,Category,note", "cat,p{}", "Category of labels.csv is called as labels are"),
        (
            "f,tags,part",
            "cat,train",
            r"part of labels.csv holds train, val and test; name the column of groups, or leave",
        ),
        ("f,cat,dog", "1,0", "dog of labels.csv holds 1 and 0, as the column of a class does"),
        ("f,tags,cat", "dog,['a{}']", "cat of labels.csv holds lists"),
    ],
)
def test_what_holds_something_else_holds_no_groups(tmp_path: Path, head: str, cells: str, words: str) -> None:
    """It would be lost, and images of one label were never in two splits."""
    folder = table(tmp_path, head, *(f"{name},{cells.format(number // 2)}" for number, name in enumerate(NAMES)))
    group = re.match(r"\w+", words)[0]  # pyright: ignore
    with pytest.raises(ConfigError, match=f"^--group: {words}"):
        recognise.recognise(folder, False, Named(group=group))


def test_groups_may_be_called_as_labels_are_where_these_are_named_too(tmp_path: Path) -> None:
    folder = table(tmp_path, "f,class,what", *(f"{name},k{number // 2},cat" for number, name in enumerate(NAMES)))
    block = recognise.recognise(folder, False, Named(group="class", labels="what"))
    assert (block["group_column"], block["labels"]["column"]) == ("class", "what")


@pytest.mark.parametrize("key", ["labels", "absent", "label"])
def test_a_key_of_labels_is_none_of_groups(tmp_path: Path, key: str) -> None:
    entries = [{"img": name, "tag": "cat", key: "dog"} for name in NAMES]
    pictures(tmp_path, NAMES)
    (tmp_path / "x.json").write_text(json.dumps(entries))
    with pytest.raises(ConfigError, match=f"^--group: {key} of x.json is called as labels are"):
        recognise.recognise(tmp_path, False, Named(group=key))


def test_columns_are_named_on_the_command_line(project: Path, tmp_path: Path, capsys: Any) -> None:
    rows = (f"{name},{name},cat,{('train', 'val', 'test')[i % 3]},1" for i, name in enumerate(NAMES))
    folder = table(tmp_path / "photos", "f,g,what,part,n", *rows)
    assert main.main(["init", str(folder), "--path", "g", "--labels", "what", "--split", "part"]) == 0
    out = capsys.readouterr().out
    assert "\nfile: labels.csv, delimiter: comma, path: g, labels: what (separator ;), split: part\n" in out
    assert "\ncolumns not read: f, n\n" in out


def found_in(folder: Path, exhaustive: bool = False) -> tuple[dict[str, Any], Table]:
    """What is found in a folder, and the table that is read of it."""
    block = recognise.recognise(folder, exhaustive)
    return block, init.read("mine", str(folder), block).table


# ---------------------------------------------------------------------------------------------- what is told of it
def described(place: Path, exhaustive: bool = False, declared: Declared = Declared()) -> list[str]:  # noqa: B008
    """What is said of a folder, as it is printed."""
    block = recognise.recognise(place, exhaustive, declared=declared)
    data = init.read("mine", str(place.parent if place.is_file() else place), block)
    return [*init.describe(block, data), *(f"warning: {warning}" for warning in init.find_warnings(block, data))]


def test_images_classes_labels_and_splits_are_told(tmp_path: Path) -> None:
    tags = ["cat;dog", "", "dog", "fox;dog;cat", "dog", "dog"]  # twice each
    rows = [f"{name},{tags[i % 6]},{'test' if i == 4 else ''}" for i, name in enumerate(NAMES)]
    assert described(table(tmp_path, "f,k,s", *rows)) == [
        "file: labels.csv, delimiter: comma, path: f, labels: k (separator ;), split: s",
        "12 images; 3 classes: cat (4), dog (10), fox (2)",
        "labels an image: 0 to 3, 1.33 on average",
        "images without a label: 2 (1.jpg, 7.jpg)",
        "splits: 9 train, 2 val, 1 test; drawn: val",
        "warning: val has no image of fox",
        "warning: test has no image of cat, fox",
    ]


def test_the_source_warns_before_anything_is_written(tmp_path: Path) -> None:
    pictures(classes(tmp_path), ["7/1.jpg", "7/2.jpg", "7/3.jpg", "a.jpg", "b.jxl"])
    assert described(tmp_path) == [
        "15 images; 3 classes: 7 (3), cat (6), dog (6)",
        "labels an image: 1",
        "3 file names lie in several class folders, with files of equal size; if each is one photo: same_name: merge",
        "splits: 9 train, 3 val, 3 test; drawn: val and test",
        "warning: classes are called 7: if these numbers stand for names, write the names",
        "warning: 1 picture of endings that are not read was left out: b.jxl",
        "warning: 1 picture lies in no class's folder and was left out: a.jpg",
    ]


def test_labels_known_to_be_absent_and_pictures_in_no_row_are_counted(tmp_path: Path) -> None:
    pictures(ticked(tmp_path, "1;-1", "0;1"), ["new.jpg"])
    declared = Declared(zero="unknown", minus_one="absent")
    lines = described(tmp_path, declared=declared)
    assert lines[1:4] == [
        "12 images; 2 classes: cat (6), dog (6)",
        "labels an image: 1",
        "labels known to be absent: 6",
    ]
    assert lines[-1] == "warning: 1 picture is in no row: new.jpg"
    assert not [
        line for line in described(tmp_path, True, Declared(zero="absent", minus_one="absent")) if "absent:" in line
    ]


def test_groups_that_were_recognised_are_counted(tmp_path: Path) -> None:
    rows = [f"{name},{('cat', 'dog')[i % 2]},{('', f'v{i // 2}')[i > 3]}" for i, name in enumerate(NAMES)]
    lines = described(table(tmp_path, "f,k,video", *rows))
    assert lines[0].endswith("split: none, group: video")
    assert lines[-1] == "groups of several images: 4; the largest, v2, has 2; no split cuts one"


def test_words_for_splits_are_those_in_use(tmp_path: Path) -> None:
    words = ["Training", "dev", "testing", "TRAIN", "valid", "Test"]
    rows = [f"{name},{('a', 'b')[i // 3 % 2]},{words[i % 6]}" for i, name in enumerate(NAMES)]
    assert "splits: 4 train, 4 val, 4 test" in described(table(tmp_path, "f,k,part", *rows))


def test_columns_that_are_not_read_are_told(tmp_path: Path) -> None:
    rows = [f"{i},{name},{('cat', 'dog')[i % 2]},me" for i, name in enumerate(NAMES)]
    lines = described(table(tmp_path, "id,path,tags,photographer", *rows))
    assert lines[1] == "columns not read: id, photographer"
    lines = described(entries(tmp_path / "more", lambda i: {"tags": ["cat"], "by": "me", "id": i}))
    assert lines[1] == "keys not read: by, id"


def test_a_file_is_told_from_others_beside_it(project: Path, tmp_path: Path, capsys: Any) -> None:
    folder = listed(table(tmp_path / "two lists", "f,k", *(f"{name},fox" for name in NAMES), name="b.csv"))
    assert main.main(["init", str(folder)]) == 1
    assert "which of b.csv, labels.csv" in capsys.readouterr().err
    assert main.main(["init", str(folder / "b.csv")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("profiles/two_lists.yaml: source csv") and "fox (12)" in said
    written = YAML(typ="safe", pure=True).load(Path("profiles/two_lists.yaml").read_text())
    assert written["prepare"]["two_lists"]["root"] == str(folder)
    assert written["prepare"]["two_lists"]["file"] == "b.csv"
    assert main.main(["init", str(folder / "labels.csv"), "--name", "second"]) == 0
    assert "cat (6), dog (12)" in capsys.readouterr().out


def test_a_link_to_a_file_of_labels_lies_where_the_link_lies(project: Path, tmp_path: Path, capsys: Any) -> None:
    folder = pictures(tmp_path / "photos", NAMES)
    lists = table(tmp_path / "lists", "f,k", *(f"{name},fox" for name in NAMES), name="v2.csv")
    (folder / "labels.csv").symlink_to(lists / "v2.csv")
    assert main.main(["init", str(folder / "labels.csv")]) == 0
    assert capsys.readouterr().out.startswith("profiles/photos.yaml: source csv")
    block = YAML(typ="safe", pure=True).load(Path("profiles/photos.yaml").read_text())["prepare"]["photos"]
    assert (block["root"], block["file"]) == (str(folder), "labels.csv")


def test_a_key_called_as_a_split_is_but_not_read_is_doubted(tmp_path: Path) -> None:
    folder = entries(tmp_path, lambda i: {"labels": ["cat"], "Split": i % 2, "n": 1})
    assert "warning: Split is not read: a split is written as train, val or test" in described(folder)
    folder = entries(tmp_path, lambda i: {"labels": ["cat"], "Split": i % 2, "s": ("train", "val", "test")[i % 3]})
    assert not [line for line in described(folder) if "Split is" in line]


def measured(folder: Path, test: str) -> Path:
    """A table of ticks in train, and of all that applies in val."""
    cells = {"train": ["1;", ";1"], "val": ["1;0", "0;1"], "test": [test]}
    parts = ["train", "val", "test"]
    rows = [
        f"{name};{cells[parts[i % 3]][i // 3 % len(cells[parts[i % 3]])]};{parts[i % 3]}"
        for i, name in enumerate(NAMES)
    ]
    return table(folder, "image;cat;dog;part", *rows)


def test_val_that_is_labelled_in_full_chooses_by_its_truth(project: Path, tmp_path: Path, capsys: Any) -> None:
    sentence = "val is labelled in full: epochs and learning rates are chosen by its truth (select: clean)"
    assert main.main(["init", str(measured(tmp_path / "mine", test="1;"))]) == 0
    assert sentence in capsys.readouterr().out.splitlines()
    params = profiles.params(project, "mine")
    assert params.settings("linear_init", "mine").select == "clean"
    assert (
        params.settings("linear_init", "mine").search.extend > 0
    )  # where the best rate of unseen data lies, nobody knows
    assert params.settings("simulate", "mine").protocol == "given" and "full" not in params.grid.linear_init
    assert preflight.check(project, params, LastRun(project)) == []
    for make in (listed, lambda folder: measured(folder, test="1;0")):
        lines = described(make(tmp_path / make.__name__))
        assert (sentence in lines) == (make is not listed)
    block, labels = found_in(listed(tmp_path / "ticks"))
    assert "select: auto" in init.format_profile("ticks", "/a", block, labels)
    block, labels = found_in(listed(tmp_path / "all"), exhaustive=True)
    assert "select: clean" in init.format_profile("all", "/a", block, labels)


def test_images_are_scored_by_places_where_there_is_room(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """12 images of 1280 features at 49 places, two bytes each, twice: without truth `ridge` and `reckon` are there."""
    assert init.MAP == timm_backbone.map_shape(init.MODEL, init.SIZE)
    need = 12 * 1280 * 49 * 2 * 2
    for name, free in (("roomy", need), ("cramped", need - 1)):
        monkeypatch.setattr(init.shutil, "disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert main.main(["init", str(listed(tmp_path / name))]) == 0
        out = capsys.readouterr().out
        places = name == "roomy"
        assert ("warning: features.cramped.places: takes 0.00301 GB" in out) == (not places)
        params = profiles.params(project, name)
        features = params.settings("features", name)
        assert (features.places, features.pools, features.dtype) == (places, ["sqrt"], "float16")
        assert params.settings("beliefs", name).sharpness == (0.2 if places else None)
        tuned = params.settings("finetune", name)
        for head in (params.settings("linear_init", name).head, tuned.head):
            assert head.kind == ("places" if places else "linear")
        assert tuned.schedule == "falling" and tuned.readout.sharpness == (0.2 if places else None)
        assert {"ridge", "reckon"} <= set(params.grid.linear_init)
        monkeypatch.undo()
        monkeypatch.chdir(project)
        assert preflight.check(project, params, LastRun(project)) == []


def test_exhaustive_labels_with_gaps_are_doubted(tmp_path: Path) -> None:
    words = "warning: exhaustive, but 6 of 24 cells are neither present nor absent: give 0 for absent, or set "
    assert words + "exhaustive: false" in described(ticked(tmp_path, "1;0", ";1"), exhaustive=True)
    assert not [line for line in described(tmp_path) if "neither" in line]
    assert not [line for line in described(ticked(tmp_path, "1;0", "0;1"), exhaustive=True) if "neither" in line]


def test_names_of_classes_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    tags = ["sheep", "sheep", "sheep", "Cat", "cat", "cat", "cat", "person", "person", "person", "bird", "bird"]
    with pytest.raises(SourceError, match=r"look alike .*: 'Cat' and 'cat' \(line 5 and line 6\)"):
        described(table(tmp_path, "f,k", *(f"{name},{tag}" for name, tag in zip(NAMES, tags, strict=True))))


def test_the_same_name_in_several_folders_is_told_where_it_may_be_one_photo(tmp_path: Path) -> None:
    pictures(
        tmp_path, ["cat/a.jpg", "dog/a.jpg", *(f"{kind}/{kind}{i}.jpg" for kind in ("cat", "dog") for i in range(4))]
    )
    line = "1 file name lies in several class folders, with files of equal size; if each is one photo: same_name: merge"
    assert line in described(tmp_path)
    (tmp_path / "dog/a.jpg").write_bytes(b"another picture")
    assert not [line for line in described(tmp_path) if "several" in line]


def test_of_many_classes_twenty_are_named(tmp_path: Path) -> None:
    pictures(tmp_path, [f"c{kind:02d}/{number}.jpg" for kind in range(25) for number in range(3)])
    (line,) = (line for line in described(tmp_path) if "classes" in line)
    assert line.startswith("75 images; 25 classes: c00 (3), ") and line.endswith(", c19 (3) and 5 more")


@pytest.mark.parametrize(
    "make, words",
    [
        # a column of ids, or of marks of nobody knows what, never becomes a class called label
        (
            lambda folder: table(folder, "f,Label", *(f"{n},{i % 2}" for i, n in enumerate(NAMES))),
            "names: Label. Where",
        ),
        (lambda folder: table(folder, "f,cat,target", *(f"{n},1,0" for n in NAMES)), "of these names: target. Where"),
        (
            lambda folder: entries(folder, lambda i: {"class": i % 2}),
            r"no name or list of names under 'class': entry 1 ",
        ),
        (lambda folder: entries(folder, lambda i: {"labels": [3]}), r"under 'labels': entry 1 \(\[3\]\), entry 2"),
        (lambda folder: table(listed(folder), "f,k,k", *(f"{n},a,b" for n in NAMES)), "duplicate columns: k"),
        (
            lambda folder: table(folder, "f,k", "0.jpg,cat", "1.jpg,cat"),
            r"no image in val and test \(2 train, 0 val, 0",
        ),
        (
            lambda folder: table(
                folder, "f,s,k", *(f"{n},{('train', 'val')[i % 2]},{('a', '')[i % 2]}" for i, n in enumerate(NAMES))
            ),
            "no val image has a positive label",
        ),
        # a column of splits is one although a word in it is none; so is a key
        (
            lambda folder: table(
                folder, "f,split,k", *(f"{n},{('train', 'holdout')[i % 2]},a" for i, n in enumerate(NAMES))
            ),
            "6 values are none of train, val and test: line 3, column split: 'holdout', line 5, ",
        ),
        (
            lambda folder: entries(folder, lambda i: {"tags": ["a"], "Split": ("train", "holdout")[i // 11]}),
            "values are none of train, val and test: entry 12, key Split: 'holdout'$",
        ),
        # pictures that lie in subfolders, or higher up
        (
            lambda folder: table(pictures(folder, ["cat/x.jpg"]), "f,k", *(f"{n},cat" for n in (*NAMES, "x.jpg"))),
            r"no picture file \(the pictures lie in subfolders: write cat/x.jpg for x.jpg\): line 14 'x.jpg'$",
        ),
        (
            lambda folder: table(folder, "f,k", *(f"photos/{n},cat" for n in NAMES)),
            "12 of 12 images have no file: .*; the pictures lie higher up: write 0.jpg for photos/0.jpg$",
        ),
    ],
)
def test_what_the_pipeline_would_refuse_is_refused(tmp_path: Path, make: Any, words: str) -> None:
    with pytest.raises((ConfigError, SourceError), match=words):
        described(make(tmp_path))


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
    project: Path, tmp_path: Path, capsys: Any, make: Any, words: list[str]
) -> None:
    folder = make(tmp_path / "My photos, 2026")
    assert main.main(["init", str(folder), *words]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1:-1] == described(folder, bool(words))
    warned = sum(line.startswith("warning: ") for line in said)
    heed = ("", "look at the warning above, then: ")[warned] if warned < 2 else "look at the warnings above, then: "
    assert said[-1] == f"next: {heed}make repro PROFILE=my_photos_2026"
    params = profiles.params(project, "my_photos_2026")
    assert preflight.check(project, params, LastRun(project)) == []
    assert params.settings("prepare", "my_photos_2026")["root"] == str(folder)
    assert params.settings("simulate", "my_photos_2026").protocol == ("seeded" if words else "given")
    assert ("full" in params.grid.linear_init) == bool(words)
    # nothing is overwritten, and a name that cannot be one is refused
    before = (project / "profiles" / "my_photos_2026.yaml").read_text()
    assert main.main(["init", str(folder)]) == 1
    assert "is there; give another name" in capsys.readouterr().err
    assert (project / "profiles" / "my_photos_2026.yaml").read_text() == before


def test_names_in_use_are_those_of_datasets_and_of_blocks(project: Path, tmp_path: Path) -> None:
    used = init.list_names(project, "/photos")
    assert {"digits", "voc", "coco", "nus", "cub", "voc_photos", "default", "published"} <= used
    assert not used & {"grid", "seeds", "an", "em", "linear_init", "mine"}
    (tmp_path / "profiles").mkdir()
    (tmp_path / "params.yaml").write_text(
        "prepare: {mine: {root: /photos}, theirs: {root: /other}}\nsimulate: {mine: {}, theirs: {}, default: {}}\n"
        "grid: {seeds: [0]}\nvariants: {lac: {}}\n"
    )
    (tmp_path / "params/methods").mkdir(parents=True)
    (tmp_path / "params/methods/an.yaml").write_text("{cars: {}, published: {boats: {}}}")
    (tmp_path / "profiles" / "x.yaml").write_text(
        "prepare: {pets: {root: ROOT}}\nfeatures:\nmethods: {em: {trees: {}}}\n"
    )
    (tmp_path / "profiles" / "empty.yaml").write_text("")
    names = {"theirs", "default", "cars", "boats", "published", "pets", "trees"}
    assert init.list_names(tmp_path, "/photos") == names  # the same data may be written anew
    assert init.list_names(tmp_path, "/photos/") == names | {"mine"}
    (tmp_path / "profiles" / "x.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match="x.yaml: not YAML"):
        init.list_names(tmp_path, "/photos")


def test_a_name_that_is_none_or_in_use_is_refused(tmp_path: Path) -> None:
    block, labels = found_in(classes(tmp_path))
    for name in ("2nd", "null", "no", "a-b", "", "Cat"):
        with pytest.raises(ConfigError, match=f"^'{name}' is no name for a dataset"):
            init.format_profile(name, "/a", block, labels)
    with pytest.raises(ConfigError, match="'pets' is a name in params.yaml or in a profile; give another by --name"):
        init.format_profile("pets", "/a", block, labels, used={"pets"})


def test_faults_of_the_labels_leave_no_profile(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    folder = table(tmp_path / "mine", "f,k", *(f"{name},cat" for name in (*NAMES, "98.jpg", "99.jpg")))
    before = sorted((project / "profiles").iterdir())
    assert main.main(["init", str(folder)]) == 1
    assert "2 paths have no picture file: line 14 '98.jpg', line 15 '99.jpg'" in capsys.readouterr().err
    assert main.main(["init", str(classes(tmp_path / "Digits"))]) == 1
    assert "'digits' is a name in params.yaml" in capsys.readouterr().err
    assert sorted((project / "profiles").iterdir()) == before
    monkeypatch.chdir(tmp_path)
    assert main.main(["init", str(classes(tmp_path / "more"))]) == 1
    assert "no params.yaml here" in capsys.readouterr().err and not (tmp_path / "profiles").exists()


def test_the_text_is_yaml_whatever_the_folder_is_called(tmp_path: Path) -> None:
    block, labels = found_in(classes(tmp_path))
    for root in ("/a b", "C: # é", '"', "- x", "{}"):
        text = init.format_profile("mine", root, block, labels)
        assert YAML(typ="safe", pure=True).load(text)["prepare"]["mine"]["root"] == root
