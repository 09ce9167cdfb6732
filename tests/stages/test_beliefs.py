"""The stage beliefs on data made by hand: invariants by enumeration, a door for tables of others, and bad input."""

from dataclasses import replace
from functools import partial
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError, SourceError
from pipeline.core.files import read_json, read_tsv
from pipeline.labels.beliefs import Beliefs, beliefs_file, read_beliefs
from pipeline.labels.table import Table, write_table
from pipeline.training.undecided import rank_unknown
from stages.beliefs import beliefs
from tests.stages import finished_runs as finished

FITS = {"kind": "fits", "fits": 3, "draw": {"kind": "count"}, "sharpness": None}


class Project:
    """A root with a table, observed labels and features that know the classes."""

    def __init__(self, root: Path, repository: Path) -> None:
        self.root, self.repository = root, repository
        self.table, observed = finished.write_data(root)
        self.observed = observed["single"]
        self.write()
        self.set(FITS)

    def set(self, block: dict[str, Any]) -> None:
        finished.write_params(self.root, self.repository, grid=finished.grid(), beliefs={"default": block})

    def write(self, width: int = 5, mirrored: bool = False, dtype: str = "float32", **changes: Any) -> None:
        """Write table, labels and features anew."""
        self.table = Table(**{**vars(self.table), **changes.pop("table", {})})
        self.observed = changes.pop("observed", self.observed)
        write_table(self.root / "data/prepare/digits/table.h5", self.table)
        generator = np.random.default_rng(3)
        signal = self.table.truth @ generator.normal(size=(len(self.table.classes), width))
        self.features = (signal + generator.normal(size=signal.shape)).astype(dtype)
        arrays = {"features": self.features} | changes
        if mirrored:
            arrays["features_mirrored"] = self.features[self.table.rows("train")] + np.asarray(0.1, dtype)
        self.put("features/digits/features.h5", **arrays)
        self.put("simulate/digits-0/observed.h5", single=self.observed)

    def put(self, name: str, **arrays: np.ndarray) -> None:
        with hdf5.create(self.root / "data" / name) as file:
            file.attrs["pools"] = '["mean"]'
            for key, array in arrays.items():
                hdf5.write_array(file, key, array, axes="image", units="as the test has it")

    @property
    def folder(self) -> Path:
        return beliefs_file(self.root, "digits", 0).parent

    def run(self) -> tuple[Beliefs, dict[str, Any]]:
        beliefs(self.root, "digits", 0)
        return read_beliefs(self.folder / "beliefs.h5", self.table), read_json(self.folder / "report.json")


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Project:
    return Project(tmp_path, repository)


def enumerated(logits: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Chance of each label of one image, over all sets of labels that it may have: as many as are shown were picked."""
    c, mass, total = len(logits), np.zeros(len(logits)), 0.0
    k = int((shown == 1).sum())
    for size in range(c + 1):
        for held in combinations(range(c), size):
            present = np.isin(np.arange(c), held)
            if (present[shown == 1]).all() and not present[shown == -1].any():
                weight = np.exp(logits[present].sum()) / comb(size, k)
                mass, total = mass + weight * present, total + weight
    return mass / total


def several(project: Project) -> None:
    observed = project.observed.copy()
    observed[::3] = project.table.truth[::3]
    project.write(observed=observed)


def absences(project: Project) -> None:
    observed = project.observed.copy()
    observed[::2] -= (project.table.truth[::2] == 0).astype(np.int8)
    project.write(observed=observed)


def silent(project: Project) -> None:
    observed = project.observed.copy()
    observed[::4] = 0
    project.write(observed=observed)


def unseen(project: Project) -> None:
    observed = project.observed.copy()
    observed[:, 2] = 0
    project.write(observed=observed)


def one_class(project: Project) -> None:
    changes = {
        "classes": finished.CLASSES[:1],
        "truth": project.table.truth[:, :1],
        "scored": project.table.scored[:, :1],
    }
    project.write(table=changes, observed=project.observed[:, :1])


def few_images(project: Project) -> None:
    """Two training images of three classes."""
    split = np.ones(len(project.table.paths), np.uint8)
    split[:2], split[2:10] = 0, 2
    project.write(table={"split": split, "official": (split == 2).astype(np.uint8)})


def grouped(count: int, project: Project) -> None:
    """So many groups in each split."""
    names = (f"{split} {row % count}" for row, split in enumerate(project.table.split.tolist()))
    project.write(table={"groups": tuple(names)})


KINDS = {
    "one shown": lambda project: None,
    "several shown": several,
    "known absences": absences,
    "images that show nothing": silent,
    "a class that is not shown": unseen,
    "in every image": lambda project: project.write(observed=np.maximum(project.observed, [0, 1, 0]).astype(np.int8)),
    "one class": one_class,
    "fewer images than classes": few_images,
    "one group": partial(grouped, 1),
    "two groups": partial(grouped, 2),
    "eight groups": partial(grouped, 8),
    "float16": lambda project: project.write(dtype="float16"),
    "mirrored": lambda project: project.write(mirrored=True),
    "more features than images": lambda project: project.write(width=60),
}


@pytest.mark.parametrize("count", [None, 1, 2, 8])
def test_what_groups_keep_beliefs_from_is_said(project: Project, count: int | None) -> None:
    if count:
        grouped(count, project)
    _, report = project.run()
    assert report["groups"] == count
    told = (project.folder / "summary.md").read_text()
    assert ("Warning: all training images that were fitted are of one group" in told) == (count == 1)
    assert ("did not see any image of its group" in told) == ((count or 1) > 1)
    ends = [report["labels_per_image"]["low"], *(share["high"] for share in report["shares"].values())]
    assert [end is None for end in ends] == [count in (1, 2)] * len(ends)


@pytest.mark.parametrize("kind", KINDS)
def test_every_image_and_class_has_a_belief_that_follows_from_its_logits(project: Project, kind: str) -> None:
    KINDS[kind](project)
    found, report = project.run()
    observed, rows = project.observed, project.table.rows("train")
    assert found.belief.shape == found.logits.shape == observed.shape
    expected = [enumerated(each.astype(np.float64), shown) for each, shown in zip(found.logits, observed, strict=True)]
    np.testing.assert_allclose(found.belief, expected, atol=2e-5)
    assert (found.belief[observed == 1] == 1).all() and (found.belief[observed == -1] == 0).all()
    # images that were not fitted are scored by the head; the others by fits that did not see them
    with hdf5.read(project.folder / "beliefs.h5") as file:
        weights, bias = file["weights"][()], file["bias"][()]
        by_head = project.features.astype(np.float64) @ weights.T + bias
    outside = np.setdiff1d(np.arange(len(observed)), rows)
    np.testing.assert_allclose(found.logits[outside], by_head[outside], rtol=1e-3, atol=1e-3)
    if kind == "one shown":  # of one class, or of fewer images than folds, nothing is told apart
        assert not np.isclose(found.logits[rows], by_head[rows], atol=1e-3).all(axis=1).any()
    assert report["labels_per_image"]["value"] == pytest.approx(found.labels_per_image)
    assert list(report["shares"]) == list(project.table.classes)
    names = [
        name for name, count in zip(project.table.classes, (observed[rows] == 1).sum(axis=0), strict=True) if not count
    ]
    assert report["classes_unseen"] == names
    seen = observed[rows][(observed[rows] == 1).any(axis=1)]
    everywhere = [name for name, all_ in zip(project.table.classes, (seen == 1).all(axis=0), strict=True) if all_]
    assert report["classes_everywhere"] == everywhere and (kind != "in every image" or everywhere)
    assert ("every training image is known to have" in (project.folder / "summary.md").read_text()) == bool(everywhere)
    ends = np.array(
        [[report["shares"][name][end] for end in ("value", "low", "high")] for name in report["shares"]], float
    )
    np.testing.assert_allclose(found.shares, ends)
    guessed = [bool(np.isnan(end).all()) for end in ends[:, 1:]]  # of a guess there is no interval, nor of so few
    few = kind in ("fewer images than classes", "one group", "two groups")
    assert [name for name, guess in zip(project.table.classes, guessed, strict=True) if guess or few] == (
        list(project.table.classes) if few else names
    )
    assert not few or all(guessed)
    assert all(f"no training image shows {name}" in (project.folder / "summary.md").read_text() for name in names[:1])


def test_no_truth_is_read(project: Project) -> None:
    first, _ = project.run()
    summary = (project.folder / "summary.md").read_text()
    write_table(
        project.root / "data/prepare/digits/table.h5",
        replace(project.table, truth=project.table.truth[:, ::-1] & project.table.scored),
    )
    second, _ = project.run()
    assert np.array_equal(first.belief, second.belief) and summary == (project.folder / "summary.md").read_text()


def test_hidden_labels_are_listed_over_all_splits(project: Project) -> None:
    found, _ = project.run()
    rows = read_tsv(project.folder / "hidden.tsv")
    assert len(rows) == ((project.observed == 0) & (found.belief >= 0.5)).sum() > 0  # the others are rather absent
    where = {path: row for row, path in enumerate(project.table.paths)}
    cells = [(where[each["path"]], project.table.classes.index(each["class"])) for each in rows]
    assert len(set(cells)) == len(cells) and all(project.observed[cell] == 0 for cell in cells)
    chances = [float(each["belief"]) for each in rows]
    np.testing.assert_allclose(chances, [found.belief[cell] for cell in cells], rtol=1e-5)
    order = [float(found.ranking[cell]) for cell in cells]
    assert order == sorted(order, reverse=True) and {each["split"] for each in rows} == {"train", "val", "test"}
    np.testing.assert_array_equal(  # what is beside it: tests/training/test_undecided.py
        found.ranking, rank_unknown(project.features, None, project.observed, found.belief, (project.table, 0))
    )


def test_the_same_data_give_the_same_bytes(project: Project) -> None:
    project.run()
    first = {path.name: path.read_bytes() for path in project.folder.iterdir()}
    project.run()
    assert {path.name: path.read_bytes() for path in project.folder.iterdir()} == first


# ---------------------------------------------------------------------------------------------- the door
def theirs(project: Project, chances: np.ndarray) -> None:
    order = np.random.default_rng(0).permutation(len(chances))
    lines = ["\t".join(("owl", "image", "cat", "dog | wolf"))]
    lines += [f"{chances[row][2]}\t{project.table.paths[row]}\t{chances[row][0]}\t{chances[row][1]}" for row in order]
    (project.root / "theirs.tsv").write_text("\n".join(lines))
    project.set({"kind": "file", "file": "theirs.tsv", "draw": {"kind": "count"}})


def test_somebodys_beliefs_take_the_place_of_the_fits(project: Project) -> None:
    chances = np.round(np.random.default_rng(1).random(project.observed.shape), 3)
    chances[0] = (0, 1, 0.5)
    theirs(project, chances)
    found, report = project.run()
    inner = np.clip(chances, 1e-12, 1 - 1e-12)
    logits = np.clip(np.log(inner / (1 - inner)), -30, 30)
    expected = [enumerated(each, shown) for each, shown in zip(logits, project.observed, strict=True)]
    np.testing.assert_allclose(found.belief, expected, atol=1e-5)
    rows = project.table.rows("train")
    assert report["labels_per_image"]["value"] == pytest.approx(np.sum(expected, axis=1)[rows].mean(), rel=1e-5)
    assert report["labels_per_image"]["low"] is None and len(report["file_sha256"]) == 64
    assert "What `theirs.tsv` says" in (project.folder / "summary.md").read_text()
    with hdf5.read(project.folder / "beliefs.h5") as file:
        assert "weights" not in file


@pytest.mark.parametrize("draw", [{"kind": "count"}, {"kind": "share", "value": 0.5}], ids=["count", "share"])
@pytest.mark.parametrize("kind", ["fits", "file"])
def test_the_summary_says_whose_beliefs_they_are_and_of_which_images(project: Project, kind: str, draw: Any) -> None:
    theirs(project, np.full(project.observed.shape, 0.5))
    settings = {"kind": "file", "file": "theirs.tsv"} if kind == "file" else FITS
    project.set({**settings, "draw": draw})
    _, report = project.run()
    summary = (project.folder / "summary.md").read_text()
    assert (report["kind"], report["shown_as"]) == (kind, draw["kind"])
    for words in ("closed-form fits", "cached features", "linear head", "a head that has seen", "log-likelihood"):
        assert (words in summary) == (kind == "fits"), words
    assert ("`theirs.tsv`" in summary) == (kind == "file")
    assert ("of those that show one" in summary) == (draw["kind"] == "count")


def test_a_faulty_table_leaves_earlier_beliefs(project: Project) -> None:
    project.run()
    before = (project.folder / "beliefs.h5").read_bytes()
    theirs(project, np.full(project.observed.shape, 1.5))
    with pytest.raises(SourceError, match=r"theirs\.tsv: 108 chances are no number from 0 to 1"):
        project.run()
    project.set({"kind": "file", "file": "gone.tsv", "draw": {"kind": "count"}})
    with pytest.raises(SourceError, match=r"gone\.tsv"):
        project.run()
    assert (project.folder / "beliefs.h5").read_bytes() == before


# ---------------------------------------------------------------------------------------------- bad input
def with_nan(project: Project) -> None:
    features = project.features.copy()
    features[3, 1] = np.nan
    project.write(features=features)


def nothing_shown(project: Project) -> None:
    observed = project.observed.copy()
    observed[project.table.rows("train")] = 0
    project.write(observed=observed)


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (with_nan, FileError, r"data/features/digits/features\.h5: features are not finite"),
        (nothing_shown, ConfigError, r"^beliefs\.digits: observed: no label is shown"),
        (
            lambda project: project.write(features=np.ones((36, 5), np.float32)),
            ConfigError,
            r"^beliefs\.digits: no feature varies",
        ),
        (lambda project: project.set(FITS | {"sharpness": 0.2}), ConfigError, r"^beliefs\.digits: sharpness: .*places"),
        (
            lambda project: project.set(FITS | {"sharpness": 0.0}),
            ConfigError,
            r"beliefs\.default\.fits\.sharpness|sharpness",
        ),
        (lambda project: project.write(features=project.features[:-1]), FileError, "35 rows, the table has 36"),
        (lambda project: project.write(observed=project.observed[:-1]), FileError, "of `single` are not the table's"),
        (lambda project: project.set(FITS | {"fits": 0}), ConfigError, r"beliefs\.default\.fits"),
        (
            lambda project: project.set(FITS | {"draw": {"kind": "share", "value": 1.0}}),
            ConfigError,
            r"beliefs\.default.*draw.*value: Input should be less than 1",
        ),
        (
            lambda project: project.set({"kind": "file", "file": "x.csv", "fits": 3, "draw": {"kind": "count"}}),
            ConfigError,
            r"beliefs\.default.*fits",
        ),
    ],
)
def test_bad_input_is_named_and_earlier_beliefs_stay(project: Project, spoil: Any, error: Any, words: str) -> None:
    project.run()
    before = {path.name: path.read_bytes() for path in project.folder.iterdir()}
    spoil(project)
    with pytest.raises(error, match=words):
        beliefs(project.root, "digits", 0)
    assert {path.name: path.read_bytes() for path in project.folder.iterdir()} == before


def test_beliefs_of_other_labels_are_refused(project: Project) -> None:
    project.run()
    project.put("simulate/digits-0/observed.h5", single=np.roll(project.observed, 1, axis=0))
    words = r"beliefs\.h5: made from another data/simulate/digits-0/observed\.h5 than lies there; run beliefs@digits-0"
    with pytest.raises(FileError, match=words):
        read_beliefs(project.folder / "beliefs.h5", project.table)
