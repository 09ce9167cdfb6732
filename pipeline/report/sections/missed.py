"""Which labels of training images are most likely missing, where nobody knows."""

import base64
import io
from math import isnan
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from pipeline.report import analyses, frames
from pipeline.report.context import Page, Part
from pipeline.report.frames import ARM, RUN, Results
from pipeline.report.read import Dataset
from pipeline.report.text import joined

_OPEN = 12  # likely missed labels that stand open on the page
_SHOWN = 36  # of these and those in a box below, all with their pictures
_EACH = 10  # of one method
_CELL = ("rank", "path", "class", "belief", "probability", "truth")
_SIDE = 72  # pixels of a thumbnail


def part(page: Page, result: Results) -> Part:
    """Return the most likely missed labels of data whose labels are not exhaustive, of all methods and of each."""
    every = analyses.missed(result)
    if result.truth or every.empty:
        return Part(result.name)
    agreed = analyses.agreed(every)
    page.table(f"{result.name}-missed", every[[*ARM, "key", *_CELL, *RUN]])
    page.table(f"{result.name}-missed_agreed", agreed)
    first, arms = agreed[:_SHOWN], frames.arms_of(every)
    shown = pd.DataFrame({
        "Image": [_image(result.about, path) for path in first["path"]],
        "May show": first["class"],
        "Named by": [f"{count} of {len(arms)}" for count in first["arms"]],
        "Probability": [f"{value:.2f}" for value in first["probability"]],
    })  # fmt: skip
    mine = dict(frames.by_arm(every))
    by_method = {
        f"{page.name(result, arm)}, {page.short[arm[0]]}": pd.DataFrame({
            "Image": (rows := mine[arm][:_EACH])["path"],
            "Class": rows["class"],
            "Belief": ["" if isnan(value) else f"{value:.3f}" for value in rows["belief"]],
            "Probability": [f"{value:.3f}" for value in rows["probability"]],
        })
        for arm in page.choose(result, arms).shown
    }  # fmt: skip
    content = {
        "open": shown[:_OPEN],
        "next": shown[_OPEN:],
        "networks": len(arms),
        "draw": every["draw"].iloc[0],
        "seed": every["seed"].iloc[0],
    }
    return Part(result.name, {**content, "by_method": by_method})


def _image(dataset: Dataset, path: str) -> dict[str, Any]:
    """Return the cell of an image: its path, the ``note`` of its given labels, and its ``picture`` if at hand."""
    table = dataset.table
    if table is None or path not in table.paths:  # of a partial page, whose files may be of different times
        return {"text": path, "note": ""}
    row = table.paths.index(path)
    given = [name for name, value in zip(table.classes, table.truth[row], strict=True) if value == 1]
    cell = {"text": path, "note": f"labelled {joined(given)}" if given else "without a label"}
    return cell if dataset.pictures is None else cell | {"picture": _thumbnail(dataset.pictures[[row]][0])}


def _thumbnail(pixels: np.ndarray) -> str:
    """Return (h, w, 3) uint8 pixels as the address of a small JPEG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).resize((_SIDE, _SIDE), Image.Resampling.LANCZOS).save(buffer, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()
