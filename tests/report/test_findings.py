import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pipeline.config.params import Params
from pipeline.labels.table import Table
from pipeline.report import analyses, comparisons, findings, frames, text
from pipeline.report.frames import Results
from pipeline.report.read import Collected, collect


@pytest.fixture(scope="module")
def collected(whole: tuple[Path, Params]) -> Collected:
    return collect(*whole)


@pytest.fixture(scope="module")
def result(collected: Collected) -> Results:
    return frames.measure(collected)["digits"]


def changed(result: Results, stage: str, method: str, **values: Any) -> Results:
    """The same results, but that the arms of a method have other values; ``%`` stands for those of all methods."""
    arms = result.arms.copy()
    mine = (arms["stage"] == stage) & ((arms["method"] == method) | (method == "%"))
    for name, value in values.items():
        arms.loc[mine, name] = value
    return replace(result, arms=arms)


def rescored(collected: Collected, method: str, values: tuple[float, ...], stage: str = "finetune") -> Results:
    """The results where a method's own runs of a stage score otherwise on draws 0, 1 and 2."""
    runs = [
        replace(run, test_map=values[run.draw])
        if (run.stage, run.method, run.variant) == (stage, method, "") else run
        for run in collected.runs
    ]  # fmt: skip
    return frames.measure(replace(collected, runs=tuple(runs)))["digits"]


def difference(values: list[float]) -> dict[str, Any]:
    """The columns of a paired difference to zeros, a value a label draw."""
    index = pd.MultiIndex.from_product([range(9), [0]], names=frames.RUN)
    mine = pd.Series(values, index[: len(values)], dtype=float)
    return frames.flat("test", comparisons.paired(mine, pd.Series(0.0, index)))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            [1.0, 2.0, 3.0, 2.0],
            "LAC is better than PLC, by 2.0 points of test mAP "
            "(95% interval +0.7 to +3.3, ahead on 4 of 4 label draws).",
        ),
        (
            [-1.0, -2.0, -3.0, -2.0],
            "LAC is worse than PLC, by 2.0 points of test mAP (95% interval -3.3 to -0.7, ahead",
        ),
        (
            [1.0, 2.0, 3.0],
            "These draws do not tell LAC and PLC apart: +2.0 points of test mAP (95% interval -0.5 to +4.5, ",
        ),
        (
            [1.0, -1.0, 2.0],
            "do not tell LAC and PLC apart: +0.7 points of test mAP (95% interval -3.1 to +4.5, ahead on 2",
        ),
        ([2.0, 2.0], "LAC ends 2.0 points of test mAP above PLC, measured on 2 label draws, which decides nothing."),
        ([1.5], "LAC ends 1.5 points of test mAP above PLC, measured on one label draw, which decides nothing."),
        ([-1.5], "LAC ends 1.5 points of test mAP below PLC, measured on one label draw, which decides nothing."),
        ([0.01], "LAC ends level with PLC on one label draw."),
        ([], "share no label draw"),
    ],
)
def test_verdict_says_what_the_numbers_support(values: list[float], words: str) -> None:
    assert words in text.say("verdict", "LAC", "PLC", text.spread_of(difference(values), "test"))


def test_findings_are_computed(result: Results) -> None:
    words = "\n".join(findings.findings(result))
    assert "After fine-tuning, EM+APL scores highest of the methods that see one label per image: 85.0 ± 1.0" in words
    assert "against 65.0 ± 1.0 for AN and 90.0 ± 1.0 for full labels, 80% of the gap from AN to full labels." in words
    assert "EM+APL is better than AN, by 20.0 points of test mAP (95% interval +17.5 to +22.5, ahead on 3 of 3" in words
    assert "AN's val mAP is best at epoch 2 and has lost 3.0 points by epoch 6" in words
    assert "loses to the linear head that it started from, in test mAP, for 1 of 5 methods: IUN (-1.0 ± 0.0)" in words
    assert "These draws do not tell LAC and PLC trained on apart: +1.2 points of test mAP" in words
    assert "LAC ends 1.5 points of test mAP above LAC (no queue), measured on one label draw" in words
    assert "label draw was run" not in words and "label draws were run" not in words


ORDERS = ("best", "better", "worse", "beats", "loses to", "wins", "behind")


@pytest.mark.parametrize("draws", [1, 2])
def test_few_draws_claim_no_order(collected: Collected, draws: int) -> None:
    few = replace(collected, runs=tuple(run for run in collected.runs if run.draw < draws))
    sentences = findings.findings(frames.measure(few)["digits"])
    first = next(line for line in sentences if line.startswith("After fine-tuning"))
    on = "one label draw" if draws == 1 else "2 label draws"
    assert first.startswith(f"After fine-tuning, on {on}, EM+APL scores highest of the methods that see one label")
    said = [line for line in sentences if any(re.search(rf"\b{word}\b", line) for word in ORDERS)]
    assert [line for line in said if "val mAP is best at epoch" not in line] == []  # a method against itself
    told = "One label draw was run." if draws == 1 else "2 label draws were run, too few for an interval, so no order"
    assert any(line.startswith(told) for line in sentences)


def test_two_draws_and_many_seeds_claim_no_order(collected: Collected) -> None:
    def moved(run: Any) -> Any:
        return replace(run, draw=run.draw % 2, seed=run.draw)  # draws 0, 1, 0 at seeds 0, 1, 2

    few = replace(collected, runs=tuple(map(moved, collected.runs)))
    assert not any("better than" in line for line in findings.findings(frames.measure(few)["digits"]))


@pytest.mark.parametrize(
    ("images", "positives", "words"),
    [
        (47, (9, 10, 20), "With 47 test images and 1 of 3 classes below 10 positives, small differences mean nothing."),
        (199, (50, 60, 70), "With 199 test images, small differences mean nothing."),
        (200, (50, 60, 10), ""),
        (
            200,
            (50, 60, 9),
            "With 200 test images and 1 of 3 classes below 10 positives, small differences mean nothing.",
        ),
        (1000, (9, *[10] * 9), ""),  # a tenth
    ],
)
def test_small_splits_are_said_to_be_small(
    result: Results, images: int, positives: tuple[int, ...], words: str
) -> None:
    truth = np.zeros((images + 1, len(positives)), np.int8)
    for column, count in enumerate(positives):
        truth[:count, column] = 1
    truth[images] = 1  # a training image
    split = np.array([2] * images + [0], np.uint8)
    names = tuple(f"c{n}" for n in range(len(positives)))
    paths = tuple(f"{n}.png" for n in range(images + 1))
    table = Table(names, paths, truth, np.ones(truth.shape, bool), split, (split == 2).astype(np.uint8))
    assert findings.caution(replace(result.about, table=table)) == words


def test_findings_follow_the_numbers(result: Results) -> None:
    lower = changed(result, "finetune", "em_apl", test_map=50.0, test_map_std=2.0)
    words = "\n".join(findings.findings(changed(lower, "finetune", "em", test_map=51.0, test_map_std=2.0)))
    assert "After fine-tuning, no method that sees one label per image scores above AN in test mAP: 51.0 ± 2.0" in words
    assert "next, EM, against 65.0 ± 1.0 for AN" in words


def tuned(result: Results) -> str:
    """The sentences on the best after fine-tuning."""
    return next(line for line in findings.findings(result) if line.startswith("After fine-tuning"))


def test_a_lead_that_the_pairs_do_not_support_is_called_open(collected: Collected) -> None:
    # EM+APL scores 85, 84, 86
    for level in ((84.9, 84.4, 84.2), (10.0, 84.0, 86.0)):
        assert tuned(rescored(collected, "em", level)).endswith("These draws do not tell EM+APL apart from EM.")
    apart = tuned(rescored(collected, "em", (84.0, 83.1, 85.05)))
    assert "apart from" not in apart and apart.endswith("The same holds against the other method.")


def test_a_best_that_is_not_told_from_the_baseline_is_not_credited(collected: Collected) -> None:
    alone = [run for run in collected.runs if (run.stage, run.method) != ("finetune", "em")]
    words = tuned(rescored(replace(collected, runs=tuple(alone)), "em_apl", (70.0, 66.0, 64.0)))  # AN: 64, 65, 66
    assert "These draws do not tell EM+APL and AN apart: +1.7 points" in words and "better" not in words


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ((70.0, 66.0, 64.0), "These draws do not tell EM+APL and AN apart: +1.7 points"),
        ((62.0, 63.0, 64.0), "EM+APL is worse than AN, by 2.0 points"),
    ],
)
def test_a_best_that_is_ahead_of_the_others_but_not_of_the_baseline(
    collected: Collected, scores: tuple[float, ...], words: str
) -> None:
    runs = [
        replace(run, test_map=scores[run.draw] - {"em_apl": 0.0, "em": 1.5 + 0.1 * run.draw}[run.method])
        if run.stage == "finetune" and run.method in ("em_apl", "em") and not run.variant else run
        for run in collected.runs
    ]  # fmt: skip
    said = tuned(frames.measure(replace(collected, runs=tuple(runs)))["digits"])
    assert words in said  # AN: 64, 65, 66
    assert said.endswith("EM+APL is better than the other method.") and "The same holds" not in said


def test_a_different_number_of_epochs_is_said() -> None:
    row = {
        "subject_variant": "", "method": "plc", "variant": "", "start": 0, "epochs": [[4], [6]],
        "thresholds": [[], []], **difference([1.0]),
    }  # fmt: skip
    assert findings.second_stage(row).endswith("The two were not trained for as many epochs (4 against 6).")
    assert "not trained" not in findings.second_stage(row | {"start": 1})


def test_the_rival_that_shares_the_threshold_is_named() -> None:
    row = {
        "subject_variant": "no_queue", "method": "plc", "variant": "strict", "start": 0, "epochs": [[4], [4]],
        "thresholds": [[0.9], [0.9]], **difference([2.0]),
    }  # fmt: skip
    words = findings.second_stage(row)
    assert words.startswith(
        "LAC (no queue) ends 2.0 points of test mAP above PLC (strict) trained on, measured on one label draw"
    )
    assert words.endswith("Both label with the same threshold, 0.9.")
    other = findings.second_stage(row | {"variant": "", "thresholds": [[0.9], [0.6]]})
    assert other.endswith("They label with different thresholds (0.9 against 0.6).")
    own = findings.second_stage(row | {"subject_variant": "", "method": "lac", "variant": "no_queue"})
    assert "threshold" not in own


def _without_labels(result: Results, draws: tuple[int, ...]) -> Results:
    """The same results, but EM+APL's fine-tuning gave no pseudo-label up to the chosen epoch on these draws."""
    tables = {name: frame.copy() for name, frame in result.audits.items()}
    for frame in tables.values():
        mine = (frame["stage"] == "finetune") & (frame["method"] == "em_apl") & frame["draw"].isin(draws)
        if "chosen.coverage" in frame:
            frame.loc[mine, "chosen.coverage"] = 0.0
        if "labelled" in frame and "epoch" in frame:
            frame.loc[mine & (frame["epoch"] <= 2), "labelled"] = 0.0
    return replace(result, audits=tables)


def test_a_best_method_without_a_label_yet_is_not_credited(result: Results) -> None:
    early = (
        "EM+APL's chosen epoch lies before its first pseudo-label in each of 3 runs, so its pseudo-labels have little"
    )
    for draws, said in (((), False), ((0, 1), False), ((0, 1, 2), True)):
        words = findings.findings(_without_labels(result, draws))
        best = next(line for line in words if line.startswith("After fine-tuning, EM+APL scores highest"))
        assert (early in best) == said
        assert not any("before its first" in line for line in words if line is not best)


def test_coverage_at_the_chosen_epoch_is_put_in_words(result: Results) -> None:
    def of(method: str, draws: tuple[int, ...] = ()) -> pd.DataFrame:
        coverage = analyses.label_coverage(_without_labels(result, draws))
        return findings.coverage_of(coverage, ("finetune", method, ""))

    rows = of("em_apl")
    assert rows["draw"].tolist() == [0, 1, 2] and rows["labelled"].all()
    assert findings.labelled(rows) == f"{100 * sum(rows['coverage']) / 3:.1f}%"
    assert findings.labelled(of("em_apl", (0,))).endswith("% (none in 1 of 3 runs)")
    assert findings.labelled(of("em")) == "–" and findings.before_labels("em", of("em")) == ""


def test_a_method_has_the_name_that_its_docstring_gives(repository: Path) -> None:
    names = [
        path.stem for path in (repository / "pipeline/methods").glob("*.py") if path.stem not in ("__init__", "base")
    ]
    for name in names:
        source = (repository / f"pipeline/methods/{name}.py").read_text(encoding="utf-8")
        assert source.startswith(f'"""{text.label(name)}: '), name
    assert set(text._NAMES) <= set(names)


def test_the_best_that_is_told_the_label_density_is_not_best_alone(result: Results) -> None:
    words = "\n".join(findings.findings(changed(result, "finetune", "em_apl", density=True)))
    assert (
        "After fine-tuning, EM+APL (told the label density) scores highest of the methods that see one label" in words
    )
    assert "Of those not told the label density EM scores highest, 81.0 ± 1.0." in words


def test_another_head_or_recipe_is_not_called_best(result: Results) -> None:
    for key, value in (("head", "bottleneck"), ("protocol", "published")):
        words = "\n".join(findings.findings(changed(result, "finetune", "em_apl", **{key: value})))
        assert "After fine-tuning, EM scores highest of the methods that see one label per image: 81.0 ± 1.0" in words


def test_a_method_without_a_head_of_its_own_is_best_by_its_variant(zoo: Collected) -> None:
    best = changed(frames.measure(zoo)["digits"], "finetune", "plc", test_map=99.0, test_map_std=0.1)
    words = "PLC (from an) scores highest of the methods that see one label per image: 99.0 ± 0.1"
    assert tuned(best).startswith(f"After fine-tuning, on one label draw, {words}")


def test_many_that_lose_to_their_own_head_are_named_in_part() -> None:
    rows = [{"method": f"m{n}", "variant": "" if n < 9 else "x", **difference([-1.0 - n])} for n in range(10)]
    words, kind = findings.losses(pd.DataFrame(rows), truth=True)
    assert words.startswith(
        "On one label draw, fine-tuning ends below the linear head that it started from, in test mAP, for 10 of 9 "
        "methods and 1 variant: "
    )
    assert words.endswith(": M9 (x) (-10.0), M8 (-9.0), M7 (-8.0), M6 (-7.0), M5 (-6.0), M4 (-5.0) and 4 more.")
    assert kind == "warning"


def test_labels_and_numbers() -> None:
    assert text.label("em_apl") == "EM+APL" and text.label("my_new") == "MY-NEW"
    assert text.label("lac", "no_queue") == "LAC (no queue)"
    assert text.plus_minus({"mean": 1.25, "std": np.nan}) == "1.2"
    assert text.plus_minus({"mean": np.nan, "std": np.nan}) == "–"
    assert (
        text.signed({"mean": 1.26, "std": 0.5}) == "+1.3 ± 0.5" and text.signed({"mean": -1.0, "std": np.nan}) == "-1.0"
    )


def test_nothing_is_claimed_without_runs(whole: tuple[Path, Params], tmp_path: Path) -> None:
    assert findings.findings(frames.measure(collect(tmp_path, whole[1], partial=True))["digits"]) == []
