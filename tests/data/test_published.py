"""Which papers a copy compares with, by tables of the published shapes."""

import json
from copy import copy
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.data import class_names
from pipeline.data.published import (
    FAMILY,
    OTHERS,
    STATISTICS,
    UNSCORED,
    compare_counts,
    describe_draw,
    describe_pictures,
    judge,
)
from pipeline.labels.settings import Simulate
from pipeline.labels.splits import split_rows
from pipeline.labels.table import Table
from pipeline.sources import coco, cub, nus, voc
from tests.trees import PICTURES

SHAPES = {  # official training and test images, classes, positives in the training part
    "voc": (5_717, 5_823, 20, round(1.46 * 5_717)),
    "coco": (82_081, 40_137, 80, round(2.94 * 82_081)),
    "nus": (150_000, 60_260, 81, round(1.89 * 150_000)),
    "cub": (5_994, 5_794, 312, round(31.4 * 5_994)),
}
COLOURS = "blue brown iridescent purple rufous grey yellow olive green pink orange black white red buff".split()
PATTERNS = "solid spotted striped multi-colored".split()
GROUPS = {
    "bill_shape": [
        *"curved_(up_or_down) dagger hooked needle hooked_seabird spatulate all-purpose cone specialized".split(),
    ],
    "wing_color": COLOURS,
    "upperparts_color": COLOURS,
    "underparts_color": COLOURS,
    "breast_pattern": PATTERNS,
    "back_color": COLOURS,
    "tail_shape": [f"{shape}_tail" for shape in "forked rounded notched fan-shaped pointed squared".split()],
    "upper_tail_color": COLOURS,
    "head_pattern": "spotted malar crested masked unique_pattern eyebrow eyering plain eyeline striped capped".split(),
    "breast_color": COLOURS,
    "throat_color": COLOURS,
    "eye_color": [colour for colour in COLOURS if colour != "iridescent"],
    "bill_length": "about_the_same_as_head longer_than_head shorter_than_head".split(),
    "forehead_color": COLOURS,
    "under_tail_color": COLOURS,
    "nape_color": COLOURS,
    "belly_color": COLOURS,
    "wing_shape": [f"{shape}-wings" for shape in "rounded pointed broad tapered long".split()],
    "size": [
        *"large_(16_-_32_in) small_(5_-_9_in) very_large_(32_-_72_in) medium_(9_-_16_in) very_small_(3_-_5_in)".split(),
    ],
    "shape": [
        *"upright-perching_water-like chicken-like-marsh long-legged-like duck-like owl-like gull-like".split(),
        *"hummingbird-like pigeon-like tree-clinging-like hawk-like sandpiper-like upland-ground-like".split(),
        *"swallow-like perching-like".split(),
    ],
    "back_pattern": PATTERNS,
    "tail_pattern": PATTERNS,
    "belly_pattern": PATTERNS,
    "primary_color": COLOURS,
    "leg_color": COLOURS,
    "bill_color": COLOURS,
    "crown_color": COLOURS,
    "wing_pattern": PATTERNS,
}
NAMES = {
    "voc": class_names.VOC,
    "coco": class_names.COCO,
    "nus": tuple(f"class {number:03}" for number in range(81)),
    "cub": tuple(f"has_{group}::{value}" for group, values in GROUPS.items() for value in values),
}
CUT = {
    "size": 448,
    **PICTURES,
    "val_fraction": 0.2,
    "split_seed": 1200,
    "root": "raw",
}
PROFILES = {
    "voc": {"labels": "lists", "difficult": "negative", "classes": None},
    "coco": {"year": 2014, "unannotated": "drop", "crowd": "count", "order": "string", "test_fraction": None},
    "nus": {"layout": "formatted", "classes": None},
    "cub": {"least_certainty": 1},
}
SETTINGS = {"voc": voc.Settings, "coco": coco.Settings, "nus": nus.Settings, "cub": cub.Settings}


@cache
def table(source: str, train: int = 0, test: int = 0, positives: int = 0, bare: tuple[int, int] = (0, 0)) -> Table:
    """A table of the published shape, or one that differs by so much; labels are spread evenly over rows with any."""
    n, m, c, total = SHAPES[source]
    n, m, total = n + train, m + test, total + positives
    truth = np.zeros((n + m, c), np.int8)
    truth[: n + m - bare[1], 0] = 1
    truth[n - bare[0] : n] = 0
    each, more = divmod(total, n - bare[0])
    truth[: n - bare[0], :each] = 1
    truth[np.random.default_rng(0).permutation(n - bare[0])[:more], each] = 1
    split = np.full(n + m, 2, np.uint8)
    rows, val = split_rows(n, 0.2, 1200)
    split[rows], split[val] = 0, 1
    official = (np.arange(n + m) >= n).astype(np.uint8)
    return Table(
        classes=NAMES[source],
        paths=tuple(f"{row}.jpg" for row in range(n + m)),
        truth=truth,
        scored=np.ones(truth.shape, np.bool_),
        split=split,
        official=official,
    )


def published(source: str) -> Table:
    return table(source)


def settings(source: str, **changes):
    return SETTINGS[source].model_validate({"source": source} | CUT | PROFILES[source] | changes)


def called(source: str, names: tuple[str, ...]) -> Table:
    """The published table, its columns called otherwise; its 100,000 paths are not checked again."""
    result = copy(published(source))
    object.__setattr__(result, "classes", names)
    return result


def answers(source: str, of: Table, **changes) -> dict[str, str]:
    found = judge(source, settings(source, **changes), of)
    assert len({name for verdict in found for name in verdict.papers}) == sum(len(verdict.papers) for verdict in found)
    return {name: verdict.answer for verdict in found for name in verdict.papers}


def why(source: str, of: Table, paper: str, **changes) -> str:
    found = judge(source, settings(source, **changes), of)
    return "; ".join(next(verdict.why for verdict in found if paper in verdict.papers))


# ---------------------------------------------------------------------------------------------- counts
@pytest.mark.parametrize("source", SHAPES)
def test_a_table_of_the_published_shape_has_the_published_counts(source):
    rows = compare_counts(source, published(source))
    assert [row.name for row in rows] == list(STATISTICS)
    assert all(row.same and row.found == row.published for row in rows)
    n, m, c, _ = SHAPES[source]
    assert [int(row.published) for row in rows[:4]] == [c, n - round(0.2 * n), round(0.2 * n), m]
    assert float(rows[4].published) + float(rows[5].published) == pytest.approx(c)


def test_a_copy_that_lacks_an_image_or_labels_differs_there():
    rows = compare_counts("voc", table("voc", test=-1))
    assert {row.name: row.found for row in rows if not row.same} == {"test images": "5822"}
    rows = compare_counts("voc", table("voc", positives=5_717 // 20))  # 0.05 a row
    assert [row.name for row in rows if not row.same] == ["positives per train image", "negatives per train image"]
    assert float(rows[4].found) == pytest.approx(1.51, abs=0.011)


def test_labels_may_be_counted_before_the_cut():
    data = published("voc")
    train, val = data.rows("train"), data.rows("val")
    truth = data.truth.copy()
    truth[train[:100], 19], truth[val[:100], 0] = 1, 0  # 100 more there, as many fewer here
    moved = Table(**{**data.__dict__, "truth": truth})
    assert f"{truth[train].sum() / len(train):.2f}" == "1.48"
    assert all(row.same for row in compare_counts("voc", moved))


def test_of_other_sources_nothing_is_published():
    data = table("voc")
    for source in ("digits", "csv", "json", "folder"):
        assert compare_counts(source, data) == []
        assert judge(source, SimpleNamespace(), data) == []


# ---------------------------------------------------------------------------------------------- papers
@pytest.mark.parametrize("source", ["voc", "coco", "cub"])
def test_the_published_copy_compares_with_all_that_share_the_protocol(source):
    found = answers(source, published(source))
    assert {name for name, answer in found.items() if answer == "yes"} == {*FAMILY, *UNSCORED}
    assert [name for name, answer in found.items() if answer == "no"] == list(found)[6:]
    assert why(source, published(source), "EM+APL (Zhou 2022)") == ""


@pytest.mark.parametrize(
    "source, cole, mime",
    [
        ("voc", "7 with batches of 8, 15 with batches of 16", "31 with batches of 32"),  # of 5,823
        ("coco", "1 with batches of 8, 9 with batches of 16", "9 with batches of 32"),  # of 40,137
        ("nus", "4 with batches of 8, 4 with batches of 16", "4 with batches of 16"),  # of 60,260
        ("cub", "2 with batches of 8, 2 with batches of 16", "2 with batches of 16"),  # of 5,794
    ],
)
def test_how_many_test_images_a_paper_leaves_out_goes_by_its_own_batches(source, cole, mime):
    data = table("nus", bare=(33_410, 13_412)) if source == "nus" else published(source)
    assert f"no batch ({cole});" in why(source, data, "Cole 2021")
    assert f"no batch ({mime});" in why(source, data, "MIME (Liu 2023)")


@pytest.mark.parametrize(
    "source, key, value, words",
    [
        ("voc", "labels", "annotations", "labels: annotations, the papers lists"),
        ("voc", "difficult", "ignore", "difficult: ignore, the papers negative"),
        ("coco", "year", 2017, "year: 2017, the papers 2014"),
        ("coco", "unannotated", "keep", "unannotated: keep, the papers drop"),
        ("coco", "crowd", "ignore", "crowd: ignore, the papers count"),
        ("coco", "order", "numeric", "order: numeric, the papers string"),
        ("coco", "test_fraction", 0.25, "test_fraction: 0.25, the papers null"),
        ("nus", "split_seed", 1, "split_seed: 1, the papers 1200"),
        ("cub", "least_certainty", 2, "least_certainty: 2, the papers 1"),
        ("cub", "val_fraction", 0.25, "val_fraction: 0.25, the papers 0.2"),
    ],
)
def test_a_setting_that_differs_is_named(source, key, value, words):
    found = answers(source, published(source), **{key: value})
    assert set(found.values()) == {"no"}
    assert why(source, published(source), "LASD (2023)", **{key: value}) == words


def test_counts_that_differ_are_named():
    assert why("voc", table("voc", train=-1, test=1), "GR Loss (Chen 2024)").startswith("counts differ: ")


def test_names_of_classes_are_the_published_ones():
    assert len(class_names.VOC) == 20 and list(class_names.VOC) == sorted(class_names.VOC)
    assert (class_names.VOC[0], class_names.VOC[14], class_names.VOC[19]) == ("aeroplane", "person", "tvmonitor")
    assert len(set(class_names.COCO)) == 80 and (class_names.COCO[0], class_names.COCO[79]) == ("person", "toothbrush")
    assert len(set(NAMES["cub"])) == 312 and NAMES["cub"][248] == "has_primary_color::blue"


def test_the_categories_of_coco_are_in_the_order_of_its_files(repository):
    file = repository.parent / "shared" / "data" / "coco_sample" / "annotations" / "instances_train2017.json"
    if not file.exists():
        pytest.skip("the COCO photographs are not at hand")
    assert tuple(entry["name"] for entry in json.loads(file.read_text())["categories"]) == class_names.COCO


@pytest.mark.parametrize("source", ["voc", "coco"])
def test_classes_in_another_order_or_of_other_names_are_told(source):
    names = NAMES[source]
    last = len(names) - 1
    for order in (names[::-1], (*names[:-2], names[-1], names[-2])):
        column = next(number for number in range(last) if order[number] != names[number])
        assert set(answers(source, called(source, order)).values()) == {"no"}
        expected = f"other labels are drawn (column {column}: {order[column]}, theirs {names[column]})"
        assert expected in why(source, called(source, order), "Cole 2021")
    other = called(source, (*names[:-1], "x"))
    assert why(source, other, "Cole 2021") == f"classes: x in place of {names[-1]}"
    assert set(answers(source, other).values()) == {"no"}
    for form in ("c{:02}", "{:02}"):  # ascending, as those of VOC are
        ascending = called(source, tuple(form.format(number) for number in range(len(names))))
        assert why(source, ascending, "LAC (Xie 2022)").startswith(f"classes: {form.format(0)}, {form.format(1)}, ")


def test_classes_that_lack_are_named_beside_the_counts():
    data = published("voc")
    fewer = replace(data, classes=data.classes[1:], truth=data.truth[:, 1:], scored=data.scored[:, 1:])
    assert why("voc", fewer, "Cole 2021").endswith("; classes: nothing in place of aeroplane")


def test_attributes_of_cub_that_are_not_called_as_known_leave_it_open():
    names = NAMES["cub"]
    for order in (names[::-1], (*names[:-1], "has_wing_pattern::multicolored"), tuple(map(str, range(312)))):
        found = answers("cub", called("cub", order))
        assert set(found.values()) == {"open"} and set(found) == {*FAMILY, *UNSCORED}
        assert "their order was not compared" in why("cub", called("cub", order), "EM+APL (Zhou 2022)")
        assert "their order was not compared" in why("cub", called("cub", order), "MIME (Liu 2023)")
    assert set(answers("cub", called("cub", names[::-1]), least_certainty=2).values()) == {"no"}


def test_coco_with_its_images_without_annotation():
    data = table("coco", train=82_783 - 82_081, test=40_504 - 40_137)
    found = answers("coco", data, unannotated="keep")
    assert [answer for answer in found.values()] == ["no"] * 7 + ["open"]
    assert "40,137 test images" in why("coco", published("coco"), list(found)[-1])


def test_nothing_in_a_copy_of_nus_tells_whose_pictures_they_are():
    found = answers("nus", published("nus"))
    assert [found[name] for name in FAMILY] == ["open"] * 4
    assert [found[name] for name in UNSCORED] == ["no"] * 2  # no image without a label
    assert "33,410 and 13,412" in why("nus", published("nus"), "Cole 2021")
    cole = table("nus", bare=(33_410, 13_412))
    for paper in (*FAMILY, *UNSCORED):
        assert "fit the columns of the arrays was not compared" in why("nus", cole, paper)
        assert "the order of the classes was not compared" in why("nus", cole, paper, layout="official")
    assert set(answers("nus", cole).values()) == {"open", "no"}
    assert "as in his arrays" in why("nus", cole, "Cole 2021") and "batches" in why("nus", cole, "Cole 2021")
    assert answers("nus", cole)[OTHERS] == "no" and "119,103" in why("nus", cole, OTHERS)


# ---------------------------------------------------------------------------------------------- beside the data
def test_pictures_and_labels_as_in_the_papers():
    assert describe_pictures(448) == "pictures: 448 x 448 pixels"
    assert describe_pictures(224) == "pictures: 224 x 224 pixels; the papers: 448 x 448"

    def words(protocol: str, seed: int = 1200, **change: Any) -> str:
        block = {"protocol": protocol, "seed": seed, "empty_rows": "keep", "bias": {"kind": "uniform"}}
        block |= {"positives": {"kind": "count", "value": 1}, "negatives": {"kind": "count", "value": 0}}
        return describe_draw(Simulate.model_validate(block | change))

    assert "by the papers' recipe with their seed" in words("literature")
    assert "literature, seed 1;" in words("literature", 1)
    assert "simulate: seeded;" in words("seeded") and "alone" not in words("seeded")
    assert "none is hidden" in words("given")
    for change in (
        {"positives": {"kind": "count", "value": 2}},
        {"negatives": {"kind": "count", "value": 1}},
    ):
        assert "and not one positive alone of each image" in words("literature", 1200, **change)
    assert "and not one positive alone" in words("seeded", bias={"kind": "frequency", "power": 1.0})
