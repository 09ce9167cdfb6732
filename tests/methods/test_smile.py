import itertools
import math
from typing import Any

import pytest
import scipy.special
import torch
from torch import Tensor

from pipeline.core.errors import ConfigError
from pipeline.methods import smile
from pipeline.methods.shared.base import build
from pipeline.methods.shared.cells import cell_risk
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden

IMAGE: dict[str, Any] = {
    "form": {"kind": "image"},
    "theta": 1.0,
    "alpha": 1.0,
    "beta": 1.0,
    "kl_normal": 1e-5,
    "kl_beta": 1e-5,
    "latent": 4,
    "factor": 10.0,
    "floor": 0.0,
}
TABULAR = {"kind": "tabular", "mixing": 0.5, "prior": 0.1, "unknown": "balanced"}
SETTINGS: list[dict[str, Any]] = [
    IMAGE,
    {**IMAGE, "theta": 0.5, "alpha": 0.5, "beta": 2.0},
    {**IMAGE, "form": TABULAR, "kl_beta": 1.0},
    {**IMAGE, "form": {**TABULAR, "mixing": 0.9, "prior": 0.0, "unknown": 0.3}, "kl_normal": 0.0, "kl_beta": 0.1},
]
CASES = golden("smile")
N, D = 7, 5


def of_form(form: str) -> Any:
    chosen = [case for case in CASES if case["settings"]["form"] == form]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case["name"])


def made(classes: int = 3, **settings: Any) -> smile.LabelEnhancement:
    torch.manual_seed(0)
    problem = Problem(N, ("",) * classes, torch.ones(classes, dtype=torch.int64), None, D)
    method = build("smile", {**IMAGE, **settings}, problem).double()
    assert isinstance(method, smile.LabelEnhancement)
    return method


def says(method: smile.LabelEnhancement, **given: Tensor) -> None:
    """Make the estimator say this; what is not given is of no account."""
    d = given.pop("d")
    rows = torch.ones_like(d)
    logs = {"present": -d.log(), "absent": -(1 - d).log()}
    answer = smile.Distribution(**{"mean": rows, "std": rows, "a": rows, "b": rows, **logs, **given})
    method.distribution = lambda features: answer


def features(rows: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def terms_of(method: smile.LabelEnhancement, logits: Tensor, observed: Tensor) -> dict[str, Tensor]:
    rows = len(observed)
    return method(Outputs(logits.unsqueeze(0), features=features(rows).unsqueeze(0)), observed, torch.arange(rows))


def near(actual: Tensor | None, expected: Any) -> None:
    """As near as the goldens ask where torch's trigamma has a part in the gradient."""
    assert actual is not None
    torch.testing.assert_close(actual, double(expected), rtol=1e-6, atol=1e-15)


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z))


# ---------------------------------------------------------------------------------------------- the loss
@of_form("image")
def test_golden_image_form(case):
    observed, expected = torch.tensor(case["observed"], dtype=torch.int8), case["expected"]
    weights = {name: case["settings"][name] for name in ("theta", "alpha", "beta")}
    method = made(observed.shape[1], **weights)
    logits = double(case["logits"]).requires_grad_()
    names = {"mean": "mu", "std": "std", "a": "beta_a", "b": "beta_b", "d": "distribution"}
    given = {name: double(case[key]).requires_grad_() for name, key in names.items()}
    says(method, **given)
    terms = terms_of(method, logits, observed)
    total = torch.stack(list(terms.values())).sum()
    total.backward()
    close(total, expected["loss"])
    close(terms["align"] / weights["theta"], expected["align"])
    close(terms["prediction"] / weights["alpha"], expected["an_prediction"])
    close(terms["distribution"] / weights["beta"], expected["an_distribution"])
    close(terms["kl_normal"] / 1e-5, expected["kl_normal"])
    close(terms["kl_beta"] / 1e-5, expected["kl_beta"])
    close(logits.grad, expected["grad_logits"])
    close(given["d"].grad, expected["grad_distribution"])
    close(given["mean"].grad, expected["grad_mu"])
    close(given["std"].grad, expected["grad_std"])
    near(given["a"].grad, expected["grad_beta_a"])
    near(given["b"].grad, expected["grad_beta_b"])


@of_form("tabular_soft_bce")
def test_golden_tabular_alignment(case):
    """With d alone as the target."""
    observed, settings = torch.tensor(case["observed"], dtype=torch.int8), case["settings"]
    form = {
        "kind": "tabular",
        "mixing": 1.0,
        "prior": 0.3,
        "unknown": "published" if settings["bias"] else settings["rate"],
    }
    method = made(observed.shape[1], form=form)
    logits, d = double(case["logits"]).requires_grad_(), double(case["target"]).requires_grad_()
    says(method, d=d)
    align = terms_of(method, logits, observed)["align"]
    align.backward()
    close(align, case["expected"]["loss"])
    close(align * observed.numel(), case["expected"]["loss_sum"])
    close(logits.grad, case["expected"]["grad_logits"])
    assert d.grad is None or not d.grad.any()


@of_form("tabular_beta_kl_as_coded")
def test_golden_tabular_kl(case):
    d = double(case["distribution"]).requires_grad_()
    observed = torch.zeros(d.shape, dtype=torch.int8)
    method = made(d.shape[1], form=TABULAR, kl_beta=1.0)
    says(method, d=d)
    divergence = terms_of(method, torch.zeros_like(d), observed)["kl_beta"]
    divergence.backward()
    close(divergence, case["expected"]["loss"])
    near(d.grad, case["expected"]["grad_distribution"])


def test_every_golden_is_of_a_form_tried_here():
    forms = [case["settings"]["form"] for case in CASES]
    assert {form: forms.count(form) for form in set(forms)} == {
        "image": 8,
        "tabular_soft_bce": 8,
        "tabular_beta_kl_as_coded": 4,
    }


@pytest.mark.parametrize(("a", "b"), [(1.0, 1.0), (2.0, 3.5), (4.0, 1.5)])
def test_kl_of_beta_is_the_divergence_by_numerical_integration(a, b):
    steps, total = 20_000, 0.0
    norm = math.gamma(a + b) / math.gamma(a) / math.gamma(b)
    for step in range(steps):
        x = (step + 0.5) / steps
        density = norm * x ** (a - 1) * (1 - x) ** (b - 1)
        total += density * math.log(density) / steps
    method = made(1, kl_beta=1.0)
    says(method, a=double([[a]]), b=double([[b]]), d=double([[0.5]]))
    found = terms_of(method, torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.int8))["kl_beta"]
    assert found.item() == pytest.approx(total, rel=1e-5, abs=1e-12)


def test_a_standard_normal_costs_nothing():
    method = made(1, kl_normal=1.0)
    says(method, mean=double([[0.0, 0.0]]), std=double([[1.0, 1.0]]), d=double([[0.5]]))
    assert terms_of(method, torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.int8))["kl_normal"].item() == 0


def test_tabular_target_mixes_d_with_what_is_known():
    method = made(3, form={"kind": "tabular", "mixing": 0.25, "prior": 0.1, "unknown": 0.5})
    says(method, d=double([[0.8, 0.4, 0.6]]))
    logits = double([[0.7, -1.1, 0.2]]).requires_grad_()
    terms_of(method, logits, torch.tensor([[1, 0, -1]], dtype=torch.int8))["align"].backward()
    targets = [0.25 * 0.8 + 0.75 * 1, 0.25 * 0.4 + 0.75 * 0.1, 0.25 * 0.6]
    p = [sigmoid(z) for z in (0.7, -1.1, 0.2)]
    close(logits.grad, [[w * (q - t) / 3 for w, q, t in zip((1, 0.5, 1), p, targets, strict=True)]])


def test_tabular_unknown_cells_balance_what_is_known_where_their_weight_is_null():
    """1 / (C - 1) beside one known label; 2 / 1 is no more than 1, and 1 / 2 beside a known absence."""
    method = made(4, form={**TABULAR, "mixing": 0.0, "prior": 0.0})
    says(method, d=torch.full((3, 4), 0.5).double())
    logits = torch.zeros(3, 4).double().requires_grad_()
    labels = torch.tensor([[1, 0, 0, 0], [1, 1, 0, -1], [1, -1, 0, 0]], dtype=torch.int8)
    terms_of(method, logits, labels)["align"].backward()
    slopes = [[-1, 1 / 3, 1 / 3, 1 / 3], [-1, -1, 1, 1], [-1, 1, 1 / 2, 1 / 2]]
    close(logits.grad, [[slope / 2 / 12 for slope in row] for row in slopes])


# ---------------------------------------------------------------------------------------------- extreme distributions
def gradient_of_decoder(raw_a: float, raw_b: float, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Loss and gradient on the decoder's bias where every a and b is softplus of these; one row observed, one not."""
    method = made(2).to(dtype)
    with torch.no_grad():
        method.decoder.weight.zero_()
        method.decoder.bias.copy_(torch.tensor([raw_a, raw_a, raw_b, raw_b]))
    torch.manual_seed(seed)
    observed = torch.tensor([[1, 0], [0, 0]], dtype=torch.int8)
    outputs = Outputs(torch.zeros(1, 2, 2, dtype=dtype), features=features(2).to(dtype).unsqueeze(0))
    total = torch.stack(list(method(outputs, observed, torch.arange(2)).values())).sum()
    total.backward()
    assert method.decoder.bias.grad is not None
    return total.detach(), method.decoder.bias.grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("raw", list(itertools.product((-100.0, -8.0, 0.0, 80.0), repeat=2)), ids=str)
def test_extreme_distributions_are_finite(raw, dtype):
    for seed in range(5):
        total, gradient = gradient_of_decoder(raw[0], raw[1], seed, dtype)
        assert torch.isfinite(total) and torch.isfinite(gradient).all()


def test_a_missed_positive_moves_the_distribution_at_every_draw():
    """With a = 0.007, most draws of d are 0 in float32; -log d falls as a grows all the same."""
    gradients = [gradient_of_decoder(-5.0, 0.5, seed, torch.float32)[1][0].item() for seed in range(200)]
    assert max(gradients) < 0
    a = math.log1p(math.exp(-5.0)) + 1e-6
    expected = -scipy.special.polygamma(1, a) * sigmoid(-5.0) / 4  # of E[-log d], a mean over 4 cells
    assert sum(gradients) / 200 == pytest.approx(expected, rel=0.25)


def test_the_floor_bounds_what_a_draw_costs():
    """-log(d + floor) and -log(p + floor), and the same of 1 - d and 1 - p."""
    method = made(2, floor=0.01, theta=0.0)
    d, logits = double([[1e-9, 0.75]]), double([[-30.0, 3.0]])
    says(method, d=d)
    terms = terms_of(method, logits, torch.tensor([[1, 0]], dtype=torch.int8))
    close(terms["distribution"], (-math.log(1e-9 + 0.01) - math.log(0.25 + 0.01)) / 2)
    close(terms["prediction"], (-math.log(sigmoid(-30.0) + 0.01) - math.log(sigmoid(-3.0) + 0.01)) / 2)


def test_an_draws_the_expected_log_losses():
    """E[-log d] = psi(a + b) - psi(a), and its gradient the derivative of that; the same of 1 - d with b."""
    a, b = (torch.full((200_000, 1), value, dtype=torch.float64, requires_grad=True) for value in (0.3, 1.7))
    torch.manual_seed(0)
    parts = smile._log_gamma(a), smile._log_gamma(b)
    whole = torch.logaddexp(*parts)
    digamma, trigamma = scipy.special.psi, lambda x: scipy.special.polygamma(1, x)
    for part, own, other in ((parts[0], a, b), (parts[1], b, a)):
        loss = (whole - part).mean()
        gradients = torch.autograd.grad(loss, [own, other], retain_graph=True)
        shape, rest = own[0].item(), other[0].item()
        assert loss.item() == pytest.approx(digamma(shape + rest) - digamma(shape), rel=0.02)
        assert gradients[0].sum().item() == pytest.approx(trigamma(shape + rest) - trigamma(shape), rel=0.03)
        assert gradients[1].sum().item() == pytest.approx(trigamma(shape + rest), rel=0.03)


# ---------------------------------------------------------------------------------------------- the estimator
def means(method: smile.LabelEnhancement, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of z, layer by layer."""
    state = {name: value.detach() for name, value in method.state_dict().items()}
    hidden = (x @ state["encoder.0.weight"].T + state["encoder.0.bias"]).clamp(min=0)
    both = hidden @ state["encoder.2.weight"].T + state["encoder.2.bias"]
    return both[:, :4], torch.log1p(both[:, 4:].exp()) + 1e-6


def test_evaluation_takes_means():
    method = made().eval()
    mean, std = means(method, features(2))
    found = method.distribution(features(2))
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.std, std)
    raw = mean @ method.decoder.weight.detach().T + method.decoder.bias.detach()
    both = torch.log1p(raw.exp()) + 1e-6
    torch.testing.assert_close(found.a, both[:, :3])
    torch.testing.assert_close(found.b, both[:, 3:])
    torch.testing.assert_close(found.d, both[:, :3] / (both[:, :3] + both[:, 3:]))
    assert torch.equal(found.d, method.distribution(features(2)).d)


def test_training_draws_z_and_d_from_their_distributions():
    copies = 20_000
    method = made()
    with torch.no_grad():
        found = method.distribution(features(1).expand(copies, -1))
    mean, std = means(method, features(1))
    weight, bias = method.decoder.weight.detach(), method.decoder.bias.detach()
    raw = torch.log(torch.expm1(torch.cat([found.a, found.b], dim=1) - 1e-6))  # the decoder's answer
    spread = (weight.square() @ std[0].square()).sqrt()
    standard = (raw - (weight @ mean[0] + bias)) / spread
    total = found.a + found.b
    variance = found.a * found.b / total**2 / (total + 1)
    for value in (standard, (found.d - found.a / total) / variance.sqrt()):
        assert value.mean(0).abs().max() < 4 / math.sqrt(copies)
        assert (value.square().mean(0) - 1).abs().max() < 8 / math.sqrt(copies)


def test_tabular_form_does_not_draw_d():
    method = made(form=TABULAR)
    found = method.distribution(features(4))
    torch.testing.assert_close(found.d, found.a / (found.a + found.b), rtol=1e-12, atol=0)
    assert not torch.equal(found.d, method.distribution(features(4)).d), "z is drawn"


@pytest.mark.parametrize("settings", SETTINGS)
def test_loss_reaches_features_logits_and_every_parameter_of_the_estimator(settings):
    method = made(**settings)
    x, logits = features(4).requires_grad_(), torch.zeros(1, 4, 3, dtype=torch.float64, requires_grad=True)
    observed = torch.tensor([[1, 0, 0]] * 4, dtype=torch.int8)
    terms = method(Outputs(logits, features=x.unsqueeze(0)), observed, torch.arange(4))
    torch.stack(list(terms.values())).sum().backward()
    for value in (x, logits, *method.parameters()):
        assert value.grad is not None and torch.isfinite(value.grad).all() and value.grad.any()


def test_the_estimator_alone_learns_what_is_observed():
    """Where one label is always observed, d rises there and falls elsewhere."""
    method = made(theta=0.0, alpha=0.0, factor=1.0)
    optimizer = torch.optim.Adam(method.parameter_groups(0.02))
    observed = torch.tensor([[0, 1, 0]] * N, dtype=torch.int8)
    for _ in range(150):
        optimizer.zero_grad()
        terms = terms_of(method, torch.zeros(N, 3, dtype=torch.float64), observed)
        torch.stack(list(terms.values())).sum().backward()
        optimizer.step()
    d = method.eval().distribution(features(N)).d
    assert (d[:, 1] > 0.8).all() and (d[:, [0, 2]] < 0.2).all()


# ---------------------------------------------------------------------------------------------- cells and state
@pytest.mark.parametrize("labels", [[[0, 1, 0], [0, 0, 1]], [[0, 1, -1], [-1, 1, 1]], [[0, -1, -1], [1, 1, 0]]])
@pytest.mark.parametrize("form", [{"kind": "image"}, {**TABULAR, "unknown": 0.3}])
def test_cells_are_the_classifiers_part_of_the_loss(form, labels):
    method = made(form=form, theta=0.7, alpha=0.4)
    method.get_buffer("estimate")[:] = torch.rand(N, 3, dtype=torch.float64)
    index, observed = torch.tensor([5, 2]), torch.tensor(labels, dtype=torch.int8)
    logits = double([[0.3, -2.0, 1.0], [2.2, 0.0, -0.4]])
    cells = method.cells(logits, observed, index)
    says(method, d=method.get_buffer("estimate")[index])
    terms = method.eval()(Outputs(logits.unsqueeze(0), features=features(2).unsqueeze(0)), observed, index)
    risk = cell_risk(cells, observed)
    close(risk.mean(), (terms["align"] + terms["prediction"]).item())
    # one unknown cell by hand
    d, p = method.get_buffer("estimate")[5, 0].item(), sigmoid(0.3)
    target, weight = (d, 1.0) if form["kind"] == "image" else (0.5 * d + 0.5 * 0.1, 0.3)
    by_hand = 0.7 * weight * (-target * math.log(p) - (1 - target) * math.log(1 - p)) - 0.4 * math.log(1 - p)
    close(risk[0, 0], by_hand)


def test_cells_without_any_weight_believe_nothing():
    cells = made(theta=0.0, alpha=0.0).cells(torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.int8), torch.tensor([0]))
    assert not cells.belief.any() and not cells.weight.any()


def test_training_stores_the_mean_of_each_image_it_saw():
    method = made()
    index = torch.tensor([6, 1])
    outputs = Outputs(torch.zeros(1, 2, 3, dtype=torch.float64), features=features(2).unsqueeze(0))
    observed = torch.zeros(2, 3, dtype=torch.int8)
    method.eval()(outputs, observed, index)
    assert (method.get_buffer("estimate") == 0.5).all()
    torch.manual_seed(3)
    method.train()(outputs, observed, index)
    torch.manual_seed(3)
    found = method.distribution(features(2))
    expected = torch.full((N, 3), 0.5, dtype=torch.float64)
    expected[index] = (found.a / (found.a + found.b)).detach()
    assert torch.equal(method.get_buffer("estimate"), expected)


def test_the_next_stage_starts_with_a_fresh_estimator():
    first, second = made(), made()
    before = {name: value.clone() for name, value in second.state_dict().items()}
    with torch.no_grad():
        for value in (*first.parameters(), first.get_buffer("estimate")):
            value.add_(1)
    second.inherit(first.state_dict())
    assert all(torch.equal(value, before[name]) for name, value in second.state_dict().items())


def test_estimator_has_its_own_rate():
    method = made(factor=10.0)
    (group,) = method.parameter_groups(0.25)
    assert group["lr"] == 2.5 and len(group["params"]) == 6


def test_a_problem_of_unknown_width_is_refused():
    with pytest.raises(ConfigError, match="width of the features"):
        build("smile", IMAGE, Problem(N, ("a",), torch.ones(1, dtype=torch.int64), None))


def test_missing_features_are_refused():
    with pytest.raises(ValueError, match="features"):
        made()(Outputs(torch.zeros(1, 1, 3)), torch.zeros(1, 3, dtype=torch.int8), torch.tensor([0]))
