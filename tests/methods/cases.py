"""Problems, batches and settings that every method is tried on."""

import json
import tempfile
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.config.params import method_file, read_params
from pipeline.methods.shared.base import Method, build, names
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

ROOT = Path(__file__).resolve().parents[2]
N, B, C, D, E = 12, 4, 5, 6, 3


def method_cases() -> list[Any]:
    """(name, settings) for every method in the folder: SETTINGS of its test file, else those of its params."""
    cases = []
    for name in names():
        own = ROOT / "tests" / "methods" / f"test_{name}.py"
        variants = getattr(import_module(f"tests.methods.test_{name}"), "SETTINGS", None) if own.is_file() else None
        if not variants and (ROOT / method_file(name)).is_file():
            variants = [read_params(ROOT / "params.yaml", name).method(name, "digits")]
        cases += [(name, variant) for variant in variants or []]
    return cases


def case_id(case: tuple[str, dict[str, Any]]) -> str:
    return "-".join([case[0], *(str(value) for value in case[1].values())])


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def single_positives(rows: int, seed: int = 0) -> Tensor:
    """One positive a row, nothing else known."""
    observed = torch.zeros(rows, C, dtype=torch.int8)
    observed[torch.arange(rows), torch.randint(C, (rows,), generator=generator(seed))] = 1
    return observed


def any_labels(rows: int, seed: int = 0) -> Tensor:
    """Several positives and known absences in most rows; then one row with all, one with nothing and one with a single
    label."""
    drawn = torch.rand(rows, C, generator=generator(seed))
    observed = (drawn < 0.4).to(torch.int8) - (drawn > 0.8).to(torch.int8)
    observed[0] = torch.tensor([1, -1, -1, 1, -1])
    observed[1] = 0
    observed[2] = torch.tensor([0, 0, 1, 0, 0])
    return observed


@dataclass(frozen=True)
class Batch:
    """Logits of three views, labels and rows of one batch."""

    name: str
    logits: Tensor
    observed: Tensor
    index: Tensor
    scale: float = 1.0
    """Of what else a network answers, where it has no unit length."""


def batches(dtype: torch.dtype = torch.float64) -> list[Batch]:
    """Every kind of batch that a method must bear."""
    logits = 3 * torch.randn(3, B, C, generator=generator(1), dtype=torch.float64)
    ordinary = single_positives(B)
    several = ordinary.clone()
    several[0] = torch.tensor([1, 1, 0, -1, 0])
    several[1] = 0
    pairs = ((torch.arange(C) - torch.arange(B)[:, None]) % C < 2).to(torch.int8)
    beside = torch.where((ordinary == 0) & (torch.arange(C) % 2 == 0), -1, ordinary).to(torch.int8)
    known = torch.where(torch.rand(B, C, generator=generator(2)) < 0.4, 1, -1).to(torch.int8)
    far = torch.where(torch.rand(3, B, C, generator=generator(3)) < 0.5, 120.0, -120.0).to(torch.float64)
    index = torch.tensor([7, 0, 11, 3])
    made = [
        Batch("ordinary", logits, ordinary, index),
        Batch("several, none, known negatives", logits, several, index),
        Batch("one image", logits[:, :1], ordinary[:1], index[:1]),
        Batch("one image, nothing known", logits[:, :1], torch.zeros(1, C, dtype=torch.int8), index[:1]),
        Batch("all known", logits, known, index),
        Batch("none known", logits, torch.zeros(B, C, dtype=torch.int8), index),
        Batch("all positive", logits, torch.ones(B, C, dtype=torch.int8), index),
        Batch("zero logits", torch.zeros_like(logits), ordinary, index),
        Batch("far logits", far, ordinary, index, scale=100),
        Batch("far negative, none known", -far.abs(), torch.zeros(B, C, dtype=torch.int8), index, scale=100),
        Batch("two positives, or one beside known negatives", logits, torch.cat([pairs[:2], beside[2:]]), index),
    ]
    return [replace(batch, logits=batch.logits.to(dtype)) for batch in made]


def problem() -> Problem:
    return Problem(
        n=N,
        classes=tuple(f"class {c}" for c in range(C)),
        observed_counts=single_positives(N).sum(0, dtype=torch.int64),
        expected_positives=1.5,
        width=D,
        beliefs=torch.rand(N, C, generator=generator(7)),
    )


def make(
    name: str,
    settings: dict[str, Any],
    dtype: torch.dtype = torch.float64,
    folder: Path | None = None,
    stepped: bool = True,
) -> Method:
    """A method with its float state in ``dtype``, in the third of four epochs, having seen what it asks to see.

    Unless ``stepped`` is false, it has charged a batch in each epoch, of all rows but the last. What it keeps on disk
    lies in ``folder``, or in a new one.
    """
    torch.manual_seed(0)
    method = build(name, settings, problem()).to(dtype)
    method.begin_training(single_positives(N))
    if "disk" in method.needs:
        method.open_disk(folder or Path(tempfile.mkdtemp()))
    for epoch in (1, 2):
        method.begin_epoch(epoch, 4)
        if stepped:
            logits = 3 * torch.randn(len(method.views), N - 1, C, generator=generator(20 + epoch), dtype=torch.float64)
            given = outputs(method, logits.to(dtype), seed=epoch, requires_grad=False)
            with torch.no_grad():
                method(given, single_positives(N)[:-1], torch.arange(N - 1))
        if "epoch_logits" in method.needs:
            logits = torch.randn(N, C, generator=generator(10 + epoch), dtype=dtype)
            method.end_epoch(logits, single_positives(N))
        method.flush()
    method.begin_epoch(3, 4)
    return method


def outputs(method: Method, logits: Tensor, seed: int = 0, requires_grad: bool = True, scale: float = 1.0) -> Outputs:
    """What a network would answer: the given logits of the method's views, and all that it needs, as leaves."""
    views, (rows, classes) = len(method.views), logits.shape[1:]

    def leaf(*shape: int) -> Tensor:
        values = scale * torch.randn(views, rows, *shape, generator=generator(seed), dtype=torch.float64)
        return values.to(logits.dtype)

    given: dict[str, Tensor] = {"logits": logits[:views].clone()}
    shapes = {"features": (D,), "embeddings": (classes, E), "maps": (classes, 2, 2), "posterior": (classes, 2, E)}
    for name, shape in shapes.items():
        if name in method.needs:
            given[name] = leaf(*shape)
    if "embeddings" in given:
        given["embeddings"] = torch.nn.functional.normalize(given["embeddings"].double(), dim=-1).to(logits.dtype)
    for value in given.values():
        value.requires_grad_(requires_grad)
    if "geometry" in method.needs:
        given["geometry"] = torch.tensor([0.0, 0, 1, 1, 0], dtype=logits.dtype).expand(views, rows, 5)
    parameters = None
    if "parameters" in method.needs:
        drawn = [torch.randn(*shape, generator=generator(seed), dtype=torch.float64) for shape in ((3, 2), (2, 1, 2))]
        parameters = tuple(value.to(logits.dtype).requires_grad_(requires_grad) for value in drawn)
    return Outputs(**given, parameters=parameters)


def loss(method: Method, answer: Outputs, batch: Batch) -> Tensor:
    return torch.stack(list(method(answer, batch.observed, batch.index).values())).sum()


def golden(name: str) -> list[dict[str, Any]]:
    """The cases of one file of golden numbers."""
    return json.loads((ROOT / "tests" / "goldens" / f"{name}.json").read_text(encoding="utf-8"))["cases"]


def double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(actual: Tensor | None, expected: Any) -> None:
    """As near as the goldens ask, also where they are tiny: 1e-9 relative."""
    assert actual is not None
    torch.testing.assert_close(actual.detach(), double(expected), rtol=1e-9, atol=1e-16)


def check_golden(name: str, case: dict[str, Any], settings: dict[str, Any], observed: Tensor) -> None:
    """Loss and logit gradient of a method without state, on one golden case."""
    logits = double(case["logits"]).unsqueeze(0).requires_grad_()
    rows, classes = observed.shape
    method = build(name, settings, Problem(rows, ("",) * classes, observed.sum(0), None))
    terms = method(Outputs(logits), observed, torch.arange(rows))
    assert list(terms) == ["risk"]
    terms["risk"].backward()
    close(terms["risk"], case["expected"]["loss"])
    assert logits.grad is not None
    close(logits.grad[0], case["expected"]["grad_logits"])
