"""Mean average precision at each stage."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from pipeline.config.params import TRAINING_STAGES
from pipeline.report import figures, findings, frames
from pipeline.report.context import Page, Part
from pipeline.report.frames import BASELINE, ORACLES, Results
from pipeline.report.text import LISTED, column, label, leaves, listed, marked

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


def _conditions(rows: pd.DataFrame) -> list[str]:
    """Return which of ``head`` and ``protocol`` differ between rows, so that a table needs a column of them."""
    return [key for key in ("head", "protocol") if rows[key].nunique() > 1]


def _rates(rates: Sequence[float], edge: bool) -> str:
    """Return learning rates, with a star where one is an edge of the search."""
    return listed(float(rate) for rate in rates) + " *" * bool(edge)


def _side_by_side(page: Page, result: Results) -> dict[str, Any] | None:
    """Return the table of all methods with both stages, and whether fine-tuning loses to the head."""
    rows = frames.side_by_side(result)
    if rows.empty:
        return None
    every = result.arms[result.arms["stage"].isin(SIDES)]
    conditions = _conditions(every)
    present = {stage: rows[f"{stage}_seeds"].notna() for stage in SIDES}
    last = [next(result_row(row, stage) for stage in reversed(SIDES) if here[stage])
            for row, here in zip(rows.to_dict("records"), pd.DataFrame(present).to_dict("records"), strict=True)]  # fmt: skip
    density = [bool(row["density"]) for row in last]
    kept = [f"{stage}_{key}" for stage in SIDES
            for key in ("test_map", "test_map_std", "test_map_n", "learning_rate", "head", "protocol")]  # fmt: skip
    file = rows[["method", "variant"]].assign(knows_label_density=[int(known) for known in density])
    page.table(
        f"{result.name}-side_by_side", pd.concat([file, rows[kept], rows.filter(regex="^gain(_std|_n)?$")], axis=1)
    )

    def side(values: Sequence[str], stage: str) -> list[str]:
        return [value if here else "–" for value, here in zip(values, present[stage], strict=True)]

    def rates(stage: str) -> list[str]:
        pairs = zip(rows[f"{stage}_learning_rate"], rows[f"{stage}_edge"], present[stage], strict=True)
        return [_rates(values, edge) if here else "–" for values, edge, here in pairs]

    names = [label(row["method"], row["variant"], result.truth) for row in last]
    notes = [_note(page, result, row) for row in last]
    table = {
        "Method": [{"text": name, "note": note} for name, note in zip(names, notes, strict=True)],
        "Linear head": side(column(rows, "linear_init_test_map"), "linear_init"),
        "Fine-tuned": side(column(rows, "finetune_test_map"), "finetune"),
        "Gain": column(rows, "gain", sign=True),
        **{key.capitalize(): [
            " / ".join(dict.fromkeys(value for value in values if isinstance(value, str)))
            for values in zip(*(rows[f"{stage}_{key}"] for stage in SIDES), strict=True)
        ] for key in conditions},
        "Learning rates, linear head": rates("linear_init"), "Learning rates, fine-tuned": rates("finetune"),
        "Knows the label density": ["yes" if known else "no" for known in density],
    }  # fmt: skip
    words, kind = findings.own_head(result)
    return {
        "table": pd.DataFrame(table), "marks": _marks(rows["method"].tolist(), [""] * len(rows), result.given),
        "protocols": every["protocol"].unique().tolist(), "heads": "head" in conditions, "edge": bool(every["edge"].any()),
        "verdict": words, "kind": kind,
    }  # fmt: skip


def result_row(row: dict[Any, Any], stage: str) -> dict[str, Any]:
    """Return the columns of one stage of a row of ``frames.side_by_side``, without their prefix."""
    mine = {key.removeprefix(f"{stage}_"): value for key, value in row.items() if key.startswith(f"{stage}_")}
    return {**mine, "stage": stage, "method": row["method"], "variant": row["variant"]}


def _stage(page: Page, result: Results, stage: str, rows: pd.DataFrame) -> dict[str, Any]:
    conditions, first = _conditions(rows), rows.iloc[0]
    rows = _by_head(rows)
    first, every = rows.iloc[0], rows.to_dict("records")
    seeds = [len(row["seeds"]) for row in every]
    uneven = len(set(zip(seeds, rows["planned"], strict=True))) > 1 or seeds[0] < first["planned"]
    coverage = frames.label_coverage(result)
    labelled = [findings.labelled(findings.coverage_of(coverage, arm)) for arm in frames.arms_of(rows)]
    names = [label(row["method"], row["variant"], result.truth) for row in every]
    table = {
        "Method": [{"text": name, "note": _note(page, result, row)} for name, row in zip(names, every, strict=True)],
        f"Test mAP, {first['classes_present']} present": column(rows, "test_map"),
        **{key.capitalize(): rows[key] for key in conditions},
        f"Absent = 0, {first['classes']} classes": column(rows, "test_map_absent_zero"),
        f"Supported, {first['classes_supported']} classes": column(rows, "test_map_supported"),
        **({"Gap closed": [_closed(share) for share in rows["gap_share"]]} if result.truth else {}),
        "Val mAP": column(rows, "val_map"),
        "Learning rate": [_rates(dict.fromkeys(row["learning_rate"]), row["edge"]) for row in every],  # pyright: ignore
        "Epoch": [f"{listed(row['epoch'])} of {listed(dict.fromkeys(row['epochs']))}" for row in every],
        **({"Seeds": [_of(count, row["planned"]) for count, row in zip(seeds, every, strict=True)]} if uneven else {}),
        "Knows the label density": ["yes" if known else "no" for known in rows["density"]],
        **({"Cells labelled": labelled} if any(words != "–" for words in labelled) else {}),
    }  # fmt: skip
    reasons = rows.loc[rows["gap_share"].isna(), "gap_share_reason"].unique().tolist() if result.truth else []
    runs = result.runs[result.runs["stage"] == stage]
    return {
        "table": pd.DataFrame(table), "marks": _marks(rows["method"].tolist(), rows["head"].tolist(), result.given),
        "protocols": rows["protocol"].unique().tolist(), "heads": "head" in conditions, "edge": bool(rows["edge"].any()),
        "seeds": "" if uneven else seeds[0], "reasons": reasons, "rules": runs["select"].unique().tolist(),
        "averaged": [(name, row["averaged"], count)
                     for name, row, count in zip(names, every, seeds, strict=True) if row["averaged"]],
    }  # fmt: skip


def _closed(share: float) -> dict[str, str]:
    return {"text": "–"} if pd.isna(share) else {"text": f"{share:.0f}%", "bar": f"{min(max(share, 0), 100):.1f}"}


def _of(seeds: int, planned: int) -> str:
    return f"{seeds} of {planned}" if seeds < planned else str(seeds)


def _note(page: Page, result: Results, row: dict[Any, Any]) -> str:
    """Return in a few words what sets a row apart: an oracle's knowledge, another's head, what a variant changes."""
    key = f"{result.name}-{row['method']}-{row['seeds'][0]}-{row['variant']}"
    item = getattr(page.collected.params.variants, row["stage"]).get(key)
    changes = [] if item is None else [*leaves(item.set.stage), *leaves(item.set.method)]
    words = ", ".join(f"{name} = {value}" for name, value in changes if name != "protocol")  # which has its own place
    start = f"from {label(row['start'], truth=result.truth)}'s linear head" if row["start"] else ""
    return "; ".join(filter(None, [row["note"], start, words]))
