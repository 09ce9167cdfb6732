"""Mean average precision at each stage."""

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import analyses, comparisons, figures, findings, frames
from pipeline.report.context import Page, Part
from pipeline.report.frames import BASELINE, ORACLES, Results
from pipeline.report.text import LISTED, column, interval, label, leaves, listed, marked, points, spread_of

SIDES = ("linear_init", "finetune")


def part(page: Page, result: Results) -> Part:
    """Return the figure of all scores, the table of both stages, and a table for each stage."""
    if result.arms.empty:
        return Part(result.name)
    ranked = {stage: rows for stage in TRAINING_STAGES if len(rows := result.ranked(stage))}
    both = _side_by_side(page, result)
    content = {
        "dots": _dots(page, result, ranked), "both": both, "supported": result.about.supported(),
        "caution": findings.caution(result.about), "first": result.arms.iloc[0],
        "stages": {stage: _stage(page, result, stage, rows) for stage, rows in ranked.items()},
        "folded": [stage for stage in SIDES if both and len(ranked[stage]) > LISTED],
    }  # fmt: skip
    return Part(result.name, content)


def _dots(page: Page, result: Results, ranked: dict[str, pd.DataFrame]) -> dict[str, Any]:
    rows = pd.concat([_by_head(rows) for rows in ranked.values()]).dropna(subset="test_map")
    chosen = [page.choose(result, mine) for _, mine in rows.groupby("stage", sort=False)]
    looks = {arm: look for choice in chosen for arm, look in choice.looks.items()}
    axis = marked("test mAP (%), mean over the classes present", result.given)
    image = figures.scores(rows, looks, titles=page.stages, truth=result.truth, x=axis)
    return {
        "picture": page.figure(f"{result.name}-map", image, result.arms.drop(columns=["note", "edge"])),
        "faint": any(look.faint for look in looks.values()), "named": figures.NAMED,
        "told": bool(rows["density"].any()), "below": bool((rows["test_map"] < figures.cut(rows, result.truth)).any()),
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------- tables of mAP
def _by_head(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows by the kind of head, which alone compare, in the order in which the kinds first appear."""
    return rows.sort_values("head", key=lambda heads: pd.factorize(heads)[0], kind="stable")  # pyright: ignore


def _marks(methods: Sequence[str], heads: Sequence[str], given: Sequence[str]) -> list[str]:
    """Return how rows are marked: references, and of each kind of head the first that is no oracle."""
    references, seen, marks = (BASELINE, *ORACLES), set(), []
    for method, head in zip(methods, heads, strict=True):
        best = method not in ORACLES and head not in seen
        seen |= {head} if best else set()
        mark = "best" if best else "reference" if method in references else ""
        marks.append("" if best and "test" in given else mark)  # given labels say of no method that it is best
    return marks


def _conditions(rows: pd.DataFrame) -> dict[str, Any]:
    """Return under which protocols rows were trained, whether heads differ, and whether a rate is an edge."""
    return {
        "protocols": rows["protocol"].unique().tolist(),
        "heads": rows["head"].nunique() > 1,
        "edge": bool(rows["edge"].any()),
    }


def _rates(rates: Iterable[float], edge: bool) -> str:
    """Return learning rates, with a star where one is an edge of the search; no number of a closed form."""
    known = [float(rate) for rate in rates if not pd.isna(rate)]
    return listed(known) + " *" * bool(edge) if known else "closed form"


def _side_by_side(page: Page, result: Results) -> dict[str, Any] | None:
    """Return the table of all methods with both stages, and whether fine-tuning loses to the head."""
    rows = comparisons.side_by_side(result)
    if rows.empty:
        return None
    every = result.arms[result.arms["stage"].isin(SIDES)]
    conditions = [key for key in ("head", "protocol") if every[key].nunique() > 1]
    last = [_last(row) for row in rows.to_dict("records")]
    density = [_knows(row) for row in last]
    keys = ("test_map", "test_map_std", "test_map_n", "learning_rate", "head", "protocol")
    file = rows[["method", "variant"]].assign(knows_label_density=[int(bool(row["density"])) for row in last])
    kept = rows[[f"{stage}_{key}" for stage in SIDES for key in keys]]
    page.table(f"{result.name}-side_by_side", pd.concat([file, kept, rows.filter(regex="^gain(_std|_n)?$")], axis=1))
    both = {key: zip(*(rows[f"{stage}_{key}"] for stage in SIDES), strict=True) for key in conditions}
    rates = {
        stage: [
            _rates(values, edge) if isinstance(values, list) else "–"
            for values, edge in zip(rows[f"{stage}_learning_rate"], rows[f"{stage}_edge"], strict=True)
        ]
        for stage in SIDES
    }
    table = {
        "Method": _methods(page, result, last),
        "Linear head": column(rows, "linear_init_test_map"), "Fine-tuned": column(rows, "finetune_test_map"),
        "Gain": column(rows, "gain", sign=True),
        **{key.capitalize(): [" / ".join(dict.fromkeys(v for v in values if isinstance(v, str))) for values in pairs]
           for key, pairs in both.items()},
        "Learning rates, linear head": rates["linear_init"], "Learning rates, fine-tuned": rates["finetune"],
        "Knows the label density": density,
    }  # fmt: skip
    words, kind = ("", "note") if "test" in result.given else findings.own_head(result)
    marks = _marks(rows["method"].tolist(), [""] * len(rows), result.given)
    return {"table": pd.DataFrame(table), "marks": marks, "verdict": words, "kind": kind, **_conditions(every)}


def _knows(row: dict[Any, Any]) -> str:
    """Return whether an arm knows the labels an image has."""
    return "yes" if row["density"] else "estimated" if row["estimated"] else "no"


def _last(row: dict[Any, Any]) -> dict[str, Any]:
    """Return the columns of the last stage that a row of ``side_by_side`` has, without their prefix."""
    stage = SIDES[isinstance(row["finetune_runs"], list)]
    mine = {key.removeprefix(f"{stage}_"): value for key, value in row.items() if key.startswith(f"{stage}_")}
    return {**mine, "stage": stage, "method": row["method"], "variant": row["variant"]}


def _stage(page: Page, result: Results, stage: str, ranked: pd.DataFrame) -> dict[str, Any]:
    """Return the table of one stage and what its note says."""
    rows = _by_head(ranked)
    first, every = rows.iloc[0], rows.to_dict("records")
    counts = [len(row["runs"]) for row in every]
    uneven = len(set(zip(counts, rows["planned"], strict=True))) > 1 or counts[0] < first["planned"]
    coverage = analyses.label_coverage(result)
    labelled = [findings.labelled(findings.coverage_of(coverage, arm)) for arm in frames.arms_of(rows)]
    methods = _methods(page, result, every)
    table = {
        "Method": methods,
        f"Test mAP, {first['classes_present']} present": column(rows, "test_map"),
        **({} if "test" not in result.given else {"Shown labels": [points(score) for score in rows["shown_score"]]}),
        **_deviations(rows),
        **{key.capitalize(): rows[key] for key in ("head", "protocol") if rows[key].nunique() > 1},
        f"Absent = 0, {first['classes']} classes": column(rows, "test_map_absent_zero"),
        f"Supported, {first['classes_supported']} classes": column(rows, "test_map_supported"),
        **({"Gap closed": [_closed(share) for share in rows["gap_share"]]} if result.truth else {}),
        "Val mAP": column(rows, "val_map"),
        "Learning rate": [_rates(dict.fromkeys(row["learning_rate"]), row["edge"]) for row in every],
        "Epoch": [f"{listed(row['epoch'])} of {listed(dict.fromkeys(row['epochs']))}" for row in every],
        **({"Runs": [_of(count, row["planned"]) for count, row in zip(counts, every, strict=True)]} if uneven else {}),
        "Knows the label density": [_knows(row) for row in every],
        **({"Cells labelled": labelled} if any(words != "–" for words in labelled) else {}),
    }
    names = [method["text"] for method in methods]
    averaged = zip(names, rows["averaged"], counts, strict=True)
    runs = result.runs[result.runs["stage"] == stage]
    return {
        "table": pd.DataFrame(table),
        "marks": _marks(rows["method"].tolist(), rows["head"].tolist(), result.given),
        "runs": 0 if uneven else counts[0],
        "draws": result.draws,
        "order": result.order(stage),
        "images": first["shown_images"],
        "paired": _paired(page, result, stage),
        "reasons": rows.loc[rows["gap_share"].isna() & result.truth, "gap_share_reason"].unique().tolist(),
        "rules": runs["select"].unique().tolist(),
        "averaged": [(name, count, of) for name, count, of in averaged if count],
        **_conditions(rows),
    }


def _methods(page: Page, result: Results, rows: list[Any]) -> list[dict[str, str]]:
    """Return the cells that name the arms of a table."""
    names = [label(row["method"], row["variant"], result.truth) for row in rows]
    return [{"text": name, "note": _note(page, result, row)} for name, row in zip(names, rows, strict=True)]


def _closed(share: float) -> dict[str, str]:
    return {"text": "–"} if pd.isna(share) else {"text": f"{share:.0f}%", "bar": f"{min(max(share, 0), 100):.1f}"}


def _of(runs: int, planned: int) -> str:
    return f"{runs} of {planned}" if runs < planned else str(runs)


def _deviations(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Return the columns of the spread over draws and over seeds, where rows have both."""
    names = {"Std over draws": "test_map_std_draws", "Std over seeds": "test_map_std_seeds"}
    known = [rows[name].notna().any() for name in names.values()]
    return {title: [points(value) for value in rows[name]] for title, name in names.items()} if all(known) else {}


def _paired(page: Page, result: Results, stage: str) -> pd.DataFrame | None:
    """Return the table of differences to the best of a stage and to the baseline; None of one label draw."""
    rows = comparisons.against_references(result, stage)
    if result.draws < 2 or "test" in result.given or not (rows[["best", "base"]] != "").to_numpy().any():
        return None
    page.table(f"{result.name}-{stage}-paired", rows)
    table = {"Method": [page.name(result, arm) for arm in frames.arms_of(rows)]}
    every = rows.to_dict("records")
    for name, other in (("best", "the highest"), ("base", label(BASELINE))):
        if not rows[name].any():
            continue
        table[f"Minus {other}"] = [_difference(row, name) for row in every]
        table[f"Draws won, {other}"] = [
            f"{row[f'from_{name}_won']:.0f} of {row[f'from_{name}_draws']:.0f}" if row[name] else "–" for row in every
        ]
    return pd.DataFrame(table)


def _difference(row: dict[Any, Any], name: str) -> str:
    """Return a difference with its interval in brackets, where there is one."""
    if not row[name]:
        return "–"
    value = spread_of(row, f"from_{name}")
    return f"{value['mean']:+.1f}" + ("" if pd.isna(value["low"]) else f" [{interval(value)}]")


def _note(page: Page, result: Results, row: dict[Any, Any]) -> str:
    """Return in a few words what sets a row apart: an oracle's knowledge, another's head, what a variant changes."""
    item = getattr(page.collected.params.variants, row["stage"]).get(row["key"])
    changes = [] if item is None else [*leaves(item.set.stage), *leaves(item.set.method)]
    words = ", ".join(f"{name} = {value}" for name, value in changes if name != "protocol")  # which has its own place
    start = f"from {label(row['start'], truth=result.truth)}'s linear head" if row["start"] else ""
    return "; ".join(filter(None, [row["note"], start, words]))
