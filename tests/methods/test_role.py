import math
from typing import Any

import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.cells import cell_risk
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden

SETTINGS: list[dict[str, Any]] = [{"factor": 10.0, "floor": 0.0}]
CASES = golden("role")
LIMIT, PINNED, CLIP = math.log(1.5), math.log(199), math.log(99999)  # logits of 0.6, 0.995 and 0.99999


def made(rows: int, classes: int, expected: float | None = 1.5, seed: int = 0) -> Method:
    torch.manual_seed(seed)
    problem = Problem(rows, ("",) * classes, torch.zeros(classes, dtype=torch.int64), expected)
    return build("role", SETTINGS[0], problem).double()


def with_guess(theta: list[list[float]], expected: float = 1.5) -> Method:
    method = made(len(theta), len(theta[0]), expected)
    method.load_state_dict({**method.state_dict(), "guess": double(theta)})
    return method


def guess(method: Method) -> torch.Tensor:
    return method.get_parameter("guess").detach()


@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: case["name"])
def test_golden_numbers(case):
    observed, expected = torch.tensor(case["observed"], dtype=torch.int8), case["expected"]
    method = with_guess(case["theta"], case["settings"]["expected_positives"])
    logits = double([case["logits"]]).requires_grad_()
    terms = method(Outputs(logits), observed, torch.arange(len(observed)))
    names = [f"{side}_{term}" for side in ("classifier", "estimator") for term in ("positive", "cross", "regulariser")]
    assert list(terms) == names
    for name in names:
        close(2 * terms[name], expected[name])  # the golden's are whole, and the loss is half their sum
    loss = torch.stack(list(terms.values())).sum()
    loss.backward()
    close(loss, expected["loss"])
    assert logits.grad is not None
    close(logits.grad[0], expected["grad_logits"])
    close(method.get_parameter("guess").grad, expected["grad_theta"])


def test_golden_adam_steps_on_the_estimates():
    """Rows outside the batch have no gradient, and move by stale momentum once they have been visited."""
    (case,) = CASES[4:]
    given, observed = case["settings"], torch.tensor(case["observed"], dtype=torch.int8)
    method = with_guess(case["theta"], given["expected_positives"])
    optimizer = torch.optim.Adam(method.parameter_groups(given["lr"]), lr=1.0, betas=given["betas"])
    for step in case["steps"]:
        index = torch.tensor(step["index"])
        terms = method(Outputs(double([step["logits"]])), observed[index], index)
        loss = torch.stack(list(terms.values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        close(loss, step["expected"]["loss"])
        gradient = method.get_parameter("guess").grad
        assert gradient is not None
        close(gradient[index], step["expected"]["grad_theta_rows"])
        assert int(gradient.any(1).sum()) == len(index)
        close(guess(method), step["expected"]["theta_after"])


def test_swapping_predictions_and_estimates_leaves_the_loss():
    case = CASES[0]
    observed = torch.tensor(case["observed"], dtype=torch.int8)

    def loss(logits, theta):
        terms = with_guess(theta)(Outputs(double([logits])), observed, torch.arange(4))
        return torch.stack(list(terms.values())).sum()

    close(loss(case["theta"], case["logits"]), loss(case["logits"], case["theta"]).item())


def test_one_side_is_a_constant_to_the_others_terms():
    case = CASES[0]
    method, logits = with_guess(case["theta"]), double([case["logits"]]).requires_grad_()
    terms = method(Outputs(logits), torch.tensor(case["observed"], dtype=torch.int8), torch.arange(4))
    theta = method.get_parameter("guess")
    for name, term in terms.items():
        gradients = torch.autograd.grad(term, (logits, theta), retain_graph=True, allow_unused=True)
        own, other = gradients if name.startswith("classifier") else gradients[::-1]
        assert own is not None and own.any()
        assert other is None or not other.any()


def test_count_pulls_all_cells_alike():
    """d count / d p is 2 (mean count - k) / (C^2 B) at every cell; the term is halved."""
    logits = double([[[0.3, -1.0, 2.0], [0.0, 1.1, -0.4]]]).requires_grad_()
    method = made(2, 3, 1.2)
    term = method(Outputs(logits), torch.zeros(2, 3, dtype=torch.int8), torch.arange(2))["classifier_regulariser"]
    term.backward()
    p = torch.sigmoid(logits.detach())
    expected = (p.sum().item() / 2 - 1.2) / (9 * 2)
    assert logits.grad is not None
    close(logits.grad / (p * (1 - p)), [[[expected] * 3] * 2])


# ---------------------------------------------------------------------------------------------- where estimates start
def test_unknown_cells_start_uniform_between_point_four_and_point_six():
    theta = guess(made(4000, 5))
    assert theta.abs().max() < LIMIT
    for share in (0.1, 0.5, 0.9):  # quantiles of the uniform distribution
        assert torch.quantile(theta.flatten()[:9999], share).item() == pytest.approx(LIMIT * (2 * share - 1), abs=0.02)
    y = torch.sigmoid(theta)
    assert y.min() > 0.4 and y.max() < 0.6


def test_start_is_drawn_by_the_seed():
    assert torch.equal(guess(made(3, 4, seed=5)), guess(made(3, 4, seed=5)))
    assert not torch.equal(guess(made(3, 4, seed=5)), guess(made(3, 4, seed=6)))


def test_known_cells_start_near_what_is_known():
    method = made(2, 3)
    before = guess(method).clone()
    observed = torch.tensor([[1, 0, -1], [0, 0, 1]], dtype=torch.int8)
    method.begin_training(observed)
    after = guess(method)
    close(after[observed == 1], [PINNED] * 2)
    close(after[observed == -1], [-PINNED])
    assert torch.equal(after[observed == 0], before[observed == 0])
    assert method.get_parameter("guess").requires_grad
    init = {"observed_positive_logit": 5.293304824724492, "observed_negative_logit": -5.293304824724492}
    close(after[0, [0, 2]], list(init.values()))  # the goldens' settings


def test_estimates_of_the_linear_stage_are_clipped_as_probabilities():
    first, second = made(2, 3, seed=1), made(2, 3, seed=2)
    theta = double([[20.0, -20.0, 11.5], [0.3, -11.6, -3.0]])
    first.load_state_dict({**first.state_dict(), "guess": theta})
    state = first.state_dict()
    second.begin_training(torch.tensor([[1, 0, 0], [0, 0, 1]], dtype=torch.int8))
    second.inherit(state)
    close(guess(second), [[CLIP, -CLIP, 11.5], [0.3, -CLIP, -3.0]])
    close(torch.sigmoid(guess(second))[0, :2], [0.99999, 1e-5])
    assert pytest.approx(11.512915464920228, rel=1e-12) == CLIP  # the goldens' settings
    assert torch.equal(state["guess"], theta)


def test_estimates_of_another_split_are_refused():
    with pytest.raises(ConfigError, match=r"guess: needs shape \(2, 3\), found \(4, 3\)"):
        made(2, 3).inherit(made(4, 3).state_dict())


# ---------------------------------------------------------------------------------------------- audits, optimiser
def test_audits_see_the_estimates_of_the_rows():
    method = with_guess([[3.0, -1.0], [0.2, 0.0], [-4.0, 2.0]])
    cells = method.cells(torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.int8),
                         torch.tensor([2, 0]))  # fmt: skip
    expected = [[1 / (1 + math.exp(-x)) for x in row] for row in ([-4.0, 2.0], [3.0, -1.0])]
    close(cells.belief, expected)
    assert not cells.belief.requires_grad
    labels = method.pseudo_labels(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.int8), torch.tensor([0]))
    assert labels is None


@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: case["name"])
def test_cells_charge_the_classifier_as_its_terms_do(case):
    observed, logits = torch.tensor(case["observed"], dtype=torch.int8), double(case["logits"])
    cells = with_guess(case["theta"]).cells(logits, observed, torch.arange(len(observed)))
    charged = torch.where(observed == 1, cells.l1, cells.belief * cells.l2 + (1 - cells.belief) * cells.l3)
    close(charged.mean(), case["expected"]["classifier_positive"] + case["expected"]["classifier_cross"])


def test_cells_of_every_label_cost_what_the_classifiers_terms_charge():
    """A known cell costs what is known and what its estimate says, however wrong that is by now."""
    observed = torch.tensor([[1, -1, 0, -1], [-1, 0, 0, 1]], dtype=torch.int8)
    z, theta = [[0.3, -2.0, 1.1, 4.0], [0.7, -0.2, 2.0, -3.0]], [[5.0, -5.0, 0.3, 2.0], [1.5, -0.4, 0.0, 4.0]]
    method, index = with_guess(theta), torch.arange(2)
    terms = method(Outputs(double([z])), observed, index)
    risk = cell_risk(method.cells(double(z), observed, index), observed)
    close(risk.mean(), 2 * float((terms["classifier_positive"] + terms["classifier_cross"]).detach()))
    y = 1 / (1 + math.exp(-2))  # of the cell with logit 4
    assert risk[0, 3].item() == pytest.approx(
        y * math.log1p(math.exp(-4)) + (2 - y) * math.log1p(math.exp(4)), rel=1e-12
    )


def test_estimates_learn_ten_times_as_fast_and_do_not_decay():
    (group,) = made(2, 3).parameter_groups(0.01)
    assert group["lr"] == pytest.approx(0.1) and group["weight_decay"] == 0
    assert [tuple(p.shape) for p in group["params"]] == [(2, 3)]


def test_density_is_needed():
    with pytest.raises(ConfigError, match=r"expected_positives: has no entry for this dataset, and `role` needs it"):
        made(2, 3, None)
