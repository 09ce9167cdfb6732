import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from scipy.stats import wasserstein_distance

from pipeline.config.params import Params
from pipeline.core import hdf5
from pipeline.labels.table import Table
from pipeline.report import analyses, comparisons, counts, frames, record
from pipeline.report.frames import Results
from pipeline.report.read import Collected, collect
from tests.report.project import FIRST, LINEAR, SECOND, TUNED, many

KEY = ["stage", "method", "variant"]


@pytest.fixture(scope="module")
def collected(whole: tuple[Path, Params]) -> Collected:
    return collect(*whole)


@pytest.fixture(scope="module")
def result(collected: Collected) -> Results:
    return frames.measure(collected)["digits"]


@pytest.fixture(scope="module")
def many_results(zoo: Collected) -> Results:
    return frames.measure(zoo)["digits"]


@pytest.fixture(scope="module")
def table(result: Results) -> Table:
    assert result.about.table is not None
    return result.about.table


def rows_of(frame: pd.DataFrame, *keys: str) -> dict[Any, Any]:
    """The rows of a frame, with None for what is not defined, by some of its columns."""
    return {tuple(row[key] for key in keys): row for row in frames.records(frame)}


@pytest.fixture(scope="module")
def arms(result: Results) -> dict[Any, Any]:
    return rows_of(result.arms, "stage", "name")


def series(values: dict[int, float]) -> pd.Series:
    return pd.Series(values, dtype=float)


# ---------------------------------------------------------------------------------------------- scores
def test_spread_is_the_sample_deviation_and_unknown_at_one_seed() -> None:
    assert frames.spread([1.0, 2.0, 4.0]) == {
        "mean": pytest.approx(7 / 3), "std": pytest.approx(statistics.stdev([1, 2, 4])), "n": 3
    }  # fmt: skip
    one, none = frames.spread([5.0, np.nan]), frames.spread([np.nan])
    assert (one["mean"], one["n"], none["n"]) == (5.0, 1, 0)
    assert np.isnan([one["std"], none["mean"], none["std"]]).all()


@pytest.mark.parametrize("stage, plan", [("linear_init", LINEAR), ("finetune", TUNED), ("lac", SECOND)])
def test_means_and_deviations_under_both_rules(arms: dict[Any, Any], stage: str, plan: dict) -> None:
    for name, values in plan.items():
        row = arms[stage, name]
        assert row["test_map"] == pytest.approx(statistics.mean(values))
        assert row["test_map_std"] == pytest.approx(statistics.stdev(values))
        # five of six classes have a positive in the test split
        assert row["test_map_absent_zero"] == pytest.approx(statistics.mean(values) * 5 / 6)
        assert (row["classes"], row["classes_present"]) == (6, 5)
        assert row["val_map"] == pytest.approx(statistics.mean(values) + 1)


def test_supported_mean_is_over_the_named_classes(result: Results, arms: dict[Any, Any]) -> None:
    # The generator shifts the present classes by -0.02, -0.01, 0, 0.01, 0.02 in their order; absent ones have no AP.
    present = ["<script>alert('x')</script>", "cat & dog", "a $x^2$ b", "rare", "zebra"]
    shift = dict(zip(present, range(-2, 3), strict=True))
    names = result.about.supported()
    assert names is not None and "rare" not in names and "absent in test" not in names
    expected = 85 + statistics.mean(shift[name] for name in names)
    assert arms["finetune", "em_apl"]["test_map_supported"] == pytest.approx(expected)
    assert arms["finetune", "em_apl"]["classes_supported"] == len(names)


def test_share_of_the_gap(arms: dict[Any, Any]) -> None:
    assert arms["finetune", "em_apl"]["gap_share"] == pytest.approx(100 * (85 - 65) / (90 - 65))
    assert arms["linear_init", "em"]["gap_share"] == pytest.approx(100 * (70 - 61) / (81 - 61))
    assert arms["finetune", "an"]["gap_share"] == 0
    assert arms["finetune", "full"]["gap_share"] == pytest.approx(100)
    assert arms["finetune", "em_apl"]["gap_share_supported"] == pytest.approx(80)
    assert arms["lac", "lac"]["gap_share"] is None
    assert "an or full" in arms["lac", "lac"]["gap_share_reason"]


def test_share_of_the_gap_uses_common_seeds_and_may_be_undefined() -> None:
    def share(*values: dict[int, float]) -> tuple[float | None, str]:
        return frames.gap_share(*(series(each).rename_axis("draw") for each in values))  # pyright: ignore

    assert share({0: 5.0, 1: 99.0}, {0: 0.0}, {0: 10.0, 2: 50.0}) == (50.0, "")
    assert share({0: -5.0}, {0: 0.0}, {0: 10.0}) == (-50.0, "")
    assert share({0: 1.0}, {1: 0.0}, {0: 2.0})[0] is None
    nothing, reason = share({0: 1.0}, {0: 2.0}, {0: 2.0})
    assert nothing is None and "no gap" in reason


def test_a_deviation_over_seeds_does_not_stand_among_those_over_draws(collected: Collected) -> None:
    def moved(run: Any) -> Any:
        mine = (run.stage, run.method, run.variant) == ("finetune", "em", "")
        return replace(run, draw=0, seed=run.draw) if mine else run

    mixed = frames.measure(replace(collected, runs=tuple(map(moved, collected.runs))))["digits"]
    row = mixed.arms.set_index(["stage", "name"]).loc[("finetune", "em")]
    assert np.isnan(row["test_map_std"]) and row["test_map_std_seeds"] == pytest.approx(1)
    assert row["test_map"] == pytest.approx(81) and row["test_map_n"] == 3


def test_a_draw_counts_once_in_the_share_of_the_gap() -> None:
    runs = pd.MultiIndex.from_tuples([(0, 0), (0, 1), (0, 2), (1, 0)], names=frames.RUN)  # of draw 1 a seed alone
    value, high = pd.Series([2.0, 4.0, 6.0, 9.0], runs), pd.Series([10.0, 10.0, 10.0, 20.0], runs)
    assert frames.gap_share(value, pd.Series(0.0, runs), high)[0] == pytest.approx(100 * (4 + 9) / (10 + 20))


def test_chosen_settings_are_kept_by_run_and_an_edge_is_marked(result: Results) -> None:
    row = result.arms.set_index(["stage", "name"]).loc[("finetune", "em")]
    assert (row["learning_rate"], row["epoch"], row["epochs"]) == ([0.01, 0.001, 0.001], [2, 2, 2], [6, 6, 6])
    assert row["edge"]  # draw 0 chose the largest of three rates
    notes = result.arms.set_index(["stage", "name"])["note"]
    assert notes["finetune", "em"] == "" and notes["finetune", "full"] == "sees all labels"


def test_summary_is_strict_json_nested_by_dataset_stage_and_method(result: Results) -> None:
    kept = record.summary([result])
    text = json.dumps(kept, allow_nan=False)
    assert set(kept) == {"digits"} and set(kept["digits"]) == {"linear_init", "finetune", "end_to_end", "lac"}
    entry = kept["digits"]["finetune"]["em_apl"]
    three = {"std_seeds": None, "std_seeds_reason": "one training seed a draw", "draws": 3, "n": 3}
    assert entry["test_map"] == {"mean": 85.0, "std_draws": 1.0, **three}
    assert entry["test_map_absent_zero"] == {"mean": 70.8333, "std_draws": 0.8333, **three}
    assert entry["gap_share"] == 80.0 and "gap_share_reason" not in entry
    assert entry["learning_rate"] == {"0-0": 0.01, "1-0": 0.001, "2-0": 0.001}
    one = kept["digits"]["lac"]["lac-no_queue"]["test_map"]
    why = {"std_draws_reason": "one label draw", "std_seeds_reason": "one training seed a draw"}
    assert one == {"mean": 88.5, "std_draws": None, "std_seeds": None, "draws": 1, "n": 1, **why}
    # EM+APL 85, 84, 86 and AN 64, 65, 66 on the same draws
    low, high = scipy.stats.ttest_rel((85, 84, 86), (64, 65, 66)).confidence_interval()
    pair = {"difference": 20.0, "std": 1.0, "low": round(low, 4), "high": round(high, 4), "won": 3, "draws": 3, "n": 3}
    assert entry["paired"] == {"an": pair}
    assert set(record.summary([result])["digits"]["finetune"]["em"]["paired"]) == {"em_apl", "an"}
    assert kept["digits"]["lac"]["lac"]["gap_share_reason"]
    assert not any(word in text for word in ("time", "host", "/tmp"))


def test_ranked_is_best_first(result: Results) -> None:
    assert result.ranked("finetune")["method"].tolist() == ["full", "em_apl", "em", "iun", "an"]


def test_only_the_same_head_under_the_same_protocol_shares_a_gap(zoo: Collected, many_results: Results) -> None:
    rows = rows_of(many_results.arms, "stage", "name")
    assert rows["finetune", "gr"]["gap_share"] is not None and rows["finetune", "plc-from_an"]["gap_share"] is not None
    assert rows["finetune", "gr-recipe"]["gap_share"] is None
    assert rows["finetune", "gr-recipe"]["gap_share_reason"] == "an or full has another head or protocol"
    assert rows["end_to_end", "mime"]["gap_share_reason"] == (
        "an has another head or protocol; no run of full at this stage"
    )
    # variants of one name that were all trained by the published recipe compare with each other
    recipe = [run for run in zoo.runs if (run.method, run.variant) == ("gr", "recipe")]
    more = [
        replace(run, method=name, test_map=value) for name, value in (("an", 61.0), ("full", 101.0)) for run in recipe
    ]
    plan = zoo.params.variants.finetune
    items = {
        f"digits-{name}-0-{seed}-recipe": plan[f"digits-gr-0-{seed}-recipe"].model_copy(
            update={"method": name, "start": name}
        )
        for name in ("an", "full")
        for seed in (0, 1)
    }
    variants = zoo.params.variants.model_copy(update={"finetune": plan | items})
    params = zoo.params.model_copy(update={"variants": variants})
    found = frames.measure(replace(zoo, params=params, runs=(*zoo.runs, *more)))["digits"].arms.set_index("name")
    assert found.loc["gr-recipe", "gap_share"] == pytest.approx(100 * (81.5 - 61) / 40)


def test_the_summary_says_how_each_row_was_trained(many_results: Results) -> None:
    kept = record.summary([many_results])["digits"]
    entry = kept["finetune"]["gr-recipe"]
    assert (entry["head"], entry["protocol"], entry["knows_label_density"]) == ("linear", "published", False)
    assert kept["end_to_end"]["mime"]["head"] == "bottleneck" and kept["linear_init"]["role"]["knows_label_density"]
    assert kept["linear_init"]["en"]["knows_label_density"] == "estimated"


# ---------------------------------------------------------------------------------------------- comparisons
def test_each_arm_is_compared_with_the_best_and_the_baseline_by_draw(result: Results) -> None:
    frame = comparisons.against_references(result, "finetune").astype(object)
    found = frame.where(frame.notna(), None).set_index("method").to_dict("index")
    assert list(found) == result.ranked("finetune")["method"].tolist()
    for method, mine in TUNED.items():
        for kind, rival in (("best", "em_apl"), ("base", "an")):  # oracles, which score higher, are no rivals
            row = found[method]
            assert row[kind] == (rival if rival != method else "")
            if rival == method:
                assert row[f"from_{kind}"] is None and row[f"from_{kind}_draws"] is None
                continue
            differences = [a - b for a, b in zip(mine, TUNED[rival], strict=True)]
            assert row[f"from_{kind}"] == pytest.approx(statistics.mean(differences))
            if statistics.stdev(differences):
                low, high = scipy.stats.ttest_1samp(differences, 0).confidence_interval()
                assert (row[f"from_{kind}_low"], row[f"from_{kind}_high"]) == (pytest.approx(low), pytest.approx(high))
            assert row[f"from_{kind}_won"] == sum(value > 0 for value in differences)


def test_only_the_same_head_and_recipe_is_compared_with_a_reference(many_results: Results) -> None:
    found = rows_of(comparisons.against_references(many_results, "finetune"), "method", "variant")
    assert (found["gr", "recipe"]["best"], found["gr", "recipe"]["base"]) == ("", "")  # alone under its recipe
    assert found["gr", ""]["base"] == "an" and found["plc", "from_an"]["base"] == "an"
    embedded = comparisons.against_references(many_results, "end_to_end").set_index("method")
    assert embedded.loc["mime", "best"] == "" and embedded["from_best_low"].isna().all()


def test_fine_tuning_against_its_own_head_is_paired(result: Results) -> None:
    found = comparisons.against_own_head(result).set_index("method")
    for method in TUNED:
        differences = [after - before for after, before in zip(TUNED[method], LINEAR[method], strict=True)]
        assert found.loc[method, "test"] == pytest.approx(statistics.mean(differences))
        assert found.loc[method, "test_std"] == pytest.approx(statistics.stdev(differences))
        assert found.loc[method, "test_won"] == sum(value > 0 for value in differences)


def test_another_methods_head_is_compared_with_that_methods_runs(many_results: Results) -> None:
    found = rows_of(comparisons.against_own_head(many_results), "method", "variant")
    plan = many(seeds=(0, 1))
    for method, variant, head in (("plc", "from_an", "an"), ("gr", "recipe", "gr"), ("gr", "", "gr")):
        row = found[method, variant]
        after = (
            [plan.variants["finetune"][f"digits-{method}-0-{seed}-{variant}"] for seed in (0, 1)]
            if variant
            else plan.scores["finetune"][method]
        )
        differences = [a - b for a, b in zip(after, plan.scores["linear_init"][head], strict=True)]
        assert row["test"] == pytest.approx(statistics.mean(differences))
        assert row["start"] == (head if variant == "from_an" else "")


def test_both_stages_stand_side_by_side_best_fine_tuned_first(many_results: Results) -> None:
    rows = comparisons.side_by_side(many_results)
    plan = many(seeds=(0, 1))
    assert set(rows[rows["variant"] == ""]["method"]) == set(plan.scores["linear_init"])
    scores = rows["finetune_test_map"].tolist()
    assert scores == sorted(scores, reverse=True) and len(rows) == len(plan.scores["linear_init"]) + 3
    by_name = rows_of(rows, "method", "variant")
    row = by_name["gr", ""]
    heads, tuned = plan.scores["linear_init"]["gr"], plan.scores["finetune"]["gr"]
    assert row["linear_init_test_map"] == pytest.approx(statistics.mean(heads))
    assert row["finetune_test_map_std"] == pytest.approx(statistics.stdev(tuned))
    assert row["finetune_learning_rate"] == "0.01, 0.001"
    assert row["gain"] == pytest.approx(statistics.mean(tuned) - statistics.mean(heads))
    assert by_name["plc", "from_an"]["linear_init_test_map"] is None and by_name["plc", "from_an"]["gain_n"] == 2
    one = replace(many_results, arms=many_results.arms[many_results.arms["stage"] == "linear_init"])
    assert comparisons.side_by_side(one).empty


def test_second_stage_is_paired_with_each_rival(result: Results) -> None:
    rows = comparisons.second_stage(result)
    found = {(row["rival"], row["start"]): row for row in rows.to_dict("records") if row["subject"] == "lac"}
    assert set(found) == {("plc", 0), ("lac-no_queue", 0), ("plc", 1)}
    for key, rival in ((("plc", 0), SECOND["plc"]), (("plc", 1), FIRST["plc"])):
        differences = [mine - theirs for mine, theirs in zip(SECOND["lac"], rival, strict=True)]
        assert found[key]["test"] == pytest.approx(statistics.mean(differences))
        assert found[key]["test_std"] == pytest.approx(statistics.stdev(differences))
    one = found["lac-no_queue", 0]
    assert (one["test"], one["test_n"], one["test_won"]) == (pytest.approx(1.5), 1, 1) and np.isnan(one["test_std"])
    assert found["plc", 0]["epochs"] == [[6], [6]]


def test_every_second_stage_arm_meets_every_rival_trained_on(collected: Collected) -> None:
    # the arm without the queue scores 88.5 at seed 0; a strict rival, with LAC's threshold, 1 point below the other
    strict = [
        replace(run, variant="strict", threshold=0.9, test_map=(run.test_map or 0) - 1)
        for run in collected.runs
        if (run.stage, run.method) == ("lac", "plc")
    ]
    item = collected.params.variants.lac["digits-lac-0-0-no_queue"]
    items = {
        f"digits-plc-{draw}-0-strict": item.model_copy(update={"method": "plc", "draw": draw}) for draw in range(3)
    }
    variants = collected.params.variants.model_copy(update={"lac": collected.params.variants.lac | items})
    params = collected.params.model_copy(update={"variants": variants})
    changed = replace(collected, params=params, runs=(*collected.runs, *strict))
    rows = comparisons.second_stage(frames.measure(changed)["digits"]).to_dict("records")
    found = {(row["subject"], row["rival"]): row for row in rows if not row["start"]}
    assert set(found) == {
        (subject, rival) for subject in ("lac", "lac-no_queue") for rival in ("plc", "plc-strict")
    } | {("lac", "lac-no_queue")}
    for subject, values in (("lac", SECOND["lac"]), ("lac-no_queue", (88.5,))):
        for name, drop in (("plc", 0), ("plc-strict", 1)):
            differences = [mine - theirs + drop for mine, theirs in zip(values, SECOND["plc"], strict=False)]
            row = found[subject, name]
            assert row["test"] == pytest.approx(statistics.mean(differences)), (subject, name)
            spread = statistics.stdev(differences) if len(differences) > 1 else np.nan
            assert row["test_std"] == pytest.approx(spread, nan_ok=True) and row["test_n"] == len(differences)
    assert found["lac", "plc-strict"]["thresholds"] == [[], [0.9]]


# ---------------------------------------------------------------------------------------------- epochs
def test_falls_are_from_the_best_epoch_to_the_last(result: Results) -> None:
    found = comparisons.falls(result, "finetune").set_index("method")
    assert found.loc["an", "fall"] == pytest.approx(3.0)
    assert found.loc["em", "fall"] == pytest.approx(0.25)
    assert found.loc["full", "fall"] == pytest.approx(0.0)
    assert found.loc["an", "best_epoch"] == 2 and found.loc["an", "best"] == pytest.approx(66)


def test_over_epochs_means_the_seeds_that_reached_an_epoch(result: Results) -> None:
    def of_an(result: Results) -> pd.DataFrame:
        found = comparisons.over_epochs(result, "finetune", "val_map")
        return found[found["method"] == "an"].reset_index()

    rows = of_an(result)
    assert rows["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rows["val_map"][0] == pytest.approx(65 - 6) and rows["val_map_std"][0] == pytest.approx(1.0)
    assert rows["selected"].tolist() == [False, True, False, False, False, False]
    stopped = (result.epochs["draw"] == 2) & (result.epochs["epoch"] == 6)  # as after an early stop
    last = of_an(replace(result, epochs=result.epochs[~stopped])).iloc[-1]
    assert (last["val_map_n"], last["val_map"]) == (2, pytest.approx((62 + 63) / 2))


# ---------------------------------------------------------------------------------------------- pseudo-labels
def _unknown(table: Table) -> np.ndarray:
    """(40, C) unknown and scored cells of the training rows, where the first positive of a row is shown."""
    truth, scored = table.truth[:40], table.scored[:40]
    shown = np.zeros_like(truth)
    shown[np.arange(40), truth.argmax(axis=1)] = 1
    return (shown == 0) & scored


def test_pseudo_labels_at_the_chosen_epoch(whole: tuple[Path, Params], result: Results, table: Table) -> None:
    found = rows_of(analyses.pseudo_labels(result), *KEY)
    unknown, coverage, accuracy = _unknown(table), [], []
    for draw in range(3):
        with hdf5.read(whole[0] / f"runs/finetune/digits-em_apl-{draw}-0/labels.h5") as file:
            labels = file["pseudo_label"][1]  # pyright: ignore  the chosen epoch is the second
        labelled = right = 0
        for i, c in zip(*np.nonzero(unknown), strict=True):
            labelled += labels[i, c] != 0
            right += labels[i, c] == -1 and table.truth[i, c] == 0
        coverage.append(labelled / unknown.sum())
        accuracy.append(right / labelled)
    row = found["finetune", "em_apl", ""]
    assert row["coverage"] == pytest.approx(np.mean(coverage))
    assert row["accuracy"] == pytest.approx(np.mean(accuracy))
    assert row["accuracy_std"] == pytest.approx(np.std(accuracy, ddof=1))
    base = (table.truth[:40][unknown] == 0).mean()
    assert row["baseline_all_unknown_negative"] == pytest.approx(base)
    assert row["positive_precision"] is None  # it calls nothing present
    assert "labels no unknown cell" in found["finetune", "an", ""]["reason"]
    rounds = analyses.pseudo_rounds(result)
    rounds = rounds[(rounds["stage"] == "finetune") & (rounds["method"] == "em_apl")].reset_index()
    assert rounds["epoch"].tolist() == [1, 2, 3, 4, 5, 6]
    assert rounds["selected"].tolist() == [0, 1, 0, 0, 0, 0]
    assert rounds["accuracy"][1] == pytest.approx(row["accuracy"])
    assert rounds["accuracy_std"][1] == pytest.approx(row["accuracy_std"])


def test_classes_sum_the_seeds(result: Results, table: Table) -> None:
    rows = rows_of(analyses.pseudo_classes(result), *KEY, "class")
    unknown = _unknown(table)
    for column, name in enumerate(table.classes):
        row = rows["finetune", "em_apl", "", name]
        assert row["unknown"] == 3 * unknown[:, column].sum()
        assert row["hidden_positives"] == 3 * (unknown[:, column] & (table.truth[:40, column] == 1)).sum()
    # the first positive is never hidden
    assert rows["finetune", "em_apl", "", "<script>alert('x')</script>"]["accuracy"] in (None, 1.0)


def test_calibration_pools_seeds_and_merges_bins(result: Results, table: Table) -> None:
    found = analyses.calibration(result)
    found = found[(found["stage"] == "finetune") & (found["method"] == "an")]
    belief, bins = found[found["quantity"] == "belief"], found[found["quantity"] == "probability"]
    assert belief["cells"].sum() == 3 * _unknown(table).sum()
    assert len(belief) == 1  # it believes every unknown label absent
    hidden = (table.truth[:40][_unknown(table)] == 1).mean()
    assert belief["fraction"].iloc[0] == pytest.approx(hidden)
    merged = analyses.coarse(bins)
    assert 1 < len(merged) <= 10 < len(bins)
    assert merged["cells"].sum() == bins["cells"].sum()
    tenth = bins[bins["upper"] <= 0.1 + 1e-9]
    assert merged["fraction"][0] == pytest.approx(tenth["true_positives"].sum() / tenth["cells"].sum())


def test_labels_that_more_methods_name_come_first() -> None:
    rows = [
        ("linear_init", "an", "", "a", "cat", 0.9), ("linear_init", "an", "", "b", "cat", 0.2),
        ("linear_init", "an", "", "a", "dog", 0.4), ("linear_init", "em", "", "b", "cat", 0.4),
        ("linear_init", "em", "", "a", "dog", 0.6), ("linear_init", "em", "x", "c", "dog", 0.9),
    ]  # fmt: skip
    every = pd.DataFrame(rows, columns=[*KEY, "path", "class", "probability"])
    found = analyses.agreed(every)[["path", "class", "arms", "probability"]]
    assert list(found.itertuples(index=False, name=None)) == [
        ("a", "dog", 2, 0.5),
        ("b", "cat", 2, pytest.approx(0.3)),
        ("a", "cat", 1, 0.9),
        ("c", "dog", 1, 0.9),
    ]


# ---------------------------------------------------------------------------------------------- separation
def test_distances_are_means_over_seeds(whole: tuple[Path, Params], result: Results, table: Table) -> None:
    unknown, column = _unknown(table), table.classes.index("zebra")
    values = []
    for draw in range(3):
        with hdf5.read(whole[0] / f"runs/finetune/digits-em-{draw}-0/logits.h5") as file:
            p = 1 / (1 + np.exp(-file["train"][:, column].astype(float)))  # pyright: ignore
        cells, positive = unknown[:, column], table.truth[:40, column] == 1
        values.append(wasserstein_distance(p[cells & positive], p[cells & ~positive]))
    found = rows_of(analyses.distances(result, "train"), *KEY, "class")
    assert found["finetune", "em", "", "zebra"]["distance"] == pytest.approx(np.mean(values))
    # none of its positives is hidden
    assert ("finetune", "em", "", "<script>alert('x')</script>") not in found


def test_separations_count_the_classes_above_the_baseline(result: Results) -> None:
    rows = rows_of(analyses.separations(result), *KEY)
    every = rows_of(analyses.distances(result, "train"), *KEY, "class")
    mine, base = ({key[3]: row["distance"] for key, row in every.items() if key[:2] == ("finetune", name)}
                  for name in ("full", "an"))  # fmt: skip
    row = rows["finetune", "full", ""]
    assert row["of"] == len(base) == 4
    assert row["above"] == sum(mine[name] > base[name] for name in base)
    assert rows["finetune", "an", ""]["above"] is None
    assert rows["lac", "lac", ""]["above"] is None  # the baseline does not run there
    epochs = analyses.distance_epochs(result, "val")
    epochs = epochs[(epochs["stage"] == "finetune") & (epochs["method"] == "full")].reset_index()
    assert epochs["epoch"][epochs["selected"]].tolist() == [2]
    assert epochs["pooled"][1] == pytest.approx(row["val"])


# ---------------------------------------------------------------------------------------------- the data
def test_splits_and_classes_count_scored_cells_only(result: Results, table: Table) -> None:
    rows = counts.splits(result.about).set_index("split")
    assert rows["images"].tolist() == [40, 12, 20]
    assert (rows.loc["train", "cells_unscored"], rows.loc["test", "classes_present"]) == (1, 5)
    assert rows.loc["train", "labels_per_image"] == pytest.approx(table.truth[:40].sum() / 40)
    by_class = counts.classes(result.about).set_index("class")
    assert by_class.loc["rare", "support_train"] == 1 and by_class.loc["rare", "support_official_train"] == 2
    assert by_class.loc["absent in test", "support_official_test"] == 0
    assert not by_class.loc["absent in test", "supported"]
    column = table.classes.index("zebra")
    single = [int(table.truth[row].argmax()) for row in range(40)]
    hidden = sum(table.truth[row, column] == 1 and single[row] != column for row in range(40))
    unknown = sum(single[row] != column for row in range(40))
    assert by_class.loc["zebra", "false_negative_rate"] == pytest.approx(hidden / unknown)
