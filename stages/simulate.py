"""Hide labels of a fully labelled dataset: ``python -m stages.simulate DATASET``.

By default one positive an image stays known, as in the papers; settings keep more, known absences too, or let some
labels be likelier to stay known than others. Data whose labels are not exhaustive have nothing to hide: what they give
is what is observed.

Reads data/prepare/<dataset>/table.h5 and the table of weights that ``simulate.bias`` may name; writes
data/simulate/<dataset>/: observed.h5 (`single`, and the oracles' `all` and `negatives`), report.json (counts,
false-negative rate of each class, how far the draw is from an unbiased one) and summary.md. All rows get labels, those
of val and test too.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import rules
from pipeline.config.params import read_params
from pipeline.core import files, hdf5
from pipeline.core.errors import SourceError
from pipeline.labels import draws, recipe, weights
from pipeline.labels.draws import Draw
from pipeline.labels.settings import Simulate
from pipeline.labels.table import SPLITS, Objects, Table, read_objects, read_table
from stages import entry


def simulate(root: Path, dataset: str) -> None:
    """Draw the observed labels of one dataset.

    Each official part is drawn by itself, in table row order, before its rows fall into train and val.

    Args:
        root: Project root.
        dataset: Name of a dataset.

    Raises:
        ConfigError: the protocol or the bias does not suit the data, or training or validation images have no positive
            and the settings refuse that.
        SourceError: the table of weights is faulty.
    """
    settings = read_params(root / "params.yaml").settings("simulate", dataset)
    file = root / "data" / "prepare" / dataset / "table.h5"
    table = read_table(file)
    rules.raise_if_any(rules.label_protocol(dataset, settings, table))
    rules.raise_if_any(rules.empty_rows(dataset, settings, table))
    objects = read_objects(file)
    if settings.protocol == "given":
        single = everything = negatives = recipe.given(table.truth, table.scored)
        draw = Draw(single, (single != 0).astype(np.float64), (single == 1).astype(np.float64))
    else:
        draw = draws.draw(table, settings, weights.bias_weights(root, table, objects, settings))
        everything, negatives = recipe.label_sets(table.truth, table.scored, draw.observed)

    if not (draw.observed[table.rows("train")] == 1).any():
        raise SourceError("simulate: no positive is known in the training split: nothing could be learned")
    report = _settings(root, settings) | _report(table, draw, objects, settings)
    folder = root / "data" / "simulate" / dataset
    with hdf5.create(folder / "observed.h5") as out:
        for name, labels in (("single", draw.observed), ("all", everything), ("negatives", negatives)):
            units = "1 known positive, 0 unknown, -1 known negative"
            hdf5.put(out, name, labels, axes="image, class", units=units, compress=True)
    files.write_json(folder / "report.json", report)
    files.write_summary(folder / "summary.md", f"Observed labels of {dataset}", _summary(report))


# ---------------------------------------------------------------------------------------------- what is told
def _settings(root: Path, settings: Simulate) -> dict[str, Any]:
    """Return the settings that counted; null for those that the protocol does not read."""
    drawn, bias = settings.protocol != "given", settings.bias.model_dump()
    if settings.bias.kind == "table":
        bias["file_sha256"] = files.sha256(settings.bias.path(root))
    return {
        "how": _how(settings),
        "protocol": settings.protocol,
        "draw": settings.draw if settings.protocol == "seeded" else None,
        "seed": settings.seed if settings.protocol == "literature" else None,
        "empty_rows": settings.empty_rows,
        "positives": settings.positives.model_dump() if drawn else None,
        "negatives": settings.negatives.model_dump() if drawn else None,
        "bias": bias if drawn else None,
    }


def _report(table: Table, draw: Draw, objects: Objects | None, settings: Simulate) -> dict[str, Any]:
    """Return the rest of report.json: counts of all splits; the training split's, the only one that is learned from."""
    train, known = table.rows("train"), settings.protocol != "given"
    rates = recipe.false_negative_rate(
        table.truth[train], table.scored[train], draw.observed[train], draw.chance[train]
    )
    uniform = draw.uniform[train]
    fixed = settings.positives.kind == "count"
    distance, by_chance = draws.from_uniform(np.array(rates["observed_positive"]), uniform, fixed)
    return {
        "rows": {name: _rows(table, draw.observed, table.rows(name)) for name in SPLITS},
        "classes": [
            {
                "name": name,
                "truth_positive": rates["truth_positive"][column],
                "observed_positive": rates["observed_positive"][column],
                "expected_of_unbiased": float(uniform[:, column].sum()) if known else None,
                "observed_negative": rates["observed_negative"][column],
                "unknown": rates["unknown"][column] if known else int((draw.observed[train, column] == 0).sum()),
                "hidden_positive": rates["hidden"][column] if known else None,
                "false_negative_rate": rates["rate"][column],
                "expected_false_negative_rate": rates["expected"][column] if known else None,
            }
            for column, name in enumerate(table.classes)
        ],
        "from_unbiased": {"distance": distance, "by_chance": by_chance} if known else None,
        "boxes": None if objects is None or not known else _boxes(table, draw.observed, objects.take(train), train),
        "false_negative_rate": rates["pooled"],
        "expected_false_negative_rate": rates["pooled_expected"] if known else None,
        "labels_per_image": float(table.truth[train].sum(axis=1).mean()) if len(train) else None,
    }


def _rows(table: Table, observed: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    truth, positive = table.truth[rows], observed[rows] == 1
    counts = positive.sum(axis=1)
    return {
        "images": len(rows),
        "without_positive": int((~truth.any(axis=1)).sum()),
        "without_known_positive": int((counts == 0).sum()),
        "labels_per_image": float(truth.sum(axis=1).mean()) if len(rows) else None,
        "known_positives_per_image": float(counts.mean()) if len(rows) else None,
        "known_negatives_per_image": float((observed[rows] == -1).sum(axis=1).mean()) if len(rows) else None,
        "images_by_known_positives": np.bincount(counts).tolist(),
    }


def _boxes(
    table: Table, observed: np.ndarray, objects: Objects, train: np.ndarray
) -> dict[str, dict[str, float | None]]:
    """Return how large and how central the known positives of the training split are, and all of them."""
    boxed = (table.truth[train] == 1) & (objects.area > 0)
    known = boxed & (observed[train] == 1)
    return {
        name: {
            where: float(values[cells].mean(dtype=np.float64)) if cells.any() else None
            for where, cells in (("known", known), ("all", boxed))
        }
        for name, values in (("area", objects.area), ("offset", objects.offset))
    }


def _how(settings: Simulate) -> str:
    """Return in words what stays known."""
    if settings.protocol == "given":
        return (
            "Nothing is drawn: the labels that the data give are what is observed. They are not exhaustive, so a label"
            " that is not given is unknown."
        )
    how = f"Labels are drawn from named generators (draw {settings.draw})"
    if settings.protocol == "literature":
        how = f"The published recipe is followed bit for bit (seed {settings.seed})"
    positives, negatives, bias = settings.positives, settings.negatives, settings.bias
    if positives.kind == "count":
        labels = "one of its positive labels" if positives.value == 1 else f"{positives.value} of its positive labels"
        if positives.value > 1:
            labels += ", or all that it has"
    elif positives.kind == "share":
        labels = f"each of its positive labels or not, {100 * positives.value:g}% of all"
    else:
        labels = "each of its positive labels with the probability that a table gives it"
    how += f": every image keeps {labels}"
    if negatives.value and negatives.kind == "count":
        how += f", and {negatives.value} of its absent ones as known absences"
    elif negatives.value:
        how += f", and {100 * negatives.value:g}% of all absent ones as known absences"
    how += "; everything else becomes unknown."
    if bias.kind == "uniform":
        return f"{how} The positives of an image are as likely as each other."
    if bias.kind == "table":
        return (
            f"{how} The table is {bias.file}."
            if positives.kind == "table"
            else (f"{how} A positive is kept in proportion to its weight in {bias.file}.")
        )
    of = {
        "frequency": "how often its class occurs",
        "size": "the size of its largest box",
        "centre": "how close its most central box lies to the centre",
    }[bias.kind]
    return f"{how} A positive is kept in proportion to {of}, to the power {bias.power:g}."


def _summary(report: dict[str, Any]) -> list[str]:
    given = report["protocol"] == "given"
    lines = [
        f"Protocol `{report['protocol']}`. {report['how']}",
        "",
        f"| split | images | labels per image ({'given' if given else 'truth'}) | known positives | known negatives |"
        " no positive in truth | no known positive |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in report["rows"].items():
        means = ("labels_per_image", "known_positives_per_image", "known_negatives_per_image")
        told = " | ".join("-" if row[key] is None else f"{row[key]:.3f}" for key in means)
        counts = f"{row['without_positive']} | {row['without_known_positive']}"
        lines.append(f"| {name} | {row['images']} | {told} | {counts} |")
    empty = sum(row["without_positive"] for row in report["rows"].values())
    if empty:
        lines += ["", f"Warning: {empty} images have no positive label. They keep their rows."]
    lost = sum(row["without_known_positive"] for row in report["rows"].values()) - empty
    if lost:
        lines += ["", f"Warning: {lost} images keep none of their positive labels. They keep their rows."]
    train = [row for row in report["classes"] if row["truth_positive"] and not row["observed_positive"]]
    if train:
        names = ", ".join(row["name"] for row in train)
        lines += ["", f"Warning: no positive is known in the training split of {names}: nothing tells what they are."]
    if given:
        lines += ["", "How many of the unknown labels are positive in truth cannot be measured: nobody labelled them."]
        lines += ["", "| class | positives given | absences given | unknown cells |", "| --- | --- | --- | --- |"]
        for row in report["classes"]:
            counts = " | ".join(str(row[key]) for key in ("observed_positive", "observed_negative", "unknown"))
            lines.append(f"| {row['name'].replace('|', '/')} | {counts} |")
        return [
            *lines,
            "",
            "## Files",
            "",
            "- `observed.h5`: the given labels over all rows of the table, 1 known positive, 0 unknown, -1 known"
            " negative. `single`, `all` and `negatives` are equal: the oracles know no more than the methods.",
            "- `report.json`: the figures above; null is what cannot be measured.",
        ]
    lines += ["", "## How far from an unbiased draw", "", *_unbiased(report)]
    lines += [
        "",
        '## What "unknown means absent" gets wrong in the training split',
        "",
        "Share of a class's unknown cells that are positive in truth, in percent: as expected of such a draw, and as"
        " drawn.",
        f"Over all classes: expected {_percent(report['expected_false_negative_rate'])}, drawn"
        f" {_percent(report['false_negative_rate'])}.",
        "",
        "| class | positives | known | expected without bias | known negatives | unknown cells | hidden positives |"
        " expected rate | drawn rate |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in report["classes"]:
        cells = [row["truth_positive"], row["observed_positive"], f"{row['expected_of_unbiased']:.1f}"]
        cells += [row[key] for key in ("observed_negative", "unknown", "hidden_positive")]
        cells += [_percent(row[key]) for key in ("expected_false_negative_rate", "false_negative_rate")]
        lines.append(" | ".join([f"| {row['name'].replace('|', '/')}", *map(str, cells)]) + " |")
    return [
        *lines,
        "",
        "## Files",
        "",
        "- `observed.h5`: three label sets over all rows of the table, 1 known positive, 0 unknown, -1 known negative:"
        " `single` (what methods learn from), `all` (everything known, for the upper bound `full`), `negatives` (the"
        " known positives and all true negatives, for the oracle `iun`).",
        "- `report.json`: the figures above; rates are fractions in [0, 1], null where a class has no unknown cell.",
    ]


def _unbiased(report: dict[str, Any]) -> list[str]:
    """Return how the known positives of the training split differ from those of an unbiased draw of as many."""
    found = report["from_unbiased"]
    if found["distance"] is None:
        return ["No positive is known in the training split."]
    lines = [
        "The classes' shares among the known positives of the training split differ by"
        f" {_percent(found['distance'])}% from those expected without bias (the part that would have to be of another"
        f" class); chance alone makes about {_percent(found['by_chance'])}%."
    ]
    words = {"area": "Size of the largest box, percent of the picture"}
    words |= {"offset": "Distance of the most central box from the centre, percent of the way to a corner"}
    for name, means in (report["boxes"] or {}).items():
        told = f"{_percent(means['known'])} where known, {_percent(means['all'])} of all positives."
        lines += ["", f"{words[name]}: {told}"]
    return lines


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.2f}"


if __name__ == "__main__":
    entry.run(simulate)
