"""Figures of the page: pure functions of frames that return PNG bytes.

A frame holds one row a point, with the columns ``stage``, ``method`` and ``variant`` of its arm; ``value`` names the
column to draw, ``looks`` says how each arm is drawn, ``x`` and ``y`` are words for the axes.

One colour, line and marker belong to a method in every figure (``styles``). The colours are those of Okabe and Ito
(https://jfly.uni-koeln.de/color/), which colour-blind readers tell apart; lines and markers differ too. Of many lines,
some are named and the rest are ``faint``. The bytes depend on the numbers alone: no date, no software name.
"""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from pipeline.report.frames import BASELINE, CEILING, Arm, by_arm
from pipeline.report.read import Landscape

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
_SOFT = "#5f6368"
_AXIS = {"fontsize": 9.5, "color": "#3c4043"}
_DASHED = (0, (4, 3))
_SURFACE = "viridis"


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    line: Any
    marker: str


@dataclass(frozen=True)
class Look:
    """How an arm is drawn, and its name."""

    label: str
    style: Style
    faint: bool = False
    """Whether it is one of the many that have no name in the figure."""


Looks = Mapping[Arm, Look]


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


def _line(axes: Axes, rows: pd.DataFrame, value: str, look: Look, *, band: bool = True, over: str = "epoch") -> None:
    """Draw one arm: ``value`` over epochs, a band of ``<value>_std`` and markers where ``selected`` is true."""
    x, y, style = rows[over].to_numpy(float), rows[value].to_numpy(float), look.style
    if look.faint:
        axes.plot(x, y, color=_FAINT, linewidth=1, zorder=1.5)
        return
    axes.plot(x, y, color=style.colour, linestyle=style.line, linewidth=1.8, zorder=3)
    if len(x) == 1:
        axes.plot(x, y, color=style.colour, marker=style.marker, markersize=5, linestyle="none", zorder=4)
    if band and f"{value}_std" in rows and rows[f"{value}_std"].notna().any():
        std = rows[f"{value}_std"].to_numpy(float)
        axes.fill_between(x, y - std, y + std, color=style.colour, alpha=0.15, linewidth=0, zorder=2)
    for place in np.flatnonzero(rows["selected"]) if "selected" in rows else ():
        axes.plot(x[place], y[place], marker=style.marker, markersize=_size(style, 6.5), color=style.colour,
                  markeredgecolor="white", markeredgewidth=1.0, linestyle="none", zorder=5)  # fmt: skip


def _end_labels(axes: Axes, frame: pd.DataFrame, value: str, looks: Looks, height: float, over: str = "epoch") -> None:
    """Name each line at its right end, pushed apart so that no two names overlap.

    Args:
        axes: Panel whose lines are drawn.
        frame: Its lines; faint ones have no name.
        value: The column that is drawn.
        looks: How each arm is drawn.
        height: Height of the panel in inches.
        over: The column that it is drawn over.
    """
    ends, left = [], math.inf
    for arm, rows in by_arm(frame):
        if not looks[arm].faint:
            known = rows.dropna(subset=value)
            left = min(left, float(rows[over].min()))
            ends += [(float(known[value].iloc[-1]), float(known[over].iloc[-1]), looks[arm])] if len(known) else []
    if not ends:
        return
    low, high = axes.get_ylim()
    axes.set_ylim(low, high)
    step = 0.155 / height * (high - low)  # a line of text is about 0.155 inches
    ends.sort(key=lambda end: (end[0], end[2].label))
    places = _apart([end[0] for end in ends], step, low, high)
    right = max(end[1] for end in ends)
    reach = max(right - left, 1e-9)
    for (y, x, look), place in zip(ends, places, strict=True):
        colour = look.style.colour
        arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.6, "shrinkA": 1, "shrinkB": 2}
        axes.annotate(look.label, xy=(x, y), xytext=(right + 0.045 * reach, place), color=colour, fontsize=8.5,
                      va="center", ha="left", annotation_clip=False, arrowprops=arrow)  # fmt: skip


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


def curves(frame: pd.DataFrame, value: str, looks: Looks, *, x: str, y: str, least: float = 0.0) -> bytes:
    """Return a PNG of lines with their names at the right end.

    ``frame``: One row an arm and ``epoch``; where some arms are faint, the named ones choose the vertical range.
    ``least``: What the vertical axis spans at least; 0: whatever the lines take.
    """
    with matplotlib.rc_context(_RC):
        arms = by_arm(frame)
        named = [rows for arm, rows in arms if not looks[arm].faint]
        height = max(3.6, 0.17 * len(named) + 1.6)
        figure = _figure(WIDTH, height)
        axes = figure.subplots()
        for arm, rows in arms:
            _line(axes, rows, value, looks[arm], band=len(arms) <= NAMED)
        _whole_ticks(axes)
        values = pd.concat([rows[value] for rows in named]).dropna()
        if len(values) and len(named) < len(arms):
            margin = 0.06 * (values.max() - values.min()) or 1e-3
            axes.set_ylim(values.min() - margin, values.max() + margin)
        axes.set_ylim(widened(*axes.get_ylim(), least, 100.0 if least else math.inf))
        _end_labels(axes, frame, value, looks, height - 0.9)
        axes.set(xlabel=x, ylabel=y)
        return png(figure)


def _whole_ticks(axes: Axes, most: int = 12) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(most, integer=True))


def multiples(
    frame: pd.DataFrame, value: str, looks: Looks, *, y: str, reference: Arm | None = None, notes: Sequence[str] = ()
) -> bytes:
    """Return a PNG of each line in a panel of its own, with its own vertical scale.

    ``frame``: One row an arm and ``epoch``, at least one arm. ``reference``: An arm
    that every panel shows in grey too, or None. ``notes``: A few characters at the right of each panel's title, or
    nothing.
    """
    with matplotlib.rc_context(_RC):
        arms = by_arm(frame)
        figure, panels = _tight_grid(len(arms))
        grey = next((rows for arm, rows in arms if arm == reference), None)
        for place, (axes, (arm, rows)) in enumerate(zip(panels, arms, strict=True)):
            look = replace(looks[arm], faint=False)
            if grey is not None:
                _line(axes, grey.drop(columns="selected"), value, Look("", Style(_GREY, "-", "o")), band=False)
            _line(axes, rows, value, look)
            _whole_ticks(axes, 6)
            axes.yaxis.set_major_locator(MaxNLocator(4))
            axes.set_title(look.label, color=look.style.colour, fontsize=9)
            if place < len(notes):
                axes.set_title(notes[place], loc="right", fontsize=8, fontweight="normal", color=_SOFT)
            axes.tick_params(labelsize=8)
        figure.supxlabel("epoch", **_AXIS, y=0.1 / figure.get_figheight())
        figure.supylabel(y, **_AXIS, x=0.08 / figure.get_figwidth())
        return png(figure)


def _tight_grid(count: int) -> tuple[Figure, list[Axes]]:
    """Return a figure of ``count`` small panels whose places are set by hand: a layout engine takes seconds."""
    columns = min(5, max(count, 3))
    rows, across = math.ceil(count / columns), min(columns, count)
    width, height = WIDTH / columns * across, 1.75 * rows + 0.4
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    inches = {"left": 0.8 / width, "right": 1 - 0.08 / width, "top": 1 - 0.3 / height, "bottom": 0.6 / height}
    panels = figure.subplots(rows, across, squeeze=False, gridspec_kw={**inches, "wspace": 0.38, "hspace": 0.5}).ravel()
    for spare in panels[count:]:
        spare.set_visible(False)
    return figure, list(panels[:count])


# ---------------------------------------------------------------------------------------------- scores
def _references(rows: pd.DataFrame, truth: bool) -> tuple[float | None, float | None]:
    """Return the mean test mAP of the baseline and, where labels are known in full, of the ceiling."""
    plain = rows[rows["variant"] == ""].set_index("method")["test_map"]
    return plain.get(BASELINE), plain.get(CEILING) if truth else None


def cut(frame: pd.DataFrame, truth: bool) -> float:
    """Return the score below which the dot plot draws an arrow: one gap under the lowest baseline.

    Args:
        frame: That of ``scores``.
        truth: As there.

    Returns:
        That score; minus infinity without a gap. One method that fails would else press all others together.
    """
    pairs = [_references(rows, truth) for _, rows in frame.groupby("stage", sort=False)]
    return min(
        (low - (high - low) for low, high in pairs if low is not None and high is not None and high > low),
        default=-math.inf,
    )


def scores(frame: pd.DataFrame, looks: Looks, *, titles: Mapping[str, str], truth: bool, x: str) -> bytes:
    """Return a PNG of the final scores as dots with bars of one standard deviation, a panel for each stage.

    ``frame``: One row an arm, in the order to draw: its ``test_map``, ``test_map_std``, ``test_maps`` of each seed,
    and whether it knows the label ``density``. ``truth``: Whether the ceiling saw full labels.
    """
    with matplotlib.rc_context(_RC):
        stages = list(frame.groupby("stage", sort=False))
        every = np.array([value for row in frame.itertuples() for value in (row.test_map, *row.test_maps)])  # pyright: ignore
        above = every[every >= cut(frame, truth)]
        shown = above if above.size else every
        margin = 0.04 * (shown.max() - shown.min()) or 0.5
        edge, end = widened(shown.min() - margin, shown.max() + margin, POINTS, 100.0)
        figure = _figure(WIDTH, 0.27 * len(frame) + 0.52 * len(stages) + 0.5)
        ratios = {"height_ratios": [len(rows) + 0.8 for _, rows in stages]}
        grid = figure.subplots(len(stages), 1, squeeze=False, sharex=True, gridspec_kw=ratios).ravel()
        for axes, (stage, rows) in zip(grid, stages, strict=True):
            low, high = _references(rows, truth)
            if low is not None and high is not None and high > low:
                axes.axvspan(low, high, color="#f1f3f4", zorder=0, linewidth=0)
            mine = [looks[arm] for arm, _ in by_arm(rows)]
            for place, (row, look) in enumerate(zip(rows.itertuples(), mine, strict=True)):
                _dot(axes, place, row, look, edge + 0.3 * margin if row.test_map < edge else None)  # pyright: ignore
            names = [look.label + " †" * row.density for look, row in zip(mine, rows.itertuples(), strict=True)]  # pyright: ignore
            axes.set_yticks(range(len(rows)), names)
            axes.set_ylim(len(rows) - 0.4, -0.6)
            axes.set_title(titles[stage])  # pyright: ignore
            axes.grid(axis="y", visible=False)
            axes.spines["left"].set_visible(False)
            axes.tick_params(axis="y", length=0)
            axes.set_xlim(edge, end)
        grid[-1].set_xlabel(x)
        return png(figure)


def _dot(axes: Axes, place: int, row: Any, look: Look, arrow: float | None) -> None:
    """Draw one row of the dot plot and its mean in digits; at ``arrow``, where the mean lies further left."""
    colour = _GREY if look.faint else look.style.colour
    if arrow is not None:
        axes.plot(arrow, place, marker="<", markersize=6, color=colour, zorder=3)
    else:
        if len(row.test_maps) > 1:
            axes.plot(row.test_maps, [place] * len(row.test_maps), marker="|", markersize=9, linestyle="none",
                      color=colour, alpha=0.55, zorder=2)  # fmt: skip
        style = replace(look.style, marker="o") if look.faint else look.style
        std = None if math.isnan(row.test_map_std) else row.test_map_std
        axes.errorbar(row.test_map, place, xerr=std, color=colour, marker=style.marker, markersize=_size(style, 6.5),
                      markeredgecolor="white", markeredgewidth=0.8, elinewidth=1.6, capsize=0, zorder=3)  # fmt: skip
    axes.annotate(f"{row.test_map:.1f}", xy=(1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=9,
                  color=_SOFT if look.faint else colour, annotation_clip=False)  # fmt: skip


def scatter(frame: pd.DataFrame, looks: Looks, *, x: str, y: str) -> bytes:
    """Return a PNG of one point a class against a baseline, with the line y = x.

    ``frame``: One row an arm and class: ``baseline`` and ``distance``.
    """
    with matplotlib.rc_context(_RC):
        arms = by_arm(frame)
        columns = min(4, max(len(arms), 3))
        figure, grid = _grid(len(arms), columns, (WIDTH / columns, WIDTH / columns + 0.35), sharex=True, sharey=True)
        top = min(1.0, 1.08 * max(frame["baseline"].max(), frame["distance"].max())) or 1.0
        for axes, (arm, rows) in zip(grid, arms, strict=True):
            style = looks[arm].style
            axes.fill_between([0, top], [0, top], [top, top], color="#f6f8fa", linewidth=0, zorder=0)
            axes.plot([0, top], [0, top], color=_GREY, linewidth=1, zorder=1)
            axes.plot(rows["baseline"], rows["distance"], linestyle="none", marker=style.marker,
                      markersize=_size(style, 5.5), color=style.colour, markeredgecolor="white", markeredgewidth=0.7,
                      alpha=0.9, zorder=3)  # fmt: skip
            words = f"{(rows['distance'] > rows['baseline']).sum()} of {len(rows)} above"
            axes.set_title(looks[arm].label, color=style.colour)
            axes.text(0.97, 0.04, words, transform=axes.transAxes, ha="right", fontsize=8.5, color=_SOFT)
            axes.set(xlim=(0, top), ylim=(0, top), aspect="equal")
        figure.supxlabel(x, **_AXIS)
        figure.supylabel(y, **_AXIS)
        return png(figure)


# ---------------------------------------------------------------------------------------------- landscapes
def landscapes_1d(frame: pd.DataFrame, looks: Looks) -> bytes:
    """Return a PNG of 1-D landscapes on one axis, as they are and raised from a common centre.

    ``frame``: One row an arm and ``offset``: ``loss``, the loss at the ``centre``, and ``selected`` at offset 0.
    """
    with matplotlib.rc_context(_RC):
        height = 3.8
        figure = _figure(WIDTH, height)
        left, right = figure.subplots(1, 2)
        frame = frame.assign(raised=frame["loss"] - frame["centre"])
        for axes, value, title in ((left, "loss", "Loss"), (right, "raised", "Rise above each centre")):
            axes.axvline(0, color=_GREY, linewidth=1, linestyle=_DASHED)
            for arm, rows in by_arm(frame):
                _line(
                    axes, rows if value == "loss" else rows.drop(columns="selected"), value, looks[arm], over="offset"
                )
            axes.set(xlabel="offset along a filter-normalised direction", title=title)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            _end_labels(axes, frame, value, looks, height - 0.9, "offset")
        left.set_ylabel("each method's own training loss")
        return png(figure)


def surfaces(items: Sequence[Landscape], looks: Looks) -> bytes:
    """Return a PNG of 2-D landscapes on one shared colour scale with the centre marked."""
    with matplotlib.rc_context(_RC):
        columns = min(4, max(len(items), 3))
        across = min(columns, len(items))
        side = WIDTH / columns - 1.4 / across - 0.2  # the colour bar and its label take 1.4 inches
        figure, grid = _grid(len(items), columns, (WIDTH / columns, side + 0.75), sharex=True, sharey=True)
        values = np.concatenate([item.loss_2d[np.isfinite(item.loss_2d)] for item in items])  # the centre is finite
        low, high = float(values.min()), float(values.max())
        if high <= low:
            high = low + 1e-6
        # A corner of one surface may lie a hundred times higher than another surface's rim: finer near the bottom.
        scale, levels = PowerNorm(1 / 3, low, high), low + (high - low) * np.linspace(0, 1, 25) ** 3
        for axes, item in zip(grid, items, strict=True):
            look = looks[item.stage, item.method, ""]
            axes.grid(visible=False)
            plane = (item.offsets_2d, item.offsets_2d, np.ma.masked_invalid(item.loss_2d.T))
            axes.contourf(*plane, levels=levels, norm=scale, cmap=_SURFACE)
            inner = levels[(levels > plane[2].min()) & (levels < plane[2].max())]
            if inner.size:
                axes.contour(*plane, levels=inner, colors="white", linewidths=0.5, linestyles="solid", alpha=0.6)
            axes.plot(0, 0, marker="+", markersize=11, markeredgewidth=2, color="white")
            axes.plot(0, 0, marker="+", markersize=9, markeredgewidth=1, color="black")
            axes.set_title(f"{look.label}: centre {item.centre:.3g}", color=look.style.colour, fontsize=9.5)
            axes.set(aspect="equal", xlabel="first direction", ylabel="second direction")
            axes.label_outer()
        mappable = ScalarMappable(norm=scale, cmap=_SURFACE)
        bar = figure.colorbar(mappable, ax=grid, label="own training loss", shrink=0.85, pad=0.015)
        bar.set_ticks(levels[::4].tolist(), labels=[f"{level:.2g}" for level in levels[::4]])
        bar.minorticks_off()
        return png(figure)


# ---------------------------------------------------------------------------------------------- audits
def rounds(frame: pd.DataFrame, looks: Looks, measures: Sequence[tuple[str, str, float | None]]) -> bytes:
    """Return a PNG of audit figures by round, one panel a measure, with one legend below.

    ``frame``: One row an arm and ``epoch``. ``measures``: (title, column, height of a dashed reference line or
    None) of each measure.
    """
    with matplotlib.rc_context(_RC):
        arms = by_arm(frame)
        named = [looks[arm] for arm, _ in arms if not looks[arm].faint]
        columns = min(len(named), 6)
        figure = _figure(WIDTH, 3.0 + 0.22 * math.ceil(len(named) / columns))
        grid = figure.subplots(1, len(measures), squeeze=False, sharex=True).ravel()
        for axes, (title, value, level) in zip(grid, measures, strict=True):
            if level is not None:
                axes.axhline(level, color=_GREY, linestyle=_DASHED, linewidth=1)
            for arm, rows in arms:
                _line(axes, rows, value, looks[arm])
            _whole_ticks(axes, 8)
            axes.margins(y=0.12)
            axes.set(xlabel="epoch", title=title)
        handles = [
            Line2D([], [], color=look.style.colour, linestyle=look.style.line, marker=look.style.marker, markersize=5,
                   label=look.label)
            for look in named
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8.5)
        return png(figure)


def calibration(frame: pd.DataFrame, looks: Looks, curve: tuple[Sequence[float], Sequence[float]] | None) -> bytes:
    """Return a PNG of the share of true positives among unknown cells against the belief that they are present.

    ``frame``: One row an arm, ``quantity`` (``probability`` of the network or ``belief`` of the method) and bin:
    ``mean_belief`` and ``fraction``, both in [0, 1]. ``curve``: (p, k(p)) of the reference curve of a calibrated
    network, or None.
    """
    with matplotlib.rc_context(_RC):
        arms = by_arm(frame)
        columns = min(5, max(len(arms), 3))
        figure, grid = _grid(len(arms), columns, (WIDTH / columns, WIDTH / columns + 0.4), sharex=True, sharey=True)
        for axes, (arm, rows) in zip(grid, arms, strict=True):
            axes.plot([0, 1], [0, 1], color=_GREY, linewidth=1, zorder=1)
            if curve is not None:
                axes.plot(*curve, color=_SOFT, linewidth=1.1, linestyle=(0, (1.5, 1.5)), zorder=2)
            colour = looks[arm].style.colour
            if len(own := rows[rows["quantity"] == "probability"]):
                axes.plot(own["mean_belief"], own["fraction"], color=colour, linewidth=1.6, marker="o", markersize=5.5,
                          markeredgecolor="white", markeredgewidth=0.8, zorder=3)  # fmt: skip
            if len(own := rows[rows["quantity"] == "belief"]):
                axes.plot(own["mean_belief"], own["fraction"], color=colour, linewidth=1, linestyle="--", marker="o",
                          markersize=6, markerfacecolor="none", zorder=4)  # fmt: skip
            axes.set_title(looks[arm].label, color=colour, fontsize=9.5)
            axes.set(xlim=(-0.06, 1.06), ylim=(-0.06, 1.06), aspect="equal")
            axes.set_xticks([0, 0.5, 1])
            axes.set_yticks([0, 0.5, 1])
        figure.supxlabel("taken to be present", **_AXIS)
        figure.supylabel("truly present", **_AXIS)
        return png(figure)


def supports(frame: pd.DataFrame) -> bytes:
    """Return a PNG of how many positives each class has, how many are observed, and the share of false negatives.

    ``frame``: One row a ``class``, in the order to draw: ``support_train`` (positives), ``observed_positive`` and
    ``false_negative_rate`` in [0, 1]; where this is NaN for all, it and the observed ones are left out.
    """
    with matplotlib.rc_context(_RC):
        count, known = len(frame), bool(frame["false_negative_rate"].notna().any())
        named = count <= 90
        figure = _figure(WIDTH, max(2.6, 0.185 * count + 1.0) if named else 6.0)
        panels = figure.subplots(1, 1 + known, sharey=True, squeeze=False).ravel()
        left = panels[0]
        places, height = np.arange(count), 0.72 if named else 1.0
        left.barh(places, frame["support_train"], height=height, color="#c6dbef", label="positives")
        if known:
            observed = frame["observed_positive"].to_numpy(float, na_value=np.nan)
            left.barh(places, observed, height=height, color="#0072B2", label="of these observed")
            panels[1].barh(places, 100 * frame["false_negative_rate"].to_numpy(float), height=height, color="#D55E00")
            panels[1].set_title("Unknown labels that are in truth present", pad=22)
            panels[1].set_xlabel("% of the class's unknown training labels")
        left.set_title("Positives in the training split", pad=22)
        left.legend(loc="lower left", bbox_to_anchor=(-0.01, 0.995), ncols=2, fontsize=8.5, borderaxespad=0.2,
                    handlelength=1.1)  # fmt: skip
        left.set_xlabel("images")
        left.set_ylim(count - 0.3, -0.7)
        if named:
            left.set_yticks(places, [_short(name) for name in frame["class"]], fontsize=8.5)
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
