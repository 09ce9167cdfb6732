"""Comparisons of one dataset's arms as frames: on the same label draws, and from epoch to epoch.

Columns ``x``, ``x_std`` and ``x_n`` are a spread (`frames`). A difference is paired: both runs share dataset, draw and
seed; columns ``x_low`` and ``x_high`` are its interval, ``x_won`` the draws on which the first is ahead, of ``x_draws``
(`pipeline.audits.paired`).
"""

from typing import Any

import pandas as pd

from pipeline.audits.paired import compare_paired
from pipeline.report.frames import (
    ARM,
    BASELINE,
    ORACLES,
    RUN,
    SECOND_STAGE,
    Arm,
    Results,
    Spread,
    arms_of,
    by_arm,
    by_run,
    flat,
    in_order,
    spread_over,
    spreads_by_epoch,
)

ENDS = ("", "_std", "_low", "_high", "_won", "_draws", "_n")
"""What the columns of a paired difference end in, in files."""


def paired(first: pd.Series, second: pd.Series) -> Spread:
    """Return the difference ``first - second`` over the draws and seeds that both have.

    Args:
        first: Value by draw and seed.
        second: Value by draw and seed.

    Returns:
        What `compare_paired` does.
    """
    difference = (first - second).dropna().sort_index()
    return compare_paired(difference.index.get_level_values("draw").to_numpy(int), difference.to_numpy(float))


def compare(result: Results, first: Arm, second: Arm, column: str) -> Spread:
    """Return the paired difference of two arms in a column of runs."""
    return paired(by_run(result.runs_of[first], column), by_run(result.runs_of[second], column))


def _compare(result: Results, first: Arm, second: Arm, columns: dict[str, str]) -> dict[str, Any]:
    """Return the paired differences of two arms, in columns of the given names."""
    differences = {name: compare(result, first, second, column) for name, column in columns.items()}
    return {key: value for name, difference in differences.items() for key, value in flat(name, difference).items()}


def against_references(result: Results, stage: str) -> pd.DataFrame:
    """Return the arms of a stage compared with its best and with the baseline.

    The best is the arm of the highest mean test mAP that is no oracle; the baseline is the grid's, or its variant of
    the same name. Only the same head under the same protocol compares, so that each such group has a best of its own.

    One row for each arm, in the order of `Results.ranked`: its arm, ``best`` and ``base`` (names of the arms that it
    is compared with, empty where there is none or it is that arm itself), and the paired differences ``from_best`` and
    ``from_base`` in points of test mAP, where there are.
    """
    rows = []
    ranked = result.ranked(stage).dropna(subset="test_map")
    for _, group in ranked.groupby(["head", "protocol"], sort=False):
        rivals = group[~group["method"].isin(ORACLES)]
        best, bases = rivals[:1], rivals[rivals["method"] == BASELINE].sort_values("variant", kind="stable")
        for row in group.to_dict("records"):
            base = bases[bases["variant"].isin(["", row["variant"]])][:1]
            arm = tuple(row[key] for key in ARM)
            entry: dict[str, Any] = dict(zip(ARM, arm, strict=True))
            for name, other in (("best", best), ("base", base)):
                rival = next((rival for rival in arms_of(other) if rival != arm), None)
                entry[name] = "-".join(filter(None, rival[1:])) if rival else ""
                if rival:
                    entry |= _compare(result, arm, rival, {f"from_{name}": "test_map"})
            rows.append(entry)
    found = pd.DataFrame(rows, columns=None if rows else [*ARM, "best", "base"])
    both = [f"from_{name}{end}" for name in ("best", "base") for end in ENDS]
    return in_order(found.reindex(columns=[*ARM, "best", "base", *both]), ranked) if rows else found


def against_own_head(result: Results) -> pd.DataFrame:
    """Return fine-tuned networks compared with the linear heads that they started from.

    One row for each arm whose head has runs: ``method``, ``variant``, ``start`` (another method, whose head it was,
    or empty), and the paired differences ``test`` and ``val`` in points of mAP.
    """
    arms = set(arms_of(result.arms))
    rows = []
    for row in result.arms[result.arms["stage"] == "finetune"].to_dict("records"):
        head = ("linear_init", row["start"] or row["method"], "")
        if head in arms:
            mine = ("finetune", row["method"], row["variant"])
            difference = _compare(result, mine, head, {"test": "test_map", "val": "val_map"})
            rows.append({"method": row["method"], "variant": row["variant"], "start": row["start"], **difference})
    return pd.DataFrame(rows, columns=None if rows else ["method", "variant", "start", "test"])


def side_by_side(result: Results) -> pd.DataFrame:
    """Return linear heads and fine-tuned networks side by side.

    One row for each arm of either stage: ``method``, ``variant``, the columns of ``arms`` with the prefixes
    ``linear_init_`` and ``finetune_`` (NaN where it has no runs) and ``gain`` (paired difference to the head that
    it started from, in points of test mAP). Best fine-tuned first, then best linear head, by `Results.order`; no row
    where one of the stages has no runs.
    """
    key = ["method", "variant"]
    sides = [result.ranked(stage).set_index(key).add_prefix(f"{stage}_") for stage in ("linear_init", "finetune")]
    if any(side.empty for side in sides):
        return pd.DataFrame()
    first = sides[0].index.append(sides[1].index).unique()
    gain = (
        against_own_head(result)
        .set_index(key)
        .filter(regex="^test")
        .rename(columns=lambda name: name.replace("test", "gain"))
    )
    both = pd.concat([*sides, gain], axis=1).reindex(first).rename_axis(key).reset_index()
    both = both.astype({name: "Int64" for name in both if name.endswith("_n")})
    orders = [result.order(stage) for stage in ("finetune", "linear_init")]
    if "name" in orders:
        return both.sort_values(key, kind="stable", ignore_index=True)
    columns = [f"{stage}_{order}" for stage, order in zip(("finetune", "linear_init"), orders, strict=True)]
    return both.sort_values(columns, ascending=False, kind="stable", na_position="last", ignore_index=True)


def second_stage(result: Results) -> pd.DataFrame:
    """Return every arm of the second stage's method compared with its rivals on the same draws and seeds.

    The rivals are the other methods of that stage (the first method trained on) with their variants; for the grid's own
    arm also its own variants and the network that it started from.

    One row for each pair: ``subject`` and ``rival`` (names), ``subject_variant``, the rival's ``method`` and
    ``variant``, ``start`` (1 for the network that the stage started from), the paired differences ``test``,
    ``supported`` and ``val`` in points of mAP, and of both sides ``epochs`` and ``thresholds`` (lists; no threshold
    where none was recorded).
    """
    arms = arms_of(result.arms)
    second = [arm for arm in arms if arm[0] == SECOND_STAGE]
    own = [arm for arm in second if arm[1] == SECOND_STAGE]
    others = [arm for arm in second if arm not in own]
    starts = [arm for arm in arms if arm == ("end_to_end", result.second_from, "")]
    rows = []
    for subject in own:
        more = [] if subject[2] else [*(arm for arm in own if arm != subject), *starts]
        for rival in [*others, *more]:
            sides = [result.runs_of[subject], result.runs_of[rival]]
            columns = {"test": "test_map", "supported": "test_map_supported", "val": "val_map"}
            rows.append({
                "subject": "-".join(filter(None, subject[1:])), "subject_variant": subject[2],
                "rival": "-".join(filter(None, rival[1:])), "method": rival[1], "variant": rival[2],
                "start": int(rival in starts), **_compare(result, subject, rival, columns),
                "epochs": [sorted(set(side["epochs"])) for side in sides],
                "thresholds": [sorted(set(side["threshold"].dropna())) for side in sides],
            })  # fmt: skip
    return pd.DataFrame(rows)


def falls(result: Results, stage: str) -> pd.DataFrame:
    """Return how far each arm's val mAP falls from its best epoch to its last.

    One row for each arm: ``best`` and ``last`` val mAP and ``fall`` (spreads, percent points), ``best_epoch``, the
    median of the runs', and ``epochs``, the most that one trained for.
    """
    mine = result.epochs[result.epochs["stage"] == stage]
    rows = []
    for arm, runs in by_arm(mine):
        known = runs.dropna(subset="val_map").groupby(RUN, sort=False)["val_map"]
        if len(known):
            ends = known.agg(best="max", last="last", at="idxmax").reset_index()
            ends["fall"] = ends["best"] - ends["last"]
            rows.append({
                **dict(zip(ARM, arm, strict=True)),
                **{key: value for name in ("best", "last", "fall")
                   for key, value in flat(name, spread_over(ends, name)).items()},
                "epochs": int(runs.groupby(RUN).size().max()),
                "best_epoch": float(runs.loc[ends["at"], "epoch"].median()),
            })  # fmt: skip
    return pd.DataFrame(rows, columns=None if rows else [*ARM, "fall"])


def over_epochs(result: Results, stage: str, column: str) -> pd.DataFrame:
    """Return one column of the per-epoch tables as spreads over the runs that reached an epoch.

    One row an arm and epoch, ``epoch`` ascending; ``selected`` says whether any run chose it.
    """
    mine = result.epochs[result.epochs["stage"] == stage]
    frames = [spreads_by_epoch(rows.sort_values("epoch", kind="stable"), column, "chose") for _, rows in by_arm(mine)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*ARM, "epoch", column])
