"""Loss landscapes."""

import numpy as np
import pandas as pd

from pipeline.report import figures
from pipeline.report.context import Page, Part
from pipeline.report.frames import Results
from pipeline.report.read import Landscape
from pipeline.report.text import label


def _along(item: Landscape) -> pd.DataFrame:
    """Return the loss along one direction; NaN where it overflows."""
    loss = np.where(np.isfinite(item.loss_1d), item.loss_1d, np.nan)
    about = {
        "stage": item.stage,
        "method": item.method,
        "variant": "",
        "draw": item.draw,
        "seed": item.seed,
        "centre": item.centre,
    }
    return pd.DataFrame({"offset": item.offsets_1d, "loss": loss, "selected": item.offsets_1d == 0}).assign(**about)


def _plane(item: Landscape) -> pd.DataFrame:
    """Return the loss on the plane of two directions; NaN where it overflows."""
    x, y = (grid.ravel() for grid in np.meshgrid(item.offsets_2d, item.offsets_2d, indexing="ij"))
    loss = np.where(np.isfinite(item.loss_2d), item.loss_2d, np.nan).ravel()
    return pd.DataFrame({"method": item.method, "draw": item.draw, "seed": item.seed, "x": x, "y": y, "loss": loss})


def part(page: Page, result: Results) -> Part:
    """Return the landscapes of each method's first draw and seed."""
    if not result.landscapes:
        return Part(result.name)
    every = result.landscapes
    first = {item.method: item for item in reversed(every)}
    shown = [first[method] for method in page.collected.params.grid.landscape if method in first]
    arms = [(item.stage, item.method, "") for item in shown]
    looks = {arm: figures.Look(label(arm[1], truth=result.truth), page.style(result.name, arm)) for arm in arms}
    line = figures.landscapes_1d(pd.concat([_along(item) for item in shown]), looks)
    plane, name = figures.surfaces(shown, looks), f"{result.name}-landscape"
    curve = pd.concat([_along(item) for item in every])[["method", "draw", "seed", "offset", "loss"]]
    content = {
        "line": page.figure(f"{name}_1d", line, curve),
        "plane": page.figure(f"{name}_2d", plane, pd.concat([_plane(item) for item in every])),
        "one": shown[0],
        "several": len(every) > len(shown),
    }
    return Part(result.name, content)
