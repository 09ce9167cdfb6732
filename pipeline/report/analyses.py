"""Numbers of one dataset's analyses as frames: pseudo-labels, calibration, Wasserstein distances.

Columns ``x``, ``x_std`` and ``x_n`` are a spread over draws and seeds (`frames`). Fractions and distances are in
[0, 1]; their definitions are those of the analyses themselves (`pipeline.audits`).
"""

import pandas as pd

from pipeline.report.frames import ARM, BASELINE, RUN, Results, by_arm, in_order, spread, spreads, spreads_by_epoch
from pipeline.report.read import AUDITED


def pseudo_labels(result: Results) -> pd.DataFrame:
    """Return the audit of the pseudo-labels of the chosen epoch.

    One row for each arm: ``reason`` why there is nothing to audit (else empty), and the spreads of ``AUDITED``.
    """
    frame = result.audits["runs"]
    found = spreads(_bare(frame, "chosen."), ARM, AUDITED)
    reasons = []
    for _, rows in by_arm(frame):
        known = [reason for reason in rows["reason"] if isinstance(reason, str) and reason]
        silent = "" if _has_labels(rows).any() else "no pseudo-labels at the chosen epoch"
        reasons.append(known[0] if known else silent)
    found.insert(3, "reason", reasons)
    return found


def _bare(frame: pd.DataFrame, prefix: str) -> pd.DataFrame:
    return frame.rename(columns=lambda name: name.removeprefix(prefix))


def _has_labels(runs: pd.DataFrame) -> pd.Series:
    """Return for each audited run whether there were pseudo-labels at its chosen epoch."""
    return runs["chosen.positives"].notna()


def label_coverage(result: Results) -> pd.DataFrame:
    """Return how many pseudo-labels there were in the chosen epoch.

    One row a run that has pseudo-labels, whether or not there is a truth to audit them against: its arm, ``draw``,
    ``seed``, ``coverage`` (share of unknown training cells that carry a label of the chosen epoch, in [0, 1]) and
    ``labelled`` (whether any did, then or before).
    """
    runs, rounds = result.audits["runs"], result.audits["rounds"]
    runs = runs[runs["rounds"].map(bool).astype(bool)].copy()
    runs["coverage"] = runs["chosen.coverage"].where(_has_labels(runs), 0.0).astype(float)
    every = rounds[(rounds["kind"] == "cumulative") & (rounds["labelled"] > 0)]
    first = every.groupby([*ARM, *RUN], sort=False)["epoch"].min().rename("first").reset_index()
    runs = runs.dropna(subset="coverage").merge(first, on=[*ARM, *RUN], how="left")  # NaN: no unknown cell
    return runs.assign(labelled=runs["first"] <= runs["epoch"])[[*ARM, *RUN, "coverage", "labelled"]]


def pseudo_rounds(result: Results) -> pd.DataFrame:
    """Return the audit of all labels of each round, as means over draws and seeds.

    One row an arm and round, ``epoch`` ascending: ``selected`` (share of runs whose chosen epoch it serves), and
    the means and standard deviations of ``AUDITED``.
    """
    rounds = result.audits["rounds"]
    rounds = rounds[rounds["kind"] == "cumulative"].sort_values("epoch", kind="stable")
    found = spreads(rounds, [*ARM, "epoch"], AUDITED)
    found.insert(
        4, "selected", [rows["selected"].sum() / len(rows) for _, rows in rounds.groupby([*ARM, "epoch"], sort=False)]
    )
    return in_order(found, result.audits["rounds"]).drop(columns=[f"{name}_n" for name in AUDITED])


def pseudo_classes(result: Results) -> pd.DataFrame:
    """Return the audit by class at the chosen epoch: counts summed over runs, fractions of the sums.

    One row an arm and class: ``class``, ``unknown``, ``labelled``, ``negatives``, ``positives``, ``coverage``, and,
    missing where nobody knows the truth, ``accuracy``, ``base`` (share of negatives among unknown cells),
    ``hidden_positives``, ``called_negative``, ``found``.
    """
    frame = result.audits["per_class"]
    names = [name for name in frame.columns if name not in (*ARM, *RUN, "key", "class")]
    total = frame.groupby([*ARM, "class"], sort=False)[names].sum(min_count=1).astype(float).reset_index()
    right = total["negatives_correct"].fillna(0) + total["positives_correct"].fillna(0)
    hidden, unknown = total["hidden_positives"], total["unknown"]
    counts = {name: total[name].fillna(0).astype(int) for name in ("unknown", "labelled", "negatives", "positives")}
    ratios = {
        "coverage": total["labelled"] / unknown,
        "accuracy": (right / total["labelled"]).where(hidden.notna()),
        "base": (unknown - hidden) / unknown,
    }
    truth = {"hidden_positives": hidden, "called_negative": total["hidden_positives_called_negative"],
             "found": total["hidden_positives_recalled"]}  # fmt: skip
    return total[[*ARM, "class"]].assign(**counts, **ratios, **{k: v.astype("Int64") for k, v in truth.items()})


def without_truth(result: Results) -> pd.DataFrame:
    """Return what can be said of pseudo-labels and beliefs at the chosen epoch without knowing what is present.

    One row for each arm, with spreads of ``unknown`` (training cells without a label), ``present`` and ``absent``
    (shares of these with such a pseudo-label, in [0, 1]), ``belief`` and ``probability`` (means over unknown
    training cells, in [0, 1]) and ``believed`` (share of them with a belief above 0.5).
    """
    runs = result.audits["runs"]
    cells = runs["beliefs.probability.cells"]
    values = {
        "unknown": cells,
        "present": runs["chosen.positives"].astype(float) / cells,
        "absent": runs["chosen.negatives"].astype(float) / cells,
        "belief": runs["beliefs.belief.mean"],
        "probability": runs["beliefs.probability.mean"],
        "believed": runs["beliefs.belief.likely_present"].astype(float) / cells,
    }
    return spreads(runs[[*ARM, *RUN]].assign(**values), ARM, list(values))


def missed(result: Results) -> pd.DataFrame:
    """Return the unknown cells that each arm takes to be missed labels first of all, at its lowest draw and seed.

    One row an arm and cell, the likeliest first: ``draw``, ``seed``, ``rank``, ``path``, ``class``, ``belief``,
    ``probability`` (in [0, 1]) and ``truth`` (1, 0, or NaN where it is not known).
    """
    frame = result.audits["missed_by_run"]
    first = frame[[*ARM, *RUN]].sort_values(RUN, kind="stable").drop_duplicates(ARM)
    return frame.merge(first, on=[*ARM, *RUN])


def agreed(every: pd.DataFrame) -> pd.DataFrame:
    """Return what several arms take to be missed labels, merged.

    One row a cell: ``path``, ``class``, ``arms`` (how many name it) and ``probability`` (the mean of theirs, in [0,
    1]); those that most arms name first, among equals the most probable.
    """
    groups = every.groupby(["path", "class"], sort=False)["probability"]
    merged = groups.agg(arms="count", probability="mean").reset_index()
    order = ["arms", "probability", "path", "class"]
    merged = merged.sort_values(order, ascending=[False, False, True, True], ignore_index=True)
    return merged[["path", "class", "arms", "probability"]]


def calibration(result: Results) -> pd.DataFrame:
    """Return calibration curves, with the cells of all runs in one histogram.

    One row for each arm, quantity (``belief`` of the method on train, ``probability`` of the network on val) and
    bin that holds cells: ``lower``, ``upper``, ``cells``, ``true_positives``, ``fraction``, ``mean_belief`` and
    ``reference`` (what a calibrated probability would give, or NaN).
    """
    frame = result.audits["calibration"]
    frame = frame[frame["cells"] > 0].sort_values(["quantity", "bin"], kind="stable")
    frame = frame.assign(weighed=frame["cells"] * frame["mean_belief"])
    frame = in_order(frame, result.audits["calibration"])
    groups = frame.groupby([*ARM, "quantity", "bin"], sort=False)
    found = groups.agg(
        lower=("lower", "first"),
        upper=("upper", "first"),
        cells=("cells", "sum"),
        true_positives=("true_positives", "sum"),
        weighed=("weighed", _total),
        reference=("reference", lambda values: spread(values)["mean"]),
    ).reset_index()
    found = found.astype({"cells": int, "true_positives": int})
    found["fraction"] = found["true_positives"] / found["cells"]
    found["mean_belief"] = found["weighed"] / found["cells"]
    columns = ["lower", "upper", "cells", "true_positives", "fraction", "mean_belief", "reference"]
    return found[[*ARM, "quantity", *columns]]


def _total(values: pd.Series) -> float:
    """Return a sum in the order of the values: pandas compensates rounding, which changes last digits."""
    return sum(values.tolist())


def coarse(bins: pd.DataFrame, count: int = 10) -> pd.DataFrame:
    """Return calibration curves in ``count`` equal bins, so that a figure shows no noise of nearly empty ones.

    ``cells``, ``mean_belief`` and ``fraction`` of each arm, quantity and bin that holds cells.
    """
    middle = (bins["lower"] + bins["upper"]) / 2
    tenth = (middle * count).astype(int).clip(upper=count - 1)
    weighed = bins.assign(tenth=tenth, weighed=bins["cells"] * bins["mean_belief"])
    groups = weighed.groupby([*ARM, "quantity", "tenth"], sort=False)
    found = groups.agg(
        cells=("cells", "sum"), weighed=("weighed", _total), true_positives=("true_positives", "sum")
    ).reset_index()
    belief, fraction = found["weighed"] / found["cells"], found["true_positives"] / found["cells"]
    return found.assign(mean_belief=belief, fraction=fraction)


# ---------------------------------------------------------------------------------------------- beliefs
BELIEFS = (0.5, 0.7, 0.9, 1.0)
"""Ends of the bins of belief in which hidden labels are counted."""


def believed(result: Results, draw: int) -> pd.DataFrame:
    """Return the share of images that each class is estimated to be present in under a draw.

    One row a class: ``share`` with its interval ``low`` to ``high``, and the ``true`` one of the same training images,
    those with a label, as each that shows one has, or all where each label was shown with one chance; NaN where it is
    not known.
    """
    report, table = result.about.beliefs[draw], result.about.table
    rows = [
        {"class": name, "share": entry["value"], "low": entry.get("low"), "high": entry.get("high")}
        for name, entry in report["shares"].items()
    ]
    found = pd.DataFrame(rows).astype(dict.fromkeys(("share", "low", "high"), float)).assign(true=float("nan"))
    if result.truth and table is not None:
        truth = table.truth[table.rows("train")]
        truth = truth[truth.any(axis=1)] if report["shown_as"] == "count" else truth
        shares = dict(zip(table.classes, truth.mean(axis=0), strict=True))
        found["true"] = found["class"].map(shares)
        found = found.set_index("class").reindex(list(table.classes)).reset_index()
    return found


def hidden_by_belief(result: Results) -> pd.DataFrame:
    """Return how many of the labels that are most likely hidden are present, by how sure the beliefs are of them.

    One row for each bin of belief that holds some, over all draws: ``low`` and ``high``, ``named`` and ``present``; no
    row where the truth is not known.
    """
    about, rows = result.about, []
    if not result.truth or about.table is None or not about.hidden:
        return pd.DataFrame(columns=["low", "high", "named", "present"])
    every = pd.concat(about.hidden.values())
    place = {path: row for row, path in enumerate(about.table.paths)}
    column = {name: number for number, name in enumerate(about.table.classes)}
    cells = every["path"].map(place).to_numpy(int), every["class"].map(column).to_numpy(int)
    present, known = about.table.truth[cells] == 1, about.table.scored[cells]
    for low, high in zip(BELIEFS, BELIEFS[1:], strict=False):
        mine = ((every["belief"] >= low) & ((every["belief"] < high) | (high == 1))).to_numpy() & known
        if mine.any():
            rows.append({"low": low, "high": high, "named": int(mine.sum()), "present": int(present[mine].sum())})
    return pd.DataFrame(rows, columns=["low", "high", "named", "present"])


# ---------------------------------------------------------------------------------------------- separation
def distances(result: Results, split: str) -> pd.DataFrame:
    """Return the Wasserstein distance of each class at the chosen epoch, as a spread over draws and seeds.

    One row an arm and class that has one: ``distance`` in [0, 1], and ``baseline``, that of the baseline of the
    same stage (NaN where it has none).
    """
    frame = result.wasserstein["per_class"]
    mine = spreads(frame[frame["split"] == split].dropna(subset="distance"), [*ARM, "class"], ["distance"])
    base = mine[(mine["method"] == BASELINE) & (mine["variant"] == "")].rename(columns={"distance": "baseline"})
    return mine.merge(base[["stage", "class", "baseline"]], on=["stage", "class"], how="left")


def distance_epochs(result: Results, split: str) -> pd.DataFrame:
    """Return the spread of the pooled Wasserstein distance after each epoch.

    One row an arm and epoch: ``pooled``, and ``selected``, whether any run chose it.
    """
    frame = result.wasserstein["epochs"]
    mine = frame[frame["split"] == split].dropna(subset="pooled").sort_values("epoch", kind="stable")
    return in_order(spreads_by_epoch(mine, "pooled", "selected"), frame) if len(mine) else mine


def separations(result: Results) -> pd.DataFrame:
    """Return pooled distances and the share of classes separated better than by the baseline.

    One row for each arm: spreads ``train`` and ``val`` of the pooled distance in [0, 1], and ``above`` and ``of``:
    the classes that it separates further than the baseline of its stage, on train, of those defined. No row where
    the labels of the dataset are not exhaustive.
    """
    runs = result.wasserstein["runs"].rename(columns={"train.pooled": "train", "val.pooled": "val"})
    found = spreads(runs if result.truth else runs[:0], ARM, ["train", "val"])
    points = distances(result, "train").dropna(subset="baseline")
    points["above"] = points["distance"] > points["baseline"]
    counts = points.groupby(ARM, sort=False)["above"].agg(["sum", "size"]).reset_index()
    found = found.merge(counts, on=ARM, how="left")
    above = found["sum"].where((found["method"] != BASELINE) | (found["variant"] != ""))
    of = found["size"].fillna(0).astype(int)
    return found.drop(columns=["sum", "size"]).assign(above=above.astype("Int64"), of=of)
