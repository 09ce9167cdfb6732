"""The table of rooms in docs/design.md and the pictures beside it, against the code."""

import re
from pathlib import Path

import pytest

from docs import draw

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (\d+) \| `(\w+)/?` \| .+ \| (.+) \|$", re.MULTILINE)


def table() -> dict[str, tuple[int, set[str]]]:
    """Level of each room and the rooms that it may import, from docs/design.md."""
    rows = ROW.findall((ROOT / "docs/design.md").read_text(encoding="utf-8"))
    level = {name: int(number) for number, name, _ in rows}
    allowed = {}
    for _, name, text in rows:
        if found := re.fullmatch(r"levels 0 to (\d)", text):
            allowed[name] = {other for other in level if level[other] <= int(found[1])}
        else:
            allowed[name] = set() if text == "nothing of ours" else set(text.split(", "))
    return {name: (level[name], allowed[name]) for name in level}


def test_the_table_names_every_room_and_only_lower_ones() -> None:
    rooms = {path.parent.name for path in ROOT.glob("pipeline/*/__init__.py")} | {"stages"}
    assert set(table()) == rooms
    levels = {name: level for name, (level, _) in table().items()}
    for name, (level, allowed) in table().items():
        assert all(levels[other] < level for other in allowed), name


@pytest.mark.parametrize("name", sorted(table()))
def test_a_room_imports_what_the_table_allows(name: str) -> None:
    assert draw.imports(ROOT)[name] <= table()[name][1]


def test_the_table_and_the_doors_say_the_same() -> None:
    for name, (_, allowed) in table().items():
        path = ROOT / ("stages" if name == "stages" else f"pipeline/{name}") / "__init__.py"
        _, _, said = path.read_text(encoding="utf-8").partition("imports ")
        named = set(re.findall(r"\w+", said)) & set(table())
        assert name == "stages" or "every room" in said or named == allowed, name


@pytest.mark.parametrize("name", ["rooms.svg", "stages.svg"])
def test_the_pictures_are_those_of_the_code(name: str) -> None:
    assert (ROOT / "docs/images" / name).read_text() == draw.pictures(ROOT)[name], "run `python docs/draw.py`"


def test_imports_are_found_anywhere_in_a_file(tmp_path: Path) -> None:
    for path, text in {
        "pipeline/core/__init__.py": "",
        "pipeline/core/files.py": "import json",
        "pipeline/labels/__init__.py": "",
        "pipeline/labels/a.py": "from pipeline.core import files\nfrom pipeline.labels.b import x",
        "pipeline/cli/__init__.py": "",
        "pipeline/cli/deep/a.py": "def run():\n    import pipeline.labels.a\n    from stages.entry import main",
        "stages/entry.py": "from pipeline import core",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert draw.imports(tmp_path) == {
        "core": set(),
        "labels": {"core"},
        "cli": {"labels", "stages"},
        "stages": {"core"},
    }


def test_data_flows_from_what_is_written_to_what_reads_it(tmp_path: Path) -> None:
    (tmp_path / "dvc.yaml").write_text("""stages:
  make:
    matrix: {a: [1]}
    deps: [raw]
    outs: ["data/make/${item.a}/x.h5"]
  train_variant:
    foreach: [1]
    do: {deps: ["data/make/${item}/x.h5"], outs: ["runs/train/${item}"], metrics: [{runs/train.json: {cache: false}}]}
  read: {deps: [runs, data/other], outs: [report]}
""")
    assert draw.flow(tmp_path) == {"make": {"train"}, "train": {"read"}, "read": set()}


def test_arrows_that_follow_from_others_are_left_out() -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert draw.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert draw.ranks(graph) == {"a": 0, "b": 1, "c": 2, "d": 3}
