"""The numbers that Git and DVC keep of a report: strict JSON, without anything that varies by machine."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from pipeline.report.analyses import label_coverage
from pipeline.report.comparisons import ENDS, against_references
from pipeline.report.frames import ARM, BASELINE, GIVEN, MAPS, SHARES, Results, unsupported

_ROUND = 4  # decimals of percent in summary.json: below what another BLAS changes, above what anyone reads
_ONE = {"std_draws": "one label draw", "std_seeds": "one training seed a draw"}


def summary(results: Iterable[Results]) -> dict[str, Any]:
    """Return the record that Git keeps: dataset -> stage -> method -> numbers.

    A nested mapping of strict JSON values; percent rounded to four decimals.
    """
    record: dict[str, Any] = {}
    for result in results:
        pairs = _pairs(result)
        for row in result.arms.to_dict("records"):
            entry = _entry(result, row) | {"paired": pairs.get((row["stage"], row["name"]), {})}
            record.setdefault(result.name, {}).setdefault(row["stage"], {})[row["name"]] = entry
    return record


def _entry(result: Results, row: dict[Any, Any]) -> dict[str, Any]:
    """Return what is kept of one arm, without its differences to others."""
    nothing = {"test_map_supported": unsupported(result.about.supported())}
    entry: dict[str, Any] = {
        name: _spread_entry(row, name, nothing.get(name, "not defined in any run")) for name in MAPS
    }
    for name in SHARES:
        known = row[name] == row[name]
        entry |= {name: round(row[name], _ROUND)} if known else {name: None, f"{name}_reason": row[f"{name}_reason"]}
    entry |= {key: row[key] for key in ("classes", "classes_present", "classes_supported", "head", "protocol")}
    entry["knows_label_density"] = "estimated" if row["estimated"] and not row["density"] else row["density"]
    entry |= {"scores": dict.fromkeys(row["given"], GIVEN)} if row["given"] else {}
    return entry | {name: dict(zip(row["runs"], row[name], strict=True)) for name in ("learning_rate", "epoch")}


def _spread_entry(row: dict[Any, Any], name: str, nothing: str) -> dict[str, Any]:
    """Return a spread with the reason of what it lacks."""
    entry: dict[str, Any] = {"mean": round(row[name], _ROUND) if row[f"{name}_n"] else None}
    entry |= {} if row[f"{name}_n"] else {"reason": nothing}
    for key, reason in _ONE.items():
        value = _rounded(row[f"{name}_{key}"])
        entry |= {key: value} if value is not None or "reason" in entry else {key: None, f"{key}_reason": reason}
    return entry | {"draws": row[f"{name}_draws"], "n": row[f"{name}_n"]}


def _rounded(value: Any) -> Any:
    """Return a number as it is kept, None for NaN."""
    return None if pd.isna(value) else round(float(value), _ROUND)


def _pairs(result: Results) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the differences of each arm, by stage and name, to the best and the baseline, by the name of that one.

    ``difference`` in points of test mAP, its ``std`` over draws (over seeds where there is one draw), its interval from
    ``low`` to ``high`` (95%, Student's t over draws; null below three), and on how many of ``draws`` it was ``won``.
    """
    found = {}
    for stage in result.arms["stage"].unique() if "test" not in result.given else ():  # given labels rank nothing
        for row in against_references(result, stage).to_dict("records"):
            name = "-".join(filter(None, (row["method"], row["variant"])))
            found[stage, name] = {row[kind]: _difference(row, f"from_{kind}") for kind in ("best", "base") if row[kind]}
    return found


def _difference(row: dict[Any, Any], name: str) -> dict[str, Any]:
    values = {end.removeprefix("_") or "difference": row[f"{name}{end}"] for end in ENDS}
    counts = {key: int(values[key]) for key in ("won", "draws", "n")}
    return {key: counts.get(key, _rounded(value)) for key, value in values.items()}


def compared(results: Iterable[Results]) -> dict[str, Any]:
    """Return what ``dvc metrics diff`` and ``dvc exp show`` compare beside the mAP of each run.

    A nested mapping, dataset -> stage -> method: ``gap_share`` (of the means over runs) and ``coverage`` (mean over
    runs), both in percent, and of several label draws ``std_draws`` of test mAP and ``minus_<baseline>``, the mean
    paired difference, in points. Where val or test is scored by given labels, none of these can be known, and
    ``<split>_score_by_shown_labels`` (mean over runs, in percent) says how well the shown labels of which images are
    ranked. What is not defined is left out.
    """
    numbers: dict[str, Any] = {}
    for result in results:
        if result.arms.empty:
            continue
        pairs = _pairs(result)
        coverage = label_coverage(result).groupby(ARM, as_index=False)[["coverage"]].mean()
        coverage["coverage"] *= 100
        for row in result.arms.merge(coverage, on=ARM, how="left").to_dict("records"):
            row["std_draws"] = row["test_map_std_draws"]
            row[f"minus_{BASELINE}"] = _minus_baseline(pairs.get((row["stage"], row["name"]), {}))
            keys = ("gap_share", "coverage", "std_draws", f"minus_{BASELINE}")
            if result.given and "," not in row["shown_images"]:
                shown = f"{row['shown_images']}_score_by_shown_labels"
                row[shown], keys = row["shown_score"], (*keys, shown)
            if known := {key: round(row[key], 2) for key in keys if not pd.isna(row[key])}:
                numbers.setdefault(result.name, {}).setdefault(row["stage"], {})[row["name"]] = known
    return numbers


def _minus_baseline(pairs: dict[str, Any]) -> float | None:
    """Return an arm's mean difference to the baseline over several draws."""
    pair = pairs.get(BASELINE)
    return pair["difference"] if pair and pair["draws"] > 1 else None
