"""``spml metrics``: files of predictions and of the truth, row for row; the figures are tested with their room."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pipeline.cli.main import main
from pipeline.labels.table import Table, write_table

CLASSES = ("cat", 'dog, "big"', "été", "=x")
PATHS = ("a.jpg", "sub/ü 1.jpg", "c.jpg", "d.jpg", "e.jpg")
TRUTH = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0]])
SCORES = np.array(
    [[0.9, 0.2, 0.8, 0.1], [0.3, 0.7, 0.2, 0.6], [0.6, 0.4, 0.5, 0.3], [0.1, 0.6, 0.9, 0.4], [0.8, 0.1, 0.3, 0.2]]
)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row(at: int, prefix: str = "", **changes) -> dict:
    chosen = [name for name, score in zip(CLASSES, SCORES[at], strict=True) if score >= 0.5]
    scores = {f"score_{name}": float(score) for name, score in zip(CLASSES, SCORES[at], strict=True)}
    return {"path": prefix + PATHS[at], "labels": chosen, "error": None, **scores} | changes


def predicted(rows: list[dict], kind: str = "csv") -> str:
    """Write rows as `spml predict` writes them."""
    file = Path(f"predicted.{kind}")
    if kind == "jsonl":
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return str(file)
    with open(file, "w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(rows[0])
        for each in rows:
            values = [";".join(value) if isinstance(value, list) else value for value in each.values()]
            writer.writerow([f"'{value}" if str(value).startswith("=") else value for value in values])
    return str(file)


def truth(lines: dict[str, str] | None = None, header: str = "path,labels") -> str:
    names = {
        path: ";".join(f"{name}" for name, label in zip(CLASSES, labels, strict=True) if label)
        for path, labels in zip(PATHS, TRUTH, strict=True)
    }
    with open("truth.csv", "w", encoding="utf-8", newline="") as text:
        text.write(header + "\n")
        csv.writer(text).writerows((names if lines is None else lines).items())
    return "truth.csv"


def stored() -> dict:
    return json.loads(Path("predicted-metrics.json").read_text())


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
@pytest.mark.parametrize("prefix", ["", "some/photos/"])
def test_figures_are_printed_and_stored(kind, prefix, capsys):
    file = predicted([row(at, prefix) for at in (3, 1, 0, 2, 4)], kind)
    assert main(["metrics", file, truth(), "--resamples", "20"]) == 0
    told, found = capsys.readouterr().out, stored()
    by_name = {each["name"]: each for each in found["classes"]}
    assert (
        list(by_name) == list(CLASSES) and [each["support"] for each in by_name.values()] == TRUTH.sum(axis=0).tolist()
    )
    assert found["images"] == 5 and found["unknown_cells"] == 0
    hits, chosen = ((SCORES >= 0.5) & (TRUTH == 1)).sum(), (SCORES >= 0.5).sum()
    assert found["of1"] == pytest.approx(200 * hits / (chosen + TRUTH.sum()))
    assert "5 images, 4 classes" in told and f"{found['map']:.2f}" in told and 'dog, "big"' in told


def test_a_dataset_of_the_project_is_the_truth(capsys):
    scored = np.ones(TRUTH.shape, bool)
    scored[0, 1] = False
    split = np.array([2, 2, 2, 2, 0], np.uint8)
    table = Table(CLASSES, PATHS, TRUTH.astype(np.int8), scored, split, np.zeros(5, np.uint8))
    write_table(Path("data/prepare/pets/table.h5"), table)
    assert main(["metrics", predicted([row(at) for at in range(4)]), "pets", "--resamples", "0"]) == 0
    assert stored()["unknown_cells"] == 1 and stored()["intervals"]["map"] is None
    assert "left out, since nobody knows them: 1 of 16 labels" in capsys.readouterr().out
    assert main(["metrics", predicted([row(4)]), "pets", "--split", "train", "--resamples", "0"]) == 0


def test_broken_pictures_are_left_out_and_named(capsys):
    bad = row(4, labels=[], error="e.jpg: empty file") | {f"score_{name}": None for name in CLASSES}
    assert main(["metrics", predicted([*(row(at) for at in range(4)), bad]), truth(), "--resamples", "0"]) == 0
    assert "left out, since they have an error: e.jpg" in capsys.readouterr().out
    assert stored()["images"] == 4 and stored()["broken"] == ["e.jpg"]


FAULTY = {
    "unknown": ([row(at) for at in range(5)] + [row(0, path="x.jpg")], "images are not in the truth: 'x.jpg'"),
    "missing": ([row(at) for at in range(3)], "2 images of the truth have no prediction: 'd.jpg', 'e.jpg'"),
    "twice": ([row(at) for at in (0, 1, 2, 3, 4, 4)], "images have several rows: 'e.jpg'"),
    "nan": (
        [*(row(at) for at in range(4)), row(4, score_cat="nan")],
        r"scores are no numbers: row 5 \(e.jpg\), score_cat: 'nan'",
    ),
    "blank": ([*(row(at) for at in range(4)), row(4, score_cat=None)], "scores are no numbers: row 5"),
    "label": (
        [*(row(at) for at in range(4)), row(4, labels=["cow"])],
        r"labels have no column of scores: row 5 \(e.jpg\) cow",
    ),
    "top": ([{"path": "a.jpg", "labels": [], "error": None, "top_1": "cat", "score_1": 0.5}], "without --top-k"),
    "columns": ([{"image": "a.jpg", "score_cat": 0.5}], "has no column path, labels, error"),
}


@pytest.mark.parametrize("name", FAULTY)
def test_rows_that_do_not_match_are_named(name, capsys):
    rows, words = FAULTY[name]
    assert main(["metrics", predicted(rows), truth()]) == 1
    error = capsys.readouterr().err
    assert re.search(words, error), error
    assert not Path("predicted-metrics.json").exists()


def test_a_truth_with_other_classes_or_rows_is_named(capsys):
    lines = {path: "cat" for path in PATHS}
    assert main(["metrics", predicted([row(at) for at in range(5)]), truth(lines | {"a.jpg": "cow"})]) == 1
    assert "classes of the truth have no scores: cow" in capsys.readouterr().err
    Path("truth.csv").write_text("path,cat,été\n" + "".join(f"{path},1,0\n" for path in (*PATHS, "a.jpg")))
    assert main(["metrics", "predicted.csv", "truth.csv"]) == 1
    assert "several rows: 'a.jpg'" in capsys.readouterr().err


def test_one_column_a_class_is_read_and_gaps_do_not_count():
    lines = [",".join(["path", "cat", "été"])]
    lines += [f"{path},{cat},{ete}" for path, (cat, _, ete, _) in zip(PATHS, TRUTH.tolist(), strict=True)]
    Path("truth.csv").write_text("\n".join(lines).replace("c.jpg,1,0", "c.jpg,,0"))
    assert main(["metrics", predicted([row(at) for at in range(5)]), "truth.csv", "--resamples", "0"]) == 0
    assert [each["support"] for each in stored()["classes"]] == [2, 0, 2, 0]


@pytest.mark.parametrize(
    "words", [["none.csv", "truth.csv"], ["predicted.csv", "none"], ["predicted.txt", "truth.csv"]]
)
def test_a_file_that_is_not_there_is_named(words, capsys):
    predicted([row(0)])
    truth()
    Path("predicted.txt").write_text("x")
    assert main(["metrics", *words]) == 1
    assert "none" in capsys.readouterr().err


def test_no_input_is_overwritten(capsys):
    file = predicted([row(at) for at in range(5)])
    assert main(["metrics", file, truth(), "--to", "truth.csv"]) == 1
    assert "would overwrite" in capsys.readouterr().err and Path("truth.csv").read_text().startswith("path")
