import itertools
import json as encoder
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pipeline.core.errors import SourceError
from pipeline.labels.table import Dataset
from pipeline.sources import json
from tests.trees import PICTURES, write_files

ENTRIES: list[dict[str, Any]] = [
    {"path": "a.jpg", "labels": ["cat", "dog"]},
    {"path": "b.jpg", "labels": ["dog"], "absent": ["bird"], "split": "val"},
    {"path": "sub\\c.jpg", "labels": [], "absent": []},
    {"path": "sub/d.jpg", "labels": "bird"},
]


OBJECTS = {"kind": "objects", "path_key": "path", "labels_key": "labels", "separator": None}
OBJECTS |= {"absent_key": "absent", "split_key": None, "group_key": None}


def settings(**changes) -> json.Settings:
    """Settings of a file of objects; keys of `content` may be named alone."""
    content = changes.pop("content", OBJECTS | {key: changes.pop(key) for key in [*changes] if key in OBJECTS})
    fixed = {
        "source": "json",
        "root": ".",
        "size": 8,
        **PICTURES,
    }
    fixed |= {"file": "labels.json", "content": content, "exhaustive": False, "classes": None}
    fixed |= {"val_fraction": 0.25, "test_fraction": 0.25, "split_seed": 0, "unlabelled": None}
    return json.Settings.model_validate(fixed | changes)


def read(folder: Path, content: Any, **changes) -> Dataset:
    """Read text or entries beside pictures a.jpg, b.jpg, sub/c.jpg and sub/d.jpg."""
    write_files(folder, "a.jpg", "b.jpg", "sub/c.jpg", "sub/d.jpg")
    text = content if isinstance(content, str | bytes) else encoder.dumps(content)
    (folder / "labels.json").write_bytes(text.encode() if isinstance(text, str) else text)
    return json.read(settings(**changes), folder)


def truth(data: Dataset) -> dict[str, list[int]]:
    """Of each path its row: 1 present, 0 absent, -1 unknown."""
    cells = np.where(data.table.scored, data.table.truth, -1)
    return dict(zip(data.table.paths, cells.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------- the right table
def test_what_is_known_absent_is_scored_and_the_rest_is_unknown(tmp_path):
    data = read(tmp_path, ENTRIES)
    assert data.table.classes == ("bird", "cat", "dog") and not data.table.exhaustive
    assert truth(data) == {
        "a.jpg": [-1, 1, 1],
        "b.jpg": [0, -1, 1],
        "sub/c.jpg": [-1, -1, -1],
        "sub/d.jpg": [1, -1, -1],
    }
    assert data.report["cells"] == {"present": 4, "absent": 1, "unknown": 7}
    assert data.report["keys_not_read"] == ["split"] and data.report["rows"] == 4
    for row, path in enumerate(data.table.paths):
        assert data.image(row) == tmp_path / path


def test_labels_that_are_all_that_apply(tmp_path):
    data = read(tmp_path, ENTRIES, exhaustive=True)
    assert data.table.exhaustive and data.table.scored.all()
    assert truth(data) == {"a.jpg": [0, 1, 1], "b.jpg": [0, 0, 1], "sub/c.jpg": [0, 0, 0], "sub/d.jpg": [1, 0, 0]}


def test_absent_is_not_read_without_its_key(tmp_path):
    data = read(tmp_path, ENTRIES, absent_key=None)
    assert truth(data)["b.jpg"] == [-1, -1, 1]
    assert data.report["keys_not_read"] == ["absent", "split"]


def test_a_class_may_be_known_by_its_absence_alone(tmp_path):
    data = read(tmp_path, [{"path": "a.jpg", "labels": ["cat"], "absent": ["dog"]}], val_fraction=0, test_fraction=0)
    assert data.table.classes == ("cat", "dog") and truth(data) == {"a.jpg": [1, 0]}


def test_a_text_is_one_name_whatever_marks_are_in_it(tmp_path):
    entries = [{"path": "a.jpg", "labels": "cat, dog"}, {"path": "b.jpg", "labels": ["dog"]}]
    data = read(tmp_path, entries, val_fraction=0, test_fraction=0)
    assert data.table.classes == ("cat, dog", "dog") and truth(data) == {"a.jpg": [1, -1], "b.jpg": [-1, 1]}
    assert data.report["warnings"] == ["each of these is one class, but ',' seems to stand between names: 'cat, dog'"]


FORMS = {
    "list": encoder.dumps(ENTRIES),
    "indented": encoder.dumps(ENTRIES, indent=2),
    "byte order mark": b"\xef\xbb\xbf" + encoder.dumps(ENTRIES).encode(),
    "blanks before": " \n\t" + encoder.dumps(ENTRIES) + "\n\n",
    "lines": "\n".join(encoder.dumps(entry) for entry in ENTRIES),
    "lines, CR": "".join(encoder.dumps(entry) + "\r\n" for entry in ENTRIES),
    "lines, blank ones": "\n \n".join(encoder.dumps(entry) for entry in ENTRIES) + "\n\n",
    "lines, other order": "\n".join(encoder.dumps(entry) for entry in ENTRIES[::-1]),
    "blanks around": encoder.dumps(ENTRIES).replace('"dog"', '" dog "').replace('"b.jpg"', '" b.jpg "'),
    "repeated": encoder.dumps([*ENTRIES, {"path": "./a.jpg", "labels": ["dog", "cat", "dog"]}]),
}


@pytest.mark.parametrize("content", FORMS.values(), ids=FORMS.keys())
def test_harmless_forms_change_nothing(tmp_path, content):
    data, plain = read(tmp_path, content), read(tmp_path, ENTRIES)
    assert data.table.paths == plain.table.paths and truth(data) == truth(plain)
    assert data.report["repeated_rows"] == (content is FORMS["repeated"])


def test_other_keys(tmp_path):
    entries = [{"file": "a.jpg", "tags": ["x"], "set": "train"}, {"file": "b.jpg", "tags": ["y"], "set": "TEST "}]
    keys = {"path_key": "file", "labels_key": "tags", "split_key": "set"}
    data = read(tmp_path, entries, **keys)
    assert data.table.paths == ("a.jpg", "b.jpg") and data.table.split.tolist() == [0, 2]
    assert data.table.official.tolist() == [0, 1]


# ---------------------------------------------------------------------------------------------- faults
FAULTS = {
    "no JSON": ("[{", {}, r"labels\.json: not JSON: .*line 1 column 3"),
    "no JSON in a line": (
        '{"path": "a.jpg", "labels": []}\n{"path"',
        {},
        r"labels\.json: lines are not JSON: line 2: Exp",
    ),
    "indented object": (
        encoder.dumps(ENTRIES[0], indent=1),
        {},
        r"labels\.json: not JSON, as a list or by line: line 1: ",
    ),
    "list within": (
        {"images": ENTRIES, "by": "x"},
        {},
        r"labels\.json: one object, with the keys images, by; expected",
    ),
    "list within, indented": (encoder.dumps({"images": ENTRIES}, indent=1), {}, r"one object, with the keys images;"),
    "paths to labels": ({"a.jpg": ["cat"], "b.jpg": "dog"}, {}, r"one object, with the keys a\.jpg, b\.jpg; expected"),
    "nested without end": ("[" * 100_000, {}, r"labels\.json: not JSON"),
    "key twice": (
        '[{"path": "a.jpg", "labels": [], "path": "b.jpg"}]',
        {},
        r"labels\.json: duplicate keys: entry 1 'path'$",
    ),
    "key twice within": (
        '[{"path": "a.jpg", "labels": [], "by": {"x": [[{"z": 1, "z": 1}]], "y": 2, "y": 3}}, '
        '{"path": {"b": 1, "b": 2}}]',
        {},
        r"^labels\.json: 2 duplicate keys: entry 1 'y', 'z', entry 2 'b'$",
    ),
    "key twice within labels": (
        '{"path": "a.jpg", "labels": [{"c": 1, "c": 1}]}\n{"path": "b.jpg", "labels": []}',
        {},
        r"^labels\.json: duplicate keys: line 1 'c'$",
    ),
    "key twice, and no JSON": ('{"path": "a.jpg", "path": "b.jpg"}\n{', {}, r"duplicate keys: line 1 'path'(.|\n)*"),
    "no object": ([ENTRIES[0], ["b.jpg", "cat"]], {}, r"entries are not objects: entry 2 \(list\)"),
    "no path": ([{"labels": []}], {}, r"entries have no text under 'path': entry 1 \(None\)$"),
    "path of a number": ([{"path": 7, "labels": []}], {}, r"entries have no text under 'path': entry 1 \(7\)$"),
    "no labels": ([{"path": "a.jpg"}], {}, r"entries have no name or list of names under 'labels': entry 1 \(None\)$"),
    "labels of numbers": ([{"path": "a.jpg", "labels": [3]}], {}, r"list of names under 'labels': entry 1 \(\[3\]\)$"),
    "a long value": ([{"path": ["x" * 99], "labels": []}], {}, r"under 'path': entry 1 \(\['x{38}\.\.\.\)$"),
    "absent of null": (
        [{"path": "a.jpg", "labels": ["cat"], "absent": None}],
        {},
        r"no name or list of names under 'absent': entry 1",
    ),
    "no split": (
        ENTRIES,
        {"split_key": "split"},
        r"3 values are none of train, val and test: entry 1, key split: None",
    ),
    "both": (
        [{"path": "a.jpg", "labels": ["cat", "dog"], "absent": ["dog"]}],
        {},
        r"images have labels both present and absent: entry 1 dog",
    ),
    "unknown label": (
        ENTRIES,
        {"classes": ["cat", "dog"]},
        r"labels are not in classes: entry 2 'bird', entry 4 'bird'",
    ),
    "empty label": ([{"path": "a.jpg", "labels": [" "]}], {}, r"invalid class names: entry 1 ''"),
    "label that is no text": ('[{"path": "a.jpg", "labels": ["\\ud800"]}]', {}, r"invalid class names: entry 1 "),
    "path that is no text": (
        '[{"path": "\\ud800.jpg", "labels": ["x"]}]',
        {},
        r"paths .* not UTF-8: entry 1 '\\ud800\.jpg'",
    ),
    "twice, other absent": (
        [*ENTRIES, ENTRIES[1] | {"absent": ["cat"]}],
        {},
        r"duplicate paths with different labels, splits or groups: entry 2 and entry 5 'b\.jpg'",
    ),
    "no picture": ([*ENTRIES, {"path": "e.jpg", "labels": []}], {}, r"paths have no picture file: entry 5 'e\.jpg'"),
    "empty list": ([], {}, r"labels\.json: no image in it"),
    "empty file": ("", {}, r"labels\.json: no image in it"),
    "not text": (b"[\xff", {}, r"labels\.json: cannot be read as UTF-8"),
}


@pytest.mark.parametrize(("content", "changes", "words"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_named_with_its_entry(tmp_path, content, changes, words):
    with pytest.raises(SourceError, match=words):
        read(tmp_path, content, **changes)


def test_faults_in_lines_are_named_by_line(tmp_path):
    lines = [encoder.dumps(entry) for entry in ENTRIES] + ["", '{"path": "x.jpg", "labels": []}', "17"]
    with pytest.raises(SourceError) as caught:
        read(tmp_path, "\n".join(lines))
    assert str(caught.value).split("\n") == [
        "labels.json: entries are not objects: line 7 (int)",
        "labels.json: paths have no picture file: line 6 'x.jpg'",
    ]


def test_all_kinds_of_mistakes_are_named_at_once(tmp_path):
    entries = [
        '{"path": "a.jpg", "labels": ["cat"], "no": ["cat"], "set": "train"}',
        '{"path": "b.jpg", "labels": "dog", "labels": "cat", "set": "val"}',
        '{"path": "c.jpg", "labels": [3], "set": "val"}',
        '{"path": "gone.jpg", "labels": [" "], "set": "val"}',
        '{"labels": ["cat"], "set": "val"}',
        '{"path": "/a.jpg", "labels": ["cat"], "set": "holdout"}',
        '"a.jpg"',
        '{"path": "a.jpg", "labels": ["dog"], "set": "val"}',
    ]
    told = {
        "duplicate keys": "{2} 'labels'",
        "entries have no name or list of names under 'labels'": "{3} ([3])",
        "entries have no text under 'path'": "{5} (None)",
        "values are none of train, val and test": "{6}, key set: 'holdout'",
        "entries are not objects": "{7} (str)",
        "images have labels both present and absent": "{1} cat",
        "invalid class names": "{4} ''",
        "invalid paths (write them from the folder of the pictures, such as dog/x.jpg)": "{6} path '/a.jpg' is "
        "absolute",
        "duplicate paths with different labels, splits or groups": "{1} and {8} 'a.jpg'",
        "paths have no picture file": "{4} 'gone.jpg'",
    }
    for word, content in (("entry", f"[{','.join(entries)}]"), ("line", "\n".join(entries))):
        where = [f"{word} {number}" for number in range(9)]
        with pytest.raises(SourceError) as caught:
            read(tmp_path, content, absent_key="no", split_key="set")
        expected = [f"labels.json: {kind}: {what.format(*where)}" for kind, what in told.items()]
        assert str(caught.value).split("\n") == expected
    with pytest.raises(SourceError) as caught:
        read(tmp_path, "\n".join([*entries, '{"path"', "]"]), absent_key="no", split_key="set")
    assert len(str(caught.value).split("\n")) == len(told) + 1
    assert "labels.json: 2 lines are not JSON: line 9: " in str(caught.value) and ", line 10: " in str(caught.value)


# ---------------------------------------------------------------------------------------------- settings and state


# ---------------------------------------------------------------------------------------------- groups
def of_groups(*groups: Any) -> list[dict[str, Any]]:
    paths = ("a.jpg", "b.jpg", "sub/c.jpg", "sub/d.jpg")
    return [{"path": path, "labels": ["cat"], "of": group} for path, group in zip(paths, groups, strict=True)]


def test_groups_are_texts_or_whole_numbers(tmp_path):
    table = read(tmp_path, of_groups(7, "7", None, " x "), group_key="of").table
    assert dict(zip(table.paths, table.groups or (), strict=True)) == {
        "a.jpg": "7",
        "b.jpg": "7",
        "sub/c.jpg": "",
        "sub/d.jpg": "x",
    }
    assert table.split[list(table.paths).index("a.jpg")] == table.split[list(table.paths).index("b.jpg")] == 0


@pytest.mark.parametrize("group", [1.5, True, ["x"], {}])
def test_other_groups_are_named(tmp_path, group):
    with pytest.raises(SourceError, match=r"entries have no text or number under 'of': entry 2 \("):
        read(tmp_path, of_groups("x", group, "y", None), group_key="of")


def test_numbers_and_texts_that_mean_one_group_are_named(tmp_path):
    with pytest.raises(SourceError, match=r"differ in writing alone .*: '7' and '07\.0' \(entry 1 and entry 3\)"):
        read(tmp_path, of_groups(7, "8", "07.0", None), group_key="of")


@pytest.mark.parametrize(
    ("one", "other"),
    [*itertools.combinations(("path_key", "labels_key", "absent_key", "split_key", "group_key"), 2)],
)
def test_a_key_says_one_thing(one, other):
    with pytest.raises(ValidationError, match=rf"{other}: 'same' is {one} too, and says one thing"):
        settings(**{one: "same", other: "same"})
