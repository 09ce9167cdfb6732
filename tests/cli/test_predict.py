"""``spml predict`` and ``spml model``: words, rows, files and exit statuses."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from pipeline.bundles.pictures import list_pictures
from pipeline.bundles.read import read_model
from pipeline.cli import main, model
from pipeline.config.params import Params
from pipeline.core.errors import ConfigError
from tests import tiny
from tests.bundles import made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is no project, with a bundle and pictures in it."""
    monkeypatch.chdir(tmp_path)
    made.bundle(tmp_path / "m")
    for place, name in enumerate(("b.png", "a/c.png", "a/B.png", "a/@eaDir/thumb.png", "a/.hidden.png")):
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(tiny.pixels(9)[place]).save(tmp_path / "p" / name)
    return tmp_path


def predict(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> tuple[str, str]:
    assert main.main(["predict", "m", *words]) == status
    text = capsys.readouterr()
    return text.out, text.err


def test_a_row_an_image_in_order(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = predict(capsys, "p/b.png", "p", "--batch", "2")
    rows = list(csv.DictReader(out.splitlines()))
    assert list(rows[0]) == ["path", "labels", "error", "score_cat", "score_dog | wolf", "score_owl"]
    assert [row["path"] for row in rows] == ["p/b.png", "p/a/B.png", "p/a/c.png", "p/b.png"]
    logits = read_model("m").logits(tiny.pixels(9)[[0, 2, 1, 0]])
    for row, own in zip(rows, logits, strict=True):
        scores = [float(row[f"score_{name}"]) for name in made.CLASSES]
        np.testing.assert_allclose(scores, 1 / (1 + np.exp(-own.astype(np.float64))), rtol=1e-6)
        above = [name for name, logit, cut in zip(made.CLASSES, own, (0, 1, np.inf), strict=True) if logit >= cut]
        assert row["labels"] == ";".join(above) and row["error"] == ""
    assert err.startswith("warning: p: 1 picture in folders of systems and tools left out: ")
    assert err.splitlines()[-1].startswith("4 images, 0 broken; ") and err.rstrip().endswith("images a second")


def test_broken_pictures_are_rows(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "p" / "a" / "a.jpg").write_bytes(b"<html>")
    for words in (
        ["p", "gone.png", "--to", "x.csv"],
        ["p", "gone.png", "--to", "x.jsonl"],
        ["p", "gone.png", "--to", "x.parquet"],
    ):
        out, err = predict(capsys, *words, status=1)
        assert out == "" and err.splitlines()[-1].startswith(f"{words[-1]}: 5 images, 2 broken; ")
    with open("x.csv", newline="") as file:
        tables = [[dict(row) for row in csv.DictReader(file)]]
    tables += [[json.loads(line) for line in Path("x.jsonl").read_text().splitlines()]]
    tables += [parquet.read_table("x.parquet").to_pylist()]
    errors = [
        None,
        "a web page or XML, or of a format other than JPEG",
        None,
        None,
        "cannot be read (No such file or directory)",
    ]
    for table in tables:
        assert [row["path"] for row in table] == ["p/a/B.png", "p/a/a.jpg", "p/a/c.png", "p/b.png", "gone.png"]
        for row, error in zip(table, errors, strict=True):
            assert (row["error"] or "").startswith(error or "") and bool(row["error"]) == bool(error)
            assert (row["score_owl"] in (None, "")) == bool(error)
    for one, other, third in zip(*tables, strict=True):
        assert one["labels"] == ";".join(other["labels"]) and other == third
        assert one["score_cat"] == ("" if other["score_cat"] is None else repr(other["score_cat"]))


@pytest.mark.parametrize("name", ["x\0.png", "x" * 400 + ".png", "p", "p/b.png/c.png", "/dev/null"])
def test_a_name_in_a_table_that_no_picture_can_have_is_a_row(name: str, here: Path, capsys) -> None:
    (here / "t.csv").write_text(f"path\n{name}\np/b.png\n")
    out, _ = predict(capsys, "t.csv", status=1)
    first, second = list(csv.DictReader(out.splitlines()))
    assert first["error"].startswith("cannot be read (") and first["score_owl"] == "" and second["error"] == ""


def test_top_k_and_thresholds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    every = list(csv.DictReader(predict(capsys, "p/b.png", "--threshold", "0.000001")[0].splitlines()))[0]
    assert every["labels"] == "cat;dog | wolf;owl"
    assert (
        list(csv.DictReader(predict(capsys, "p/b.png", "--threshold", "0.999999")[0].splitlines()))[0]["labels"] == ""
    )
    row = list(csv.DictReader(predict(capsys, "p/b.png", "--top-k", "2", "--threshold", "zero")[0].splitlines()))[0]
    assert list(row) == ["path", "labels", "error", "top_1", "score_1", "top_2", "score_2"]
    scores = {name: float(every[f"score_{name}"]) for name in made.CLASSES}
    best = sorted(scores, key=lambda name: -scores[name])[:2]
    assert [row["top_1"], row["top_2"]] == best
    assert [float(row["score_1"]), float(row["score_2"])] == [scores[name] for name in best]
    assert set(row["labels"].split(";")) - {""} == {name for name, score in scores.items() if score >= 0.5}
    assert "score_4" not in predict(capsys, "p/b.png", "--top-k", "9")[0]


def test_a_table_names_pictures_and_keeps_its_columns(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "p" / "list.csv").write_text("id;path;labels;given_labels\n7;a/c.png;=SUM(A1);x\n8;gone.png;dog;y\n")
    out, _ = predict(capsys, "p/list.csv", status=1)
    rows = list(csv.DictReader(out.splitlines()))
    columns = ["path", "id", "given_labels", "given_given_labels", "labels", "error"]
    assert list(rows[0])[:6] == columns
    assert [row["path"] for row in rows] == ["a/c.png", "gone.png"]
    assert [row["id"] for row in rows] == ["7", "8"] and rows[0]["given_labels"] == "'=SUM(A1)"
    assert [row["given_given_labels"] for row in rows] == ["x", "y"] and rows[0]["error"] == ""


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("words", [["t.csv", "p/b.png"], ["p/b.png", "t.csv"], ["p/a", "t.csv", "p", "t.csv"]])
def test_columns_of_tables_stay_beside_pictures_of_none(words: list[str], kind: str, here: Path, capsys) -> None:
    (here / "t.csv").write_text("id,path\n7,p/a/c.png\n")
    predict(capsys, *words, "--to", f"x.{kind}")
    if kind == "csv":
        rows = list(csv.DictReader(Path("x.csv").read_text().splitlines()))
    elif kind == "jsonl":
        rows = [json.loads(line) for line in Path("x.jsonl").read_text().splitlines()]
    else:
        rows = parquet.read_table("x.parquet").to_pylist()
    absent = "" if kind == "csv" else None
    count = {"t.csv": ["7"], "p/b.png": [absent], "p/a": [absent] * 2, "p": [absent] * 3}
    assert [row["id"] for row in rows] == [value for word in words for value in count[word]]


def test_what_a_spreadsheet_would_run_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    made.bundle(tmp_path / "m", classes=["=cmd", "@x"])
    Image.fromarray(tiny.pixels(1)[0]).save("-a.png")
    assert main.main(["predict", "m", "--threshold", "0.000001", "--top-k", "1", "--", "-a.png"]) == 0
    row = list(csv.DictReader(capsys.readouterr().out.splitlines()))[0]
    assert row["path"] == "'-a.png" and row["labels"] == "'=cmd;@x" and row["top_1"][:2] in ("'=", "'@")


REFUSED = {
    "empty folder": (["empty"], "empty: holds no picture (.jpg, "),
    "only unread": (["unread"], "1 picture of endings that are not read was left out: x.psd"),
    "no such rule": (["p", "--threshold", "best"], "--threshold: m has none called 'best'; it has matching, zero"),
    "no probability": (["p", "--threshold", "1.5"], "--threshold: 1.5 is no probability between 0 and 1"),
    "other ending": (["p", "--to", "x.xlsx"], "--to: x.xlsx ends in none of .csv, .jsonl, .parquet"),
    "its own input": (["list.csv", "--to", "p/../list.csv"], "would overwrite what it is made from"),
    "no column": (["nothing.csv"], "nothing.csv: needs one column `path`; its columns are file, labels"),
    "no row": (["none.csv"], "none.csv: names no picture"),
    "short row": (["short.csv"], "short.csv: line 3 has 1 fields, the first line 2"),
    "absent table": (["gone.csv"], "gone.csv is missing"),
    "other columns": (["list.csv", "two.csv"], "list.csv and two.csv: their columns differ"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_named(case: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in {
        "list.csv": "path\np/b.png\n",
        "two.csv": "path,x\np/b.png,1\n",
        "nothing.csv": "file,labels\nb.png,x\n",
        "none.csv": "path\n",
        "short.csv": "path,x\nb.png,1\nc.png\n",
    }.items():
        Path(name).write_text(text)
    for folder in ("empty", "unread"):
        Path(folder).mkdir()
    Path("unread/x.psd").touch()
    words, message = REFUSED[case]
    before = sorted(os.listdir())
    out, err = predict(capsys, *words, status=1)
    assert out == "" and err.startswith("error: ") and err.count("\n") == 1 and message in err
    assert sorted(os.listdir()) == before


def test_wrong_usage_exits_with_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["m"], ["m", "p", "--top-k", "0"], ["m", "p", "--batch", "-1"]):
        with pytest.raises(SystemExit) as error:
            main.main(["predict", *words])
        assert error.value.code == 2


def test_a_class_with_a_semicolon_has_no_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    made.bundle(tmp_path / "m", classes=["a;b", "c"])
    Image.fromarray(tiny.pixels(1)[0]).save("x.png")
    assert "class 'a;b' holds a `;`" in predict(capsys, "x.png", status=1)[1]
    predict(capsys, "x.png", "--to", "x.jsonl", "--threshold", "zero")
    assert set(json.loads(Path("x.jsonl").read_text())["labels"]) <= {"a;b", "c"}


def test_a_name_that_is_no_utf8_is_shown(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "odd").mkdir()
    Image.fromarray(tiny.pixels(1)[0]).save(here / "odd" / "x.png")
    os.rename(here / "odd" / "x.png", os.fsencode(here / "odd") + b"/\xff\n.png")
    for kind in ("csv", "jsonl", "parquet"):
        predict(capsys, "odd", "--to", f"x.{kind}")
    assert "odd/\\xff\\n.png," in Path("x.csv").read_text()
    assert parquet.read_table("x.parquet")["path"].to_pylist() == ["odd/\\xff\\n.png"]


def test_pictures_are_listed_in_the_order_given(here: Path) -> None:
    listed = list_pictures(["p/b.png", "p/a", "p/b.png"])
    assert [each.path for each in listed.pictures] == ["p/b.png", "p/a/B.png", "p/a/c.png", "p/b.png"]


# ---------------------------------------------------------------------------------------------- spml model
@pytest.mark.parametrize(
    "text", ["finetune/digits-em-0-0", "runs/finetune/digits-em-0-0/", "./runs/finetune/digits-em-0-0"]
)
def test_a_run_is_named_by_stage_and_key_or_path(text: str) -> None:
    assert model.name_run(text) == "finetune/digits-em-0-0"


@pytest.mark.parametrize(
    "text", ["digits-em-0-0", "finetune", "finetune/..", "beliefs/digits-0", "/runs/lac/digits-lac-0-0"]
)
def test_what_names_no_run_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no run; as in finetune/digits-em-0-0"):
        model.name_run(text)


def test_all_runs_of_the_grid_and_its_variants_are_candidates(repository: Path) -> None:
    from pipeline.config.params import read_params

    params: Params = read_params(repository / "params.yaml")
    names = model.list_runs(params)
    assert "linear_init/digits-em-0-0" in names and "lac/digits-lac-0-0-no_queue" in names
    assert len(names) == len(set(names))
    two = params.model_copy(update={"grid": params.grid.model_copy(update={"datasets": ["digits", "photos"]})})
    with pytest.raises(ConfigError, match="runs of digits, photos do not compare; name one: spml model RUN"):
        model.list_runs(two)
