"""Figures of the page: each function takes plain numbers and returns PNG bytes.

One colour, line and marker belong to a method in every figure (``styles``). The colours are those of Okabe and Ito
(https://jfly.uni-koeln.de/color/), which colour-blind readers tell apart; lines and markers differ too. Of many lines,
some are named and the rest are ``faint``. The bytes depend on the numbers alone: no date and no software name is
written into them.
"""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

DPI = 110
WIDTH = 10.0  # inches; with DPI the width of the page's text
NAMED = 8
"""Lines of one panel that a reader tells apart; with more, some are named and the rest are faint and have no band."""
POINTS = 5.0
"""Points of mAP that an axis of scores spans at least: a narrower one would magnify what means nothing."""

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs on every machine
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa0a6",
    "axes.labelcolor": "#3c4043",
    "xtick.color": "#3c4043",
    "ytick.color": "#3c4043",
    "axes.grid": True,
    "grid.color": "#e8eaed",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195")
COLOURS = len(_COLOURS)
_DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_SIZES = {"P": 1.25, "X": 1.25, "^": 1.15, "v": 1.15}  # thin shapes look small beside a disc
_GREY = "#9aa0a6"
_FAINT = "#d3d7dc"
_SURFACE = "viridis"


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    line: Any
    marker: str


@dataclass(frozen=True)
class Series:
    """One line of a figure."""

    label: str
    style: Style
    x: Sequence[float]
    y: Sequence[float | None]
    """Means over seeds; None where undefined."""
    std: Sequence[float | None] = ()
    """Sample standard deviations; empty or None where there is one seed."""
    marked: Sequence[float] = field(default=())
    """Values of ``x`` that get a marker, such as the chosen epochs."""
    faint: bool = False
    """Whether it is one of the many that have no name in the figure."""


def styles(methods: Sequence[str], baseline: str, oracles: Sequence[str]) -> dict[str, Style]:
    """Assign one style to each method.

    Args:
        methods: Names, those first that are to differ most.
        baseline: Drawn in black.
        oracles: Drawn in grey, dashed.

    Returns:
        Style by name; colours repeat after seven methods, with another dash and marker.
    """
    chosen = {baseline: Style("#202124", "-", "o")}
    for place, name in enumerate(oracles):
        chosen[name] = Style("#80868b", _DASHES[1 + place % (len(_DASHES) - 1)], _MARKERS[1 + place % 6])
    others = [name for name in methods if name not in chosen]
    for place, name in enumerate(others):
        turn, colour = divmod(place, COLOURS)
        chosen[name] = Style(_COLOURS[colour], _DASHES[turn % len(_DASHES)], _MARKERS[(colour + turn) % len(_MARKERS)])
    return chosen


def varied(style: Style, place: int) -> Style:
    """Return the style of a method's variant: its colour with another dash and marker."""
    return Style(style.colour, _DASHES[1 + place % (len(_DASHES) - 1)], _MARKERS[(1 + place) % len(_MARKERS)])


def _size(style: Style, size: float) -> float:
    """Return the size at which a style's marker looks as large as a disc of ``size`` points."""
    return size * _SIZES.get(style.marker, 1.0)


def png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes without software name or date."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _grid(count: int, columns: int, cell: tuple[float, float], **sharing: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure with ``count`` panels, row by row."""
    columns = min(columns, count)
    rows = math.ceil(count / columns)
    figure = _figure(cell[0] * columns, cell[1] * rows)
    axes = figure.subplots(rows, columns, squeeze=False, **sharing)
    for spare in axes.ravel()[count:]:
        spare.set_visible(False)
    return figure, list(axes.ravel()[:count])


def _array(values: Sequence[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _line(axes: Axes, series: Series) -> None:
    x, y = np.asarray(series.x, dtype=np.float64), _array(series.y)
    if series.faint:
        axes.plot(x, y, color=_FAINT, linewidth=1, zorder=1.5)
        return
    axes.plot(x, y, color=series.style.colour, linestyle=series.style.line, linewidth=1.8, zorder=3)
    if len(x) == 1:
        axes.plot(x, y, color=series.style.colour, marker=series.style.marker, markersize=5, linestyle="none", zorder=4)
    if len(series.std):
        std = _array(series.std)
        axes.fill_between(x, y - std, y + std, color=series.style.colour, alpha=0.15, linewidth=0, zorder=2)
    for value in dict.fromkeys(series.marked):
        place = np.flatnonzero(x == value)
        if place.size:
            axes.plot(value, y[place[0]], marker=series.style.marker, markersize=_size(series.style, 6.5),
                      color=series.style.colour, markeredgecolor="white", markeredgewidth=1.0, linestyle="none",
                      zorder=5)  # fmt: skip


def _end_labels(axes: Axes, series: Sequence[Series], height: float) -> None:
    """Name each line at its right end, pushed apart so that no two names overlap.

    Args:
        axes: Panel whose lines are drawn.
        series: Its lines; faint ones have no name.
        height: Height of the panel in inches.
    """
    ends = []
    series = [item for item in series if not item.faint]
    for item in series:
        y = _array(item.y)
        known = np.flatnonzero(np.isfinite(y))
        if known.size:
            ends.append((float(y[known[-1]]), float(item.x[known[-1]]), item))
    if not ends:
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    step = 0.155 / height * (high - low)  # a line of text is about 0.155 inches
    ends.sort(key=lambda end: (end[0], end[2].label))
    places = _apart([end[0] for end in ends], step, low, high)
    right = max(end[1] for end in ends)
    left = min(float(min(item.x)) for item in series)
    reach = max(right - left, 1e-9)
    for (y, x, item), place in zip(ends, places, strict=True):
        axes.annotate(
            item.label, xy=(x, y), xytext=(right + 0.045 * reach, place), color=item.style.colour, fontsize=8.5,
            va="center", ha="left", annotation_clip=False,
            arrowprops={
                "arrowstyle": "-", "color": item.style.colour, "linewidth": 0.6, "alpha": 0.6, "shrinkA": 1,
                "shrinkB": 2,
            },
        )  # fmt: skip


def _apart(wanted: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Return heights at least ``step`` apart, in the given order and as near to the wanted ones as that allows.

    Isotonic regression of ``wanted[i] - i * step`` by pooling neighbours, clipped to [``low``, ``high``] if they fit.
    """
    pools: list[tuple[float, int]] = []  # (mean, number) of neighbours that share one shift
    for place, value in enumerate(wanted):
        mean, count = value - place * step, 1
        while pools and pools[-1][0] > mean:
            before, number = pools.pop()
            mean, count = (before * number + mean * count) / (number + count), number + count
        pools.append((mean, count))
    shifts = [mean for mean, count in pools for _ in range(count)]
    last = max(low, high - (len(wanted) - 1) * step)
    return [min(max(shift, low), last) + place * step for place, shift in enumerate(shifts)]


def widened(low: float, high: float, least: float, top: float = math.inf) -> tuple[float, float]:
    """Return a range around another that is at least ``least`` wide, and does not pass ``top`` for that."""
    extra = max(0.0, least - (high - low)) / 2
    over = max(0.0, high + extra - max(high, top))
    return low - extra - over, high + extra - over


def curves(series: Sequence[Series], *, x: str, y: str, least: float = 0.0) -> bytes:
    """Draw lines with their names at the right end.

    Args:
        series: The lines; where some are faint, the named ones choose the range of the vertical axis.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        least: What the vertical axis spans at least; 0: whatever the lines take.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        named = [item for item in series if not item.faint]
        height = max(3.6, 0.17 * len(named) + 1.6)
        figure = _figure(WIDTH, height)
        axes = figure.subplots()
        for item in series:
            _line(axes, item if len(series) <= NAMED else replace(item, std=()))
        _whole_ticks(axes)
        values = [value for item in named for value in item.y if value is not None]
        if values and len(named) < len(series):
            margin = 0.06 * (max(values) - min(values)) or 1e-3
            axes.set_ylim(min(values) - margin, max(values) + margin)
        axes.set_ylim(widened(*axes.get_ylim(), least, 100.0 if least else math.inf))
        _end_labels(axes, series, height - 0.9)
        axes.set(xlabel=x, ylabel=y)
        return png(figure)


def _whole_ticks(axes: Axes, most: int = 12) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(most, integer=True))


def multiples(
    series: Sequence[Series], *, x: str, y: str, reference: Series | None = None, notes: Sequence[str] = ()
) -> bytes:
    """Draw each line in a panel of its own, with its own vertical scale.

    Args:
        series: The lines, at least one.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        reference: A line that every panel shows in grey too, or None.
        notes: A few characters at the right of each panel's title, or nothing.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        columns = min(5, max(len(series), 3))
        rows = math.ceil(len(series) / columns)
        height = 1.75 * rows + 0.4
        figure = Figure(figsize=(WIDTH / columns * min(columns, len(series)), height))  # a layout engine takes seconds
        FigureCanvasAgg(figure)
        across = min(columns, len(series))
        width = figure.get_figwidth()
        left, right, top, bottom = 0.8, 0.08, 0.3, 0.6  # inches
        panels = figure.subplots(
            rows,
            across,
            squeeze=False,
            gridspec_kw={
                "left": left / width,
                "right": 1 - right / width,
                "top": 1 - top / height,
                "bottom": bottom / height,
                "wspace": 0.38,
                "hspace": 0.5,
            },
        ).ravel()
        for spare in panels[len(series) :]:
            spare.set_visible(False)
        for place, (axes, item) in enumerate(zip(panels, series, strict=False)):
            if reference is not None:
                _line(axes, replace(reference, std=(), marked=(), style=Style(_GREY, "-", "o")))
            _line(axes, replace(item, faint=False))
            _whole_ticks(axes, 6)
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.set_title(item.label, color=item.style.colour, fontsize=9)
            if place < len(notes):
                axes.set_title(notes[place], loc="right", fontsize=8, fontweight="normal", color="#5f6368")
            axes.tick_params(labelsize=8)
        figure.supxlabel(x, fontsize=9.5, color="#3c4043", y=0.1 / height)
        figure.supylabel(y, fontsize=9.5, color="#3c4043", x=0.08 / width)
        return png(figure)


@dataclass(frozen=True)
class Score:
    """One row of the dot plot: a method at a stage."""

    label: str
    style: Style
    values: Sequence[float]
    """One a seed."""
    mean: float
    std: float | None
    faint: bool = False
    """Whether it is drawn in grey."""


Panel = tuple[str, Sequence[Score], float | None, float | None]
"""(title, rows best first, baseline's mean or None, ceiling's mean or None)"""


def cut(panels: Sequence[Panel]) -> float:
    """Return the score below which the dot plot draws an arrow: one gap under the lowest baseline.

    Args:
        panels: Those of ``scores``.

    Returns:
        That score; minus infinity without a gap. One method that fails would else press all others together.
    """
    gaps = [(low, high - low) for _, _, low, high in panels if low is not None and high is not None and high > low]
    return min((low - gap for low, gap in gaps), default=-math.inf)


def scores(panels: Sequence[Panel], *, x: str) -> bytes:
    """Draw the final scores as dots with bars of one standard deviation, a panel for each stage.

    Args:
        panels: One a stage.
        x: Label of the common horizontal axis.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        everything = [value for _, rows, _, _ in panels for row in rows for value in (row.mean, *row.values)]
        shown = [value for value in everything if value >= cut(panels)] or everything
        margin = 0.04 * (max(shown) - min(shown)) or 0.5
        edge, end = widened(min(shown) - margin, max(shown) + margin, POINTS, 100.0)
        counts = [len(rows) for _, rows, _, _ in panels]
        figure = _figure(WIDTH, 0.27 * sum(counts) + 0.52 * len(panels) + 0.5)
        ratios = [count + 0.8 for count in counts]
        grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": ratios})
        for axes, (title, rows, low, high) in zip(grid.ravel(), panels, strict=True):
            if low is not None and high is not None and high > low:
                axes.axvspan(low, high, color="#f1f3f4", zorder=0, linewidth=0)
            for place, row in enumerate(rows):
                colour = _GREY if row.faint else row.style.colour
                if row.mean < edge:
                    axes.plot(edge + 0.3 * margin, place, marker="<", markersize=6, color=colour, zorder=3)
                else:
                    if len(row.values) > 1:
                        axes.plot(row.values, [place] * len(row.values), marker="|", markersize=9, linestyle="none",
                                  color=colour, alpha=0.55, zorder=2)  # fmt: skip
                    style = replace(row.style, marker="o") if row.faint else row.style
                    axes.errorbar(row.mean, place, xerr=row.std, color=colour, marker=style.marker,
                                  markersize=_size(style, 6.5), markeredgecolor="white", markeredgewidth=0.8,
                                  elinewidth=1.6, capsize=0, zorder=3)  # fmt: skip
                text = "#5f6368" if row.faint else colour
                axes.annotate(f"{row.mean:.1f}", xy=(1.01, place), xycoords=("axes fraction", "data"), va="center",
                              fontsize=9, color=text, annotation_clip=False)  # fmt: skip
            axes.set_yticks(range(len(rows)), [row.label for row in rows])
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.set_title(title)
            axes.grid(axis="y", visible=False)
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.set_xlim(edge, end)
        grid.ravel()[-1].set_xlabel(x)
        return png(figure)


def scatter(panels: Sequence[tuple[str, Style, Sequence[float], Sequence[float]]], *, x: str, y: str) -> bytes:
    """Draw one point a class against a baseline, with the line y = x.

    Args:
        panels: (label, style, baseline's values, method's values) of each method.
        x: Label of the baseline's axis.
        y: Label of the methods' axis.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        columns = min(4, max(len(panels), 3))
        figure, grid = _grid(len(panels), columns, (WIDTH / columns, WIDTH / columns + 0.35), sharex=True, sharey=True)
        everything = [value for _, _, low, high in panels for value in (*low, *high)]
        top = min(1.0, 1.08 * max(everything, default=1.0)) or 1.0
        for axes, (label, style, low, high) in zip(grid, panels, strict=True):
            axes.fill_between([0, top], [0, top], [top, top], color="#f6f8fa", linewidth=0, zorder=0)
            axes.plot([0, top], [0, top], color=_GREY, linewidth=1, zorder=1)
            axes.plot(
                low,
                high,
                linestyle="none",
                marker=style.marker,
                markersize=_size(style, 5.5),
                color=style.colour,
                markeredgecolor="white",
                markeredgewidth=0.7,
                alpha=0.9,
                zorder=3,
            )
            above = sum(b > a for a, b in zip(low, high, strict=True))
            axes.set_title(label, color=style.colour)
            axes.text(
                0.97,
                0.04,
                f"{above} of {len(low)} above",
                transform=axes.transAxes,
                ha="right",
                fontsize=8.5,
                color="#5f6368",
            )
            axes.set(xlim=(0, top), ylim=(0, top), aspect="equal")
        figure.supxlabel(x, fontsize=9.5, color="#3c4043")
        figure.supylabel(y, fontsize=9.5, color="#3c4043")
        return png(figure)


def landscapes_1d(series: Sequence[Series], centres: Sequence[float]) -> bytes:
    """Draw 1-D landscapes on one axis, as they are and raised from a common centre.

    Args:
        series: The curves.
        centres: Loss at offset 0 of each.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        height = 3.8
        figure = _figure(WIDTH, height)
        left, right = figure.subplots(1, 2)
        raised = [
            Series(item.label, item.style, item.x, [None if y is None else y - centre for y in item.y])
            for item, centre in zip(series, centres, strict=True)
        ]
        for axes, lines, title in ((left, series, "Loss"), (right, raised, "Rise above each centre")):
            axes.axvline(0, color=_GREY, linewidth=1, linestyle=(0, (4, 3)))
            for item in lines:
                _line(axes, item)
            axes.set(xlabel="offset along a filter-normalised direction", title=title)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            _end_labels(axes, lines, height - 0.9)
        left.set_ylabel("each method's own training loss")
        return png(figure)


def surfaces(panels: Sequence[tuple[str, Style, np.ndarray, np.ndarray, float]]) -> bytes:
    """Draw 2-D landscapes on one shared colour scale with the centre marked.

    Args:
        panels: (label, style, (n,) offsets, (n, n) losses at [first, second direction], loss at the centre) of each
            method.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        columns = min(4, max(len(panels), 3))
        across = min(columns, len(panels))
        side = WIDTH / columns - 1.4 / across - 0.2  # the colour bar and its label take 1.4 inches
        figure, grid = _grid(len(panels), columns, (WIDTH / columns, side + 0.75), sharex=True, sharey=True)
        values = np.concatenate([losses[np.isfinite(losses)] for _, _, _, losses, _ in panels])  # the centre is finite
        low, high = float(values.min()), float(values.max())
        if high <= low:
            high = low + 1e-6
        # A corner of one surface may lie a hundred times higher than another surface's rim: finer near the bottom.
        scale, levels = PowerNorm(1 / 3, low, high), low + (high - low) * np.linspace(0, 1, 25) ** 3
        for axes, (label, style, offsets, losses, centre) in zip(grid, panels, strict=True):
            axes.grid(visible=False)
            height = np.ma.masked_invalid(losses.T)
            axes.contourf(offsets, offsets, height, levels=levels, norm=scale, cmap=_SURFACE)
            inner = levels[(levels > height.min()) & (levels < height.max())]
            if inner.size:
                axes.contour(
                    offsets,
                    offsets,
                    height,
                    levels=inner,
                    colors="white",
                    linewidths=0.5,
                    linestyles="solid",
                    alpha=0.6,
                )
            axes.plot(0, 0, marker="+", markersize=11, markeredgewidth=2, color="white")
            axes.plot(0, 0, marker="+", markersize=9, markeredgewidth=1, color="black")
            axes.set_title(f"{label}: centre {centre:.3g}", color=style.colour, fontsize=9.5)
            axes.set(aspect="equal", xlabel="first direction", ylabel="second direction")
            axes.label_outer()
        mappable = ScalarMappable(norm=scale, cmap=_SURFACE)
        bar = figure.colorbar(mappable, ax=grid, label="own training loss", shrink=0.85, pad=0.015)
        bar.set_ticks(levels[::4].tolist(), labels=[f"{level:.2g}" for level in levels[::4]])
        bar.minorticks_off()
        return png(figure)


def rounds(panels: Sequence[tuple[str, Sequence[Series], float | None]], *, x: str) -> bytes:
    """Draw audit figures by round, one panel a measure, with one legend below.

    Args:
        panels: (title, lines, height of a dashed reference line or None) of each measure; the same lines in all panels.
        x: Label of the common horizontal axis.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        names = [item for item in panels[0][1] if not item.faint]
        columns = min(len(names), 6)
        figure = _figure(WIDTH, 3.0 + 0.22 * math.ceil(len(names) / columns))
        grid = figure.subplots(1, len(panels), squeeze=False, sharex=True).ravel()
        for axes, (title, series, level) in zip(grid, panels, strict=True):
            if level is not None:
                axes.axhline(level, color=_GREY, linestyle=(0, (4, 3)), linewidth=1)
            for item in series:
                _line(axes, item)
            _whole_ticks(axes, 8)
            axes.margins(y=0.12)
            axes.set(xlabel=x, title=title)
        handles = [
            Line2D(
                [],
                [],
                color=item.style.colour,
                linestyle=item.style.line,
                marker=item.style.marker,
                markersize=5,
                label=item.label,
            )
            for item in names
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8.5)
        return png(figure)


Points = tuple[Sequence[float], Sequence[float]]
"""(mean belief, share truly present) of each bin that holds cells; both in [0, 1]."""


@dataclass(frozen=True)
class Calibration:
    """Belief against the share of true positives, for one method."""

    label: str
    style: Style
    probability: Points | None
    """The network's probability."""
    belief: Points | None
    """The method's own belief."""


def calibration(panels: Sequence[Calibration], curve: Points | None) -> bytes:
    """Draw the share of true positives among unknown cells against the belief that they are present.

    Args:
        panels: One method each.
        curve: (p, k(p)) of the reference curve of a calibrated network, or None.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        columns = min(5, max(len(panels), 3))
        figure, grid = _grid(len(panels), columns, (WIDTH / columns, WIDTH / columns + 0.4), sharex=True, sharey=True)
        for axes, item in zip(grid, panels, strict=True):
            axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, zorder=1)
            if curve is not None:
                axes.plot(*curve, color="#5f6368", linewidth=1.1, linestyle=(0, (1.5, 1.5)), zorder=2)
            colour = item.style.colour
            if item.probability is not None:
                axes.plot(*item.probability, color=colour, linewidth=1.6, marker="o", markersize=5.5,
                          markeredgecolor="white", markeredgewidth=0.8, zorder=3)  # fmt: skip
            if item.belief is not None:
                axes.plot(*item.belief, color=colour, linewidth=1, linestyle="--", marker="o", markersize=6,
                          markerfacecolor="none", zorder=4)  # fmt: skip
            axes.set_title(item.label, color=colour, fontsize=9.5)
            axes.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), aspect="equal")
            axes.set_xticks([0, 0.5, 1])
            axes.set_yticks([0, 0.5, 1])
        figure.supxlabel("taken to be present", fontsize=9.5, color="#3c4043")
        figure.supylabel("truly present", fontsize=9.5, color="#3c4043")
        return png(figure)


def supports(
    names: Sequence[str], support: Sequence[int], observed: Sequence[float | None], rate: Sequence[float | None]
) -> bytes:
    """Draw how many positives each class has, how many are observed, and the share of false negatives.

    Args:
        names: Class names, in the order to draw.
        support: Positives in the training split.
        observed: Observed positives there.
        rate: Share of the class's unknown training cells that are positive, in [0, 1]; where all are None, it and
            ``observed`` are left out.

    Returns:
        PNG bytes.
    """
    with matplotlib.rc_context(_RC):
        named = len(names) <= 90
        figure = _figure(WIDTH, max(2.6, 0.185 * len(names) + 1.0) if named else 6.0)
        known = any(value is not None for value in rate)
        panels = figure.subplots(1, 1 + known, sharey=True, squeeze=False).ravel()
        left = panels[0]
        places, height = np.arange(len(names)), 0.72 if named else 1.0
        left.barh(places, support, height=height, color="#c6dbef", label="positives")
        if known:
            left.barh(places, _array(observed), height=height, color="#0072B2", label="of these observed")
        left.set_title("Positives in the training split", pad=22)
        left.legend(
            loc="lower left", bbox_to_anchor=(-0.01, 0.995), ncols=2, fontsize=8.5, borderaxespad=0.2, handlelength=1.1
        )
        left.set_xlabel("images")
        if known:
            panels[1].barh(places, 100 * _array(rate), height=height, color="#D55E00")
            panels[1].set_title("Unknown labels that are in truth present", pad=22)
            panels[1].set_xlabel("% of the class's unknown training labels")
        left.set_ylim(len(names) - 0.3, -0.7)
        if named:
            left.set_yticks(places, [_short(name) for name in names], fontsize=8.5)
        else:
            left.set_ylabel("classes, by number of positives")
        for axes in panels:
            axes.grid(axis="y", visible=False)
            axes.tick_params(axis="y", length=0)
        return png(figure)


def _short(name: str, limit: int = 28) -> str:
    """Return a class name as plain text for an axis: at most ``limit`` characters, and no mathematics in it."""
    text = name if len(name) <= limit else name[: limit - 1] + "…"
    return text.replace("$", r"\$")
