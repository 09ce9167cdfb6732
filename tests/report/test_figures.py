import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from pipeline.report import figures
from pipeline.report.figures import Look, Style
from pipeline.report.frames import ARM
from pipeline.report.read import Landscape

RED = Style("#D55E00", "-", "o")
NAN = np.nan


def _looks(frame: pd.DataFrame, faint: str = "") -> figures.Looks:
    """Every arm in red, under its method's name; those of ``faint`` are faint."""
    return {arm: Look(arm[1], RED, arm[1] in faint.split()) for arm in frame[ARM].itertuples(index=False, name=None)}


def _frame(method: str, stage: str = "S", **columns: Any) -> pd.DataFrame:
    return pd.DataFrame(columns).assign(stage=stage, method=method, variant="")


def _line(method: str, y: list[float], **more: Any) -> pd.DataFrame:
    return _frame(method, epoch=np.arange(1.0, len(y) + 1), y=y, **{"selected": [False] * len(y), **more})


def _curves(*lines: pd.DataFrame, faint: str = "", **more: Any) -> bytes:
    frame = pd.concat(lines)
    return figures.curves(frame, "y", _looks(frame, faint), x="x", y="y", **more)


def _multiples(*lines: pd.DataFrame, faint: str = "", **more: Any) -> bytes:
    frame = pd.concat(lines)
    return figures.multiples(frame, "y", _looks(frame, faint), y="y", **more)


def _score(method: str, values: list[float], std: float = NAN) -> pd.DataFrame:
    mean = float(np.mean(values))
    return _frame(method, test_map=[mean], test_map_std=[std], test_maps=[values], density=[method == "A"])


def _scores(*rows: pd.DataFrame, faint: str = "", truth: bool = True) -> bytes:
    frame = pd.concat(rows)
    return figures.scores(frame, _looks(frame, faint), titles={"S": "S"}, truth=truth, x="x")


def _rounds(*lines: pd.DataFrame, measures: tuple = (("T", "y", None),), faint: str = "") -> bytes:
    frame = pd.concat(lines)
    return figures.rounds(frame, _looks(frame, faint), measures)


def _scatter(low: list[float], high: list[float]) -> bytes:
    frame = _frame("A", baseline=low, distance=high)
    return figures.scatter(frame, _looks(frame), x="x", y="y")


def _surfaces(*planes: np.ndarray, centre: float = 0.0) -> bytes:
    grid = np.linspace(-1, 1, 5)
    items = [
        Landscape("d", f"m{n}", 0, 0, grid, grid, grid, plane, centre, 9, "S", 1) for n, plane in enumerate(planes)
    ]
    return figures.surfaces(items, {("S", item.method, ""): Look("A", RED) for item in items})


def _landscape() -> bytes:
    line = _frame("A", offset=[-1.0, 0, 1], loss=[2, 1, NAN], centre=1.0, selected=[False, True, False])
    return figures.landscapes_1d(line, _looks(line))


def _calibration() -> bytes:
    parts = [_frame("A", mean_belief=[0.1], fraction=[0.2], quantity="probability"),
             _frame("B", mean_belief=[0, 1], fraction=[0, 1], quantity="belief")]  # fmt: skip
    return figures.calibration(pd.concat(parts), _looks(pd.concat(parts)), ([0, 1], [0, 1]))


def _supports(names: list[str], support: list[int], observed: list[int | None], rate: list[float]) -> bytes:
    columns = {"class": names, "support_train": support, "false_negative_rate": rate}
    return figures.supports(pd.DataFrame(columns).assign(observed_positive=pd.array(observed, dtype="Int64")))


BOWL = np.linspace(-1, 1, 5)[:, None] ** 2 + np.linspace(-1, 1, 5)[None] ** 2
HOLE = BOWL.copy()
HOLE[0, 0] = np.inf
MANY = [str(n) for n in range(200)]
CASES = {
    "curves": lambda: _curves(_line("A", [1, 2, NAN]), _line("B", [2, 1, 1], y_std=0.1, selected=[False, True, False])),
    "one epoch": lambda: _curves(_line("A", [1.0], selected=[True])),
    "nothing known": lambda: _curves(_line("A", [NAN, NAN])),
    "flat": lambda: _curves(_line("A", [1, 1]), _line("B", [1, 1])),
    "named and faint": lambda: _curves(_line("A", [1, 2]), _line("B", [0, 9]), faint="B"),
    "multiples": lambda: _multiples(_line("A", [1, -1])),
    "many multiples": lambda: _multiples(*(_line(str(n), [1, 2]) for n in range(12))),
    "multiples over a reference": lambda: _multiples(
        _line("A", [1, -1]), _line("B", [1, 2]), faint="A", reference=("S", "B", ""), notes=["-2", ""]
    ),
    "scores": lambda: _scores(_score("full", [2, 2]), _score("A", [1, 3], 1.4), _score("an", [1])),
    "scores far below": lambda: _scores(
        _score("full", [9]), _score("an", [8]), _score("A", [9]), _score("B", [-9], 1.0), faint="A"
    ),
    "rounds": lambda: _rounds(_line("A", [0.5, NAN], z=1.0), measures=(("T", "y", 0.9), ("U", "z", None))),
    "rounds with faint ones": lambda: _rounds(_line("A", [0.5, 0.6]), _line("B", [0.1, 0.2]), faint="B"),
    "scatter": lambda: _scatter([0.1, 0.2], [0.2, 0.1]),
    "scatter at 0": lambda: _scatter([0.0], [0.0]),
    "1-D": _landscape,
    "2-D": lambda: _surfaces(BOWL, HOLE, 0 * BOWL),
    "flat 2-D": lambda: _surfaces(0 * BOWL),
    "calibration": _calibration,
    "supports": lambda: _supports(["<b>$x$", "y" * 60], [3, 0], [1, None], [0.5, NAN]),
    "given supports": lambda: _supports(["a", "b"], [3, 0], [3, 0], [NAN, NAN]),
    "many classes": lambda: _supports(MANY, list(range(200)), [1] * 200, [0.1] * 200),
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
    lines = [_line("A", [50.0, 60]), _line("B", [55.0, 58]), _line("C", [1.0, 57])]
    _curves(*lines, faint="C")
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == ["B", "A"]
    low, high = axes.get_ylim()
    assert 49 < low < 50 and 60 < high < 61
    _rounds(*lines, faint="C")
    assert [text.get_text() for text in drawn[1].legends[0].texts] == ["A", "B"]


def test_a_legend_lies_beside_its_panels(drawn: list[Figure]) -> None:
    _rounds(*(_line(f"method {n}", [1, 2]) for n in range(8)), measures=tuple((title, "y", None) for title in "TUV"))
    figure = drawn[0]
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert all(not legend.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_a_score_far_below_the_baseline_is_an_arrow(drawn: list[Figure]) -> None:
    rows = [_score("full", [90]), _score("an", [80]), _score("bad", [20], 0.5)]
    assert figures.cut(pd.concat(rows), True) == 70 and figures.cut(pd.concat(rows), False) == -float("inf")
    assert figures.cut(pd.concat(rows[::2]), True) == -float("inf")
    _scores(*rows)
    axes = drawn[0].axes[0]
    assert axes.get_xlim()[0] > 70
    assert [line.get_marker() for line in axes.lines].count("<") == 1
    assert "20.0" in [text.get_text() for text in axes.texts]
    assert axes.patches, "the band from the baseline to the ceiling"
    _scores(*rows, truth=False)
    assert drawn[1].axes[0].get_xlim()[0] < 20 and not drawn[1].axes[0].patches


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
    _scores(_score("A", [56.8]), _score("B", [55.6]))
    _curves(_line("A", [55.6, 56.8]), least=figures.POINTS)
    _curves(_line("A", [0.1, 0.2]))
    score, curve, other = (figure.axes[0] for figure in drawn)
    for low, high in (score.get_xlim(), curve.get_ylim()):
        assert high - low == pytest.approx(5) and low < 55.6 and high > 56.8
    assert other.get_ylim()[1] < 1


def test_names_at_the_lines_ends_do_not_overlap(drawn: list[Figure]) -> None:
    _curves(*(_line(f"method {n}", [50.0, 60 + 0.01 * n]) for n in range(12)))
    figure = drawn[0]
    figure.canvas.draw()
    boxes = [Text.get_window_extent(text) for text in figure.axes[0].texts]  # without the line to the curve's end
    assert len(boxes) == 12
    edges = sorted((box.y0, box.y1) for box in boxes)
    assert all(below[1] <= above[0] + 1 for below, above in zip(edges, edges[1:], strict=False))
    assert all(box.x1 <= figure.bbox.width and 0 <= box.y0 and box.y1 <= figure.bbox.height for box in boxes)


def test_surfaces_share_one_scale(drawn: list[Figure]) -> None:
    _surfaces(BOWL - 1, 3 * BOWL)
    filled = [axes.collections[0] for axes in drawn[0].axes[:2]]
    assert {(item.norm.vmin, item.norm.vmax) for item in filled} == {(-1.0, 6.0)}
