"""What was measured on one dataset as frames: scores of runs and arms, and the rows of its analyses.

A column ``x`` that stands beside ``x_std`` and ``x_n`` is a mean over label draws of the means over training seeds,
with the sample's standard deviation over draws (over seeds where the dataset has one draw; NaN with one of both) and
the number of runs (`pipeline.audits.paired`). A difference is paired: both runs share dataset, draw and seed. mAP is in
percent, fractions and distances in [0, 1]. Definitions of the latter: `pipeline.audits`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from pipeline.audits.paired import spread_runs
from pipeline.report.read import (
    AUDIT,
    SCORED,
    WASSERSTEIN,
    Analysis,
    Collected,
    Dataset,
    Landscape,
    Planned,
    Run,
    planned,
)

ARM = ["stage", "method", "variant"]
"""Columns that tell the arms of a dataset apart."""
RUN = ["draw", "seed"]
"""Columns that tell the runs of an arm apart."""
Arm = tuple[str, str, str]
Spread = dict[str, Any]
"""``mean``, ``std`` and ``n``; of runs also what `spread_runs` and `compare_paired` name."""

BASELINE = "an"
CEILING = "full"
SECOND_STAGE = "lac"  # the stage, and the method it is named after
ORACLES = {"full": "sees all labels", "ridge_full": "sees all labels", "iun": "sees the true negatives"}
GIVEN = "against the given labels; unknown counted absent"
"""What is said wherever a score stands that is not against full labels."""

MAPS = ("test_map", "test_map_absent_zero", "test_map_supported", "val_map", "val_map_absent_zero")
RULES = {
    "matching": "Matching shares", "0.8": "Conformal, 80 %", "0.9": "Conformal, 90 %", "0.95": "Conformal, 95 %",
    "zero": "Logit 0", "clean": "Highest F1 on val",
}  # fmt: skip
"""Rules of thresholds, in words."""
WORTH = ("macro", "micro", "found")
"""What is known of one where test labels are: F1 as a mean over classes and of all labels together, and recall."""
SHARES = {"gap_share": "test_map", "gap_share_supported": "test_map_supported"}
"""Shares of the gap, and of which score."""


@dataclass(frozen=True)
class Results:
    """What was measured on one dataset."""

    about: Dataset
    truth: bool
    """Whether its labels are exhaustive, so that there is something to measure against."""
    second_from: str
    """The method of end_to_end whose network the second stage goes on from."""
    one_label: bool
    """Whether each image shows one present label, as in the papers."""
    runs: pd.DataFrame
    """One row a training run: the fields of ``Run`` and ``test_map_supported``."""
    epochs: pd.DataFrame
    """One row a run and epoch: arm, draw and seed, whether it ``chose`` the epoch, and what epochs.tsv holds."""
    cuts: pd.DataFrame
    """One row a run and class: arm, draw and seed, the class's estimated share and its thresholds."""
    arms: pd.DataFrame
    """One row an arm, in the order of params.yaml: scores, shares of the gap, settings by run."""
    audits: dict[str, pd.DataFrame]
    """The audits' tables, and their records of ``runs``, with the arm, draw and seed of each row."""
    wasserstein: dict[str, pd.DataFrame]
    landscapes: tuple[Landscape, ...]

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.about.name

    @property
    def draws(self) -> int:
        """Number of label draws that have runs."""
        return int(self.runs["draw"].nunique())

    @cached_property
    def runs_of(self) -> dict[Arm, pd.DataFrame]:
        """The rows of ``runs`` of each arm."""
        return dict(by_arm(self.runs))

    @cached_property
    def heads(self) -> dict[Arm, str]:
        """The kind of head of each arm."""
        return dict(zip(arms_of(self.arms), self.arms["head"], strict=True))

    @property
    def given(self) -> list[str]:
        """Of val and test, those scored by given labels that are not exhaustive."""
        return list(dict.fromkeys(split for splits in self.arms["given"] for split in splits))

    def order(self, stage: str) -> str:
        """Return by what the arms of one stage can be ranked: a column of ``arms``, or their ``name`` where by nothing.

        By test mAP, unless that is against given labels, which ranks nothing; then by how well shown labels are ranked
        (``shown_score``), if it was measured on the same images for all.
        """
        mine = self.arms[self.arms["stage"] == stage]
        if "test" not in self.given:
            return "test_map"
        alike = mine["shown_images"].nunique() == 1 and mine["shown_score"].notna().all()
        return "shown_score" if alike and "," not in mine["shown_images"].iloc[0] else "name"

    def ranked(self, stage: str) -> pd.DataFrame:
        """Return the arms of one stage by their ``order``, the highest mean first, those without a value last."""
        mine, order = self.arms[self.arms["stage"] == stage], self.order(stage)
        return mine.sort_values(order, ascending=order == "name", kind="stable", na_position="last")


def measure(collected: Collected) -> dict[str, Results]:
    """Return the results of each dataset, by its name."""
    found = {}
    for about in collected.datasets:
        plan = planned(collected.params, about.name)
        runs = [run for run in collected.runs if run.dataset == about.name]
        truth, supported = collected.truth(about.name), about.supported()
        frame = _runs(runs, supported)
        found[about.name] = Results(
            about,
            truth,
            collected.params.grid.lac_start,
            collected.one_label(about.name),
            frame,
            _by_epoch(runs),
            _by_class(runs),
            _arms(frame, plan, supported, truth),
            _joined(collected.audits, about.name, plan, AUDIT),
            _joined(collected.wasserstein, about.name, plan, WASSERSTEIN),
            tuple(sorted((i for i in collected.landscapes if i.dataset == about.name), key=lambda i: (i.draw, i.seed))),
        )
    return found


# ---------------------------------------------------------------------------------------------- over runs
def spread(values: Iterable[float]) -> Spread:
    """Return mean and sample standard deviation of the values that are not NaN; NaN where they are not defined."""
    known = [value for value in values if not pd.isna(value)]
    if len(known) < 2:
        return {"mean": known[0] if known else np.nan, "std": np.nan, "n": len(known)}
    return {"mean": float(np.mean(known)), "std": float(np.std(known, ddof=1)), "n": len(known)}


def spread_over(runs: pd.DataFrame, column: str) -> Spread:
    """Return the spread of a column over the draws and seeds of some runs."""
    return spread_runs(runs["draw"].to_numpy(int), runs[column].to_numpy(float))


def flat(name: str, value: Spread) -> dict[str, Any]:
    """Return a spread as the columns ``name``, ``name_std``, ``name_n`` and whatever else it holds."""
    return {name if key == "mean" else f"{name}_{key}": item for key, item in value.items()}


def spreads(frame: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Return the spreads of some columns of runs for each group, in the order in which the groups first appear."""
    rows = []
    for key, part in frame.groupby(list(by), sort=False):
        row = dict(zip(by, key, strict=True))  # pyright: ignore  a tuple, as `by` is a list
        for column in columns:
            value = spread_over(part, column)
            row |= flat(column, {name: value[name] for name in ("mean", "std", "n")})
        rows.append(row)
    names = [name for column in columns for name in flat(column, {"mean": 0, "std": 0, "n": 0})]
    return pd.DataFrame(rows, columns=[*by, *names])


def spreads_by_epoch(frame: pd.DataFrame, column: str, choice: str) -> pd.DataFrame:
    """Return the spreads of a column by arm and epoch, and whether ``choice`` holds of any of their rows."""
    found = spreads(frame, [*ARM, "epoch"], [column])
    chosen = frame.groupby([*ARM, "epoch"], sort=False)[choice].any()
    return found.assign(selected=chosen.to_numpy(bool))


def in_order(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with its arms in the order that they have in another; within an arm nothing moves."""
    rank = {arm: number for number, arm in enumerate(arms_of(like))}
    order = [rank[arm] for arm in frame[ARM].itertuples(index=False, name=None)]
    return frame.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as a file holds them: None for what is not defined, lists (no tuples) as words."""
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [
        {str(key): ", ".join(map(str, item)) if isinstance(item, list) else item for key, item in row.items()}
        for row in rows
    ]


def by_arm(frame: pd.DataFrame) -> list[tuple[Arm, pd.DataFrame]]:
    """Return the rows of each arm, in the order in which the arms first appear."""
    return [(arm, rows) for arm, rows in frame.groupby(ARM, sort=False)]  # pyright: ignore


def arms_of(frame: pd.DataFrame) -> list[Arm]:
    """Return the arms of a frame, in the order in which they first appear."""
    return [tuple(row) for row in frame[ARM].drop_duplicates().itertuples(index=False)]  # pyright: ignore


# ---------------------------------------------------------------------------------------------- runs and arms
def _runs(runs: list[Run], supported: tuple[str, ...] | None) -> pd.DataFrame:
    hidden = ("by_epoch", "by_class", "cuts", "worth", "provenance")
    columns = [name for name in Run.__dataclass_fields__ if name not in hidden]
    rows = [{name: getattr(run, name) for name in columns} for run in runs]
    frame = pd.DataFrame(rows, columns=columns)
    frame["test_map_supported"] = [supported_map(run.by_class, supported or ()) for run in runs]
    frame["classes"] = [len(run.by_class) for run in runs]
    for rule in RULES:
        for name in WORTH:
            frame[f"{rule}_{name}"] = [run.worth.get(rule, {}).get(name) for run in runs]
    worth = [f"{rule}_{name}" for rule in RULES for name in WORTH]
    return frame.astype(dict.fromkeys([*MAPS, *worth, "shown_score"], float))


def supported_map(by_class: pd.DataFrame, classes: Sequence[str]) -> float:
    """Return the mean test average precision over the named classes, in percent; NaN if one has none."""
    precision = by_class.set_index("class")["ap_test"].reindex(list(classes)).to_numpy(float)
    return 100 * float(np.mean(precision)) if len(precision) else np.nan


def _by_class(runs: list[Run]) -> pd.DataFrame:
    """Return the thresholds of all runs by class, with the arm, draw and seed of each row."""
    about = ("stage", "method", "variant", *RUN)
    frames = [run.cuts.assign(**{name: getattr(run, name) for name in about}) for run in runs]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*about, "class"])


def _by_epoch(runs: list[Run]) -> pd.DataFrame:
    about = ("stage", "method", "variant", *RUN)
    frames = [
        run.by_epoch.assign(**{name: getattr(run, name) for name in about}, chose=run.by_epoch["epoch"] == run.epoch)
        for run in runs
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*about, "epoch", "chose"])


def _joined(
    analyses: Iterable[Analysis], dataset: str, plan: list[Planned], tables: dict[str, tuple[str, ...]]
) -> dict[str, pd.DataFrame]:
    """Return the ``tables`` of all analyses of a dataset by name; each row has its arm, draw and seed."""
    mine = [item for item in analyses if item.dataset == dataset]
    order = pd.DataFrame([vars(run) for run in plan], columns=[*ARM, *RUN, "key"])
    joined = {}
    for name, columns in tables.items():
        frames = [
            pd.json_normalize(item.record["runs"]) if name == "runs" else item.tables[name]
            for item in mine
            if len(item.record["runs"] if name == "runs" else item.tables[name])
        ]
        table = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
        joined[name] = order.merge(table.reindex(columns=list(columns)), on=["stage", "key"])
    return joined


def gap_share(value: pd.Series, low: pd.Series, high: pd.Series) -> tuple[float | None, str]:
    """Return the share of the gap between two reference methods that a method closes.

    Args:
        value: The method's test mAP by draw and seed.
        low: The reference that assumes every unknown label negative.
        high: The reference that sees all labels.

    Returns:
        100 * (value - low) / (high - low) of the means over draws of the means over the seeds that all three have, in
        percent (below 0: worse than the low reference), and why it is None.
    """
    common = pd.concat([value, low, high], axis=1, join="inner").dropna().groupby(level="draw").mean()
    if common.empty:
        return None, "no draw and seed for which all three values exist"
    mine, bottom, top = (float(np.mean(column)) for column in common.to_numpy().T.copy())
    if top <= bottom:
        return None, f"there is no gap: {top:.2f} with full labels against {bottom:.2f}"
    return 100 * (mine - bottom) / (top - bottom), ""


def _arms(runs: pd.DataFrame, plan: list[Planned], supported: tuple[str, ...] | None, truth: bool) -> pd.DataFrame:
    """Return one row for each arm that has runs."""
    asked = pd.Series([(run.stage, run.method, run.variant) for run in plan]).value_counts()
    several = runs["draw"].nunique() > 1
    rows = []
    for arm, mine in by_arm(runs):
        stage, method, variant = arm
        note = "" if method not in ORACLES else ORACLES[method] if truth else "sees the given labels, as all do"
        rows.append({
            "dataset": mine["dataset"].iloc[0], "stage": stage, "method": method, "variant": variant,
            "name": f"{method}-{variant}" if variant else method, "note": note,
            "given": tuple(split for split in SCORED if any(split in given for given in mine["given"])),
            "head": ", ".join(dict.fromkeys(mine["head"])), "protocol": ", ".join(dict.fromkeys(mine["protocol"])),
            "density": bool(mine["density"].any()), "estimated": bool(mine["estimated"].any()),
            "start": mine["start"].iloc[0], "key": mine["key"].iloc[0],
            "runs": [f"{draw}-{seed}" for draw, seed in mine[RUN].to_numpy()], "planned": int(asked[arm]),
            "test_maps": _points(mine).tolist(),
            "shown_score": spread_over(mine, "shown_score")["mean"],
            "shown_images": ", ".join(sorted(set(mine["shown_images"]))),
            **{key: value for column in MAPS
               for key, value in flat(column, _spread_of_arm(mine, column, several)).items()},
            "classes": int(mine["classes"].iloc[0]), "classes_present": int(mine["classes_present"].min()),
            "classes_supported": len(supported or ()),
            **dict.fromkeys([key for name in SHARES for key in (name, f"{name}_reason")]),
            "learning_rate": [None if pd.isna(rate) else rate for rate in mine["learning_rate"]],
            "epoch": mine["epoch"].tolist(),
            "epochs": mine["epochs"].tolist(), "edge": bool(mine["edge"].any()),
            "averaged": int(mine["averaged"].sum()),
        })  # fmt: skip
    columns = [*(rows[0] if rows else ["given", "test_map", "shown_score", "shown_images", "name", "edge", *ARM])]
    frame = pd.DataFrame(rows, columns=columns)
    groups = dict(by_arm(runs))
    shares = [_gap_shares(row, frame, groups, supported, truth) for row in frame.to_dict("records")]
    for name in shares[0] if shares else ():
        frame[name] = pd.Series([share[name] for share in shares], dtype=object if "reason" in name else float)
    return frame


def _spread_of_arm(runs: pd.DataFrame, column: str, several: bool) -> Spread:
    """Return the spread of an arm's runs; beside arms of several draws, one draw's has no deviation over draws."""
    value = spread_over(runs, column)
    return value | {"std": value["std_draws"]} if several else value


def _points(runs: pd.DataFrame) -> pd.Series:
    """Return the test mAP of each draw, a mean over its seeds; of each seed where there is one draw."""
    known = runs.dropna(subset="test_map")
    return known.groupby("draw" if known["draw"].nunique() > 1 else RUN)["test_map"].mean()


def _gap_shares(
    row: dict[Any, Any],
    arms: pd.DataFrame,
    runs: dict[Arm, pd.DataFrame],
    supported: tuple[str, ...] | None,
    truth: bool,
) -> dict[str, Any]:
    """Return the shares of the gap of one arm, under both rules, each with the reason why it is None."""
    references = {name: _reference(row, arms, name) for name in (BASELINE, CEILING)}
    why: dict[str, list[str]] = {}
    for name, found in references.items():
        if isinstance(found, str):
            why.setdefault(found, []).append(name)
    shares: dict[str, Any] = {}
    for share, column in SHARES.items():
        if not truth:
            reason = f"the labels of {row['dataset']} are not exhaustive, so no method saw full labels"
            shares |= {share: None, f"{share}_reason": reason}
        elif why:
            reason = "; ".join(words.format(" or ".join(names)) for words, names in why.items())
            shares |= {share: None, f"{share}_reason": reason}
        elif column == "test_map_supported" and not supported:
            shares |= {share: None, f"{share}_reason": unsupported(supported)}
        else:
            mine = (tuple(row[key] for key in ARM), *references.values())
            values = [by_run(runs[arm], column) for arm in mine]  # pyright: ignore
            shares[share], shares[f"{share}_reason"] = gap_share(*values)
    return shares


def unsupported(supported: tuple[str, ...] | None) -> str:
    """Return why there is no mean over the supported classes."""
    return "the table of labels could not be read" if supported is None else "no class has the support"


def _reference(row: dict[Any, Any], arms: pd.DataFrame, method: str) -> Arm | str:
    """Return the arm of a reference method that another compares with, or why there is none (``{}``: the method).

    Only the same head under the same protocol compares: the grid's own runs of the method, or its variant of the same
    name.
    """
    mine = arms[(arms["stage"] == row["stage"]) & (arms["method"] == method)]
    if mine.empty:
        return "no run of {} at this stage"
    same = mine[(mine["head"] == row["head"]) & (mine["protocol"] == row["protocol"])]
    names = [name for name in ("", row["variant"]) if name in set(same["variant"])]
    return (row["stage"], method, names[0]) if names else "{} has another head or protocol"


def by_run(runs: pd.DataFrame, column: str) -> pd.Series:
    """Return one column of an arm's runs by draw and seed."""
    return runs.set_index(RUN)[column]
