"""Batches that hold groups together, and the term that draws their predictions together."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st
from torch import Tensor

from pipeline.core.errors import ConfigError
from pipeline.core.resume import Checkpoint
from pipeline.networks.network import cpu_state
from pipeline.training.groups import batch_groups, deviation_within
from pipeline.training.inputs import Subset
from pipeline.training.loop import Data, History, Trainer, epoch_batches
from tests import tiny

GROUPS = st.lists(st.integers(1, 9), min_size=1, max_size=14).map(lambda sizes: np.repeat(np.arange(len(sizes)), sizes))


# ---------------------------------------------------------------------------------------------- batches
@checks(max_examples=300, deadline=None)
@given(groups=GROUPS, size=st.integers(1, 8), fewest=st.integers(1, 2), seed=st.integers(0, 99))
def test_batches_hold_groups_together_and_each_row_once(groups, size, fewest, seed):
    groups = np.random.default_rng(seed).permutation(groups)
    first, other = (batch_groups(groups, size, fewest, np.random.default_rng(each)) for each in (seed, seed + 1))
    assert sorted(np.concatenate(first).tolist()) == list(range(len(groups)))
    for group in set(groups.tolist()):
        rows = [np.flatnonzero(groups[batch] == group).size for batch in first]
        held = sorted((count for count in rows if count), reverse=True)
        whole, rest = divmod(sum(held), size)
        if fewest == 1:
            assert held == [size] * whole + [rest] * (rest > 0) or held == [size] * whole
    assert sorted(map(len, first)) == sorted(map(len, other))  # every epoch has as many steps
    least = min(fewest, size, len(groups))
    assert all(least <= len(batch) <= size + least - 1 for batch in first)


def test_small_groups_share_batches_that_are_all_but_full():
    groups = np.repeat(np.arange(100), 3)
    cut = batch_groups(groups, 64, 2, np.random.default_rng(0))
    assert sorted(map(len, cut)) == [48, 63, 63, 63, 63]
    alone = batch_groups(np.arange(130), 64, 2, np.random.default_rng(0))
    assert sorted(map(len, alone)) == [2, 64, 64]
    assert [len(batch) for batch in batch_groups(np.arange(129), 64, 2, np.random.default_rng(0))].count(65) == 1


def test_epochs_differ_and_come_again():
    groups = np.repeat(np.arange(20), 2)
    settings = tiny.training(batch_size=8, group_consistency={"weight": 1.0})
    cuts = [epoch_batches(40, settings, 3, epoch, 1, groups) for epoch in (1, 2, 1)]
    rows = [np.concatenate(cut).tolist() for cut in cuts]
    assert rows[0] == rows[2] != rows[1]
    plain = epoch_batches(40, tiny.training(batch_size=8), 3, 1, 1, groups)
    alone = epoch_batches(40, tiny.training(batch_size=8), 3, 1, 1)
    assert all(map(np.array_equal, plain, alone))  # groups alone change nothing


# ---------------------------------------------------------------------------------------------- the term
def by_loops(logits: Tensor, groups: Tensor) -> Tensor:
    p = 1 / (1 + torch.exp(-logits))
    found = []
    for group in set(groups.tolist()):
        own = p[groups == group]
        if len(own) > 1:
            found.append(torch.stack([((one - own.mean(0)) ** 2).mean() for one in own]).mean())
    return torch.stack(found).mean() if found else p.sum() * 0


@checks(max_examples=100, deadline=None)
@given(groups=st.lists(st.integers(0, 5), min_size=1, max_size=12), seed=st.integers(0, 99))
def test_the_term_and_its_gradient_are_those_of_the_formula(groups, seed):
    numbers = torch.tensor(groups)
    logits = torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (len(groups), 4))).requires_grad_()
    value, wanted = deviation_within(logits, numbers), by_loops(logits, numbers)
    assert value.item() == pytest.approx(wanted.item(), abs=1e-12)
    assert 0 <= value.item() <= 0.25
    (found,), (slow,) = (torch.autograd.grad(each, logits) for each in (value, wanted))
    torch.testing.assert_close(found, slow)
    alone = [row for row, group in enumerate(groups) if groups.count(group) == 1]
    others = [row for row in range(len(groups)) if row not in alone]
    assert not found[alone].any() and found[others].any(dim=1).all()


def test_far_logits_and_half_precision_are_finite():
    logits = torch.tensor([[100.0, -100.0], [-100.0, 100.0]], dtype=torch.bfloat16)
    assert deviation_within(logits, torch.zeros(2, dtype=torch.int64)).item() == 0.25


# ---------------------------------------------------------------------------------------------- training
def trainer(groups: np.ndarray | None, weight: float | None, checkpoint=None, name="an", seed=1, **changes) -> Trainer:
    n = 12
    consistency = None if weight is None else {"weight": weight}
    settings = tiny.training(group_consistency=consistency, **{"epochs": 3, "batch_size": 5} | changes)
    data = Data(tiny.features(n), tiny.observed(n), tiny.features(5, seed=9), lambda _: 0.0, groups=groups)
    return Trainer(tiny.network(), tiny.method(name, n), data, tiny.plan(settings, seed=seed), checkpoint)


def fitted(groups: np.ndarray | None, weight: float | None, **options) -> History:
    return trainer(groups, weight, **options).fit()


PAIRS = np.repeat(np.arange(6), 2)


def test_the_log_names_the_term_and_the_loss_holds_it():
    for row in fitted(PAIRS, 2.0).rows:
        assert row["group"] > 0 and row["loss"] == pytest.approx(row["risk"] + row["group"])
    assert "group" not in fitted(PAIRS, None).rows[0]


def test_without_it_groups_change_no_bit():
    one, other = fitted(PAIRS, None), fitted(None, None)
    assert one.rows == other.rows
    assert all(torch.equal(value, other.state[key]) for key, value in one.state.items())


def test_predictions_within_groups_draw_together():
    def apart(weight: float) -> float:
        logits = fitted(PAIRS, weight, epochs=30).train[-1]
        return deviation_within(logits, torch.from_numpy(PAIRS)).item()

    assert apart(30.0) < 0.5 * apart(1e-6)


def test_it_is_refused_without_groups():
    with pytest.raises(ConfigError, match="run: group_consistency is set, and the data name no groups"):
        trainer(None, 1.0)


def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path):
    class Stop(Exception):
        pass

    whole = trainer(PAIRS, 2.0, schedule="onecycle", warmup=0.3, momentum=0.5)
    expected = whole.fit()
    broken = trainer(PAIRS, 2.0, Checkpoint(tmp_path / "a", 0), schedule="onecycle", warmup=0.3, momentum=0.5)
    step, calls = broken._step, []

    def fails(index: np.ndarray, epoch: int) -> dict[str, float]:
        calls.append(epoch)
        if calls.count(3) == 2:
            raise Stop
        return step(index, epoch)

    broken._step = fails  # type: ignore[method-assign]
    with pytest.raises(Stop):
        broken.fit()
    assert broken.checkpoint is not None
    broken.checkpoint.close()
    again = trainer(PAIRS, 2.0, Checkpoint(tmp_path / "a", 0), schedule="onecycle", warmup=0.3, momentum=0.5)
    found = again.fit()
    assert again.checkpoint is not None
    again.checkpoint.close()
    assert found.rows == expected.rows and len(found.rows) == 3
    for key, value in cpu_state(whole.network).items():
        assert torch.equal(value, cpu_state(again.network)[key])


def test_a_part_of_the_images_keeps_its_groups():
    inputs = Subset(tiny.features(12), np.arange(6))
    data = Data(inputs, tiny.observed(6), tiny.features(5), lambda _: 0.0, groups=PAIRS[6:])
    settings = tiny.training(group_consistency={"weight": 1.0})
    assert Trainer(tiny.network(), tiny.method("an", 6), data, tiny.plan(settings)).fit().rows[0]["group"] > 0
