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
    methods = [f"m{n}" for n in range(20)] + ["an", "full"]
    found = figures.styles(methods, "an", "full")
    assert set(found) == set(methods)
    assert len({(style.colour, str(style.line), style.marker) for style in found.values()}) == len(methods)
    assert len({found[f"m{n}"].colour for n in range(7)}) == 7
    assert found["m0"] == figures.styles(["m0", "new"], "an", "full")["m0"]
    assert figures.varied(found["m0"], 0).colour == found["m0"].colour
    assert figures.varied(found["m0"], 0) != found["m0"] != figures.varied(found["m0"], 1)


def test_names_at_the_lines_ends_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "png", lambda figure: drawn.append(figure) or b"")
    figures.curves([_line(f"method {n}", [50.0, 60 + 0.01 * n]) for n in range(12)], x="x", y="y")
    figure = drawn[0]
    figure.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]  # without the line to the curve's end
    assert len(boxes) == 12
    edges = sorted((box.y0, box.y1) for box in boxes)
    assert all(below[1] <= above[0] + 1 for below, above in zip(edges, edges[1:], strict=False))
    assert all(box.x1 <= figure.bbox.width and 0 <= box.y0 and box.y1 <= figure.bbox.height for box in boxes)


def test_surfaces_share_one_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(figures, "png", lambda figure: drawn.append(figure) or b"")
    grid = np.linspace(-1, 1, 5)
    figures.surfaces([("A", RED, grid, BOWL - 1, -1.0), ("B", RED, grid, 3 * BOWL, 0.0)])
    filled = [axes.collections[0] for axes in drawn[0].axes[:2]]
    assert {(item.norm.vmin, item.norm.vmax) for item in filled} == {(-1.0, 6.0)}
