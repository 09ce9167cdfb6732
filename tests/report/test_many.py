"""The page of nearly thirty methods: what is named, what is grey, and which rows compare."""

import io

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from pipeline.report import figures, page, scores, tables
from pipeline.report.collect import Collected, Row
from pipeline.report.draft import Draft, few
from pipeline.report.page import Report

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
def blocks(zoo: Collected) -> list[Row]:
    """All blocks of the section of mAP, those in boxes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "png", lambda figure: SMALL.getvalue())
        found = scores.maps(Draft(zoo, tables.results(zoo)))["blocks"]
    return [inner for block in found for inner in (block["blocks"] if block["kind"] == "details" else [block])]


def table(blocks: list[Row], caption: str) -> tuple[list[str], dict[str, list[str]]]:
    """Titles of the columns, and the cells of each row by its method."""
    block = next(block for block in blocks if block["kind"] == "table" and block["caption"].startswith(caption))
    cells = [[cell["text"] if isinstance(cell, dict) else cell for cell in row["cells"]] for row in block["rows"]]
    return [column["title"] for column in block["columns"]], {row[0]: row for row in cells}


def marks(blocks: list[Row], caption: str) -> dict[str, str]:
    block = next(block for block in blocks if block["kind"] == "table" and block["caption"].startswith(caption))
    return {row["cells"][0]["text"]: row["mark"] for row in block["rows"] if row["mark"]}


def test_the_table_of_all_methods_holds_both_stages(blocks: list[Row]) -> None:
    titles, rows = table(blocks, "Test mAP of both stages")
    assert titles == [
        "Method", "Linear head", "Fine-tuned", "Gain", "Protocol", "Learning rates, linear head",
        "Learning rates, fine-tuned", "Knows the label density",
    ]  # fmt: skip
    assert len(rows) == 28
    assert rows["GR (recipe)"][1:5] == ["–", "81.5 ± 0.7", rows["GR (recipe)"][3], "published"]
    assert rows["GR"][4:] == ["common", "0.01, 0.001 *", "0.01, 0.001 *", "no"]
    assert rows["ROLE"][-1] == "yes" and rows["PLC (from an)"][1] == "–"


def test_learning_rates_are_those_of_each_seed_in_turn() -> None:
    row = {"learning_rate": [0.01, 0.001, 0.001], "edge": False}
    assert scores._rates(row, each=True) == "0.01, 0.001, 0.001"
    assert scores._rates(row | {"edge": True}, each=False) == "0.01, 0.001 *"


def test_a_stage_names_the_head_of_each_row_and_ranks_within_it(blocks: list[Row]) -> None:
    titles, rows = table(blocks, "End to end")
    place = titles.index("Head")
    heads = [row[place] for row in rows.values()]
    assert list(rows) == ["MIME", "SCL", "AN", "PLC"]  # PLC scores more than AN
    assert heads == ["bottleneck", "linear", "linear", "label embedding"]
    assert marks(blocks, "End to end") == {"MIME": "best", "PLC": "best", "SCL": "best", "AN": "reference"}
    text = " ".join(block["text"] for block in blocks if block["kind"] == "text")
    assert "Rows with different heads do not compare" in text


def test_a_stage_names_the_protocol_of_each_row_where_they_differ(blocks: list[Row]) -> None:
    titles, rows = table(blocks, "Fine-tuned from that head")
    place = titles.index("Protocol")
    assert {name for name, row in rows.items() if row[place] == "published"} == {"GR (recipe)"}
    assert "Protocol" not in table(blocks, "Linear head, backbone frozen")[0]
    notes = [block["text"] for block in blocks if block["kind"] == "text" and block["class"] == "note"]
    assert sum("Protocol common: the stage's own recipe for every method." in note for note in notes) == 5
    assert sum("Protocol published: each method by the recipe of its source." in note for note in notes) == 2
    assert marks(blocks, "Fine-tuned from that head")["IUN"] == "reference"


def test_a_started_variant_says_whose_head_it_was(built: Report) -> None:
    assert "PLC (from an)" in built.html and "from AN&#39;s linear head" in built.html


def test_every_method_is_in_the_files_of_numbers(built: Report) -> None:
    methods = {row["method"] for row in built.files.tables["digits-side_by_side"]}
    assert {"gr", "plc", "full"} <= methods
    for name in ("digits-finetune-wasserstein", "digits-finetune-calibration"):
        assert len({row["method"] for row in built.files.tables[name]}) >= 24, name
    assert len(built.files.tables["digits-finetune-val_map_each"][0]) == 1 + 2 * 28


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
    every = [("finetune", name, "") for name in ("an", "full", *(f"m{n}" for n in range(10)))]
    assert few(every, every, "Named", "the rest are grey") == ""
    assert few(every[:5], every, "Named", "the rest are grey") == (
        " Named: the references and the 3 best of 12 in test mAP; the rest are grey."
    )
    assert few(every[2:5], every[2:], "Drawn", "x") == " Drawn: the 3 best of 10 in test mAP; x."


def test_the_best_of_each_stage_get_colours_first(zoo: Collected) -> None:
    results = tables.results(zoo)
    draft = Draft(zoo, results)
    best = [
        next(row["method"] for row in tables.ranked(results, "digits", stage) if row["method"] not in ("full", "iun"))
        for stage in ("linear_init", "finetune", "end_to_end", "lac")
    ]
    styles = [draft.style("digits", ("finetune", method, "")) for method in dict.fromkeys(best)]
    assert len({style.colour for style in styles}) == len(styles) and {style.line for style in styles} == {"-"}
    shown = draft.shown("digits", [("finetune", row["method"], "") for row in results if row["stage"] == "linear_init"])
    assert len(shown) == figures.NAMED and {"an", "full", "iun"} <= {method for _, method, _ in shown}


def test_of_few_all_are_named(zoo: Collected) -> None:
    draft = Draft(zoo, tables.results(zoo))
    every = [("finetune", "an", ""), ("finetune", "gr", "recipe")]
    assert draft.shown("digits", every) == every
