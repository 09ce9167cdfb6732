"""The page of nearly thirty methods: what is named, what is grey, and which rows compare."""

import io
import re
from dataclasses import replace
from html import unescape
from typing import NamedTuple

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from pipeline.report import figures, page
from pipeline.report.context import Chosen, Page
from pipeline.report.page import Report
from pipeline.report.read import Collected
from pipeline.report.sections import scores
from tests.report.test_page import Reader


class Table(NamedTuple):
    """A table of the page: cells of each row and how it is marked, by its first cell."""

    titles: list[str]
    rows: dict[str, list[str]]
    marks: dict[str, str]


SMALL = io.BytesIO()
Image.new("RGB", (2, 2)).save(SMALL, "PNG")


@pytest.fixture(scope="module")
def drawn() -> list[Figure]:
    return []


@pytest.fixture(scope="module")
def built(zoo: Collected, drawn: list[Figure]) -> Report:
    """The page, with figures kept instead of rendered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "png", lambda figure: drawn.append(figure) or SMALL.getvalue())
        return page.build(zoo)


@pytest.fixture(scope="module")
def tables(built: Report) -> dict[str, Table]:
    """The tables of the page, by their captions."""
    found = {}
    for html in re.findall("<table>.*?</table>", built.html, re.DOTALL):
        caption, titles, *rows = re.findall("<(?:caption|tr)(.*?)</(?:caption|tr)>", html, re.DOTALL)
        marks = [row.partition(">")[0].removeprefix(' class="').rstrip('"') for row in rows]
        cells = [_cells(row) for row in rows]
        named = {row[0]: mark for row, mark in zip(cells, marks, strict=True) if mark}
        found[caption.partition(">")[2]] = Table(_cells(titles), {row[0]: row for row in cells}, named)
    return found


def _cells(row: str) -> list[str]:
    cells = re.findall("<t[hd].*?>(.*?)</t[hd]>", row, re.DOTALL)
    return [" ".join(unescape(re.sub("<.*?>", "", cell)).split()) for cell in cells]


def test_the_table_of_all_methods_holds_both_stages(tables: dict[str, Table]) -> None:
    table = tables["Test mAP of both stages, digits"]
    assert table.titles == [
        "Method", "Linear head", "Fine-tuned", "Gain", "Protocol", "Learning rates, linear head",
        "Learning rates, fine-tuned", "Knows the label density",
    ]  # fmt: skip
    rows = table.rows
    assert len(rows) == 28
    assert rows["GR (recipe)"][1:5] == ["–", "81.5 ± 0.7", rows["GR (recipe)"][3], "published"]
    assert rows["GR"][4:] == ["common", "0.01, 0.001 *", "0.01, 0.001 *", "no"]
    assert rows["EN"][-1] == "estimated" and "†" not in rows["EN"][0]
    assert rows["ROLE"][-1] == "yes" and rows["PLC (from an) from AN's linear head"][1] == "–"


def test_learning_rates_are_those_of_each_seed_in_turn() -> None:
    assert scores._rates([0.01, 0.001, 0.001], edge=False) == "0.01, 0.001, 0.001"
    assert scores._rates([0.01, 0.001], edge=True) == "0.01, 0.001 *"


def test_a_stage_names_the_head_of_each_row_and_ranks_within_it(tables: dict[str, Table], built: Report) -> None:
    table = tables["End to end, fresh head, digits"]
    place = table.titles.index("Head")
    assert list(table.rows) == ["MIME", "SCL", "AN", "PLC"]  # PLC scores more than AN
    assert [row[place] for row in table.rows.values()] == ["bottleneck", "linear", "linear", "label embedding"]
    assert table.marks == {"MIME": "best", "PLC": "best", "SCL": "best", "AN": "reference"}
    assert "Rows with different heads do not compare" in built.html


def test_a_stage_names_the_protocol_of_each_row_where_they_differ(tables: dict[str, Table], built: Report) -> None:
    table = tables["Fine-tuned from that head, digits"]
    place = table.titles.index("Protocol")
    assert [name for name, row in table.rows.items() if row[place] == "published"] == ["GR (recipe)"]
    assert "Protocol" not in tables["Linear head, backbone frozen, digits"].titles
    words = Reader(built.html).words
    assert words.count("Protocol common: the stage's own recipe for every method.") == 5
    assert words.count("Protocol published: each method by the recipe of its source.") == 2
    assert table.marks["IUN sees the true negatives"] == "reference"


def test_a_started_variant_says_whose_head_it_was(built: Report) -> None:
    assert "PLC (from an)" in built.html and "from AN&#39;s linear head" in built.html


def test_every_method_is_in_the_files_of_numbers(built: Report) -> None:
    methods = set(built.files.tables["digits-side_by_side"]["method"])
    assert {"gr", "plc", "full"} <= methods
    for name in ("digits-finetune-wasserstein", "digits-finetune-calibration"):
        assert built.files.tables[name]["method"].nunique() >= 24, name
    assert len(built.files.tables["digits-finetune-val_map_each"].columns) == 1 + 2 * 28


def test_a_figure_names_few_and_names_stay_apart(built: Report, drawn: list[Figure]) -> None:
    many = [figure for figure in drawn if any(len(axes.lines) > 20 for axes in figure.axes)]
    curves = [figure for figure in many if figure.axes[0].get_ylabel() in ("val mAP (%)", "pooled distance on val")]
    assert len(curves) == 4
    for figure in curves:
        figure.canvas.draw()
        texts = figure.axes[0].texts
        names = {text.get_text() for text in texts}
        assert len(names) == len(texts) == figures.NAMED and {"AN", "Full labels", "IUN"} <= names
        boxes = [Text.get_window_extent(text) for text in texts]  # without the line to the curve's end
        edges = sorted((box.y0, box.y1) for box in boxes)
        assert all(below[1] <= above[0] + 1 for below, above in zip(edges, edges[1:], strict=False))


def test_what_a_figure_names_is_said() -> None:
    def few(named: str, rest: str, verb: str) -> str:
        look = figures.Look("", figures.Style("", "-", "o"))
        arms = {name: replace(look, faint=name in rest.split()) for name in f"{named} {rest}".split()}
        return Chosen({("finetune", name, ""): look for name, look in arms.items()}).few(verb, "x")

    assert few("an full m1 m2", "", "Named") == ""
    assert few("an full m1 m2 m3", "m4 m5", "Named") == "Named: the references and the 3 highest of 7 in test mAP; x."
    assert few("m1 m2 m3", "m4 m5", "Drawn") == "Drawn: the 3 highest of 5 in test mAP; x."


def test_the_best_of_each_stage_get_colours_first(zoo: Collected) -> None:
    drawn = Page(zoo)
    result = drawn.results["digits"]
    best = [
        next(method for method in result.ranked(stage)["method"] if method not in ("full", "iun"))
        for stage in ("linear_init", "finetune", "end_to_end", "lac")
    ]
    styles = [drawn.style("digits", ("finetune", method, "")) for method in dict.fromkeys(best)]
    assert len({style.colour for style in styles}) == len(styles) and {style.line for style in styles} == {"-"}
    shown = drawn.choose(result, result.arms[result.arms["stage"] == "linear_init"]).shown
    assert len(shown) == figures.NAMED and {"an", "full", "iun"} <= {method for _, method, _ in shown}


def test_of_few_all_are_named(zoo: Collected) -> None:
    drawn = Page(zoo)
    every = [("finetune", "an", ""), ("finetune", "gr", "recipe")]
    assert drawn.choose(drawn.results["digits"], every).shown == every
