"""Hide labels of a fully labelled dataset, one positive per image left: ``python -m stages.simulate DATASET``.

Data whose labels are not exhaustive have nothing to hide: what they give is what is observed.

Reads data/prepare/<dataset>/table.h5; writes data/simulate/<dataset>/: observed.h5 (`single`, and the oracles' `all`
and `negatives`), report.json (counts, false-negative rate of each class) and summary.md. All rows get labels, those of
val and test too.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline import config, seeds, single_positive, storage
from pipeline.table import SPLITS, SourceError, Table, read_table
from stages import entry

PARTS = ("official_train", "official_test")
ONE = "Every image keeps one of its positive labels, the rest is unknown."


def simulate(root: Path, dataset: str) -> None:
    """Draw the observed labels of one dataset.

    Each official part is drawn by itself, in table row order, before its rows fall into train and val.

    Args:
        root: Project root.
        dataset: Name of a dataset.

    Raises:
        ConfigError: the protocol does not suit the data.
        SourceError: training or validation images have no positive and the settings refuse that.
    """
    settings = config.load(root / "params.yaml").settings("simulate", dataset)
    table = read_table(root / "data" / "prepare" / dataset / "table.h5")
    if (settings.protocol == "given") == table.exhaustive:
        are, use = ("", "literature or seeded") if table.exhaustive else (" not", "given")
        raise config.ConfigError(
            f"simulate.protocol: {settings.protocol}, but the labels of {dataset} are{are} exhaustive; set it to {use}"
        )
    empty = np.flatnonzero((table.official == 0) & ~table.truth.any(axis=1))
    if len(empty) and settings.empty_rows == "error":
        names = ", ".join(table.paths[row] for row in empty[:20])
        raise SourceError(f"simulate.empty_rows: {len(empty)} training and val images have no positive label: {names}")

    if settings.protocol == "given":
        single = everything = negatives = single_positive.given(table.truth, table.scored)
    else:
        single = _draw(table, settings)
        everything, negatives = single_positive.label_sets(table.truth, table.scored, single)

    folder = root / "data" / "simulate" / dataset
    with storage.create_hdf5(folder / "observed.h5") as file:
        for name, labels in (("single", single), ("all", everything), ("negatives", negatives)):
            units = "1 known positive, 0 unknown, -1 known negative"
            storage.put(file, name, labels, axes="image, class", units=units, compress=True)
    report = _report(table, single, settings)
    storage.write_json(folder / "report.json", report)
    storage.write_summary(folder / "summary.md", f"Single positives of {dataset}", _summary(report))


def _draw(table: Table, settings: config.Simulate) -> np.ndarray:
    """Return (N, C) int8 drawn labels; each official part is drawn by itself."""
    single = np.zeros_like(table.truth)
    for number, part in enumerate(PARTS):
        rows = np.flatnonzero(table.official == number)
        if settings.protocol == "literature":
            single[rows] = single_positive.literature(table.truth[rows], settings.seed)
        else:
            generator = seeds.numpy_generator(settings.draw, "simulate", part)
            single[rows] = single_positive.seeded(table.truth[rows], generator)
    return single


def _report(table: Table, single: np.ndarray, settings: config.Simulate) -> dict[str, Any]:
    """Return report.json: counts of all splits; rates of the training split, the only one that is learned from."""
    rows = {name: table.rows(name) for name in SPLITS}
    train = rows["train"]
    rates = single_positive.false_negative_rate(table.truth[train], table.scored[train], single[train])
    literature, known = settings.protocol == "literature", table.exhaustive
    return {
        "protocol": settings.protocol,
        "draw": settings.draw if settings.protocol == "seeded" else None,
        "seed": settings.seed if literature else None,
        "empty_rows": settings.empty_rows,
        "rows": {
            name: {
                "images": len(index),
                "without_positive": int((~table.truth[index].any(axis=1)).sum()),
                "labels_per_image": float(table.truth[index].sum(axis=1).mean()) if len(index) else None,
            }
            for name, index in rows.items()
        },
        "classes": [
            {
                "name": name,
                "truth_positive": rates["truth_positive"][column],
                "observed_positive": rates["observed_positive"][column],
                "unknown": rates["unknown"][column] if known else int((single[train, column] == 0).sum()),
                "hidden_positive": rates["hidden"][column] if known else None,
                "false_negative_rate": rates["rate"][column],
                "expected_false_negative_rate": rates["expected"][column] if known else None,
            }
            for column, name in enumerate(table.classes)
        ],
        "false_negative_rate": rates["pooled"],
        "expected_false_negative_rate": rates["pooled_expected"] if known else None,
        "labels_per_image": float(table.truth[train].sum(axis=1).mean()) if len(train) else None,
    }


def _summary(report: dict[str, Any]) -> list[str]:
    given = report["protocol"] == "given"
    how = {
        "literature": f"the published recipe with seed {report['seed']}. {ONE}",
        "seeded": f"one uniform positive per image, draw {report['draw']}. {ONE}",
        "given": "nothing is drawn. The labels that the data give are what is observed; they are not exhaustive, so a"
        " label that is not given is unknown.",
    }[report["protocol"]]
    lines = [
        f"Protocol `{report['protocol']}`: {how}",
        "",
        f"| split | images | labels per image ({'given' if given else 'truth'}) | without a positive |",
        "| --- | --- | --- | --- |",
    ]
    for name, row in report["rows"].items():
        labels = "-" if row["labels_per_image"] is None else f"{row['labels_per_image']:.3f}"
        lines.append(f"| {name} | {row['images']} | {labels} | {row['without_positive']} |")
    empty = sum(row["without_positive"] for row in report["rows"].values())
    if empty:
        lines += [
            "",
            f"Warning: {empty} images have no positive label. They keep their rows.",
        ]
    if given:
        lines += ["", "How many of the unknown labels are positive in truth cannot be measured: nobody labelled them."]
        lines += ["", "| class | positives given | unknown cells |", "| --- | --- | --- |"]
        for row in report["classes"]:
            lines.append(f"| {row['name'].replace('|', '/')} | {row['observed_positive']} | {row['unknown']} |")
        return [
            *lines,
            "",
            "## Files",
            "",
            "- `observed.h5`: the given labels over all rows of the table, 1 known positive, 0 unknown, -1 known"
            " negative. `single`, `all` and `negatives` are equal: the oracles know no more than the methods.",
            "- `report.json`: the figures above; null is what cannot be measured.",
        ]
    lines += [
        "",
        '## What "unknown means absent" gets wrong in the training split',
        "",
        "Share of a class's unknown cells that are positive in truth, in percent: as expected of a draw that keeps each"
        " positive of an image with the same probability, and as drawn.",
        f"Over all classes: expected {_percent(report['expected_false_negative_rate'])}, drawn"
        f" {_percent(report['false_negative_rate'])}.",
        "",
        "| class | positives | observed | unknown cells | hidden positives | expected rate | drawn rate |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in report["classes"]:
        counts = " | ".join(
            str(row[key]) for key in ("truth_positive", "observed_positive", "unknown", "hidden_positive")
        )
        rates = " | ".join(_percent(row[key]) for key in ("expected_false_negative_rate", "false_negative_rate"))
        lines.append(f"| {row['name'].replace('|', '/')} | {counts} | {rates} |")
    return [
        *lines,
        "",
        "## Files",
        "",
        "- `observed.h5`: three label sets over all rows of the table, 1 known positive, 0 unknown, -1 known negative:"
        " `single` (what methods learn from), `all` (everything known, for the upper bound `full`), `negatives` (the"
        " single positive and all true negatives, for the oracle `iun`).",
        "- `report.json`: the figures above; rates are fractions in [0, 1], null where a class has no unknown cell.",
    ]


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.2f}"


if __name__ == "__main__":
    entry.run(simulate)
