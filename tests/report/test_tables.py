import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.params import Params
from pipeline.report import tables
from pipeline.report.collect import Collected, Row, collect
from tests.report.project import FIRST, LINEAR, SECOND, TUNED, many


@pytest.fixture(scope="module")
def collected(whole: tuple[Path, Params]) -> Collected:
    return collect(*whole)


@pytest.fixture(scope="module")
def rows(collected: Collected) -> dict[tuple[str, str], Row]:
    return {(row["stage"], row["name"]): row for row in tables.results(collected)}


def test_spread_is_the_sample_deviation_and_unknown_at_one_seed() -> None:
    three = tables.spread([1.0, 2.0, 4.0])
    assert three == {"mean": pytest.approx(7 / 3), "std": pytest.approx(statistics.stdev([1, 2, 4])), "n": 3}
    one = tables.spread([5.0, None])
    assert (one["mean"], one["std"], one["n"]) == (5.0, None, 1) and "one seed" in one["reason"]
    assert tables.spread([None], "why") == {"mean": None, "std": None, "n": 0, "reason": "why"}


@pytest.mark.parametrize("stage, plan", [("linear_init", LINEAR), ("finetune", TUNED), ("lac", SECOND)])
def test_means_and_deviations_under_both_rules(rows: dict[tuple[str, str], Row], stage: str, plan: dict) -> None:
    for name, values in plan.items():
        row = rows[stage, name]
        assert row["test_map"]["mean"] == pytest.approx(statistics.mean(values))
        assert row["test_map"]["std"] == pytest.approx(statistics.stdev(values))
        # five of six classes have a positive in the test split
        assert row["test_map_absent_zero"]["mean"] == pytest.approx(statistics.mean(values) * 5 / 6)
        assert (row["classes"], row["classes_present"]) == (6, 5)
        assert row["val_map"]["mean"] == pytest.approx(statistics.mean(values) + 1)


def test_supported_mean_is_over_the_named_classes(collected: Collected, rows: dict[tuple[str, str], Row]) -> None:
    # The generator shifts the present classes by -0.02, -0.01, 0, 0.01, 0.02 in their order; absent ones have no AP.
    shift = dict(
        zip(["<script>alert('x')</script>", "cat & dog", "a $x^2$ b", "rare", "zebra"], range(-2, 3), strict=True)
    )
    names = collected.datasets[0].supported()
    assert names is not None and "rare" not in names and "absent in test" not in names
    expected = 85 + statistics.mean(shift[name] for name in names)
    assert rows["finetune", "em_apl"]["test_map_supported"]["mean"] == pytest.approx(expected)
    assert rows["finetune", "em_apl"]["classes_supported"] == len(names)


def test_share_of_the_gap(rows: dict[tuple[str, str], Row]) -> None:
    assert rows["finetune", "em_apl"]["gap_share"] == pytest.approx(100 * (85 - 65) / (90 - 65))
    assert rows["linear_init", "em"]["gap_share"] == pytest.approx(100 * (70 - 61) / (81 - 61))
    assert rows["finetune", "an"]["gap_share"] == 0
    assert rows["finetune", "full"]["gap_share"] == pytest.approx(100)
    assert rows["finetune", "em_apl"]["gap_share_supported"] == pytest.approx(80)
    assert rows["lac", "lac"]["gap_share"] is None
    assert "an or full" in rows["lac", "lac"]["gap_share_reason"]


def test_share_of_the_gap_uses_common_seeds_and_may_be_undefined() -> None:
    assert tables.gap_share({0: 5.0, 1: 99.0}, {0: 0.0}, {0: 10.0, 2: 50.0}) == (50.0, "")
    assert tables.gap_share({0: -5.0}, {0: 0.0}, {0: 10.0}) == (-50.0, "")
    assert tables.gap_share({0: 1.0}, {1: 0.0}, {0: 2.0})[0] is None
    share, reason = tables.gap_share({0: 1.0}, {0: 2.0}, {0: 2.0})
    assert share is None and "no gap" in reason


def test_chosen_settings_are_kept_by_seed_and_an_edge_is_marked(rows: dict[tuple[str, str], Row]) -> None:
    row = rows["finetune", "em"]
    assert (row["learning_rate"], row["epoch"], row["epochs"]) == ([0.01, 0.001, 0.001], [2, 2, 2], [6, 6, 6])
    assert row["edge"]  # seed 0 chose the largest of three rates
    assert row["note"] == "" and rows["finetune", "full"]["note"] == "sees all labels"


def test_summary_is_strict_json_nested_by_dataset_stage_and_method(collected: Collected) -> None:
    record = tables.summary(tables.results(collected))
    text = json.dumps(record, allow_nan=False)
    assert set(record) == {"digits"} and set(record["digits"]) == {"linear_init", "finetune", "end_to_end", "lac"}
    entry = record["digits"]["finetune"]["em_apl"]
    assert entry["test_map"] == {"mean": 85.0, "std": 1.0, "n": 3}
    assert entry["test_map_absent_zero"] == {"mean": 70.8333, "std": 0.8333, "n": 3}
    assert entry["gap_share"] == 80.0 and "gap_share_reason" not in entry
    assert entry["learning_rate"] == {"0": 0.01, "1": 0.001, "2": 0.001}
    one = record["digits"]["lac"]["lac-no_queue"]["test_map"]
    assert (one["mean"], one["std"], one["n"]) == (88.5, None, 1) and one["reason"]
    assert record["digits"]["lac"]["lac"]["gap_share_reason"]
    assert not any(word in text for word in ("time", "host", "/tmp"))


def test_fine_tuning_against_its_own_head_is_paired(collected: Collected) -> None:
    found = {row["method"]: row["test"] for row in tables.against_own_head(collected, "digits")}
    for method in TUNED:
        differences = [after - before for after, before in zip(TUNED[method], LINEAR[method], strict=True)]
        assert found[method]["mean"] == pytest.approx(statistics.mean(differences))
        assert found[method]["std"] == pytest.approx(statistics.stdev(differences))
        assert found[method]["ahead"] == sum(value > 0 for value in differences)


def test_another_methods_head_is_compared_with_that_methods_runs(zoo: Collected) -> None:
    found = {(row["method"], row["variant"]): row for row in tables.against_own_head(zoo, "digits")}
    plan = many(seeds=(0, 1))
    for method, variant, head in (("plc", "from_an", "an"), ("gr", "recipe", "gr"), ("gr", "", "gr")):
        row = found[method, variant]
        after = (
            [plan.variants["finetune"][f"digits-{method}-{seed}-{variant}"] for seed in (0, 1)]
            if variant
            else plan.scores["finetune"][method]
        )
        differences = [a - b for a, b in zip(after, plan.scores["linear_init"][head], strict=True)]
        assert row["test"]["mean"] == pytest.approx(statistics.mean(differences))
        assert row["start"] == (head if variant == "from_an" else "")


def test_both_stages_stand_side_by_side_best_fine_tuned_first(zoo: Collected) -> None:
    rows = tables.side_by_side(tables.results(zoo), zoo, "digits")
    plan = many(seeds=(0, 1))
    assert {row["method"] for row in rows if not row["variant"]} == set(plan.scores["linear_init"])
    scores = [row["finetune"]["test_map"]["mean"] for row in rows]
    assert scores == sorted(scores, reverse=True) and len(rows) == len(plan.scores["linear_init"]) + 3
    by_name = {(row["method"], row["variant"]): row for row in rows}
    row = by_name["gr", ""]
    assert row["linear_init"]["test_map"]["mean"] == pytest.approx(statistics.mean(plan.scores["linear_init"]["gr"]))
    assert row["finetune"]["test_map"]["std"] == pytest.approx(statistics.stdev(plan.scores["finetune"]["gr"]))
    assert row["finetune"]["learning_rate"] == [0.01, 0.001]
    assert row["gain"]["mean"] == pytest.approx(
        statistics.mean(plan.scores["finetune"]["gr"]) - statistics.mean(plan.scores["linear_init"]["gr"])
    )
    assert by_name["plc", "from_an"]["linear_init"] is None and by_name["plc", "from_an"]["gain"]["n"] == 2
    one = [row for row in tables.results(zoo) if row["stage"] == "linear_init"]
    assert tables.side_by_side(one, zoo, "digits") == []


def test_only_the_same_head_under_the_same_protocol_shares_a_gap(zoo: Collected) -> None:
    rows = {(row["stage"], row["name"]): row for row in tables.results(zoo)}
    assert rows["finetune", "gr"]["gap_share"] is not None and rows["finetune", "plc-from_an"]["gap_share"] is not None
    assert rows["finetune", "gr-recipe"]["gap_share"] is None
    assert rows["finetune", "gr-recipe"]["gap_share_reason"] == "an or full has another head or protocol"
    assert rows["end_to_end", "mime"]["gap_share_reason"] == (
        "an has another head or protocol; no run of full at this stage"
    )
    # variants of one name that were all trained by the published recipe compare with each other
    arms = {arm.name: arm for arm in zoo.of("finetune", "digits")}
    recipe = [
        replace(arms["gr-recipe"], method=name, runs=tuple(
            replace(run, metrics=run.metrics | {"test": run.metrics["test"] | {"map": value}})
            for run in arms["gr-recipe"].runs
        ))
        for name, value in (("an", 61.0), ("full", 101.0))
    ]  # fmt: skip
    found = {row["name"]: row for row in tables.results(replace(zoo, arms=[*zoo.arms, *recipe]))}
    assert found["gr-recipe"]["gap_share"] == pytest.approx(100 * (81.5 - 61) / 40)


def test_the_summary_says_how_each_row_was_trained(zoo: Collected) -> None:
    record = tables.summary(tables.results(zoo))["digits"]
    entry = record["finetune"]["gr-recipe"]
    assert (entry["head"], entry["protocol"], entry["knows_label_density"]) == ("linear", "published", False)
    assert record["end_to_end"]["mime"]["head"] == "bottleneck" and record["linear_init"]["role"]["knows_label_density"]


def test_second_stage_is_paired_with_each_rival(collected: Collected) -> None:
    found = {
        (row["rival"], row["start"]): row
        for row in tables.second_stage(collected, collected.datasets[0])
        if row["subject"] == "lac"
    }
    assert set(found) == {("plc", 0), ("lac-no_queue", 0), ("plc", 1)}
    for key, rival in ((("plc", 0), SECOND["plc"]), (("plc", 1), FIRST["plc"])):
        differences = [mine - theirs for mine, theirs in zip(SECOND["lac"], rival, strict=True)]
        assert found[key]["test"]["mean"] == pytest.approx(statistics.mean(differences))
        assert found[key]["test"]["std"] == pytest.approx(statistics.stdev(differences))
    one = found["lac-no_queue", 0]["test"]
    assert (one["mean"], one["std"], one["n"], one["ahead"]) == (pytest.approx(1.5), None, 1, 1)
    assert found["plc", 0]["epochs"] == [[6], [6]]


def test_every_second_stage_arm_meets_every_rival_trained_on(collected: Collected) -> None:
    # the arm without the queue scores 88.5 at seed 0; a strict rival, with LAC's threshold, 1 point below the other
    plc = next(arm for arm in collected.of("lac", "digits") if arm.name == "plc")
    strict = [
        replace(run, key=f"{run.key}-strict", provenance={"method": {"threshold": 0.9}},
                metrics=run.metrics | {"test": run.metrics["test"] | {"map": run.metrics["test"]["map"] - 1}})
        for run in plc.runs
    ]  # fmt: skip
    arms = [*collected.arms, replace(plc, variant="strict", runs=tuple(strict))]
    rows = tables.second_stage(replace(collected, arms=arms), collected.datasets[0])
    found = {(row["subject"], row["rival"]): row for row in rows if not row["start"]}
    assert set(found) == {
        (subject, rival) for subject in ("lac", "lac-no_queue") for rival in ("plc", "plc-strict")
    } | {("lac", "lac-no_queue")}
    for subject, values in (("lac", SECOND["lac"]), ("lac-no_queue", (88.5,))):
        for name, drop in (("plc", 0), ("plc-strict", 1)):
            differences = [mine - theirs + drop for mine, theirs in zip(values, SECOND["plc"], strict=False)]
            test = found[subject, name]["test"]
            assert test["mean"] == pytest.approx(statistics.mean(differences)), (subject, name)
            spread = pytest.approx(statistics.stdev(differences)) if len(differences) > 1 else None
            assert (test["std"], test["n"]) == (spread, len(differences)), (subject, name)
    assert found["lac", "plc-strict"]["thresholds"] == [[], [0.9]]


def test_falls_are_from_the_best_epoch_to_the_last(collected: Collected) -> None:
    found = {row["method"]: row for row in tables.falls(collected, "finetune", "digits")}
    assert found["an"]["fall"]["mean"] == pytest.approx(3.0)
    assert found["em"]["fall"]["mean"] == pytest.approx(0.25)
    assert found["full"]["fall"]["mean"] == pytest.approx(0.0)
    assert found["an"]["best_epoch"] == 2 and found["an"]["best"]["mean"] == pytest.approx(66)


def test_over_epochs_means_the_seeds_that_reached_an_epoch(whole: tuple[Path, Params]) -> None:
    arm = next(arm for arm in collect(*whole).of("finetune", "digits") if arm.method == "an")
    rows = tables.over_epochs(arm, "val_map")
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0]["mean"] == pytest.approx(65 - 6) and rows[0]["std"] == pytest.approx(1.0)
    arm.runs[2].epochs.pop()  # as after an early stop
    last = tables.over_epochs(arm, "val_map")[-1]
    assert (last["n"], last["mean"]) == (2, pytest.approx((62 + 63) / 2))


def test_splits_and_classes_count_scored_cells_only(collected: Collected) -> None:
    dataset = collected.datasets[0]
    table, rows = dataset.table, {row["split"]: row for row in tables.splits(dataset)}
    assert table is not None
    assert [rows[name]["images"] for name in ("train", "val", "test")] == [40, 12, 20]
    assert (rows["train"]["cells_unscored"], rows["test"]["classes_present"]) == (1, 5)
    assert rows["train"]["labels_per_image"] == pytest.approx(table.truth[:40].sum() / 40)
    by_class = {row["class"]: row for row in tables.classes(dataset)}
    assert by_class["rare"]["support_train"] == 1 and by_class["rare"]["support_official_train"] == 2
    assert by_class["absent in test"]["support_official_test"] == 0 and not by_class["absent in test"]["supported"]
    column = table.classes.index("zebra")
    single = [int(table.truth[row].argmax()) for row in range(40)]
    hidden = sum(table.truth[row, column] == 1 and single[row] != column for row in range(40))
    unknown = sum(single[row] != column for row in range(40))
    assert by_class["zebra"]["false_negative_rate"] == pytest.approx(hidden / unknown)


def test_ranked_is_best_first(collected: Collected) -> None:
    order = [row["method"] for row in tables.ranked(tables.results(collected), "digits", "finetune")]
    assert order == ["full", "em_apl", "em", "iun", "an"]
