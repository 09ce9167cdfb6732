from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.core.errors import ConfigError
from pipeline.core.strict import Strict
from pipeline.methods.shared import base
from pipeline.methods.shared.cells import Cells
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs


class Guess(base.Method):
    """A method of every kind at once: a parameter, a buffer, a need, state that crosses stages."""

    Settings = Strict
    needs = {"embeddings", "expected_positives"}
    carries = ("guess",)

    def __init__(self, settings, problem):
        super().__init__(settings, problem)
        self.guess = torch.nn.Parameter(torch.zeros(problem.n, len(problem.classes)))
        self.register_buffer("seen", torch.zeros(problem.n))

    def cells(self, logits, observed, index):
        loss = torch.nn.functional.softplus(-logits)
        return Cells(torch.sigmoid(self.guess[index]), torch.ones(1, 1), loss, loss, logits + loss)


def problem(expected: float | None = 1.0) -> Problem:
    return Problem(3, ("a", "b"), torch.tensor([2, 1]), expected)


def test_abstract_method_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        base.Method(Strict(), problem())  # type: ignore[abstract]


@pytest.mark.parametrize("name", ["no_such", "base", "__init__", "../an", "an.json", "An", ""])
def test_unknown_method_is_refused_and_the_known_ones_are_named(name):
    with pytest.raises(ConfigError, match="unknown method.* an, .*em, em_apl, "):
        base.load(name)


def test_settings_of_a_wrong_type_or_range_name_their_key():
    for value in ("0.2", -1.0, None, True):
        with pytest.raises(ConfigError, match=r"params/methods/em\.yaml: alpha: "):
            base.build("em", {"alpha": value}, problem())


def test_label_density_is_asked_for_by_who_needs_it(monkeypatch):
    monkeypatch.setattr(base, "load", lambda name: Guess)
    monkeypatch.setattr(Guess, "__module__", "pipeline.methods.guess")
    assert [base.build("guess", {}, problem(given)).expected_positives for given in (1.5, 0.0)] == [1.5, 0.0]
    refused = r"expected_positives: has no entry for this dataset, and `guess` needs it"
    with pytest.raises(ConfigError, match=refused):
        base.build("guess", {}, problem(None))
    with pytest.raises(ConfigError, match=refused):
        _ = Guess(Strict(), problem(None)).expected_positives


def test_unmet_needs_are_named_and_the_density_is_not_the_networks_business():
    base.check_needs("guess", Guess, {"embeddings", "maps"})
    with pytest.raises(ConfigError, match=r"^guess: needs embeddings,"):
        base.check_needs("guess", Guess, {"maps"})


def test_own_parameters_become_a_group_and_none_becomes_no_group():
    method = Guess(Strict(), problem())
    (group,) = method.parameter_groups(0.5)
    assert group["lr"] == 0.5 and [p is method.guess for p in group["params"]] == [True]
    assert base.build("an", {"floor": 0.0}, problem()).parameter_groups(0.5) == []


def test_only_what_is_carried_crosses_stages():
    first, second = Guess(Strict(), problem()), Guess(Strict(), problem())
    torch.nn.init.ones_(first.guess)
    first.get_buffer("seen").fill_(7)
    first.begin_epoch(5, 9)
    second.inherit(first.state_dict())
    assert (second.guess == 1).all() and second.guess.requires_grad
    assert (second.get_buffer("seen") == 0).all() and second.epoch == 0
    with pytest.raises(ConfigError, match=r"Guess\.guess: needs shape \(3, 2\), found nothing"):
        second.inherit({})
    with pytest.raises(ConfigError, match=r"found \(1, 2\)"):
        second.inherit({"guess": torch.zeros(1, 2)})
    base.build("an", {"floor": 0.0}, problem()).inherit({})


def test_clock_is_state():
    method, other = Guess(Strict(), problem()), Guess(Strict(), problem())
    assert (method.epoch, method.epochs) == (0, 0)
    method.begin_epoch(3, 8)
    other.load_state_dict(method.state_dict())
    assert (other.epoch, other.epochs) == (3, 8)


def test_default_loss_is_the_mean_over_all_cells_of_the_first_view():
    method = Guess(Strict(), problem())
    logits = torch.tensor([[[0.0, 0.0]], [[9.0, 9.0]]], dtype=torch.float64)
    terms = method(Outputs(logits), torch.tensor([[1, 0]], dtype=torch.int8), torch.tensor([2]))
    assert list(terms) == ["risk"]
    assert terms["risk"].item() == pytest.approx(torch.log(torch.tensor(2.0)).item())


def test_call_leaves_autocast_and_promotes_every_output():
    seen = {}

    class Watch(Guess):
        def forward(self, outputs, observed, index):
            seen["autocast"] = torch.is_autocast_enabled("cpu")
            seen["dtypes"] = {value.dtype for value in vars(outputs).values() if value is not None}
            seen["product"] = (outputs.logits[0].T @ outputs.logits[0]).dtype
            return {}

    half = torch.zeros(1, 1, 2, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        Watch(Strict(), problem())(
            Outputs(half, features=half, embeddings=half), torch.zeros(1, 2, dtype=torch.int8), torch.tensor([0])
        )
    assert seen == {"autocast": False, "dtypes": {torch.float32}, "product": torch.float32}


class Bare:
    """A class without a schema of settings."""


@pytest.mark.parametrize(
    ("members", "reason"),
    [({}, "no `METHOD = <the class>` at its end"), ({"METHOD": Bare}, "the class has no `Settings = Settings`")],
)
def test_a_module_that_is_not_complete_is_named(monkeypatch: pytest.MonkeyPatch, members: Any, reason: str) -> None:
    monkeypatch.setattr(base, "import_module", lambda name: SimpleNamespace(**members))
    with pytest.raises(ConfigError, match=rf"^pipeline/methods/em\.py: {reason}"):
        base.load("em")
