"""Counts of a dataset's images and labels as frames."""

from typing import Any

import numpy as np
import pandas as pd

from pipeline.labels.table import SPLITS
from pipeline.report.read import Dataset


def splits(dataset: Dataset) -> pd.DataFrame:
    """Return counts of images and labels in each split.

    One row for each split: images, official training and test images, labels per image, images without a positive,
    classes present, cells whose truth is not known; no row where its table was not read.
    """
    table, rows = dataset.table, []
    for name in SPLITS if table is not None else ():
        index = table.rows(name)  # pyright: ignore
        truth, scored, official = table.truth[index], table.scored[index], table.official[index]  # pyright: ignore
        positive = (truth == 1) & scored
        rows.append({
            "split": name,
            "images": len(index),
            "official_train": int((official == 0).sum()),
            "official_test": int((official == 1).sum()),
            "labels_per_image": float(positive.sum(axis=1).mean()) if len(index) else np.nan,
            "without_positive": int((~positive.any(axis=1)).sum()),
            "classes_present": int(positive.any(axis=0).sum()),
            "cells_unscored": int((~scored).sum()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def classes(dataset: Dataset) -> pd.DataFrame:
    """Return support of each class, and its simulated labels in the first draw.

    One row for each class: positives in the splits and official lists, observed positives, unknown cells, and the
    share of unknown training cells that are positive; where there are rules, how many of the unknown they make known.
    No row where its table was not read.
    """
    table = dataset.table
    if table is None:
        return pd.DataFrame()
    positive = (table.truth == 1) & table.scored
    columns: dict[str, Any] = {"class": table.classes}
    columns |= {f"support_{split}": positive[table.rows(split)].sum(axis=0) for split in SPLITS}
    for code, part in ((0, "train"), (1, "test")):
        columns[f"support_official_{part}"] = positive[table.official == code].sum(axis=0)
    columns["supported"] = [int(name in (dataset.supported() or ())) for name in table.classes]
    simulated = {row["name"]: row for row in (dataset.first_draw or {}).get("classes", [])}
    for key, kind in (("observed_positive", "Int64"), ("unknown", "Int64"), ("false_negative_rate", float)):
        columns[key] = pd.array([simulated.get(name, {}).get(key) for name in table.classes], dtype=kind)  # pyright: ignore
    if implied := (dataset.first_draw or {}).get("implied"):
        made = [implied["classes"].get(name, {}) for name in table.classes]
        columns["by_rules"] = [each.get("made_present", 0) + each.get("made_absent", 0) for each in made]
    return pd.DataFrame(columns)
