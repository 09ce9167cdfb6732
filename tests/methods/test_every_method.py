"""What every file in pipeline/methods must do, with no method named."""

import copy
import inspect
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from pipeline.audits import metrics
from pipeline.config.params import read_params
from pipeline.core.errors import ConfigError
from pipeline.core.strict import Strict
from pipeline.methods.shared import base
from pipeline.methods.shared.cells import in_float32
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import (
    ROOT,
    B,
    Batch,
    C,
    D,
    E,
    N,
    batches,
    case_id,
    generator,
    loss,
    make,
    method_cases,
    outputs,
    problem,
    single_positives,
)

CASES = method_cases()
BATCHES = batches()


def is_stateless(method: base.Method) -> bool:
    return set(method.state_dict()) == {"clock"}


def has_belief_with_gradient(method: base.Method) -> bool:
    return method.cells(
        BATCHES[0].logits[0].clone().requires_grad_(), BATCHES[0].observed, BATCHES[0].index
    ).belief.requires_grad


def draws(method: base.Method) -> bool:
    """Whether the loss depends on torch's random stream."""
    twin, batch, values = copy.deepcopy(method), BATCHES[0], []
    for seed in (0, 1):
        torch.manual_seed(seed)
        values.append(loss(copy.deepcopy(twin), outputs(method, batch.logits), batch))
    return not torch.equal(*values)


def outputs_where(answer: Outputs, change) -> Outputs:
    """The answer with every field of tensors by image changed."""
    fields = {name: value for name, value in vars(answer).items() if value is not None}
    parameters = fields.pop("parameters", None)
    return Outputs(**{name: change(value) for name, value in fields.items()}, parameters=parameters)


def cases_where(condition) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [case for case in CASES if condition(make(*case))], ids=case_id)


DRAWING = {case_id(case) for case in CASES if draws(make(*case))}
every_case = pytest.mark.parametrize("case", CASES, ids=case_id)
every_name = pytest.mark.parametrize("name", base.names())


def state_of(method: base.Method) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in method.state_dict().items()}


def assert_same_state(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=0, atol=0, msg=name)


# ---------------------------------------------------------------------------------------------- the file
@every_name
def test_file_says_where_the_method_comes_from(name):
    docstring = sys.modules[base.load(name).__module__].__doc__
    assert docstring and "Source:" in docstring


@every_name
def test_settings_have_no_default(name):
    settings = base.load(name).Settings
    assert issubclass(settings, Strict)
    assert [field for field, info in settings.model_fields.items() if not info.is_required()] == []


@every_name
def test_class_attributes_are_of_the_vocabulary(name):
    method = base.load(name)
    assert issubclass(method, base.Method) and not inspect.isabstract(method)
    assert method.labels in ("single", "all", "negatives")
    assert method.views[0] == "weak" and set(method.views) <= {"weak", "strong"}
    assert set(method.needs) <= base.NEEDS


@every_name
def test_params_hold_settings_that_the_method_takes(name):
    base.build(name, read_params(ROOT / "params.yaml", name).method(name, "digits"), problem())


@every_name
def test_unknown_and_missing_settings_are_refused_by_key(name):
    settings = next(settings for known, settings in CASES if known == name)
    with pytest.raises(ConfigError, match=rf"^params/methods/{name}\.yaml: no_such_key: "):
        base.build(name, {**settings, "no_such_key": 1}, problem())
    for key in settings:
        with pytest.raises(ConfigError, match=rf"params/methods/{name}\.yaml: {key}"):
            base.build(name, {other: settings[other] for other in settings if other != key}, problem())


@every_name
def test_unmet_needs_are_refused_before_training(name):
    method = base.load(name)
    needs = set(method.needs) - {"expected_positives", "beliefs"}
    base.check_needs(name, method, needs)
    for need in needs:
        with pytest.raises(ConfigError, match=rf"^{name}: needs .*{need}"):
            base.check_needs(name, method, needs - {need})


# ---------------------------------------------------------------------------------------------- the numbers
@every_case
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name)
def test_loss_and_gradients_are_finite(case, batch):
    assert_finite(case, batch, torch.float64)


def assert_finite(case, batch: Batch, dtype: torch.dtype) -> None:
    """In eval mode, and in training mode over several draws: the loss, and all gradients of network and method."""
    method = make(*case, dtype=dtype)
    for mode, seed in [(False, 0), *((True, seed) for seed in (range(8) if case_id(case) in DRAWING else [0]))]:
        torch.manual_seed(seed)
        answer = outputs(method.train(mode), batch.logits, seed, scale=batch.scale)
        total = loss(method, answer, batch)
        assert total.shape == () and torch.isfinite(total)
        method.zero_grad()
        total.backward()
        assert answer.logits.grad is not None
        fields = {field: value for field, value in vars(answer).items() if isinstance(value, torch.Tensor)}
        weights = dict(enumerate(answer.parameters or ()))
        for name, value in {**fields, **weights, **dict(method.named_parameters())}.items():
            assert value.grad is None or torch.isfinite(value.grad).all(), (name, mode, seed)
        for name, value in {**weights, **dict(method.named_parameters())}.items():
            assert value.grad is not None, name


@every_case
def test_gradient_lifts_an_observed_positive_missed_by_far(case):
    method = make(*case)
    logits = torch.zeros(3, B, C, dtype=torch.float64)
    logits[:, 0, 2] = -50
    observed = single_positives(B)
    observed[0] = torch.tensor([0, 0, 1, 0, 0])
    answer = outputs(method, logits)
    loss(method, answer, Batch("", logits, observed, torch.arange(B))).backward()
    assert answer.logits.grad is not None
    assert answer.logits.grad[0, 0, 2] < -0.4 / (B * C)


@every_case
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name)
def test_cells_are_a_pure_answer_that_fits_the_batch(case, batch):
    method = make(*case)
    before = state_of(method)
    logits = batch.logits[0]
    first = method.cells(logits, batch.observed, batch.index)
    torch.rand(1)  # a method that draws here would answer otherwise the second time
    second = method.cells(logits, batch.observed, batch.index)
    for field in ("belief", "weight", "l1", "l2", "l3"):
        value = getattr(first, field)
        assert torch.broadcast_shapes(value.shape, logits.shape) == logits.shape
        assert torch.isfinite(value).all()
        assert torch.equal(value, getattr(second, field))
    assert ((first.belief >= 0) & (first.belief <= 1)).all()
    assert_same_state(before, state_of(method))


@cases_where(lambda method: not method.coupled)
@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: batch.name)
def test_loss_of_an_uncoupled_method_is_the_mean_of_its_cells(case, batch):
    method = make(*case)
    logits = batch.logits[0]
    cells = method.cells(logits, batch.observed, batch.index)
    belief, weight, l1, l2, l3 = (
        value.broadcast_to(logits.shape).tolist()
        for value in (cells.belief, cells.weight, cells.l1, cells.l2, cells.l3)
    )
    total = 0.0
    for i, row in enumerate(batch.observed.tolist()):
        for c, label in enumerate(row):
            if label == 1:
                total += l1[i][c]
            elif label == -1:
                total += l3[i][c]
            else:
                total += weight[i][c] * (belief[i][c] * l2[i][c] + (1 - belief[i][c]) * l3[i][c])
    actual = loss(method, outputs(method, batch.logits), batch)
    assert actual.item() == pytest.approx(total / logits.numel(), rel=1e-12, abs=1e-14)


@every_case
def test_order_of_the_batch_does_not_matter(case):
    batch, order = BATCHES[1], torch.tensor([2, 0, 3, 1])
    first, second = make(*case), make(*case)
    straight = outputs(first, batch.logits, requires_grad=False)
    shuffled = outputs_where(straight, lambda value: value[:, order])
    for method in (first, second):  # a step that leaves its trace on both
        torch.manual_seed(0)
        loss(method, outputs(method, BATCHES[0].logits), BATCHES[0])
        if draws(method):  # what is drawn goes to places of the batch, not to its images
            method.eval()
    one = first(straight, batch.observed, batch.index)
    two = second(shuffled, batch.observed[order], batch.index[order])
    for term in one:
        torch.testing.assert_close(one[term], two[term], rtol=1e-12, atol=1e-14)


@cases_where(is_stateless)
def test_permuting_classes_permutes_the_gradient(case):
    method = make(*case)
    batch, order = BATCHES[1], torch.tensor([3, 1, 4, 0, 2])
    straight = outputs(method, batch.logits)
    shuffled = outputs(method, batch.logits[:, :, order])
    loss(method, straight, batch).backward()
    assert method.problem.beliefs is not None
    method.problem = replace(method.problem, beliefs=method.problem.beliefs[:, order])
    loss(method, shuffled, Batch("", batch.logits, batch.observed[:, order], batch.index)).backward()
    assert straight.logits.grad is not None and shuffled.logits.grad is not None
    torch.testing.assert_close(straight.logits.grad[:, :, order], shuffled.logits.grad, rtol=1e-12, atol=1e-15)


@cases_where(has_belief_with_gradient)
def test_gradient_is_right_where_belief_carries_one(case):
    method = make(*case).eval()
    batch = BATCHES[1]
    answer = outputs(method, batch.logits)
    fixed = {name: value for name, value in vars(answer).items() if value is not None and name != "logits"}

    def total(logits):
        return loss(method, Outputs(logits, **fixed), batch)

    assert torch.autograd.gradcheck(total, answer.logits)


@every_name
def test_no_term_and_no_labelling_is_idle_in_these_tests(name):
    """Else they would pass over what a method does once it has a past."""
    alive: dict[str, bool] = {}
    labels = []
    for case in (case for case in CASES if case[0] == name):
        for batch in BATCHES[:2]:
            method = make(*case)
            for term, value in method(outputs(method, batch.logits), batch.observed, batch.index).items():
                alive[term] = alive.get(term, False) or value.item() != 0
            labels.append(method.pseudo_labels(batch.logits[0], batch.observed, batch.index))
    assert all(alive.values()), alive
    assert all(each is None for each in labels) or any(each is not None and each.any() for each in labels)


# ---------------------------------------------------------------------------------------------- precision
@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(case, dtype):
    half = next(batch for batch in batches(dtype) if batch.name == "ordinary")
    method, reference = make(*case, dtype=torch.float32), make(*case, dtype=torch.float32)
    answer = outputs(method, half.logits, requires_grad=False)
    promoted = outputs_where(answer, in_float32)
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = method(answer, half.observed, half.index)
    torch.manual_seed(0)
    expected = reference(promoted, half.observed, half.index)
    for term in expected:
        assert actual[term].dtype == torch.float32
        assert torch.equal(actual[term], expected[term])


@every_case
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_loss_and_gradients_are_finite_in_low_precision(case, dtype):
    for batch in batches(dtype):
        assert_finite(case, batch, torch.float32)


@every_case
def test_float64_is_kept(case):
    method = make(*case)
    for term in method(outputs(method, BATCHES[0].logits), BATCHES[0].observed, BATCHES[0].index).values():
        assert term.dtype == torch.float64


# ---------------------------------------------------------------------------------------------- state
@every_case
def test_observed_is_never_written(case):
    method = make(*case)
    for batch in BATCHES:
        observed = batch.observed.clone()
        loss(method, outputs(method, batch.logits), batch).backward()
        method.pseudo_labels(batch.logits[0], batch.observed, batch.index)
        assert torch.equal(batch.observed, observed) and batch.observed.dtype == torch.int8
    everything = single_positives(N)
    before = everything.clone()
    method.end_epoch(torch.randn(N, C, generator=generator(5), dtype=torch.float64), everything)
    assert torch.equal(everything, before)


@every_case
def test_state_survives_a_round_trip(case, tmp_path):
    method = make(*case, folder=tmp_path)
    for batch in BATCHES[:3]:
        loss(method, outputs(method, batch.logits), batch)
    torch.save(method.state_dict(), tmp_path / "method.pt")
    torch.manual_seed(1)
    restored = base.build(case[0], case[1], problem()).double()
    if "disk" in restored.needs:
        restored.open_disk(tmp_path)
    restored.load_state_dict(torch.load(tmp_path / "method.pt", weights_only=True))
    assert_same_state(state_of(method), state_of(restored))
    for batch in (BATCHES[0], BATCHES[4]):
        torch.manual_seed(0)
        first = method(outputs(method, batch.logits), batch.observed, batch.index)
        torch.manual_seed(0)
        second = restored(outputs(restored, batch.logits), batch.observed, batch.index)
        for term in first:
            assert torch.equal(first[term], second[term])
    assert_same_state(state_of(method), state_of(restored))


@every_case
@pytest.mark.parametrize("trained", [True, False])
def test_evaluating_a_loss_leaves_no_trace(case, trained):
    """A loss landscape calls the method hundreds of times in eval mode and must find it as it was."""
    method = make(*case, stepped=trained)
    if trained:
        loss(method, outputs(method, BATCHES[0].logits), BATCHES[0])
    method.eval()
    before = state_of(method)
    first = loss(method, outputs(method, BATCHES[1].logits), BATCHES[1])
    assert torch.equal(first, loss(method, outputs(method, BATCHES[1].logits), BATCHES[1]))
    assert_same_state(before, state_of(method))


@every_case
def test_copy_learns_apart(case):
    method = make(*case)
    twin = copy.deepcopy(method)
    before = state_of(twin)
    loss(method, outputs(method, BATCHES[0].logits), BATCHES[0])
    method.end_epoch(torch.randn(N, C, generator=generator(6), dtype=torch.float64), single_positives(N))
    assert_same_state(before, state_of(twin))


@every_case
def test_pseudo_labels_name_unknown_cells_only(case):
    method = make(*case)
    for batch in BATCHES:
        labels = method.pseudo_labels(batch.logits[0], batch.observed, batch.index)
        if labels is None:
            continue
        assert labels.dtype == torch.int8 and labels.shape == batch.observed.shape
        assert set(labels.unique().tolist()) <= {-1, 0, 1}
        assert (labels[batch.observed != 0] == 0).all()


# ---------------------------------------------------------------------------------------------- learning
class Toy(nn.Module):
    """The smallest network that gives a method whatever it reads."""

    def __init__(self, width: int):
        super().__init__()
        self.logits = nn.Linear(width, C)
        nn.init.zeros_(self.logits.weight)  # starts at chance
        self.embed = nn.Linear(width, C * E)
        self.widen = nn.Linear(width, D)

    def forward(self, x: torch.Tensor, needs) -> dict[str, Any]:
        answer = {"logits": self.logits(x)}
        if "embeddings" in needs:
            answer["embeddings"] = nn.functional.normalize(self.embed(x).unflatten(-1, (C, E)), dim=-1)
        if "features" in needs:
            answer["features"] = self.widen(x)
        if "parameters" in needs:
            answer["parameters"] = (self.logits.weight,)
        return answer


@cases_where(
    lambda method: not set(method.needs) & {"maps", "geometry", "posterior", "disk"}
)  # they need more than a toy network
def test_method_learns_a_toy_set_in_twenty_steps(case):
    torch.manual_seed(0)
    truth = (torch.rand(N * 4, C, generator=generator(20)) < 0.35).to(torch.int8)
    truth[truth.sum(1) == 0, 0] = 1
    x = truth.float() + 0.3 * torch.randn(N * 4, C, generator=generator(21))
    single = torch.zeros_like(truth)
    for row, labels in enumerate(truth):
        present = labels.nonzero().flatten()
        single[row, present[row % len(present)]] = 1
    sets = {"single": single, "all": 2 * truth - 1, "negatives": torch.where(truth == 0, -1, single).to(torch.int8)}
    counts, density = single.sum(0, dtype=torch.int64), float(truth.sum(1).float().mean())
    known = Problem(len(truth), problem().classes, counts, density, D, beliefs=0.1 + 0.8 * truth)
    method = base.build(case[0], case[1], known)
    observed, index, network = sets[method.labels], torch.arange(len(truth)), Toy(C)
    method.begin_training(observed)
    groups = [{"params": network.parameters()}, *method.parameter_groups(0.1)]
    optimizer = torch.optim.Adam(groups, lr=0.1)
    for step in range(20):
        if step % 5 == 0:
            method.begin_epoch(step // 5 + 1, 4)
        views = torch.stack([x + 0.1 * view for view in range(len(method.views))])
        terms = method(Outputs(**network(views, method.needs)), observed, index)
        optimizer.zero_grad()
        torch.stack(list(terms.values())).sum().backward()
        optimizer.step()
        if step % 5 == 4 and "epoch_logits" in method.needs:
            method.end_epoch(network(x, ())["logits"].detach(), observed)
    score = metrics.mean_average_precision(truth.numpy(), network(x, ())["logits"].detach().numpy())["map"]
    assert score > 100 * float(truth.float().mean()) + 20
