import io
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from pipeline.report import figures
from pipeline.report.figures import Calibration, Score, Series, Style

RED = Style("#D55E00", "-", "o")


def _line(label: str, y: list[float | None], **more: Any) -> Series:
    return Series(label, RED, [float(x) for x in range(1, len(y) + 1)], y, **more)


BOWL = np.linspace(-1, 1, 5)[:, None] ** 2 + np.linspace(-1, 1, 5)[None] ** 2
HOLE = BOWL.copy()
HOLE[0, 0] = np.inf
CASES = {
    "curves": lambda: figures.curves(
        [_line("A", [1, 2, None]), _line("B", [2, 1, 1], std=[0.1] * 3, marked=[2])], x="x", y="y"
    ),
    "one epoch": lambda: figures.curves([_line("A", [1.0], marked=[1])], x="x", y="y"),
    "nothing known": lambda: figures.curves([_line("A", [None, None])], x="x", y="y"),
    "flat": lambda: figures.curves([_line("A", [1, 1]), _line("B", [1, 1])], x="x", y="y"),
    "multiples": lambda: figures.multiples([_line("A", [1, -1])], x="x", y="y"),
    "many multiples": lambda: figures.multiples([_line(str(n), [1, 2]) for n in range(12)], x="x", y="y"),
    "scores": lambda: figures.scores(
        [("S", [Score("A", RED, [1, 3], 2, 1.4), Score("B", RED, [1], 1, None)], 1, 2)], x="x"
    ),
    "named and faint": lambda: figures.curves([_line("A", [1, 2]), _line("B", [0, 9], faint=True)], x="x", y="y"),
    "multiples over a reference": lambda: figures.multiples(
        [_line("A", [1, -1], faint=True), _line("B", [1, 2])],
        x="x",
        y="y",
        reference=_line("R", [0, 0]),
        notes=["-2", ""],
    ),
    "scores far below": lambda: figures.scores(
        [("S", [Score("A", RED, [9], 9, None, True), Score("B", RED, [-9], -9, 1.0)], 8, 9)], x="x"
    ),
    "rounds with faint ones": lambda: figures.rounds(
        [("T", [_line("A", [0.5, 0.6]), _line("B", [0.1, 0.2], faint=True)], None)], x="x"
    ),
    "scatter": lambda: figures.scatter([("A", RED, [0.1, 0.2], [0.2, 0.1])], x="x", y="y"),
    "scatter at 0": lambda: figures.scatter([("A", RED, [0.0], [0.0])], x="x", y="y"),
    "1-D": lambda: figures.landscapes_1d([_line("A", [2, 1, None])], [1.0]),
    "2-D": lambda: figures.surfaces([("A", RED, np.linspace(-1, 1, 5), m, 0.0) for m in (BOWL, HOLE, 0 * BOWL)]),
    "flat 2-D": lambda: figures.surfaces([("A", RED, np.linspace(-1, 1, 5), 0 * BOWL, 0.0)]),
    "rounds": lambda: figures.rounds([("T", [_line("A", [0.5, None])], 0.9), ("U", [_line("A", [1, 1])], None)], x="x"),
    "calibration": lambda: figures.calibration(
        [Calibration("A", RED, ([0.1], [0.2]), None), Calibration("B", RED, None, ([0, 1], [0, 1]))], ([0, 1], [0, 1])
    ),
    "supports": lambda: figures.supports(["<b>$x$", "y" * 60], [3, 0], [1, None], [0.5, None]),
    "many classes": lambda: figures.supports([str(n) for n in range(200)], list(range(200)), [1] * 200, [0.1] * 200),
}


@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_a_png_without_date_or_software_and_the_same_twice(name: str) -> None:
    data = CASES[name]()
    image = Image.open(io.BytesIO(data))
    image.load()
    assert image.format == "PNG"
    assert set(image.info) <= {"dpi"}
    assert image.width <= figures.WIDTH * figures.DPI
    assert len(set(image.convert("L").tobytes())) > 5  # something is drawn
    assert CASES[name]() == data


def test_styles_belong_to_methods_and_differ() -> None:
    methods = [f"m{n}" for n in range(20)] + ["an", "full", "iun"]
    found = figures.styles(methods, "an", ("full", "iun"))
    assert set(found) == set(methods)
    assert len({(style.colour, str(style.line), style.marker) for style in found.values()}) == len(methods)
    assert len({found[f"m{n}"].colour for n in range(7)}) == 7
    assert found["full"].colour == found["iun"].colour not in {found[f"m{n}"].colour for n in range(20)}
    assert found["m0"] == figures.styles(["m0", "new"], "an", ("full", "iun"))["m0"]
    assert figures.varied(found["m0"], 0).colour == found["m0"].colour
    assert figures.varied(found["m0"], 0) != found["m0"] != figures.varied(found["m0"], 1)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures instead of their bytes."""
    kept: list[Figure] = []
    monkeypatch.setattr(figures, "png", lambda figure: kept.append(figure) or b"")
    return kept


def test_faint_lines_have_no_name_and_do_not_stretch_the_axis(drawn: list[Figure]) -> None:
    lines = [_line("A", [50.0, 60]), _line("B", [55.0, 58]), _line("C", [1.0, 57], faint=True)]
    figures.curves(lines, x="x", y="y")
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == ["B", "A"]
    low, high = axes.get_ylim()
    assert 49 < low < 50 and 60 < high < 61
    figures.rounds([("T", lines, None)], x="x")
    assert [text.get_text() for text in drawn[1].legends[0].texts] == ["A", "B"]


def test_a_legend_lies_beside_its_panels(drawn: list[Figure]) -> None:
    figures.rounds([(title, [_line(f"method {n}", [1, 2]) for n in range(8)], None) for title in "TUV"], x="x")
    figure = drawn[0]
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert all(not legend.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_a_score_far_below_the_baseline_is_an_arrow(drawn: list[Figure]) -> None:
    rows = [Score("full", RED, [90], 90, None), Score("an", RED, [80], 80, None), Score("bad", RED, [20], 20, 0.5)]
    panels = [("S", rows, 80.0, 90.0)]
    assert figures.cut(panels) == 70 and figures.cut([("S", rows, None, 90.0)]) == -float("inf")
    figures.scores(panels, x="x")
    axes = drawn[0].axes[0]
    assert axes.get_xlim()[0] > 70
    assert [line.get_marker() for line in axes.lines].count("<") == 1
    assert "20.0" in [text.get_text() for text in axes.texts]
    figures.scores([("S", rows, None, None)], x="x")
    assert drawn[1].axes[0].get_xlim()[0] < 20


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ((55.6, 56.8), (53.7, 58.7)),
        ((50.0, 60.0), (50.0, 60.0)),
        ((98.0, 99.0), (95.0, 100.0)),
        ((99.0, 100.5), (95.5, 100.5)),
    ],
)
def test_a_narrow_range_is_widened_about_its_middle_but_not_past_the_top(
    value: tuple[float, float], wanted: tuple[float, float]
) -> None:
    assert figures.widened(*value, 5.0, 100.0) == pytest.approx(wanted)


def test_axes_of_scores_magnify_no_small_difference(drawn: list[Figure]) -> None:
    rows = [Score(name, RED, [mean], mean, None) for name, mean in (("A", 56.8), ("B", 55.6))]
    figures.scores([("S", rows, None, None)], x="x")
    figures.curves([_line("A", [55.6, 56.8])], x="x", y="y", least=figures.POINTS)
    figures.curves([_line("A", [0.1, 0.2])], x="x", y="y")
    score, curve, other = (figure.axes[0] for figure in drawn)
    for low, high in (score.get_xlim(), curve.get_ylim()):
        assert high - low == pytest.approx(5) and low < 55.6 and high > 56.8
    assert other.get_ylim()[1] < 1


def test_names_at_the_lines_ends_do_not_overlap(drawn: list[Figure]) -> None:
    figures.curves([_line(f"method {n}", [50.0, 60 + 0.01 * n]) for n in range(12)], x="x", y="y")
    figure = drawn[0]
    figure.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]  # without the line to the curve's end
    assert len(boxes) == 12
    edges = sorted((box.y0, box.y1) for box in boxes)
    assert all(below[1] <= above[0] + 1 for below, above in zip(edges, edges[1:], strict=False))
    assert all(box.x1 <= figure.bbox.width and 0 <= box.y0 and box.y1 <= figure.bbox.height for box in boxes)


def test_surfaces_share_one_scale(drawn: list[Figure]) -> None:
    grid = np.linspace(-1, 1, 5)
    figures.surfaces([("A", RED, grid, BOWL - 1, -1.0), ("B", RED, grid, 3 * BOWL, 0.0)])
    filled = [axes.collections[0] for axes in drawn[0].axes[:2]]
    assert {(item.norm.vmin, item.norm.vmax) for item in filled} == {(-1.0, 6.0)}
