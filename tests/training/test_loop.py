import copy
import inspect
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.core import progress
from pipeline.core.errors import ConfigError, TrainingError
from pipeline.core.progress import Pace
from pipeline.core.resume import Checkpoint
from pipeline.methods.an import AssumeNegative, Settings
from pipeline.networks.interface import Outputs
from pipeline.networks.network import Network, cpu_state
from pipeline.training import loop as module
from pipeline.training.inputs import FeatureInputs, ImageInputs, Inputs, predict
from pipeline.training.loop import Data, History, Plan, Trainer, epoch_batches, stops_early
from pipeline.training.optimization import MovingAverage, make_optimizer
from pipeline.training.settings import Average, EarlyStop, StrongView
from tests import tiny


def scripted(scores: list[float]) -> Callable[[np.ndarray], float]:
    """A score for each call, whatever the logits."""
    left = iter(scores)
    return lambda logits: next(left)


def by_logits(logits: np.ndarray) -> float:
    """A score that differs from epoch to epoch and is a function of the logits."""
    return float(np.round(1000 * np.sin(logits.astype(np.float64) * 7).sum(), 6) % 100)


def run(network: Network, method: AssumeNegative | Any, images: Inputs, **options: Any) -> History:
    """Train with what the tests usually take; ``settings`` is a dict of changes."""
    settings = tiny.training(**options.pop("settings", {}))
    observed = options.pop("observed", tiny.observed(len(images)))
    validation = tiny.features(5, seed=9) if network.backbone is None else tiny.images(5, seed=9)
    data = Data(images, observed, options.pop("validation", validation), options.pop("score", by_logits))
    resume = {name: options.pop(name, None) for name in ("checkpoint", "inherited")}
    plan = tiny.plan(settings, name="linear_init digits-an-0-0", **options)
    return Trainer(network, method, data, plan, **resume).fit()


class Probe(AssumeNegative):
    """AN that tells a function of each batch; a subclass changes one class attribute."""

    def __init__(self, n: int, tell: Callable[[Outputs, Tensor, Tensor], Any] = lambda *_: None) -> None:
        super().__init__(Settings(floor=0.0), tiny.problem(n))
        self.tell = tell

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        terms = super().forward(outputs, observed, index)
        return {**terms, **(self.tell(outputs, observed, index) or {})}


class Pair(Probe):
    """Two views; the loss reads the first."""

    views = ("weak", "strong")


class Watcher(Probe):
    """Asks for the logits of every epoch."""

    needs = {"epoch_logits"}

    def __init__(self, n: int, watch: Callable[[Tensor, Tensor], None]) -> None:
        super().__init__(n)
        self.watch = watch

    def end_epoch(self, logits: Tensor, observed: Tensor) -> None:
        self.watch(logits, observed)


# ---------------------------------------------------------------------------------------------- steps, by hand
class Hand:
    """AN on a linear head by plain SGD, in closed form and double precision: dL/dz = (sigmoid(z) - y) / (B C)."""

    def __init__(self, network: Network, factor: float = 1.0) -> None:
        self.weight = network.head.linear.weight.detach().double().numpy().copy()  # type: ignore[union-attr]
        self.bias = network.head.linear.bias.detach().double().numpy().copy()  # type: ignore[union-attr]
        self.factor = factor
        self.losses: list[float] = []

    def logits(self, x: np.ndarray) -> np.ndarray:
        return x @ self.weight.T + self.bias

    def step(self, x: np.ndarray, y: np.ndarray, lr: float) -> None:
        z = self.logits(x)
        self.losses.append(float((np.logaddexp(0, z) - y * z).mean()))
        slope = (1 / (1 + np.exp(-z)) - y) / z.size
        self.weight -= lr * self.factor * slope.T @ x
        self.bias -= lr * self.factor * slope.sum(0)


def test_a_step_is_sgd_on_the_mean_cell_risk_with_the_heads_factor() -> None:
    network, x, y = tiny.network(), tiny.numbers(4, tiny.D), tiny.observed(4).numpy()
    hand = Hand(network, factor=3.0)
    initial = hand.logits(x)
    settings = {"epochs": 2, "batch_size": 4, "head_factor": 3.0}
    history = run(network, tiny.method("an", 4), tiny.features(4), settings=settings, learning_rate=0.5)
    for epoch in range(2):
        hand.step(x, y, 0.5)
        np.testing.assert_allclose(history.train[epoch], hand.logits(x), rtol=1e-5, atol=1e-6)
        assert history.rows[epoch]["loss"] == history.rows[epoch]["risk"] == pytest.approx(hand.losses[epoch], rel=1e-6)
    assert np.abs(hand.logits(x) - initial).max() > 0.1
    np.testing.assert_allclose(network.head.linear.weight.detach(), hand.weight, rtol=1e-5)  # type: ignore[union-attr]
    np.testing.assert_allclose(network.head.linear.bias.detach(), hand.bias, rtol=1e-5)  # type: ignore[union-attr]


def test_batches_follow_the_epochs_order_and_rows_keep_their_labels() -> None:
    network, x, y = tiny.network(), tiny.numbers(10, tiny.D), tiny.observed(10).numpy()
    hand, settings = Hand(network), tiny.training(batch_size=4)
    history = run(network, tiny.method("an", 10), tiny.features(10), settings={"batch_size": 4}, seed=6)
    for epoch in (1, 2):
        hand.losses.clear()
        sizes = []
        for index in epoch_batches(10, settings, 6, epoch):
            hand.step(x[index], y[index], 0.1)
            sizes.append(len(index))
        np.testing.assert_allclose(history.train[epoch - 1], hand.logits(x), rtol=1e-5, atol=1e-6)
        weighted = np.average(hand.losses, weights=sizes)  # every image counts once, the last batch is smaller
        assert history.rows[epoch - 1]["risk"] == pytest.approx(weighted, rel=1e-6)
        assert sizes == [4, 4, 2]


def test_observed_labels_are_not_written() -> None:
    observed = tiny.observed(6)
    run(tiny.network(), tiny.method("an", 6), tiny.features(6), observed=observed)
    assert torch.equal(observed, tiny.observed(6))


def test_the_terms_are_summed_in_the_loss_and_named_in_the_log() -> None:
    def tell(outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        return {"rows": outputs.logits.sum() * 0 + len(index)}

    history = run(tiny.network(), Probe(7, tell), tiny.features(7), settings={"batch_size": 4})
    for row in history.rows:
        assert row["rows"] == pytest.approx((4 * 4 + 3 * 3) / 7)
        assert row["loss"] == pytest.approx(row["rows"] + row["risk"])


# ---------------------------------------------------------------------------------------------- batches
@pytest.mark.parametrize(
    ("n", "size", "fewest", "expected"),
    [
        *((8, 4, 2, [4, 4]), (10, 4, 2, [4, 4, 2]), (9, 4, 2, [4, 4]), (9, 4, 1, [4, 4, 1])),
        *((3, 4, 2, [3]), (1, 4, 1, [1]), (2, 1, 1, [1, 1]), (3, 1, 1, [1, 1, 1])),
    ],
)
def test_a_last_batch_is_left_out_where_a_step_needs_more(n: int, size: int, fewest: int, expected: list[int]) -> None:
    seen = set()
    for epoch in range(1, 30):
        cut = epoch_batches(n, tiny.training(batch_size=size), 0, epoch, fewest)
        rows = np.concatenate(cut).tolist()
        assert [len(part) for part in cut] == expected and len(set(rows)) == len(rows)
        seen.add(tuple(rows))
    assert {row for rows in seen for row in rows} == set(range(n)), "no image is left out for good"
    assert n < 3 or len(seen) > 3, "every epoch has its own order"


def rows_of_epoch(side: int, n: int, method: Any = None, **settings: Any) -> list[int]:
    """Sizes of the batches that a network on images of this size is trained on, all views counted."""
    seen: list[int] = []
    network = tiny.network(on_images=True)
    network.register_forward_pre_hook(lambda each, given: seen.append(len(given[0])) if each.training else None)
    pixels = np.random.default_rng(0).integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    images = ImageInputs(pixels, np.arange(n), tiny.MEAN, tiny.STD, strong=tiny.strong())
    run(network, method or tiny.method("an", n), images, settings={"epochs": 1, **settings}, validation=images)
    return seen


def test_a_last_batch_of_one_is_left_out_where_batch_norm_sees_one_value_alone() -> None:
    assert rows_of_epoch(8, 9) == [4, 4]  # the last maps are 1 x 1
    assert rows_of_epoch(16, 9) == [4, 4, 1]  # 2 x 2: four values a channel
    assert rows_of_epoch(8, 9, batch_norm="frozen") == [4, 4, 1]
    assert rows_of_epoch(8, 9, Pair(9)) == [8, 8, 2]  # two views are two values
    assert rows_of_epoch(16, 3, batch_size=1) == rows_of_epoch(8, 3, batch_size=1, batch_norm="frozen") == [1, 1, 1]


@pytest.mark.parametrize(("n", "size", "given"), [(3, 1, "batch_size: 1"), (1, 4, "1 training image")])
def test_a_batch_that_batch_norm_cannot_train_on_is_an_error(n: int, size: int, given: str) -> None:
    message = f"^linear_init digits-an-0-0: {given} leaves .* set batch_size to 2 or more, or batch_norm to frozen$"
    with pytest.raises(ConfigError, match=message):
        rows_of_epoch(8, n, batch_size=size)


def test_asking_how_many_rows_a_step_needs_changes_nothing() -> None:
    network = tiny.network(on_images=True).train()
    before, state = cpu_state(network), torch.get_rng_state()
    assert network.fewest_rows(torch.zeros(1, 3, 8, 8)) == 2 and network.fewest_rows(torch.zeros(1, 3, 9, 9)) == 1
    assert changed(before, network) == set() and torch.equal(torch.get_rng_state(), state) and network.training
    assert not any(module._forward_pre_hooks for module in network.modules())
    assert tiny.network().fewest_rows(torch.zeros(1, tiny.D)) == 1


def test_every_image_is_predicted() -> None:
    network = tiny.network(on_images=True)
    history = run(network, tiny.method("an", 9), tiny.images(9), settings={"batch_size": 4})
    assert [len(part) for part in history.train + history.val] == [9, 9, 5, 5]


# ---------------------------------------------------------------------------------------------- optimiser and schedule
class WithParameters(AssumeNegative):
    """A method that learns a number of its own, ten times as fast."""

    def __init__(self, n: int) -> None:
        super().__init__(Settings(floor=0.0), tiny.problem(n))
        self.guess = nn.Parameter(torch.zeros(2))

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        return [{"params": [self.guess], "lr": 10 * lr}]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sgd", torch.optim.SGD),
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("adamax", torch.optim.Adamax),
    ],
)
def test_learning_rates_of_backbone_head_and_method(name: str, kind: type[torch.optim.Optimizer]) -> None:
    network, method = tiny.network(on_images=True), WithParameters(4)
    assert network.backbone is not None
    network.freeze(["layers.0"], False)
    settings = tiny.training(optimizer=name, head_factor=4.0, weight_decay=0.02, momentum=0.7)
    made = make_optimizer(network, method, settings, 0.5)
    assert type(made) is kind
    assert [group["lr"] for group in made.param_groups] == [0.5, 2.0, 5.0]
    assert all(group["weight_decay"] == 0.02 for group in made.param_groups)
    assert name != "sgd" or all(group["momentum"] == 0.7 for group in made.param_groups)
    trained = [each for key, each in network.backbone.named_parameters() if not key.startswith("layers.0.")]
    expected = [trained, list(network.head.parameters()), [method.guess]]
    assert [list(map(id, group["params"])) for group in made.param_groups] == [list(map(id, each)) for each in expected]


def test_a_head_on_features_is_a_group_of_its_own() -> None:
    groups = make_optimizer(tiny.network(), tiny.method("an", 4), tiny.training(head_factor=4.0), 0.5).param_groups
    assert [group["lr"] for group in groups] == [2.0]


def rates(monkeypatch: pytest.MonkeyPatch, n: int, key: str = "lr", **settings: Any) -> list[list[Any]]:
    """Learning rates of the groups in force at every step, or another of their values."""
    made: list[torch.optim.Optimizer] = []
    seen: list[list[float]] = []
    make = module.make_optimizer

    def kept(*arguments: Any) -> torch.optim.Optimizer:
        made.append(make(*arguments))
        return made[-1]

    monkeypatch.setattr(module, "make_optimizer", kept)
    probe = Probe(n, lambda *_: seen.append([group[key] for group in made[0].param_groups]))
    run(tiny.network(on_images=True), probe, tiny.images(n), settings=settings, learning_rate=0.2)
    return seen


def test_a_constant_rate_is_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rates(monkeypatch, 8, epochs=2, head_factor=2.0) == [[0.2, 0.4]] * 4


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.25, 0.3])  # 0.1 of ten steps is one step
@pytest.mark.filterwarnings("error")
def test_one_cycle(monkeypatch: pytest.MonkeyPatch, warmup: float) -> None:
    steps = 10
    settings = {"epochs": 5, "schedule": "onecycle", "warmup": warmup, "optimizer": "adamw", "momentum": 0.9}
    settings |= {"head_factor": 2.0}
    found = rates(monkeypatch, 8, **settings)
    warmup = 0.0 if warmup == 0.1 else warmup
    top = warmup * steps - 1
    expected = []
    for step in range(steps):  # cosine from lr/25 up to lr, then down to lr/250,000 (Smith 2018, as in torch)
        if step <= top:
            low, high, share = 0.2 / 25, 0.2, step / top
        else:
            low, high, share = 0.2, 0.2 / 25 / 1e4, (step - top) / (steps - 1 - top)
        rate = high + (low - high) * (1 + math.cos(math.pi * share)) / 2
        expected.append([rate, 2 * rate])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "adamax"])
@pytest.mark.parametrize("schedule", ["constant", "onecycle", "falling"])
def test_one_momentum_stays_whatever_the_rate_does(
    monkeypatch: pytest.MonkeyPatch, schedule: str, optimizer: str
) -> None:
    key, value = ("momentum", 0.7) if optimizer == "sgd" else ("betas", (0.7, 0.999))
    settings = {"schedule": schedule, "warmup": 0.3 * (schedule == "onecycle"), "optimizer": optimizer, "momentum": 0.7}
    assert rates(monkeypatch, 8, key, epochs=3, **settings) == [[value, value]] * 6


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_pair_of_momenta_is_cycled_against_the_rate(monkeypatch: pytest.MonkeyPatch, optimizer: str) -> None:
    settings = {"epochs": 5, "schedule": "onecycle", "warmup": 0.3, "optimizer": optimizer, "momentum": [0.6, 0.8]}
    found = rates(monkeypatch, 8, "momentum" if optimizer == "sgd" else "betas", **settings)
    # ten steps, the rate's peak at 0.3 * 10 - 1: a cosine from the highest down to the lowest, and back up to the end
    shares = [step / 2 if step <= 2 else (9 - step) / 7 for step in range(10)]
    expected = [0.8 - 0.2 * (1 - math.cos(math.pi * share)) / 2 for share in shares]
    firsts = [group[0] if optimizer == "sgd" else group[0][0] for group in found]
    np.testing.assert_allclose(firsts, expected, rtol=1e-9)


@pytest.mark.parametrize(("epochs", "shares"), [(2, [1, 1, 1, 0.5]), (3, [1, 1, 1, 1, 2 / 3, 1 / 3])])
def test_a_falling_rate_is_constant_for_half_of_the_steps_and_then_a_line(
    monkeypatch: pytest.MonkeyPatch, epochs: int, shares: list[float]
) -> None:
    found = rates(monkeypatch, 8, epochs=epochs, schedule="falling", head_factor=2.0)
    np.testing.assert_allclose(found, [[0.2 * share, 0.4 * share] for share in shares], rtol=1e-12)


def test_one_cycle_of_one_step_is_its_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"epochs": 1, "batch_size": 8, "schedule": "onecycle", "warmup": 0.2, "momentum": [0.6, 0.8]}
    assert rates(monkeypatch, 8, **settings) == [[0.2, 0.2]]
    assert rates(monkeypatch, 8, "momentum", **settings) == [[0.6, 0.6]]


def test_one_cycle_runs_over_the_epochs_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = []
    make = torch.optim.lr_scheduler.OneCycleLR

    def seen(*arguments: Any, **options: Any) -> Any:
        totals.append(options["total_steps"])
        return make(*arguments, **options)

    monkeypatch.setattr(torch.optim.lr_scheduler, "OneCycleLR", seen)
    settings = {"epochs": 5, "schedule": "onecycle", "warmup": 0.2}
    run(tiny.network(), tiny.method("an", 9), tiny.features(9), settings=settings, epochs=3)
    assert totals == [9]  # nine images in batches of four


# ---------------------------------------------------------------------------------------------- moving average
@pytest.mark.parametrize(
    ("rule", "decays"),
    [("warmup", (2 / 11, 3 / 12, 0.3, 0.3)), ("published", (0.3, 0.3, 0.3, 0.3))],  # (1 + t) / (10 + t) below 0.3
)
def test_the_average_follows_its_formula_with_its_own_statistics(rule: str, decays: tuple[float, ...]) -> None:
    network = tiny.network(on_images=True)
    average = MovingAverage(network, Average.model_validate({"decay": 0.3, "rule": rule}))
    assert not average.network.training
    names = [name for name, _ in network.named_parameters()]
    names += [name for name, value in network.named_buffers() if value.is_floating_point()]
    expected = {name: network.state_dict()[name].double().clone() for name in names}
    for step, decay in enumerate(decays, start=1):
        torch.manual_seed(step)
        for value in network.parameters():
            value.data.normal_()
        network.train()(tiny.images(4, seed=step).plain(np.arange(4)))
        average.update(network)
        held = average.network.state_dict()
        for name in names:
            expected[name] = decay * expected[name] + (1 - decay) * network.state_dict()[name].double()
            torch.testing.assert_close(held[name].detach().double(), expected[name], rtol=1e-5, atol=1e-6)
        assert average.network.get_buffer("backbone.layers.0.1.num_batches_tracked") == step
    assert not {id(value) for value in average.network.parameters()} & {id(value) for value in network.parameters()}


@pytest.mark.parametrize("winner", ["raw", "average"])
def test_raw_and_averaged_weights_compete_on_validation(winner: str) -> None:
    network, x, y = tiny.network(), tiny.numbers(4, tiny.D), tiny.observed(4).numpy()
    hand = Hand(network)
    mean = hand.weight.copy()
    for decay in (2 / 11, 3 / 12):
        hand.step(x, y, 0.5)
        mean = decay * mean + (1 - decay) * hand.weight
    scores = [1.0, 2.0, 4.0, 3.0] if winner == "raw" else [2.0, 1.0, 3.0, 4.0]  # raw, average of epoch 1; of epoch 2
    history = run(
        network,
        tiny.method("an", 4),
        tiny.features(4),
        settings={"ema": {"decay": 0.999, "rule": "warmup"}},
        learning_rate=0.5,
        score=scripted(scores),
    )
    assert (history.epoch, history.best) == (2, 4.0)
    chosen = mean if winner == "average" else hand.weight
    np.testing.assert_allclose(history.state["head.linear.weight"], chosen, rtol=1e-5)
    assert np.abs(mean - hand.weight).max() > 1e-3
    rows = [(row["score"], row["score_average"]) for row in history.rows]
    assert rows == [(scores[0], scores[1]), (scores[2], scores[3])]
    np.testing.assert_allclose(network.head.linear.weight.detach(), hand.weight, rtol=1e-5)  # type: ignore[union-attr]
    validation = tiny.features(5, seed=9).plain(np.arange(5)).numpy()  # the kept logits are raw
    np.testing.assert_allclose(history.val[1], hand.logits(validation), rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------------------------------- batch norm, freezing
def changed(before: dict[str, Tensor], network: Network) -> set[str]:
    return {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}


def test_frozen_batch_norm_is_used_as_loaded_and_stays_so() -> None:
    network, images = tiny.network(on_images=True), tiny.images(8)
    network.train()(images.plain(np.arange(8)))
    before = cpu_state(network)
    reference = copy.deepcopy(network).eval()
    first: list[Tensor] = []

    def tell(outputs: Outputs, observed: Tensor, index: Tensor) -> None:
        if not first:
            with torch.no_grad():
                first.extend([outputs.logits[0].detach(), reference(images.plain(index.numpy()))["logits"]])

    run(network, Probe(8, tell), images, settings={"batch_norm": "frozen", "weight_decay": 0.1, "epochs": 3})
    torch.testing.assert_close(*first)  # a training step normalises as evaluation does
    assert {name.rpartition(".")[0] for name in changed(before, network)} == {
        *(f"backbone.layers.{block}.0" for block in range(5)),
        "head.linear",
    }


def test_batch_norm_is_trained_where_it_is_not_frozen() -> None:
    network = tiny.network(on_images=True)
    before = cpu_state(network)
    run(network, tiny.method("an", 8), tiny.images(8))
    assert changed(before, network) == set(before)
    assert int(network.get_buffer("backbone.layers.4.1.num_batches_tracked")) == 4  # evaluation moves nothing


def test_a_frozen_module_keeps_its_weights() -> None:
    network = tiny.network(on_images=True)
    before = cpu_state(network)
    settings = {"freeze": ["layers.0", "layers.1"], "weight_decay": 0.1}  # batch norm elsewhere is trained
    run(network, tiny.method("an", 8), tiny.images(8), settings=settings)
    kept = set(before) - changed(before, network)
    assert {name for name in before if name.startswith(("backbone.layers.0.", "backbone.layers.1."))} <= kept
    assert {"backbone.layers.0.0.weight", "backbone.layers.1.0.weight"} <= kept
    assert {"backbone.layers.2.0.weight", "head.linear.weight"} <= changed(before, network)
    with pytest.raises(ConfigError, match="freeze: the backbone has no module 'layer'"):
        run(network, tiny.method("an", 8), tiny.images(8), settings={"freeze": ["layer"]})


# ---------------------------------------------------------------------------------------------- views
def test_all_views_go_through_one_forward_pass() -> None:
    network, strong = tiny.network(on_images=True), StrongView.model_validate(tiny.STRONG)
    images = tiny.images(8, strong=strong, flip=True)
    passes: list[Tensor] = []
    network.register_forward_pre_hook(lambda each, given: passes.append(given[0]) if each.training else None)
    steps: list[tuple[Outputs, Tensor, Tensor]] = []

    def tell(*batch: Any) -> None:
        assert len(passes) == len(steps) + 1, "one pass a step"
        steps.append(batch)

    run(network, Pair(8, tell), images, settings={"epochs": 1, "batch_norm": "frozen"}, seed=3, learning_rate=1e-30)
    reference = copy.deepcopy(network).eval()
    assert len(steps) == 2
    for given, (outputs, observed, index) in zip(passes, steps, strict=True):
        expected = images.views(index.numpy(), ("weak", "strong"), 3, 1)
        assert torch.equal(given, expected) and outputs.logits.shape == (2, 4, tiny.C)
        assert torch.equal(observed, tiny.observed(8)[index])
        with torch.no_grad():
            for view in range(2):  # weak first, each in the batch's order
                logits = reference(expected[4 * view : 4 * view + 4])["logits"]
                torch.testing.assert_close(outputs.logits[view].detach(), logits)


def test_what_the_network_gives_reaches_the_method_by_view() -> None:
    network = tiny.network(tiny.EMBEDDING, on_images=True)
    seen: list[Outputs] = []
    images = tiny.images(8, strong=StrongView.model_validate(tiny.STRONG))
    run(network, Pair(8, lambda outputs, *_: seen.append(outputs)), images, settings={"epochs": 1})
    embeddings = seen[0].embeddings
    assert embeddings is not None and embeddings.shape == (2, 4, tiny.C, 6)
    torch.testing.assert_close(embeddings.norm(dim=-1), torch.ones(2, 4, tiny.C))


def test_an_unmet_need_is_an_error_before_the_first_step() -> None:
    network = tiny.network(on_images=True)
    before = cpu_state(network)
    with pytest.raises(ConfigError, match="needs embeddings, which this stage and its network do not give"):
        run(network, tiny.method("lac", 8, tiny.LAC), tiny.images(8))
    assert changed(before, network) == set()


# ---------------------------------------------------------------------------------------------- what a method is told
def test_end_epoch_sees_eval_mode_logits_in_row_order() -> None:
    network, images = tiny.network(tiny.EMBEDDING, on_images=True), tiny.images(9)  # with dropout and batch norm
    seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def watch(logits: Tensor, observed: Tensor) -> None:
        with torch.no_grad():
            expected = copy.deepcopy(network).eval()(images.plain(np.arange(9)))["logits"]
        seen.append((logits, expected, observed))

    history = run(network, Watcher(9, watch), images, settings={"epochs": 3})
    assert len(seen) == 3
    for kept, (logits, expected, observed) in zip(history.train, seen, strict=True):
        torch.testing.assert_close(logits, expected)
        assert torch.equal(kept, logits) and torch.equal(observed, tiny.observed(9))
    assert network.training, "left as the next epoch needs it"


@pytest.mark.parametrize("keep", [True, False])
def test_train_logits_are_made_where_they_are_kept_or_asked_for(keep: bool) -> None:
    calls: list[int] = []
    settings = {"keep_epoch_logits": keep}
    history = run(
        tiny.network(), Watcher(6, lambda logits, _: calls.append(len(logits))), tiny.features(6), settings=settings
    )
    assert calls == [6, 6] and len(history.train) == (2 if keep else 0)

    class Deaf(Watcher):
        needs = set()

    history = run(tiny.network(), Deaf(6, lambda *_: calls.append(0)), tiny.features(6), settings=settings)
    assert calls == [6, 6] and len(history.train) == (2 if keep else 0) and history.pseudo == []


def test_epochs_are_told_from_one_and_pseudo_labels_are_kept_by_epoch() -> None:
    method = tiny.method("em_apl", 8, tiny.EM_APL)
    told: list[tuple[int, int]] = []
    begin = method.begin_epoch
    method.begin_epoch = lambda epoch, epochs: (told.append((epoch, epochs)), begin(epoch, epochs))[1]  # type: ignore[method-assign]
    settings = {"epochs": 9, "batch_size": 8}
    history = run(tiny.network(), method, tiny.features(8), settings=settings, score=scripted([1, 2, 5, 4]), epochs=4)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    # after a warm-up of a quarter of four epochs, 0.9 / 3 of 5 or 6 unknown cells a class and round: the lowest logit
    expected = np.zeros((8, tiny.C), np.int8)
    observed = tiny.observed(8).numpy()
    for epoch in range(4):
        np.testing.assert_array_equal(history.pseudo[epoch], expected)  # what the epoch was trained by
        for column in range(tiny.C):
            pool = (observed[:, column] == 0) & (expected[:, column] == 0)
            row = np.where(pool, history.train[epoch][:, column], np.inf).argmin()
            expected[row, column] = -1
    assert history.pseudo[0].dtype == torch.int8 and len(history.pseudo) == 4
    assert history.epoch == 3  # its state is kept, though the method has gone on
    np.testing.assert_array_equal(history.method["since"].numpy() > 0, history.pseudo[2].numpy() < 0)
    assert (int(history.method["clock"][0]), method.epoch) == (3, 4)


# ---------------------------------------------------------------------------------------------- choice of epoch
@pytest.mark.parametrize(
    ("select", "scores", "epoch"),
    [
        ("clean", [3.0, 1.0, 2.0], 1),
        ("clean", [1.0, 3.0, 2.0], 2),
        ("auto", [1.0, 2.0, 3.0], 3),
        ("clean", [3.0, 1.0, 3.0], 1),  # strictly better, as in the papers' code
        ("clean", [2.0, 2.0, 1.0], 1),
        ("clean", [2.0, 1.0, 2.0], 1),
        ("clean", [2.0, 2.0, 2.0], 3),  # val chooses none: as far as it was trained
        ("clean", [0.0, 0.0, 0.0], 3),
        ("last", [3.0, 1.0, 2.0], 3),
        ("last", [3.0, 3.0, 3.0], 3),
    ],
)
def test_choice_of_epoch(select: str, scores: list[float], epoch: int) -> None:
    network, seen = tiny.network(), list[Tensor]()
    score = scripted(scores)

    def watched(logits: np.ndarray) -> float:
        seen.append(network.head.linear.weight.detach().clone())  # type: ignore[union-attr]
        return score(logits)

    settings = {"select": select, "epochs": 3}
    history = run(network, tiny.method("an", 6), tiny.features(6), settings=settings, score=watched)
    assert (history.epoch, history.best) == (epoch, scores[epoch - 1])
    assert torch.equal(history.state["head.linear.weight"], seen[epoch - 1])
    assert [row["score"] for row in history.rows] == scores and len(history.val) == 3
    assert [row["epoch"] for row in history.rows] == [1, 2, 3]
    again = predict(network, tiny.features(5, seed=9), 4, torch.device("cpu"))
    np.testing.assert_allclose(history.val[2], again, rtol=1e-6)


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_an_epoch_that_was_chosen_before_is_taken_whatever_the_scores(keep: int) -> None:
    plan = tiny.plan(tiny.training(epochs=3, select="auto"))
    data = Data(tiny.features(6), tiny.observed(6), tiny.features(5, seed=9), scripted([3.0, 1.0, 3.0]))
    network, seen = tiny.network(), list[Tensor]()
    trainer = Trainer(network, tiny.method("an", 6), data, replace(plan, keep=keep))
    validate = trainer._validate

    def noting(row: dict[str, Any]) -> Network:
        seen.append(network.head.linear.weight.detach().clone())  # type: ignore[union-attr]
        return validate(row)

    trainer._validate = noting  # type: ignore[method-assign]
    history = trainer.fit()
    assert (history.epoch, history.best, len(history.rows)) == (keep, [3.0, 1.0, 3.0][keep - 1], 3)
    assert torch.equal(history.state["head.linear.weight"], seen[keep - 1])
    assert int(history.method["clock"][0]) == keep


@pytest.mark.parametrize(
    ("scores", "better", "epoch", "asked"),
    [
        ([1.0, 3.0, 2.0], True, 2, [(1, 2)]),
        ([1.0, 3.0, 2.0], False, 3, [(1, 2)]),
        ([3.0, 1.0, 3.0], False, 3, [(0, 2)]),
        ([1.0, 2.0, 3.0], False, 3, []),  # the last one is the best
        ([2.0, 2.0, 2.0], False, 3, [(0, 2)]),
    ],
)
def test_the_best_epoch_is_taken_where_it_is_better_than_the_last_beyond_noise(
    scores: list[float], better: bool, epoch: int, asked: list[tuple[int, int]]
) -> None:
    pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def is_better(epochs: Sequence[np.ndarray], best: int) -> bool:
        pairs.append((epochs[best], epochs[-1]))
        return better

    data = Data(tiny.features(6), tiny.observed(6), tiny.features(5, seed=9), scripted(scores), is_better)
    plan = tiny.plan(tiny.training(epochs=3, select="auto", ema={"decay": 0.5, "rule": "warmup"}))
    data = replace(data, score=scripted([each for score in scores for each in (score, 99.0 - score)]))
    history = Trainer(tiny.network(), tiny.method("an", 6), data, plan).fit()
    assert (history.epoch, history.best) == (epoch, scores[epoch - 1])
    assert {row["weights"] for row in history.rows} == {"raw"}
    found = [
        tuple(next(at for at in range(3) if np.array_equal(history.val[at], one)) for one in pair) for pair in pairs
    ]
    assert found == asked


RULES = [  # rule, amount, scores, epochs run
    ("none", 0.0, [3, 1, 0, 0], 4),
    ("first_dip", 0.0, [1, 2, 3, 4], 4),
    ("first_dip", 0.0, [1, 2, 1.9, 4], 3),
    ("first_dip", 0.0, [1, 1, 3, 4], 2),  # a tie is no new best
    ("first_dip", 0.0, [4, 3, 2, 1], 2),
    ("drop", 2.0, [10, 9, 8, 7.9, 20], 4),  # more than 2 points below the best
    ("drop", 2.0, [1, 10, 8, 9, 7.5], 5),
    ("drop", 0.0, [10, 10, 9], 3),
    ("drop", 3.0, [10, 7, 8, 11, 8.1], 5),
    ("patience", 1.0, [1, 2, 2, 5], 3),
    ("patience", 2.0, [5, 4, 6, 5, 4, 9], 5),
    ("patience", 3.0, [5, 1, 2, 3, 9], 4),
    ("patience", 8.0, [5, 1, 2, 3], 4),
]


@pytest.mark.parametrize(("rule", "amount", "scores", "epochs"), RULES)
def test_early_stop(rule: str, amount: float, scores: list[float], epochs: int) -> None:
    given = EarlyStop.model_validate({"rule": rule, "amount": amount})
    stops = [stops_early(given, [float(score) for score in scores[:epoch]]) for epoch in range(1, len(scores) + 1)]
    assert (stops.index(True) + 1 if True in stops else len(scores)) == epochs
    settings = {"epochs": len(scores), "early_stop": {"rule": rule, "amount": amount}}
    history = run(tiny.network(), tiny.method("an", 6), tiny.features(6), settings=settings, score=scripted(scores))
    alike = epochs > 1 and len(set(scores[:epochs])) == 1  # val told nothing
    assert len(history.rows) == epochs
    assert history.epoch == (epochs if alike else int(np.argmax(scores[:epochs])) + 1)


def test_early_stop_looks_at_the_better_of_raw_and_average() -> None:
    settings = {
        "epochs": 3,
        "ema": {"decay": 0.9, "rule": "warmup"},
        "early_stop": {"rule": "first_dip", "amount": 0.0},
    }
    scores = [5.0, 1.0, 3.0, 6.0, 7.0, 2.0]
    history = run(tiny.network(), tiny.method("an", 6), tiny.features(6), settings=settings, score=scripted(scores))
    assert len(history.rows) == 3 and (history.epoch, history.best) == (3, 7.0)


def test_the_loop_has_no_way_to_see_truth_or_test_images() -> None:
    names = [set(inspect.signature(part).parameters) for part in (Trainer, Data, Plan)]
    assert names == [
        {"network", "method", "data", "plan", "checkpoint", "inherited"},
        {"train", "observed", "validation", "score", "is_better", "groups", "measure"},
        {"name", "settings", "learning_rate", "epochs", "seed", "device", "keep", "record"},
    ]


def test_labels_that_are_made_anew_at_each_step_are_those_of_the_epochs_last_weights() -> None:
    own = {"threshold": 0.45, "warmup": 0.25, "margin": 1.0, "gamma": 2.0, "negative": {"kind": "focal"}}
    method = tiny.method("splc", 8, own | {"corrected_margin": False})
    history = run(tiny.network(), method, tiny.features(8), settings={"epochs": 4, "batch_size": 4})
    unknown, counts = tiny.observed(8) == 0, []
    for epoch, (logits, labels) in enumerate(zip(history.train, history.pseudo, strict=True), start=1):
        expected = (1 / (1 + torch.exp(-logits)) > 0.45) & unknown if epoch > 1 else torch.zeros_like(unknown)
        assert torch.equal(labels, expected.to(torch.int8))
        counts.append(int(labels.sum()))
    assert counts[0] == 0 and 0 < counts[-1] < int(unknown.sum())


def test_a_module_is_frozen_by_its_whole_name() -> None:
    """Not the one whose name goes on, nor one of that name inside another; but all that lies inside it."""
    network = tiny.network(on_images=True)
    assert network.backbone is not None
    for name in ("layer1", "layer10", "other"):
        inner = torch.nn.ModuleDict({"layer1": torch.nn.Linear(1, 1), "deep": torch.nn.Linear(1, 1)})
        network.backbone.add_module(name, inner)
    run(network, tiny.method("an", 4), tiny.images(4), settings={"freeze": ["layer1"], "epochs": 1})
    still = {name for name, each in network.backbone.named_parameters() if not each.requires_grad}
    assert still == {f"layer1.{inner}.{part}" for inner in ("layer1", "deep") for part in ("weight", "bias")}


# ---------------------------------------------------------------------------------------------- what is not finite
def test_a_loss_that_is_not_finite_names_run_epoch_and_term() -> None:
    count = itertools.count()

    def tell(outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        return {"extra": outputs.logits.sum() * (math.nan if next(count) == 3 else 0.0)}  # second step of epoch 2

    network = tiny.network()
    expected = r"linear_init digits-an-0-0: epoch 2: loss is not finite: {'risk': 0\.\d+, 'extra': nan}"
    with pytest.raises(TrainingError, match=expected):
        run(network, Probe(8, tell), tiny.features(8))
    assert all(torch.isfinite(value).all() for value in network.state_dict().values()), "no step was taken on it"


@pytest.mark.parametrize(("keep", "what"), [(True, "epoch 1: training logits"), (False, "epoch 1: validation logits")])
def test_logits_that_are_not_finite_name_run_and_epoch(keep: bool, what: str) -> None:
    images = FeatureInputs(tiny.numbers(4, tiny.D) * 1e3, None, False)
    validation = FeatureInputs(tiny.numbers(4, tiny.D) * 1e3, None, False)
    with pytest.raises(TrainingError, match=f"linear_init digits-an-0-0: {what} are not finite"):
        settings = {"batch_size": 4, "keep_epoch_logits": keep}
        run(tiny.network(), tiny.method("an", 4), images, validation=validation, settings=settings, learning_rate=1e38)


# ---------------------------------------------------------------------------------------------- resume
class Stop(Exception):
    """The process is killed."""


class Watched:
    """Images that note which epochs asked for them, and fail after one."""

    def __init__(self, images: Inputs, last: int) -> None:
        self.images, self.last = images, last
        self.epochs: list[int] = []
        self.provides = images.provides

    def __len__(self) -> int:
        return len(self.images)

    def plain(self, index: np.ndarray) -> Tensor:
        return self.images.plain(index)

    def views(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        if epoch > self.last:
            raise Stop
        self.epochs.append(epoch)
        return self.images.views(index, names, seed, epoch)

    def geometry(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        return self.images.geometry(index, names, seed, epoch)


RESUMED: dict[str, dict[str, Any]] = {
    "an": {"n": 9, "settings": {"epochs": 4, "momentum": 0.9}},
    "em_apl": {
        "n": 9,
        "own": tiny.EM_APL,
        "settings": {
            "epochs": 4,
            "optimizer": "adam",
            "momentum": 0.9,
            "schedule": "onecycle",
            "warmup": 0.3,
            "ema": {"decay": 0.9, "rule": "warmup"},
        },
    },
    "lac": {
        "n": 9,
        "own": tiny.LAC,
        "head": tiny.EMBEDDING,
        "images": {"strong": StrongView.model_validate(tiny.STRONG), "flip": True},
        "settings": {
            **{
                "epochs": 3,
                "optimizer": "adamw",
                "momentum": [0.85, 0.95],
                "schedule": "onecycle",
                "warmup": 0.3,
                "ema": {"decay": 0.9, "rule": "warmup"},
            },
            **{"batch_norm": "frozen", "weight_decay": 0.01, "head_factor": 2.0, "freeze": ["layers.0"]},
        },
    },
    "plc": {
        "n": 9,
        "own": {"threshold": 0.5, "form": "code", "weight_plc": 1.0},
        "head": tiny.EMBEDDING,
        "images": {"strong": StrongView.model_validate(tiny.STRONG)},
        "settings": {
            "epochs": 3,
            "optimizer": "adamax",
            "momentum": 0.9,
            "ema": {"decay": 0.5, "rule": "published"},
            "keep_epoch_logits": False,
        },
    },
}


def attempt(name: str, path: Path | None, last: int = 99) -> tuple[Any, Watched]:
    """A process that trains one of the cases, until it ends or is killed after an epoch."""
    case = RESUMED[name]
    on_images = "images" in case
    made = tiny.images(case["n"], **case["images"]) if on_images else tiny.features(case["n"])
    images = Watched(made, last)
    network = tiny.network(case.get("head", tiny.LINEAR), on_images)
    method = tiny.method(name, case["n"], case.get("own"))
    torch.manual_seed(int(np.random.default_rng().integers(1 << 30)))  # another process, another global stream
    checkpoint = Checkpoint(path, 0) if path else None
    try:
        history = run(
            network, method, images, settings=case["settings"], checkpoint=checkpoint, learning_rate=0.05, seed=2
        )
        return (cpu_state(network), cpu_state(method), vars(history)), images
    except Stop:
        return None, images
    finally:
        if checkpoint:
            checkpoint.close()  # as the system does when a process ends


def leaves(content: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a nested structure, tensors as their bytes."""
    if isinstance(content, dict | list | tuple):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        yield place, (type(content), len(content))
        for key, value in items:
            yield from leaves(value, f"{place}/{key}")
    elif isinstance(content, Tensor):
        yield place, (content.dtype, tuple(content.shape), content.contiguous().numpy().tobytes())
    else:
        yield place, (type(content), content)


@pytest.mark.parametrize("name", RESUMED)
def test_a_run_that_is_killed_after_each_epoch_ends_with_the_same_bytes(name: str, tmp_path: Path) -> None:
    """Killed after its last epoch too, before its files were written."""
    expected, _ = attempt(name, None)
    epochs = RESUMED[name]["settings"]["epochs"]
    for last in range(1, epochs + 2):
        content, images = attempt(name, tmp_path / "run", last)
        assert set(images.epochs) == ({last} if last <= epochs else set()), "it went on, and did not start anew"
        assert (content is None) == (last < epochs)
        if content is not None:
            assert [a for a, b in zip(leaves(expected), leaves(content), strict=True) if a != b] == []


def test_a_run_that_had_stopped_early_does_not_go_on(tmp_path: Path) -> None:
    settings = {"epochs": 5, "early_stop": {"rule": "first_dip", "amount": 0.0}}
    histories = []
    for score in (scripted([1.0, 3.0, 2.0]), scripted([])):  # the second asks for no score
        checkpoint = Checkpoint(tmp_path / "run.pt", 0)
        network = tiny.network()
        histories.append(
            run(network, tiny.method("an", 6), tiny.features(6), settings=settings, score=score, checkpoint=checkpoint)
        )
        checkpoint.close()
    assert len(histories[0].rows) == 3
    assert dict(leaves(vars(histories[0]))) == dict(leaves(vars(histories[1])))


def test_a_checkpoint_holds_nothing_but_tensors_and_plain_values(tmp_path: Path) -> None:
    attempt("lac", tmp_path / "run.pt")
    checkpoint = Checkpoint(tmp_path / "run.pt", 0)
    content = checkpoint.load()  # by weights_only
    assert content is not None
    assert set(content["parts"]) == {"network", "method", "optimizer", "scheduler", "average"}
    assert content["parts"]["method"]["queue"].shape == (7, 2, 6)
    assert int((content["parts"]["method"]["queue_labels"] > 0).sum()) > 0
    checkpoint.delete()


# ---------------------------------------------------------------------------------------------- what a method reads
class Reader(Probe):
    """AN that reads all that a network and its inputs give."""

    needs = {"features", "maps", "geometry", "parameters"}
    views = ("weak", "weak")


def test_a_method_gets_features_maps_geometry_and_weights_of_every_view() -> None:
    seen: list[Outputs] = []
    network, images = tiny.network(on_images=True), tiny.images(4, flip=True, crop=0.3)
    run(network, Reader(4, lambda outputs, *_: seen.append(outputs)), images, settings={"epochs": 1})
    (outputs,) = seen
    logits, features, maps, geometry = outputs.logits, outputs.features, outputs.maps, outputs.geometry
    assert features is not None and maps is not None and geometry is not None and outputs.parameters is not None
    assert logits.shape == (2, 4, 3) and features.shape == (2, 4, 8) and maps.shape[:3] == (2, 4, 3)
    torch.testing.assert_close(maps.mean((3, 4)), logits, rtol=1e-4, atol=1e-5)
    assert geometry.shape == (2, 4, 5) and not torch.equal(geometry[0], geometry[1])
    expected = [each for each in network.parameters() if each.ndim > 1]
    assert all(one is two for one, two in zip(outputs.parameters, expected, strict=True))


def test_weights_that_are_frozen_are_not_handed_over() -> None:
    seen: list[Outputs] = []
    network = tiny.network(on_images=True)
    assert network.backbone is not None
    first = next(name for name, _ in network.backbone.named_children())
    run(network, Reader(4, lambda outputs, *_: seen.append(outputs)), tiny.images(4), settings={"freeze": [first]})
    frozen = {id(each) for name, each in network.backbone.named_parameters() if name.startswith(f"{first}.")}
    assert frozen and not frozen & {id(each) for each in seen[0].parameters or ()}


class Hooked(Probe):
    """AN that notes when its hooks are called."""

    needs = {"epoch_logits", "disk"}
    carries = ("clock",)

    def __init__(self, n: int) -> None:
        super().__init__(n, lambda *_: self.calls.append("step"))
        self.calls: list[Any] = []

    def begin_training(self, observed: Tensor) -> None:
        self.calls.append(("begin", observed.sum().item()))

    def inherit(self, state: dict[str, Tensor]) -> None:
        self.calls.append(("inherit", sorted(state)))

    def open_disk(self, folder: Path) -> None:
        assert folder.is_dir()
        self.calls.append("disk")

    def end_epoch(self, logits: Tensor, observed: Tensor) -> None:
        self.calls.append("end")

    def flush(self) -> None:
        self.calls.append("flush")


def test_hooks_are_called_in_their_order(tmp_path: Path) -> None:
    method = Hooked(4)
    checkpoint = Checkpoint(tmp_path / "run" / "point")
    run(tiny.network(), method, tiny.features(4), checkpoint=checkpoint, inherited={"clock": torch.zeros(2)})
    assert method.calls == [("begin", 4), ("inherit", ["clock"]), "disk", *["step", "end", "flush"] * 2]
    assert checkpoint.load(), "what lies on disk is one epoch old at most, whatever the interval"
    checkpoint.delete()
    assert list(tmp_path.iterdir()) == []


def test_a_finished_run_that_is_resumed_asks_for_no_disk(tmp_path: Path) -> None:
    for calls in (["disk"], []):
        method, checkpoint = Hooked(4), Checkpoint(tmp_path / "run.pt")
        run(tiny.network(), method, tiny.features(4), checkpoint=checkpoint)
        checkpoint.delete_disk()
        assert [call for call in method.calls if call == "disk"] == calls
        if not calls:
            checkpoint.delete()
        else:
            checkpoint.close()


def test_a_method_that_needs_disk_is_refused_without_a_checkpoint() -> None:
    with pytest.raises(ConfigError, match="needs disk"):
        run(tiny.network(), Hooked(4), tiny.features(4))


# ---------------------------------------------------------------------------------------------- what is said
@pytest.mark.parametrize("seconds", [1.0, 31.0])
def test_a_log_has_a_line_a_run_and_epochs_of_long_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: float
) -> None:
    """Outside a terminal; an epoch takes a second, or longer than the half minute after which a line is due."""
    pace = Pace()
    now = [pace.told]

    def advance() -> float:
        now[0] += seconds
        return now[0]

    monkeypatch.setattr(progress.time, "monotonic", advance)
    epochs = [pace.is_due() for _ in range(75)]
    assert sum(epochs) == (75 if seconds > 30 else 2)
    monkeypatch.undo()
    run(tiny.network(tiny.LINEAR, False), tiny.method("an", 8), tiny.features(8), settings={"epochs": 5})
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "epoch" in line]
    assert re.search(r"  5 epochs, epoch [1-5] taken, val score \d+\.\d\d$", line)


def test_a_log_says_nothing_of_a_score_where_nothing_is_scored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Pace, "is_due", lambda _: True)
    for score, said in ((None, 0), (lambda _: 0.0, 4)):
        data = Data(tiny.features(6), tiny.observed(6), tiny.features(5, seed=9), score)
        history = Trainer(tiny.network(), tiny.method("an", 6), data, tiny.plan(tiny.training(epochs=3))).fit()
        assert [row["score"] for row in history.rows] == [0.0] * 3
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 4 and sum("val" in line for line in lines) == said
