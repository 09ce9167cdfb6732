import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.params import Params
from pipeline.labels.table import Table
from pipeline.report import analyses, caveats, findings, tables
from pipeline.report.collect import Collected, collect


@pytest.fixture(scope="module")
def collected(whole: tuple[Path, Params]) -> Collected:
    return collect(*whole)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([1.0, 2.0, 3.0], "LAC is better than PLC at every one of 3 seeds, by 2.0 points of test mAP (std 1.0)."),
        ([-1.0, -2.0, -3.0], "LAC is worse than PLC at every one of 3 seeds, by 2.0 points of test mAP (std 1.0)."),
        ([0.1, 0.1, 4.0], "ends above PLC at every one of 3 seeds, but unevenly"),
        ([1.0, -1.0, 2.0], "ahead of PLC at 2 of 3 seeds (mean difference +0.7, std 1.5): these runs do not separate"),
        ([0.0, 0.0], "ends below PLC at every one of 2 seeds, but unevenly"),
        ([1.5], "LAC ends 1.5 points of test mAP above PLC at one seed; no spread is known"),
        ([-1.5], "LAC ends 1.5 points of test mAP below PLC at one seed; no spread is known"),
        ([0.01], "LAC ends level with PLC at one seed; no spread is known."),
        ([], "share no seed"),
    ],
)
def test_verdict_says_what_the_numbers_support(values: list[float], words: str) -> None:
    difference = tables.paired(dict(enumerate(values)), dict.fromkeys(range(9), 0.0))
    assert words in findings.verdict("LAC", "PLC", difference)


def test_findings_are_computed(collected: Collected) -> None:
    words = findings.findings(collected, tables.results(collected), collected.datasets[0])
    text = "\n".join(words)
    assert "After fine-tuning, EM+APL is best of the methods that see one label per image: 85.0 ± 1.0 test mAP" in text
    assert "against 65.0 ± 1.0 for AN and 90.0 ± 1.0 for full labels. It closes 80% of the gap" in text
    assert "AN's val mAP is best at epoch 2 and has lost 3.0 points by epoch 6" in text
    assert "loses to the linear head that it started from, in test mAP, for 1 of 5 methods: IUN (-1.0 ± 0.0)" in text
    assert "LAC is better than PLC trained on at every one of 3 seeds, by 1.2 points" in text
    assert "LAC ends 1.5 points of test mAP above LAC (no queue) at one seed" in text


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
    collected: Collected, images: int, positives: tuple[int, ...], words: str
) -> None:
    truth = np.zeros((images + 1, len(positives)), np.int8)
    for column, count in enumerate(positives):
        truth[:count, column] = 1
    truth[images] = 1  # a training image
    split = np.array([2] * images + [0], np.uint8)
    names = tuple(f"c{n}" for n in range(len(positives)))
    paths = tuple(f"{n}.png" for n in range(images + 1))
    table = Table(names, paths, truth, np.ones(truth.shape, bool), split, (split == 2).astype(np.uint8))
    assert caveats.caution(replace(collected.datasets[0], table=table)) == words


def test_findings_follow_the_numbers(collected: Collected) -> None:
    rows = tables.results(collected)
    for row in rows:
        if row["stage"] == "finetune" and row["method"] in ("em", "em_apl"):
            row["test_map"] = {"mean": 50.0 + (row["method"] == "em"), "std": 2.0, "n": 3}
    text = "\n".join(findings.findings(collected, rows, collected.datasets[0]))
    assert "After fine-tuning, no method that sees one label per image beats AN in test mAP: 51.0 ± 2.0" in text
    assert "the next, EM, against 65.0 ± 1.0 for AN" in text


def test_a_lead_within_one_deviation_is_called_open(collected: Collected) -> None:
    rows = tables.results(collected)
    for row in rows:
        if (row["stage"], row["method"]) == ("finetune", "em"):
            row["test_map"] = {"mean": 84.5, "std": 0.2, "n": 3}
    assert "EM is 0.5 behind, within one standard deviation, so their order is open" in "\n".join(
        findings.findings(collected, rows, collected.datasets[0])
    )


def test_a_best_method_that_another_equals_is_not_best_alone(collected: Collected) -> None:
    rows = tables.results(collected)
    for row in rows:
        if (row["stage"], row["method"]) == ("finetune", "em"):
            row["test_map"] = {"mean": 85.0, "std": None, "n": 1}
    assert "is level with it" in "\n".join(findings.findings(collected, rows, collected.datasets[0]))


def test_a_different_number_of_epochs_is_said() -> None:
    row = {
        "subject_variant": "", "method": "plc", "variant": "", "start": 0, "epochs": [[4], [6]],
        "thresholds": [[], []],
        "test": tables.paired({0: 1.0}, {0: 0.0}),
    }  # fmt: skip
    assert findings.second_stage(row).endswith("The two were not trained for as many epochs (4 against 6).")
    assert "not trained" not in findings.second_stage(row | {"start": 1})


def test_the_rival_that_shares_the_threshold_is_named() -> None:
    row = {
        "subject_variant": "no_queue", "method": "plc", "variant": "strict", "start": 0, "epochs": [[4], [4]],
        "thresholds": [[0.9], [0.9]], "test": tables.paired({0: 2.0}, {0: 0.0}),
    }  # fmt: skip
    words = findings.second_stage(row)
    assert words.startswith("LAC (no queue) ends 2.0 points of test mAP above PLC (strict) trained on at one seed")
    assert words.endswith("Both label with the same threshold, 0.9.")
    other = findings.second_stage(row | {"variant": "", "thresholds": [[0.9], [0.6]]})
    assert other.endswith("They label with different thresholds (0.9 against 0.6).")
    own = findings.second_stage(row | {"subject_variant": "", "method": "lac", "variant": "no_queue"})
    assert "threshold" not in own


def _without_labels(collected: Collected, seeds: tuple[int, ...]) -> Collected:
    """The same results, but EM+APL's fine-tuning gave no pseudo-label up to the chosen epoch at these seeds."""
    changed = copy.deepcopy(collected)
    for audit in changed.audits:
        if audit.seed in seeds:
            key = ("finetune", f"digits-em_apl-{audit.seed}")
            for run in audit.record["runs"]:
                if (run["stage"], run["key"]) == key:
                    run["chosen"]["coverage"] = 0.0
            for row in audit.tables["rounds"]:
                if (row["stage"], row["key"]) == key and row["epoch"] <= 2:
                    row["labelled"] = 0.0
    return changed


def test_a_best_method_without_a_label_yet_is_not_credited(collected: Collected) -> None:
    early = (
        "EM+APL's chosen epoch lies before its first pseudo-label at each of 3 seeds, so its pseudo-labels have little"
    )
    for seeds, said in (((), False), ((0, 1), False), ((0, 1, 2), True)):
        changed = _without_labels(collected, seeds)
        words = findings.findings(changed, tables.results(changed), changed.datasets[0])
        best = next(line for line in words if line.startswith("After fine-tuning, EM+APL is best"))
        assert (early in best) == said
        assert not any("before its first" in line for line in words if line is not best)


def test_coverage_at_the_chosen_epoch_is_put_in_words(collected: Collected) -> None:
    identity = ("finetune", "em_apl", "")
    rows = analyses.label_coverage(collected, "digits")[identity]
    assert [row["seed"] for row in rows] == [0, 1, 2] and all(row["labelled"] for row in rows)
    mean = sum(row["coverage"] for row in rows) / 3
    assert findings.labelled(rows) == f"{100 * mean:.1f}%"
    one = analyses.label_coverage(_without_labels(collected, (0,)), "digits")[identity]
    assert findings.labelled(one).endswith("% (none at 1 of 3 seeds)")
    assert ("finetune", "em", "") not in analyses.label_coverage(collected, "digits")
    assert findings.labelled([]) == "–" and findings.before_labels("em", []) == ""


def test_a_method_has_the_name_that_its_docstring_gives(repository: Path) -> None:
    names = [
        path.stem for path in (repository / "pipeline/methods").glob("*.py") if path.stem not in ("__init__", "base")
    ]
    for name in names:
        text = (repository / f"pipeline/methods/{name}.py").read_text(encoding="utf-8")
        assert text.startswith(f'"""{findings.label(name)}: '), name
    assert set(findings._NAMES) <= set(names)


def test_the_best_that_is_told_the_label_density_is_not_best_alone(collected: Collected) -> None:
    rows = tables.results(collected)
    for row in rows:
        row["density"] = row["method"] == "em_apl"
    text = "\n".join(findings.findings(collected, rows, collected.datasets[0]))
    assert "After fine-tuning, EM+APL (told the label density) is best of the methods that see one label" in text
    assert "Of those not told the label density EM is best, with 81.0 ± 1.0." in text


def test_another_head_or_recipe_is_not_called_best(collected: Collected) -> None:
    for key, value in (("head", "bottleneck"), ("protocol", "published")):
        rows = tables.results(collected)
        for row in rows:
            row[key] = value if (row["stage"], row["method"]) == ("finetune", "em_apl") else row[key]
        text = "\n".join(findings.findings(collected, rows, collected.datasets[0]))
        assert "After fine-tuning, EM is best of the methods that see one label per image: 81.0 ± 1.0" in text


def test_a_method_without_a_head_of_its_own_is_best_by_its_variant(zoo: Collected) -> None:
    rows = tables.results(zoo)
    for row in rows:
        if row["name"] == "plc-from_an":
            row["test_map"] = {"mean": 99.0, "std": 0.1, "n": 2}
    assert "After fine-tuning, PLC (from an) is best of the methods that see one label per image: 99.0 ± 0.1" in (
        "\n".join(findings.findings(zoo, rows, zoo.datasets[0]))
    )


def test_many_that_lose_to_their_own_head_are_named_in_part() -> None:
    rows = [
        {"method": f"m{n}", "variant": "" if n < 9 else "x", "test": tables.paired({0: 0.0}, {0: 1.0 + n})}
        for n in range(10)
    ]
    words, kind = findings.own_head(rows)
    assert words.startswith(
        "Fine-tuning loses to the linear head that it started from, in test mAP, for 10 of 9 methods and 1 variant: "
    )
    assert words.endswith(": M9 (x) (-10.0), M8 (-9.0), M7 (-8.0), M6 (-7.0), M5 (-6.0), M4 (-5.0) and 4 more.")
    assert kind == "warning"


def test_labels_and_numbers() -> None:
    assert findings.label("em_apl") == "EM+APL" and findings.label("my_new") == "MY-NEW"
    assert findings.label("lac", "no_queue") == "LAC (no queue)"
    assert findings.plus_minus({"mean": 1.25, "std": None}) == "1.2"
    assert findings.plus_minus({"mean": None, "std": None}) == "–"
    assert (
        findings.signed({"mean": 1.26, "std": 0.5}) == "+1.3 ± 0.5"
        and findings.signed({"mean": -1.0, "std": None}) == "-1.0"
    )


def test_nothing_is_claimed_without_runs(whole: tuple[Path, Params], tmp_path: Path) -> None:
    empty = collect(tmp_path, whole[1], partial=True)
    assert findings.findings(empty, [], empty.datasets[0]) == []
