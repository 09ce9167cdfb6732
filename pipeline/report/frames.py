"""Numbers of one dataset as frames: scores of arms, paired comparisons, pseudo-labels, calibration, distances, the data.

A column ``x`` that stands beside ``x_std`` and ``x_n`` is a mean over training seeds, with the sample's standard
deviation (ddof = 1; NaN at one seed) and the number of seeds. A difference is paired: both runs share dataset and seed.
mAP is in percent, fractions and distances in [0, 1]. Definitions of the latter: `pipeline.audits`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pipeline.labels.table import SPLITS
from pipeline.report.read import (
    AUDIT,
    AUDITED,
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
Arm = tuple[str, str, str]
Spread = dict[str, Any]
"""``mean``, ``std`` and ``n``."""

BASELINE = "an"
CEILING = "full"
SECOND_STAGE = "lac"  # the stage, and the method it is named after
FIRST_NETWORK = "plc"  # the method whose network the second stage starts from
ORACLES = {"full": "sees all labels", "iun": "sees the true negatives"}
GIVEN = "against the given labels; unknown counted absent"
"""What is said wherever a score stands that is not against full labels."""
ONE_SEED = "one seed: the spread is not known"

MAPS = ("test_map", "test_map_absent_zero", "test_map_supported", "val_map", "val_map_absent_zero")
_SHARES = {"gap_share": "test_map", "gap_share_supported": "test_map_supported"}
_ROUND = 4  # decimals of percent in summary.json: below what another BLAS changes, above what anyone reads


@dataclass(frozen=True)
class Results:
    """What was measured on one dataset."""

    about: Dataset
    truth: bool
    """Whether its labels are exhaustive, so that there is something to measure against."""
    one_label: bool
    """Whether each image shows one present label, as in the papers."""
    runs: pd.DataFrame
    """One row a training run: the fields of ``Run`` and ``test_map_supported``."""
    epochs: pd.DataFrame
    """One row a run and epoch: the run's arm and seed, whether it ``chose`` the epoch, and what epochs.tsv holds."""
    arms: pd.DataFrame
    """One row an arm, in the order of params.yaml: scores, shares of the gap, settings by seed."""
    audits: dict[str, pd.DataFrame]
    """The audits' tables, and their records of ``runs``, with the arm and seed of each row."""
    wasserstein: dict[str, pd.DataFrame]
    landscapes: tuple[Landscape, ...]

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.about.name

    @property
    def given(self) -> list[str]:
        """Of val and test, those scored by given labels that are not exhaustive."""
        return list(dict.fromkeys(split for splits in self.arms["given"] for split in splits))

    def ranked(self, stage: str) -> pd.DataFrame:
        """Return the arms of one stage, best mean test mAP first, those without a value last."""
        mine = self.arms[self.arms["stage"] == stage]
        return mine.sort_values("test_map", ascending=False, kind="stable", na_position="last")


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
            collected.one_label(about.name),
            frame,
            _by_epoch(runs),
            _arms(frame, plan, supported, truth),
            _joined(collected.audits, about.name, plan, AUDIT),
            _joined(collected.wasserstein, about.name, plan, WASSERSTEIN),
            tuple(sorted((i for i in collected.landscapes if i.dataset == about.name), key=lambda i: i.seed)),
        )
    return found


# ---------------------------------------------------------------------------------------------- over seeds
def spread(values: Iterable[float]) -> Spread:
    """Return mean and sample standard deviation of the values that are not NaN; NaN where they are not defined."""
    known = [value for value in values if not pd.isna(value)]
    if len(known) < 2:
        return {"mean": known[0] if known else np.nan, "std": np.nan, "n": len(known)}
    return {"mean": float(np.mean(known)), "std": float(np.std(known, ddof=1)), "n": len(known)}


def flat(name: str, value: Spread) -> dict[str, Any]:
    """Return a spread as the columns ``name``, ``name_std``, ``name_n`` and whatever else it holds."""
    return {name if key == "mean" else f"{name}_{key}": item for key, item in value.items()}


def spreads(frame: pd.DataFrame, by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    """Return the spreads of some columns for each group, in the order in which the groups first appear."""
    rows = []
    for key, part in frame.groupby(list(by), sort=False):
        row = dict(zip(by, key, strict=True))  # pyright: ignore  a tuple, as `by` is a list
        for column in columns:
            row |= flat(column, spread(part[column]))
        rows.append(row)
    names = [name for column in columns for name in flat(column, {"mean": 0, "std": 0, "n": 0})]
    return pd.DataFrame(rows, columns=[*by, *names])


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
    hidden = ("by_epoch", "by_class", "provenance")
    columns = [name for name in Run.__dataclass_fields__ if name not in hidden]
    rows = [{name: getattr(run, name) for name in columns} for run in runs]
    frame = pd.DataFrame(rows, columns=columns)
    frame["test_map_supported"] = [supported_map(run.by_class, supported or ()) for run in runs]
    frame["classes"] = [len(run.by_class) for run in runs]
    return frame.astype(dict.fromkeys(MAPS, float))


def supported_map(by_class: pd.DataFrame, classes: Sequence[str]) -> float:
    """Return the mean test average precision over the named classes, in percent; NaN if one has none."""
    precision = by_class.set_index("class")["ap_test"].reindex(list(classes)).to_numpy(float)
    return 100 * float(np.mean(precision)) if len(precision) else np.nan


def _by_epoch(runs: list[Run]) -> pd.DataFrame:
    about = ("stage", "method", "variant", "seed")
    frames = [
        run.by_epoch.assign(**{name: getattr(run, name) for name in about}, chose=run.by_epoch["epoch"] == run.epoch)
        for run in runs
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*about, "epoch", "chose"])


def _joined(
    analyses: Iterable[Analysis], dataset: str, plan: list[Planned], tables: dict[str, tuple[str, ...]]
) -> dict[str, pd.DataFrame]:
    """Return the ``tables`` of all seeds' analyses of a dataset by name; each row has its arm and seed."""
    mine = [item for item in analyses if item.dataset == dataset]
    order = pd.DataFrame([vars(run) for run in plan], columns=[*ARM, "seed", "key"])
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
        value: The method's test mAP by seed.
        low: The reference that assumes every unknown label negative.
        high: The reference that sees all labels.

    Returns:
        100 * (value - low) / (high - low) of the means over the seeds that all three have, in percent (below 0: worse
        than the low reference), and why it is None.
    """
    common = pd.concat([value, low, high], axis=1, join="inner").dropna().sort_index()
    if common.empty:
        return None, "no seed for which all three values exist"
    mine, bottom, top = (float(np.mean(column)) for column in common.to_numpy().T.copy())
    if top <= bottom:
        return None, f"there is no gap: {top:.2f} with full labels against {bottom:.2f}"
    return 100 * (mine - bottom) / (top - bottom), ""


def _arms(runs: pd.DataFrame, plan: list[Planned], supported: tuple[str, ...] | None, truth: bool) -> pd.DataFrame:
    """Return one row for each arm that has runs."""
    asked = pd.Series([(run.stage, run.method, run.variant) for run in plan]).value_counts()
    rows = []
    for arm, mine in by_arm(runs):
        stage, method, variant = arm
        note = "" if method not in ORACLES else ORACLES[method] if truth else "sees the given labels, as all do"
        rows.append({
            "dataset": mine["dataset"].iloc[0], "stage": stage, "method": method, "variant": variant,
            "name": f"{method}-{variant}" if variant else method, "note": note,
            "given": tuple(split for split in SCORED if any(split in given for given in mine["given"])),
            "head": ", ".join(dict.fromkeys(mine["head"])), "protocol": ", ".join(dict.fromkeys(mine["protocol"])),
            "density": bool(mine["density"].any()), "start": mine["start"].iloc[0],
            "seeds": mine["seed"].tolist(), "planned": int(asked[arm]), "test_maps": mine["test_map"].dropna().tolist(),
            **{key: value for column in MAPS for key, value in flat(column, spread(mine[column])).items()},
            "classes": int(mine["classes"].iloc[0]), "classes_present": int(mine["classes_present"].min()),
            "classes_supported": len(supported or ()),
            **dict.fromkeys([key for name in _SHARES for key in (name, f"{name}_reason")]),
            "learning_rate": mine["learning_rate"].tolist(), "epoch": mine["epoch"].tolist(),
            "epochs": mine["epochs"].tolist(), "edge": bool(mine["edge"].any()), "averaged": int(mine["averaged"].sum()),
        })  # fmt: skip
    columns = [*(rows[0] if rows else ["given", "test_map", "edge", *ARM])]
    frame = pd.DataFrame(rows, columns=columns)
    shares = [_gap_shares(row, frame, runs, supported, truth) for row in frame.to_dict("records")]
    for name in shares[0] if shares else ():
        frame[name] = pd.Series([share[name] for share in shares], dtype=object if "reason" in name else float)
    return frame


def _gap_shares(
    row: dict[Any, Any], arms: pd.DataFrame, runs: pd.DataFrame, supported: tuple[str, ...] | None, truth: bool
) -> dict[str, Any]:
    """Return the shares of the gap of one arm, under both rules, each with the reason why it is None."""
    references = {name: _reference(row, arms, name) for name in (BASELINE, CEILING)}
    why: dict[str, list[str]] = {}
    for name, found in references.items():
        if isinstance(found, str):
            why.setdefault(found, []).append(name)
    shares: dict[str, Any] = {}
    for share, column in _SHARES.items():
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
            values = [_by_seed(runs, arm, column) for arm in mine]  # pyright: ignore
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


def _by_seed(runs: pd.DataFrame, arm: Arm, column: str) -> pd.Series:
    """Return one column of an arm's runs by seed."""
    mine = (runs[ARM] == list(arm)).all(axis=1)
    return runs[mine].set_index("seed")[column]


def summary(results: Iterable[Results]) -> dict[str, Any]:
    """Return the record that Git keeps: dataset -> stage -> method -> numbers, without anything that varies by machine.

    Args:
        results: What ``measure`` found.

    Returns:
        A nested mapping of strict JSON values; percent rounded to four decimals.
    """
    record: dict[str, Any] = {}
    for result in results:
        nothing = {"test_map_supported": unsupported(result.about.supported())}
        for row in result.arms.to_dict("records"):
            entry: dict[str, Any] = {
                name: _spread_entry(row, name, nothing.get(name, "not defined in any run")) for name in MAPS
            }
            for name in _SHARES:
                known = row[name] == row[name]
                entry |= (
                    {name: round(row[name], _ROUND)} if known else {name: None, f"{name}_reason": row[f"{name}_reason"]}
                )
            entry |= {key: row[key] for key in ("classes", "classes_present", "classes_supported", "head", "protocol")}
            entry["knows_label_density"] = row["density"]
            entry |= {"scores": dict.fromkeys(row["given"], GIVEN)} if row["given"] else {}
            for name in ("learning_rate", "epoch"):
                entry[name] = {str(seed): value for seed, value in zip(row["seeds"], row[name], strict=True)}
            record.setdefault(result.name, {}).setdefault(row["stage"], {})[row["name"]] = entry
    return record


def _spread_entry(row: dict[Any, Any], name: str, nothing: str) -> dict[str, Any]:
    """Return a spread with the reason of what it lacks."""
    mean, std, n = row[name], row[f"{name}_std"], row[f"{name}_n"]
    reason = nothing if n == 0 else ONE_SEED
    return {
        "mean": round(mean, _ROUND) if n else None,
        "std": round(std, _ROUND) if n > 1 else None,
        "n": n,
        **({"reason": reason} if n < 2 else {}),
    }


# ---------------------------------------------------------------------------------------------- comparisons
def paired(first: pd.Series, second: pd.Series) -> Spread:
    """Return the difference ``first - second`` over the seeds that both have.

    Args:
        first: Value by seed.
        second: Value by seed.

    Returns:
        A spread, and ``ahead``: the number of seeds at which ``first`` is larger.
    """
    difference = (first - second).dropna().sort_index()
    return {**spread(difference), "ahead": int((difference > 0).sum())}


def _compare(runs: pd.DataFrame, first: Arm, second: Arm, columns: dict[str, str]) -> dict[str, Any]:
    """Return the paired differences of two arms, in columns of the given names."""
    differences = {
        name: paired(_by_seed(runs, first, column), _by_seed(runs, second, column)) for name, column in columns.items()
    }
    return {key: value for name, difference in differences.items() for key, value in flat(name, difference).items()}


def against_own_head(result: Results) -> pd.DataFrame:
    """Compare fine-tuned networks with the linear heads that they started from.

    Args:
        result: What was measured on a dataset.

    Returns:
        One row for each arm whose head has runs: ``method``, ``variant``, ``start`` (another method, whose head it was,
        or empty), and the paired differences ``test`` and ``val`` in points of mAP.
    """
    arms = set(arms_of(result.arms))
    rows = []
    for row in result.arms[result.arms["stage"] == "finetune"].to_dict("records"):
        head = ("linear_init", row["start"] or row["method"], "")
        if head in arms:
            mine = ("finetune", row["method"], row["variant"])
            difference = _compare(result.runs, mine, head, {"test": "test_map", "val": "val_map"})
            rows.append({"method": row["method"], "variant": row["variant"], "start": row["start"], **difference})
    return pd.DataFrame(rows, columns=None if rows else ["method", "variant", "start", "test"])


def side_by_side(result: Results) -> pd.DataFrame:
    """Set linear heads and fine-tuned networks side by side.

    Args:
        result: What was measured on a dataset.

    Returns:
        One row for each arm of either stage: ``method``, ``variant``, the columns of ``arms`` with the prefixes
        ``linear_init_`` and ``finetune_`` (NaN where it has no runs) and ``gain`` (paired difference to the head that
        it started from, in points of test mAP). Best fine-tuned first, then best linear head; no row where one of the
        stages has no runs.
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
    order = ["finetune_test_map", "linear_init_test_map"]
    return both.sort_values(order, ascending=False, kind="stable", na_position="last", ignore_index=True)


def second_stage(result: Results) -> pd.DataFrame:
    """Compare every arm of the second stage's method with its rivals at the same seeds.

    The rivals are the other methods of that stage (the first method trained on) with their variants; for the grid's own
    arm also its own variants and the network that it started from.

    Args:
        result: What was measured on a dataset.

    Returns:
        One row for each pair: ``subject`` and ``rival`` (names), ``subject_variant``, the rival's ``method`` and
        ``variant``, ``start`` (1 for the network that the stage started from), the paired differences ``test``,
        ``supported`` and ``val`` in points of mAP, and of both sides ``epochs`` and ``thresholds`` (lists; no threshold
        where none was recorded).
    """
    arms = arms_of(result.arms)
    second = [arm for arm in arms if arm[0] == SECOND_STAGE]
    own = [arm for arm in second if arm[1] == SECOND_STAGE]
    others = [arm for arm in second if arm not in own]
    starts = [arm for arm in arms if arm == ("end_to_end", FIRST_NETWORK, "")]
    rows = []
    for subject in own:
        more = [] if subject[2] else [*(arm for arm in own if arm != subject), *starts]
        for rival in [*others, *more]:
            sides = [result.runs[(result.runs[ARM] == list(arm)).all(axis=1)] for arm in (subject, rival)]
            columns = {"test": "test_map", "supported": "test_map_supported", "val": "val_map"}
            rows.append({
                "subject": "-".join(filter(None, subject[1:])), "subject_variant": subject[2],
                "rival": "-".join(filter(None, rival[1:])), "method": rival[1], "variant": rival[2],
                "start": int(rival in starts), **_compare(result.runs, subject, rival, columns),
                "epochs": [sorted(set(side["epochs"])) for side in sides],
                "thresholds": [sorted(set(side["threshold"].dropna())) for side in sides],
            })  # fmt: skip
    return pd.DataFrame(rows)


def falls(result: Results, stage: str) -> pd.DataFrame:
    """Return how far each arm's val mAP falls from its best epoch to its last.

    Args:
        result: What was measured on a dataset.
        stage: A training stage.

    Returns:
        One row for each arm: ``best`` and ``last`` val mAP and ``fall`` (spreads, percent points), ``best_epoch``, the
        median of the seeds', and ``epochs``, the most that one trained for.
    """
    mine = result.epochs[result.epochs["stage"] == stage]
    rows = []
    for arm, runs in by_arm(mine):
        curves = [run.dropna(subset="val_map") for _, run in runs.groupby("seed", sort=False)]
        curves = [curve for curve in curves if len(curve)]
        if curves:
            best = np.array([curve["val_map"].max() for curve in curves])
            last = np.array([curve["val_map"].iloc[-1] for curve in curves])
            rows.append({
                **dict(zip(ARM, arm, strict=True)), **flat("best", spread(best)), **flat("last", spread(last)),
                **flat("fall", spread(best - last)), "epochs": int(runs.groupby("seed").size().max()),
                "best_epoch": float(np.median([curve.loc[curve["val_map"].idxmax(), "epoch"] for curve in curves])),
            })  # fmt: skip
    return pd.DataFrame(rows, columns=None if rows else [*ARM, "fall"])


def over_epochs(result: Results, stage: str, column: str) -> pd.DataFrame:
    """Return one column of the per-epoch tables as spreads over the seeds that reached an epoch.

    Args:
        result: What was measured on a dataset.
        stage: A training stage.
        column: Column of ``epochs.tsv``.

    Returns:
        One row an arm and epoch, ``epoch`` ascending; ``selected`` says whether any seed chose it.
    """
    mine = result.epochs[result.epochs["stage"] == stage]
    frames = [_selected(rows.sort_values("epoch", kind="stable"), column, "chose") for _, rows in by_arm(mine)]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*ARM, "epoch", column])


def _selected(frame: pd.DataFrame, column: str, choice: str) -> pd.DataFrame:
    """Return the spreads of a column by arm and epoch, and whether ``choice`` holds of any of their rows."""
    found = spreads(frame, [*ARM, "epoch"], [column])
    chosen = frame.groupby([*ARM, "epoch"], sort=False)[choice].any()
    return found.assign(selected=chosen.to_numpy(bool))


# ---------------------------------------------------------------------------------------------- pseudo-labels
def pseudo_labels(result: Results) -> pd.DataFrame:
    """Return the audit of the pseudo-labels of the chosen epoch.

    Args:
        result: What was measured on a dataset.

    Returns:
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

    Args:
        result: What was measured on a dataset.

    Returns:
        One row a run that has pseudo-labels, whether or not there is a truth to audit them against: its arm, ``seed``,
        ``coverage`` (share of unknown training cells that carry a label of the chosen epoch, in [0, 1]) and
        ``labelled`` (whether any did, then or before).
    """
    runs, rounds = result.audits["runs"], result.audits["rounds"]
    runs = runs[runs["rounds"].map(bool).astype(bool)].copy()
    runs["coverage"] = runs["chosen.coverage"].where(_has_labels(runs), 0.0).astype(float)
    every = rounds[(rounds["kind"] == "cumulative") & (rounds["labelled"] > 0)]
    first = every.groupby([*ARM, "seed"], sort=False)["epoch"].min().rename("first").reset_index()
    runs = runs.dropna(subset="coverage").merge(first, on=[*ARM, "seed"], how="left")  # NaN: no unknown cell
    return runs.assign(labelled=runs["first"] <= runs["epoch"])[[*ARM, "seed", "coverage", "labelled"]]


def pseudo_rounds(result: Results) -> pd.DataFrame:
    """Return the audit of all labels of each round, as means over seeds.

    Args:
        result: What was measured on a dataset.

    Returns:
        One row an arm and round, ``epoch`` ascending: ``selected`` (share of seeds whose chosen epoch it serves), and
        the means and standard deviations of ``AUDITED``.
    """
    rounds = result.audits["rounds"]
    rounds = rounds[rounds["kind"] == "cumulative"].sort_values("epoch", kind="stable")
    found = spreads(rounds, [*ARM, "epoch"], AUDITED)
    found.insert(
        4, "selected", [rows["selected"].sum() / len(rows) for _, rows in rounds.groupby([*ARM, "epoch"], sort=False)]
    )
    return _in_order(found, result.audits["rounds"]).drop(columns=[f"{name}_n" for name in AUDITED])


def _in_order(frame: pd.DataFrame, like: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with its arms in the order that they have in another; within an arm nothing moves."""
    rank = {arm: number for number, arm in enumerate(arms_of(like))}
    order = [rank[arm] for arm in frame[ARM].itertuples(index=False, name=None)]
    return frame.iloc[np.argsort(order, kind="stable")].reset_index(drop=True)


def pseudo_classes(result: Results) -> pd.DataFrame:
    """Return the audit by class at the chosen epoch: counts summed over seeds, fractions of the sums.

    Args:
        result: What was measured on a dataset.

    Returns:
        One row an arm and class: ``class``, ``unknown``, ``labelled``, ``negatives``, ``positives``, ``coverage``, and,
        missing where nobody knows the truth, ``accuracy``, ``base`` (share of negatives among unknown cells),
        ``hidden_positives``, ``called_negative``, ``found``.
    """
    frame = result.audits["per_class"]
    names = [name for name in frame.columns if name not in (*ARM, "seed", "key", "class")]
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

    Args:
        result: What was measured on a dataset.

    Returns:
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
    return spreads(runs[ARM].assign(**values), ARM, list(values))


def missed(result: Results) -> pd.DataFrame:
    """Return the unknown training cells that each arm takes to be missed labels first of all, at its lowest seed.

    Args:
        result: What was measured on a dataset.

    Returns:
        One row an arm and cell, the likeliest first: ``seed``, ``rank``, ``path``, ``class``, ``belief``,
        ``probability`` (in [0, 1]) and ``truth`` (1, 0, or NaN where it is not known).
    """
    frame = result.audits["missed"]
    return frame[frame["seed"] == frame.groupby(ARM)["seed"].transform("min")]


def agreed(every: pd.DataFrame) -> pd.DataFrame:
    """Merge what several arms take to be missed labels.

    Args:
        every: What ``missed`` returned.

    Returns:
        One row a cell: ``path``, ``class``, ``arms`` (how many name it) and ``probability`` (the mean of theirs, in
        [0, 1]); those that most arms name first, among equals the most probable.
    """
    merged = spreads(every, ["path", "class"], ["probability"]).rename(columns={"probability_n": "arms"})
    order = sorted(
        range(len(merged)),
        key=lambda i: (-merged["arms"][i], -merged["probability"][i], *merged.loc[i, ["path", "class"]]),
    )
    return merged.iloc[order][["path", "class", "arms", "probability"]].reset_index(drop=True)


def calibration(result: Results) -> pd.DataFrame:
    """Return calibration curves, with the cells of all seeds in one histogram.

    Args:
        result: What was measured on a dataset.

    Returns:
        One row for each arm, quantity (``belief`` of the method on train, ``probability`` of the network on val) and
        bin that holds cells: ``lower``, ``upper``, ``cells``, ``true_positives``, ``fraction``, ``mean_belief`` and
        ``reference`` (what a calibrated probability would give, or NaN).
    """
    frame = result.audits["calibration"]
    frame = frame[frame["cells"] > 0].sort_values(["quantity", "bin"], kind="stable")
    frame = _in_order(frame, result.audits["calibration"]) if len(frame) else frame
    rows = []
    for key, same in frame.groupby([*ARM, "quantity", "bin"], sort=False):
        cells, true = int(same["cells"].sum()), int(same["true_positives"].sum())
        rows.append({
            **dict(zip([*ARM, "quantity"], key[:4], strict=True)),  # pyright: ignore
            "lower": same["lower"].iloc[0], "upper": same["upper"].iloc[0], "cells": cells, "true_positives": true,
            "fraction": true / cells, "mean_belief": sum((same["cells"] * same["mean_belief"]).tolist()) / cells,
            "reference": spread(same["reference"])["mean"],
        })  # fmt: skip
    return pd.DataFrame(rows, columns=None if rows else [*ARM, "quantity"])


def coarse(bins: pd.DataFrame, count: int = 10) -> pd.DataFrame:
    """Merge the bins of calibration curves, so that a figure shows no noise of nearly empty ones.

    Args:
        bins: What ``calibration`` returned.
        count: Number of equal bins of [0, 1] to keep.

    Returns:
        ``cells``, ``mean_belief`` and ``fraction`` of each arm, quantity and bin that holds cells.
    """
    middle = (bins["lower"] + bins["upper"]) / 2
    tenth = (middle * count).astype(int).clip(upper=count - 1)
    weighed = bins.assign(tenth=tenth, weighed=bins["cells"] * bins["mean_belief"])
    rows = []
    for key, same in weighed.groupby([*ARM, "quantity", "tenth"], sort=False):
        cells = int(same["cells"].sum())
        belief, true = (sum(same[name].tolist()) / cells for name in ("weighed", "true_positives"))
        named = dict(zip([*ARM, "quantity"], key[:4], strict=True))  # pyright: ignore
        rows.append({**named, "cells": cells, "mean_belief": belief, "fraction": true})
    return pd.DataFrame(rows)


# ---------------------------------------------------------------------------------------------- separation
def distances(result: Results, split: str) -> pd.DataFrame:
    """Return the Wasserstein distance of each class at the chosen epoch, as a spread over seeds.

    Args:
        result: What was measured on a dataset.
        split: ``train`` or ``val``.

    Returns:
        One row an arm and class that has one: ``distance`` in [0, 1], and ``baseline``, that of the baseline of the
        same stage (NaN where it has none).
    """
    frame = result.wasserstein["per_class"]
    mine = spreads(frame[frame["split"] == split].dropna(subset="distance"), [*ARM, "class"], ["distance"])
    base = mine[(mine["method"] == BASELINE) & (mine["variant"] == "")].rename(columns={"distance": "baseline"})
    return mine.merge(base[["stage", "class", "baseline"]], on=["stage", "class"], how="left")


def distance_epochs(result: Results, split: str) -> pd.DataFrame:
    """Return the spread of the pooled Wasserstein distance after each epoch.

    Args:
        result: What was measured on a dataset.
        split: ``train`` or ``val``.

    Returns:
        One row an arm and epoch: ``pooled``, and ``selected``, whether any seed chose it.
    """
    frame = result.wasserstein["epochs"]
    mine = frame[frame["split"] == split].dropna(subset="pooled").sort_values("epoch", kind="stable")
    return _in_order(_selected(mine, "pooled", "selected"), frame) if len(mine) else mine


def separations(result: Results) -> pd.DataFrame:
    """Return pooled distances and the share of classes separated better than by the baseline.

    Args:
        result: What was measured on a dataset.

    Returns:
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


# ---------------------------------------------------------------------------------------------- the data
def splits(dataset: Dataset) -> pd.DataFrame:
    """Count images and labels in each split.

    Args:
        dataset: A dataset.

    Returns:
        One row for each split: images, official training and test images, labels per image, images without a
        positive, classes present, cells whose truth is not known; no row where its table was not read.
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
    """Return support and simulated labels of each class.

    Args:
        dataset: A dataset.

    Returns:
        One row for each class: positives in the splits and official lists, observed positives, unknown cells, and the
        share of unknown training cells that are positive; no row where its table was not read.
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
    simulated = {row["name"]: row for row in (dataset.simulate or {}).get("classes", [])}
    for key, kind in (("observed_positive", "Int64"), ("unknown", "Int64"), ("false_negative_rate", float)):
        columns[key] = pd.array([simulated.get(name, {}).get(key) for name in table.classes], dtype=kind)  # pyright: ignore
    return pd.DataFrame(columns)
