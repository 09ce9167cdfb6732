import hashlib
import json
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from ruamel.yaml import YAML

from pipeline.core.errors import ConfigError, SourceError
from pipeline.labels.recipe import literature
from pipeline.labels.table import Objects, Table, write_table
from stages.simulate import simulate

RNG = np.random.default_rng(11)
N, C = 60, 5


def table(truth: np.ndarray | None = None, scored: np.ndarray | None = None, shuffled: bool = False) -> Table:
    if truth is None:
        truth = (RNG.random((N, C)) < 0.4).astype(np.int8)
        truth[~truth.any(axis=1), 0] = 1
    split = np.repeat(np.array([0, 1, 2], np.uint8), [30, 10, 20])
    if shuffled:
        split = RNG.permutation(split)
    return Table(
        classes=tuple("abcde"),
        paths=tuple(f"{row}.jpg" for row in range(N)),
        truth=truth,
        scored=np.ones_like(truth, dtype=bool) if scored is None else scored,
        split=split,
        official=(split == 2).astype(np.uint8),
    )


@pytest.fixture
def project(tmp_path, repository):
    """A project folder with a prepared table and the given settings of `simulate`."""

    def make(prepared: Table, **settings) -> Path:
        yaml = YAML(typ="safe", pure=True)
        params = yaml.load((repository / "params.yaml").read_text())
        params["prepare"]["toy"] = {}  # else it is no dataset
        params["simulate"]["toy"] = settings  # over `default`
        with open(tmp_path / "params.yaml", "w") as file:
            yaml.dump(params, file)
        write_table(tmp_path / "data" / "prepare" / "toy" / "table.h5", prepared)
        return tmp_path

    return make


def run(root: Path) -> tuple[dict[str, np.ndarray], dict]:
    simulate(root, "toy")
    folder = root / "data" / "simulate" / "toy"
    assert {path.name for path in folder.iterdir()} == {"observed.h5", "report.json", "summary.md"}
    with h5py.File(folder / "observed.h5") as file:
        assert file.attrs["complete"] == 1
        assert all(file[name].attrs["axes"] == "image, class" for name in file)
        return {name: file[name][()] for name in file}, json.loads((folder / "report.json").read_text())


def test_the_three_label_sets(project):
    prepared = table()
    observed, _ = run(project(prepared))
    assert set(observed) == {"single", "all", "negatives"}
    assert all(labels.shape == (N, C) and labels.dtype == np.int8 for labels in observed.values())
    single = observed["single"]
    assert single.sum(axis=1).tolist() == [1] * N and (prepared.truth[single == 1] == 1).all()
    assert np.array_equal(observed["all"], 2 * prepared.truth - 1)
    assert np.array_equal(observed["negatives"], single - (prepared.truth == 0))


def test_unscored_cells_are_unknown_in_every_set(project):
    truth = np.zeros((N, C), np.int8)
    truth[:, 1] = 1
    scored = np.ones((N, C), bool)
    scored[::2, 3] = False
    observed, report = run(project(table(truth, scored)))
    for labels in observed.values():
        assert not labels[::2, 3].any()
    assert (observed["all"][1::2, 3] == -1).all() and (observed["negatives"][1::2, 3] == -1).all()
    assert report["classes"][3]["unknown"] == 15  # of 30 training images every second cell counts


def test_literature_runs_once_per_official_part_in_row_order(project):
    prepared = table(shuffled=True)
    observed, report = run(project(prepared, protocol="literature"))
    for number in (0, 1):
        rows = np.flatnonzero(prepared.official == number)
        assert np.array_equal(observed["single"][rows], literature(prepared.truth[rows], 1200))
    assert (report["protocol"], report["seed"], report["draw"]) == ("literature", 1200, None)


def test_draws_and_seeds_matter_only_to_their_protocol(project):
    prepared = table()
    first = run(project(prepared, draw=0, seed=1200))[0]["single"]
    assert np.array_equal(first, run(project(prepared, draw=0, seed=7))[0]["single"])
    assert not np.array_equal(first, run(project(prepared, draw=1))[0]["single"])
    published = run(project(prepared, protocol="literature", draw=0))[0]["single"]
    assert np.array_equal(published, run(project(prepared, protocol="literature", draw=3))[0]["single"])
    assert not np.array_equal(published, run(project(prepared, protocol="literature", seed=7))[0]["single"])


def test_test_rows_do_not_move_the_draw_of_training_rows(project):
    prepared = table()
    first = run(project(prepared))[0]["single"]
    truth = prepared.truth.copy()
    truth[40:] = 1
    assert np.array_equal(first[:40], run(project(table(truth)))[0]["single"][:40])


def test_the_official_parts_are_drawn_from_streams_of_their_own(project):
    truth = np.ones((N, C), np.int8)
    single = run(project(table(truth)))[0]["single"]
    assert not np.array_equal(single[:20], single[40:])


def test_rows_without_a_positive_are_kept_and_counted(project):
    truth = np.ones((N, C), np.int8)
    truth[[3, 35, 36, 50]] = 0
    observed, report = run(project(table(truth)))
    assert not observed["single"][[3, 35, 36, 50]].any()
    assert (observed["negatives"][3] == -1).all()
    assert [report["rows"][name]["without_positive"] for name in ("train", "val", "test")] == [1, 2, 1]
    summary = (project(table(truth)) / "data" / "simulate" / "toy" / "summary.md").read_text()
    assert "4 images have no positive label" in summary


def test_rows_without_a_positive_can_be_refused(project):
    truth = np.ones((N, C), np.int8)
    truth[50] = 0
    run(project(table(truth), empty_rows="error"))  # a test image does not matter
    before = (project(table(truth)) / "data" / "simulate" / "toy" / "observed.h5").read_bytes()
    truth[[3, 35]] = 0
    root = project(table(truth), empty_rows="error")
    with pytest.raises(SourceError, match=r"simulate\.empty_rows: 2 training and val images .*: 3\.jpg, 35\.jpg"):
        simulate(root, "toy")
    assert (root / "data" / "simulate" / "toy" / "observed.h5").read_bytes() == before


def test_the_report_counts_the_training_split(project):
    prepared = table()
    observed, report = run(project(prepared))
    truth, single = prepared.truth[:30], observed["single"][:30]
    for column, row in enumerate(report["classes"]):
        hidden = int(((truth[:, column] == 1) & (single[:, column] == 0)).sum())
        unknown = int((single[:, column] == 0).sum())
        assert row["name"] == "abcde"[column]
        assert row["truth_positive"] == truth[:, column].sum()
        assert row["observed_positive"] == single[:, column].sum()
        assert (row["unknown"], row["hidden_positive"]) == (unknown, hidden)
        assert row["false_negative_rate"] == pytest.approx(hidden / unknown)
    # one positive a row is kept: the pooled rate does not depend on the draw
    assert report["false_negative_rate"] == pytest.approx((truth.sum() - 30) / (30 * C - 30))
    assert report["expected_false_negative_rate"] == pytest.approx(report["false_negative_rate"])
    assert report["labels_per_image"] == pytest.approx(truth.sum() / 30)
    assert report["rows"]["test"]["images"] == 20
    assert report["rows"]["test"]["labels_per_image"] == pytest.approx(prepared.truth[40:].sum() / 20)


def test_a_class_that_is_always_observed_has_no_rate(project):
    truth = np.zeros((N, C), np.int8)
    truth[:, 2] = 1
    _, report = run(project(table(truth)))
    assert report["classes"][2]["false_negative_rate"] is None
    assert report["classes"][0]["false_negative_rate"] == 0
    assert (
        "| c | 30 | 30 | 30.0 | 0 | 0 | 0 | - | - |"
        in (project(table(truth)) / "data/simulate/toy/summary.md").read_text()
    )


def test_an_unknown_dataset_is_refused_by_name(project):
    with pytest.raises(ConfigError, match="simulate.toy.draw"):
        simulate(project(table(), draw=-1), "toy")


def test_the_same_table_gives_the_same_bytes(project):
    root = project(table(np.ones((N, C), np.int8)))
    folder = root / "data" / "simulate" / "toy"
    found = []
    for _ in range(2):
        simulate(root, "toy")
        found.append([path.read_bytes() for path in sorted(folder.iterdir())])
    assert found[0] == found[1]


# ------------------------------------------------------------------------------------------- more labels, biased ones
def test_the_report_tells_what_a_biased_draw_did(project):
    truth = np.ones((N, C), np.int8)
    truth[::2, 3:] = 0
    area = np.where(truth == 1, np.array([0.5, 0.4, 0.05, 0.04, 0.01]), 0).astype(np.float32)
    objects = Objects(area, np.where(truth == 1, 0.25, 0).astype(np.float32))
    root = project(table(truth), bias={"kind": "size", "power": 1.0}, negatives={"kind": "count", "value": 1})
    write_table(root / "data" / "prepare" / "toy" / "table.h5", table(truth), objects)
    observed, report = run(root)
    single = observed["single"][:30]
    assert ((single == 1).sum(axis=1) == 1).all()
    assert (single == -1).sum(axis=1).tolist() == [1, 0] * 15  # odd rows have no absent class
    assert (observed["negatives"][single.shape[0] :] == -1).sum() == (truth[30:] == 0).sum()
    assert report["positives"] == {"kind": "count", "value": 1} and report["bias"] == {"kind": "size", "power": 1.0}

    rows = report["rows"]["train"]
    assert (rows["known_positives_per_image"], rows["known_negatives_per_image"]) == (1, 0.5)
    assert (rows["without_known_positive"], rows["images_by_known_positives"]) == (0, [0, 30])
    counts = (single == 1).sum(axis=0)
    unbiased = np.array([15 / 3 + 15 / 5] * 3 + [15 / 5] * 2)
    assert [row["expected_of_unbiased"] for row in report["classes"]] == pytest.approx(unbiased.tolist())
    assert [row["observed_positive"] for row in report["classes"]] == counts.tolist()
    assert [row["observed_negative"] for row in report["classes"]] == (single == -1).sum(axis=0).tolist()
    assert report["from_unbiased"]["distance"] == pytest.approx(np.abs(counts / 30 - unbiased / 30).sum() / 2)
    known = area[:30][single == 1]
    assert report["boxes"]["area"]["known"] == pytest.approx(known.mean())
    assert report["boxes"]["area"]["all"] == pytest.approx(area[:30][truth[:30] == 1].mean())
    assert report["boxes"]["offset"] == {"known": 0.25, "all": 0.25}
    # class 4 is absent from even rows, half of which know it, and keeps 0.01 of a weight of 1 in odd ones
    assert report["classes"][0]["expected_false_negative_rate"] == pytest.approx(1.0)
    assert report["classes"][4]["expected_false_negative_rate"] == pytest.approx(
        (15 - 15 * 0.01) / (30 - 15 * 0.01 - 15 / 2)
    )
    summary = (root / "data/simulate/toy/summary.md").read_text()
    assert "keeps one of its positive labels, and 1 of its absent ones as known absences; everything" in summary
    assert "in proportion to the size of its largest box, to the power 1." in summary
    assert "Size of the largest box, percent of the picture:" in summary


def test_rows_that_lose_all_their_labels_are_counted(project):
    truth = np.ones((N, C), np.int8)
    truth[0] = 0
    root = project(table(truth), positives={"kind": "share", "value": 0.1})
    observed, report = run(root)
    lost = int(((observed["single"] == 1).sum(axis=1) == 0).sum())
    assert lost > 10
    assert sum(row["without_known_positive"] for row in report["rows"].values()) == lost
    summary = (root / "data/simulate/toy/summary.md").read_text()
    assert (
        f"{lost - 1} images keep none of their positive labels" in summary
        and "each of its positive labels or not, 10% of all;" in summary
    )


def test_a_draw_that_leaves_nothing_to_learn_from_is_refused(project):
    truth = np.ones((N, C), np.int8)
    root = project(table(truth), positives={"kind": "share", "value": 1e-9})
    with pytest.raises(SourceError, match="no positive is known in the training split"):
        simulate(root, "toy")
    assert not (root / "data" / "simulate").exists()


@pytest.mark.parametrize("home", [False, True])
def test_a_table_of_weights_is_named_with_its_hash(project, monkeypatch, home):
    truth = np.ones((N, C), np.int8)
    file = "~/w.csv" if home else "w.csv"
    root = project(table(truth), bias={"kind": "table", "file": file}, positives={"kind": "table"})
    monkeypatch.setenv("HOME", str(root))
    (root / "w.csv").write_text("class,weight\na,1\nb,0\nc,0\nd,1\ne,0\n")
    observed, report = run(root)
    assert (observed["single"] == [1, 0, 0, 1, 0]).all()
    assert report["bias"]["file_sha256"] == hashlib.sha256((root / "w.csv").read_bytes()).hexdigest()
    assert [row["expected_of_unbiased"] for row in report["classes"]] == pytest.approx([12.0] * 5)
    assert report["false_negative_rate"] == report["expected_false_negative_rate"] == 1.0
    assert (
        f"the probability that a table gives it; everything else becomes unknown. The table is {file}."
        in (root / "data/simulate/toy/summary.md").read_text()
    )


def test_a_draw_by_boxes_that_the_data_lack_is_refused(project):
    root = project(table(), bias={"kind": "centre", "power": 1.0})
    with pytest.raises(ConfigError, match=r"simulate\.bias: centre needs boxes, and the data gave none"):
        simulate(root, "toy")
    assert not (root / "data" / "simulate").exists()


# ------------------------------------------------------------------------------------------- labels as they are given
def test_labels_that_are_not_exhaustive_are_observed_as_they_are(project):
    truth = np.zeros((N, C), np.int8)
    truth[np.arange(N), np.arange(N) % C] = 1
    scored = truth == 1
    scored[::7, 4] = True  # known absent, or present
    prepared = replace(table(truth, scored), exhaustive=False)
    observed, report = run(project(prepared, protocol="given"))
    wanted = np.where(truth == 1, 1, np.where(scored, -1, 0)).tolist()
    assert all(labels.tolist() == wanted for labels in observed.values()) and len(observed) == 3
    assert (report["protocol"], report["draw"], report["seed"]) == ("given", None, None)
    assert report["false_negative_rate"] is None and report["expected_false_negative_rate"] is None
    train = np.array(wanted)[:30]
    for column, row in enumerate(report["classes"]):
        assert row["observed_positive"] == row["truth_positive"] == (train[:, column] == 1).sum()
        assert row["unknown"] == (train[:, column] == 0).sum() and row["hidden_positive"] is None
    summary = (project(prepared, protocol="given") / "data/simulate/toy/summary.md").read_text()
    assert "cannot be measured" in summary and "labels per image (given)" in summary
    assert f"| a | 6 | 0 | {(train[:, 0] == 0).sum()} |" in summary


@pytest.mark.parametrize("protocol, exhaustive", [("given", True), ("seeded", False), ("literature", False)])
def test_a_protocol_that_does_not_suit_the_labels_is_refused(project, protocol, exhaustive):
    root = project(replace(table(), exhaustive=exhaustive), protocol=protocol)
    with pytest.raises(ConfigError, match=rf"simulate\.protocol: {protocol}, but the labels of toy are"):
        simulate(root, "toy")
    assert not (root / "data" / "simulate").exists()
