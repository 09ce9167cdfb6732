import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pipeline.config.params import Params
from pipeline.core import files
from pipeline.core.errors import FileError
from pipeline.report import frames
from pipeline.report.read import Collected, Run, collect, number
from tests import copies

Whole = tuple[Path, Params]


@pytest.fixture
def copy(whole: Whole, tmp_path: Path) -> Whole:
    root = tmp_path / "copy"
    shutil.copytree(whole[0], root)
    return root, whole[1]


def _finetuned(found: Collected) -> dict[str, list[Run]]:
    """The fine-tuned runs of each arm."""
    arms: dict[str, list[Run]] = {}
    for run in found.runs:
        if run.stage == "finetune":
            arms.setdefault("-".join(filter(None, [run.method, run.variant])), []).append(run)
    return arms


def test_every_run_of_grid_and_variants_is_read(whole: Whole) -> None:
    found = collect(*whole)
    arms: dict[tuple[str, str], list[int]] = {}
    for run in found.runs:
        arms.setdefault((run.stage, "-".join(filter(None, [run.method, run.variant]))), []).append(run.draw)
    every = [0, 1, 2]
    assert arms == {
        **{
            (stage, name): every
            for stage in ("linear_init", "finetune")
            for name in ("an", "em", "em_apl", "iun", "full")
        },
        ("end_to_end", "plc"): every,
        ("lac", "lac"): every,
        ("lac", "plc"): every,
        ("lac", "lac-no_queue"): [0],
    }
    assert found.missing == ()
    assert [(item.method, item.draw) for item in found.landscapes] == [(m, s) for s in every for m in ("an", "em_apl")]
    assert len(found.audits) == len(found.wasserstein) == 3
    assert found.methods() == ["an", "em", "em_apl", "iun", "full", "plc", "lac"]


def test_fields_become_numbers_and_empty_ones_none(whole: Whole) -> None:
    run = _finetuned(collect(*whole))["an"][0]
    assert frames.records(run.by_epoch)[1] == {
        "epoch": 2.0, "learning_rate": 0.001, "loss": 0.25, "risk": 0.1, "val_map": 65.0, "val_map_absent_zero": 65.0,
        "train_map": None, "selected": 1.0,
    }  # fmt: skip
    by_class = run.by_class.set_index("class")["ap_test"]
    assert np.isnan(by_class["absent in test"])
    assert by_class["rare"] == pytest.approx(0.65)
    assert (run.test_map, run.val_map, run.learning_rate, run.epoch, run.epochs) == (64.0, 65.0, 0.01, 2, 6)
    assert run.edge and not _finetuned(collect(*whole))["an"][1].edge  # the largest of three rates


def test_supported_classes_count_both_official_lists_and_scored_cells(whole: Whole) -> None:
    dataset = collect(*whole).datasets[0]
    table = dataset.table
    assert table is not None
    expected = []
    for column, name in enumerate(table.classes):
        counts = [0, 0]
        for row in range(len(table.paths)):
            counts[table.official[row]] += int(table.truth[row, column] == 1 and table.scored[row, column])
        if min(counts) >= dataset.min_support:
            expected.append(name)
    assert dataset.supported() == tuple(expected)
    truth, scored = table.truth.copy(), table.scored.copy()
    at, column = table.rows("test"), table.classes.index(expected[0])
    truth[at, column], scored[at, column] = 1, True  # a class without a negative has no average precision
    everywhere = replace(dataset, table=replace(table, truth=truth, scored=scored))
    assert everywhere.supported() == tuple(expected[1:])
    assert 0 < len(expected) < len(table.classes)


def test_what_params_do_not_name_is_not_read(copy: Whole) -> None:
    root, params = copy
    shutil.copytree(root / "runs/finetune/digits-em-0-0", root / "runs/finetune/digits-removed-0-0")
    shutil.copytree(root / "runs/finetune/digits-em-0-0", root / "runs/finetune/digits-em-0-7")
    assert {name: len(runs) for name, runs in _finetuned(collect(root, params)).items()} == {
        "an": 3, "em": 3, "em_apl": 3, "iun": 3, "full": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "runs/finetune/digits-em-1-0/metrics.json",
        "runs/lac/digits-lac-0-0-no_queue/epochs.tsv",
        "analyses/audit/digits-2-0/rounds.tsv",
        "analyses/wasserstein/digits-0-0/wasserstein.json",
        "analyses/landscape/digits-an-1-0/landscape.h5",
        "data/prepare/digits/table.h5",
        "data/simulate/digits-0/report.json",
        "data/beliefs/digits-1/report.json",
        "weights/digits/provenance.json",
    ],
)
def test_an_absent_file_is_named_and_in_partial_mode_listed(copy: Whole, path: str) -> None:
    root, params = copy
    (root / path).unlink()
    with pytest.raises(FileError, match=path):
        collect(root, params)
    found = collect(root, params, partial=True)
    assert [item.path for item in found.missing] == [path]
    assert found.missing[0].reason and str(root) not in found.missing[0].reason


def test_a_run_without_a_file_is_left_out_whole(copy: Whole) -> None:
    root, params = copy
    (root / "runs/finetune/digits-em-1-0/epochs.tsv").unlink()
    found = collect(root, params, partial=True)
    assert [run.draw for run in _finetuned(found)["em"]] == [0, 2]
    arms = frames.measure(found)["digits"].arms.set_index(["stage", "name"])
    assert (arms.loc[("finetune", "em"), "planned"], arms.loc[("finetune", "an"), "planned"]) == (3, 3)


def _no_key(path: Path) -> None:
    record = files.read_json(path)
    del record["test"]["map_absent_zero"]
    files.write_json(path, record)


def _no_labels(path: Path) -> None:
    files.write_json(path, {key: value for key, value in files.read_json(path).items() if key != "labels"})


def _one_word(path: Path) -> None:
    files.write_json(path, files.read_json(path) | {"labels": "clean"})  # as runs of old wrote it


def _no_truth(path: Path) -> None:
    files.write_json(path, {key: value for key, value in files.read_json(path).items() if key != "truth"})


def test_what_provenance_does_not_say_is_not_recorded(copy: Whole) -> None:
    root, params = copy
    files.write_json(root / "runs/finetune/digits-em-1-0/provenance.json", {})
    copies.sign(root)
    run = _finetuned(collect(root, params))["em"][1]
    assert (run.head, run.protocol, run.density, run.select) == ("not recorded", "not recorded", False, None)


def _no_column(path: Path) -> None:
    path.write_text(path.read_text().replace("val_map", "val_score"))


def _no_number(path: Path) -> None:
    path.write_text(path.read_text().replace("0.25", "nan"))


def _not_complete(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("path", "break_", "reason"),
    [
        ("runs/finetune/digits-em-1-0/metrics.json", _no_key, "test.map_absent_zero"),
        ("runs/finetune/digits-em-1-0/metrics.json", _no_labels, "labels"),
        ("runs/finetune/digits-em-1-0/metrics.json", _one_word, "labels.val"),
        ("analyses/audit/digits-1-0/audit.json", _no_truth, "truth"),
        ("analyses/wasserstein/digits-1-0/wasserstein.json", _no_truth, "truth"),
        ("runs/finetune/digits-em-1-0/metrics.json", lambda path: path.write_text("{"), "not JSON"),
        ("runs/finetune/digits-an-1-0/epochs.tsv", _no_number, "not a finite number"),
        ("runs/finetune/digits-an-1-0/epochs.tsv", _no_column, "val_map"),
        ("analyses/landscape/digits-an-1-0/landscape.h5", _not_complete, "no sound seal"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(
    copy: Whole, path: str, break_: Callable[[Path], None], reason: str
) -> None:
    root, params = copy
    break_(root / path)
    if path.endswith((".json", ".tsv")):
        with pytest.raises(FileError, match=f"{path}: not what its stage wrote"):
            collect(root, params)
    copies.sign(root)
    found = collect(root, params, partial=True).missing
    assert [item.path for item in found] == [path]
    assert reason in found[0].reason
    with pytest.raises(FileError, match=reason):
        collect(root, params)


def test_an_empty_project_names_some_files_and_counts_the_rest(whole: Whole, tmp_path: Path) -> None:
    with pytest.raises(FileError) as error:
        collect(tmp_path, whole[1])
    assert "data/prepare/digits/table.h5" in str(error.value)
    found = collect(tmp_path, whole[1], partial=True)
    assert f"and {len(found.missing) - 5} files more" in str(error.value)
    assert not found.runs and len(found.missing) > 200


def test_a_variant_of_another_dataset_is_named(whole: Whole) -> None:
    root, params = whole
    record = params.model_dump()
    record["variants"]["finetune"] = {
        "voc-an-0-0-wide": {
            "dataset": "voc", "method": "an", "draw": 0, "seed": 0, "start": "an", "set": {"stage": {}, "method": {}}
        }
    }  # fmt: skip
    found = collect(root, Params.model_validate(record))
    assert [item.path for item in found.missing] == ["variants.finetune.voc-an-0-0-wide"]


def test_arms_know_how_they_were_trained(whole: Whole, zoo: Collected) -> None:
    known = _finetuned(zoo)
    assert [known[name][0].start for name in ("plc-from_an", "gr", "gr-recipe")] == ["an", "", ""]
    heads = {run.method: run.head for run in zoo.runs if run.stage == "end_to_end"}
    assert heads == {"plc": "label embedding", "mime": "bottleneck", "scl": "linear", "an": "linear"}
    assert known["gr"][0].protocol == "common" and known["gr-recipe"][0].protocol == "published"
    assert known["role"][0].density and not known["gr"][0].density
    mixed = replace(zoo, runs=tuple(replace(run, variant="") for run in (*known["gr"], *known["gr-recipe"])))
    assert frames.measure(mixed)["digits"].arms["protocol"].tolist() == ["common, published"]


def test_landscape_arrays_keep_their_axes(whole: Whole) -> None:
    item = collect(*whole).landscapes[0]
    i, j = 4, 2  # (1, 0): the first direction is half as steep
    assert item.loss_2d[i, j] == pytest.approx(0.2 + 1)
    assert item.loss_2d[j, i] == pytest.approx(0.2 + 2)
    assert item.loss_1d[np.flatnonzero(item.offsets_1d == 0)[0]] == item.centre == 0.2


@pytest.mark.parametrize("text", ["inf", "nan", "many"])
def test_numbers_are_finite(text: str) -> None:
    assert number("") is None
    assert number("-1e-3") == -0.001
    with pytest.raises(ValueError):
        number(text)
