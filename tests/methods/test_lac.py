"""LAC against golden numbers and against explicit loops over pairs."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pipeline.methods import lac
from pipeline.methods.shared.base import Method, build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from tests.methods.cases import close, double, golden

SETTINGS = [
    {
        "threshold": 0.6 if form == "code" else 0.9,
        "temperature": 0.5,
        "queue_size": size,
        "form": form,
        "wrap": wrap,
        "weight_plc": 1.0,
        "weight_lac": 0.5,
    }
    for size, form, wrap in [(7, "code", "published"), (7, "code", "ring"), (0, "code", "ring")]
    + [(9, "paper_a", "ring"), (9, "paper_b", "published"), (2, "paper_b", "ring")]
]

BLOCK = {
    "threshold": 0.6,
    "temperature": 0.5,
    "queue_size": 10,
    "form": "code",
    "wrap": "published",
    "weight_plc": 1.0,
    "weight_lac": 1.0,
}


def make(classes: int, **settings) -> Method:
    problem = Problem(99, ("",) * classes, torch.zeros(classes, dtype=torch.int64), None)
    return build("lac", {**BLOCK, **settings}, problem)


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    values = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return values / values.norm(dim=-1, keepdim=True)


def batch(labels: list[list[int]], seed: int = 0) -> tuple[Outputs, torch.Tensor]:
    """A batch whose entries are exactly the observed positives: the weak view is sure of nothing."""
    observed = torch.tensor(labels, dtype=torch.int8)
    embeddings = unit(2, *observed.shape, 3, seed=seed).requires_grad_()
    return Outputs(torch.zeros(2, *observed.shape, dtype=torch.float64), embeddings=embeddings), observed


def step(method: Method, given: tuple[Outputs, torch.Tensor]) -> torch.Tensor:
    outputs, observed = given
    return method(outputs, observed, torch.arange(len(observed)))["lac"]


def entries(given: tuple[Outputs, torch.Tensor]) -> list[tuple[int, list[list[float]]]]:
    """(class, [weak, strong]) of each entry in row-major order."""
    outputs, observed = given
    assert outputs.embeddings is not None
    return [(c, outputs.embeddings[:, i, c].tolist()) for i, c in observed.nonzero().tolist()]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def loop_contrast(filled: list[tuple[int, list[list[float]]]], temperature: float = 0.5) -> float:
    """The code's form: mean over anchors of the mean over positives, all views of all filled slots."""
    views = [(c, z) for c, pair in filled for z in pair]
    total = 0.0
    for i, (c, z) in enumerate(views):
        others = [(k, dot(z, w) / temperature) for j, (k, w) in enumerate(views) if j != i]
        normaliser = math.log(sum(math.exp(s) for _, s in others))
        positives = [s - normaliser for k, s in others if k == c]
        total -= sum(positives) / len(positives)
    return total / len(views)


# ---------------------------------------------------------------------------------------------- golden numbers
@pytest.mark.parametrize("wrap", ["published", "ring"])
@pytest.mark.parametrize("case", golden("lac_code"), ids=lambda case: case["name"])
def test_golden_sequence(case, wrap):
    settings = case["settings"]
    method = make(
        case["num_classes"],
        wrap=wrap,
        threshold=settings["threshold"],
        temperature=settings["temperature"],
        queue_size=settings["queue_size"],
        weight_plc=settings["lambda_plc"],
        weight_lac=settings["lambda_lac"],
    )
    for given in case["steps"]:
        expected = given["expected"]
        logits = double([given["logits"], given["logits_strong"]]).requires_grad_()
        embeddings = double([given["embeddings"], given["embeddings_strong"]]).requires_grad_()
        observed = torch.tensor(given["observed"], dtype=torch.int8)
        terms = method(Outputs(logits, embeddings=embeddings), observed, torch.arange(len(observed)))
        torch.stack(list(terms.values())).sum().backward()
        assert logits.grad is not None and embeddings.grad is not None
        assert list(terms) == ["an", "plc", "lac"]
        close(terms["an"], expected["an"])
        close(terms["plc"], expected["plc"])
        close(logits.grad, [expected["grad_logits"], expected["grad_logits_strong"]])
        state = expected["ring_buffer_variant"] if wrap == "ring" else expected
        prefix = "" if wrap == "ring" else "queue_"
        close(terms["lac"], state["lac"])
        if wrap == "published":
            close(embeddings.grad, [expected["grad_embeddings"], expected["grad_embeddings_strong"]])
        assert int(method.get_buffer("pointer")) == state["head" if wrap == "ring" else "queue_pointer"]
        assert method.get_buffer("queue_labels").tolist() == state[prefix + "labels"]
        for view, name in enumerate(("weak", "strong")):
            if prefix + f"first_coordinate_{name}" in state:  # the ring variant tells of the weak view only
                close(method.get_buffer("queue")[:, view, 0], state[prefix + f"first_coordinate_{name}"])


@pytest.mark.parametrize("case", golden("lac_paper"), ids=lambda case: case["name"])
def test_golden_paper_forms(case):
    """The entries are laid on a batch row by row: a class not above the one before starts a new image."""
    settings, expected = case["settings"], case["expected"]
    observed = torch.zeros(settings["batch"], settings["num_classes"], dtype=torch.int8)
    places, row, last = [], 0, -1
    for c in case["classes"]:
        row, last = (row, c) if c > last else (row + 1, c)
        observed[row, c] = 1
        places.append((row, c))
    rows, classes = torch.tensor(places).T
    embeddings = torch.zeros(2, *observed.shape, 3, dtype=torch.float64)
    embeddings[:, rows, classes] = double([case["embeddings"], case["embeddings_strong"]])
    embeddings.requires_grad_()
    size = len(case["queue_classes"])
    form = {"A": "paper_a", "B": "paper_b"}[settings["reading"]]
    method = make(settings["num_classes"], form=form, queue_size=size, temperature=settings["temperature"])
    if size:
        method.get_buffer("queue_labels").copy_(torch.tensor(case["queue_classes"]) + 1)
        method.queue = double([case["queue_weak"], case["queue_strong"]]).transpose(0, 1)
    logits = torch.zeros(2, *observed.shape, dtype=torch.float64)
    lac = method(Outputs(logits, embeddings=embeddings), observed, torch.arange(len(observed)))["lac"]
    lac.backward()
    close(lac, expected["loss"])
    assert embeddings.grad is not None
    close(embeddings.grad[:, rows, classes], [expected["grad_embeddings"], expected["grad_embeddings_strong"]])
    assert int((embeddings.grad != 0).any(-1).sum()) <= 2 * len(places)


# ---------------------------------------------------------------------------------------------- the queue
FULL = [[1, 1, 1, 0], [1, 1, 0, 1], [0, 1, 1, 1]]  # nine entries
FEW = [[1, 0, 0, 0], [0, 0, 1, 0]]  # two entries


@pytest.mark.parametrize("wrap", ["published", "ring"])
def test_batch_larger_than_the_queue_is_contrasted_whole_and_leaves_its_newest(wrap):
    method = make(4, queue_size=4, wrap=wrap)
    first, second = batch(FULL, seed=1), batch(FEW, seed=2)
    assert step(method, first).item() == pytest.approx(loop_contrast(entries(first)), rel=1e-12)
    kept = entries(first)[-4:]
    stored = zip(method.get_buffer("queue_labels").tolist(), method.get_buffer("queue").tolist(), strict=True)
    assert sorted((label - 1, pair) for label, pair in stored) == sorted(kept)
    # the next batch drives out two entries: the oldest of the ring, those at the start as published
    left = kept[2:]
    assert step(method, second).item() == pytest.approx(loop_contrast(left + entries(second)), rel=1e-12)


def test_batch_of_exactly_the_queue_fills_it():
    for wrap in ("published", "ring"):
        method = make(4, queue_size=9, wrap=wrap)
        given = batch(FULL, seed=1)
        step(method, given)
        assert method.get_buffer("queue_labels").tolist() == [c + 1 for c, _ in entries(given)]


def test_published_wrap_starts_over_where_a_batch_would_just_fit():
    method = make(4, queue_size=4)
    for seed in (1, 2):
        step(method, batch(FEW, seed=seed))
    assert method.get_buffer("queue_labels").tolist() == [1, 3, 0, 0]
    assert int(method.get_buffer("pointer")) == 2
    fresh = [pair for _, pair in entries(batch(FEW, seed=2))]
    close(method.get_buffer("queue")[:2], fresh)


def test_ring_replaces_the_oldest_entries_across_the_end():
    method = make(4, queue_size=5, wrap="ring")
    for seed in range(4):
        step(method, batch(FEW, seed=seed))
    newest = [entry for seed in range(4) for entry in entries(batch(FEW, seed=seed))][-5:]
    fresh = batch([[0, 1, 0, 0]], seed=9)
    assert step(method, fresh).item() == pytest.approx(loop_contrast(newest[1:] + entries(fresh)), rel=1e-12)


def test_without_a_queue_a_batch_is_contrasted_with_itself():
    method = make(4, queue_size=0)
    for seed in (1, 2):
        given = batch(FULL, seed=seed)
        assert step(method, given).item() == pytest.approx(loop_contrast(entries(given)), rel=1e-12)


@pytest.mark.parametrize("form", ["code", "paper_a", "paper_b"])
def test_gradient_reaches_the_batch_and_not_the_queue(form):
    method = make(4, form=form)
    first, second = batch(FULL, seed=1), batch(FEW, seed=2)
    step(method, first)
    step(method, second).backward()
    assert first[0].embeddings is not None and first[0].embeddings.grad is None
    assert second[0].embeddings is not None and second[0].embeddings.grad is not None
    touched = (second[0].embeddings.grad != 0).any(-1)
    assert torch.equal(touched.all(0), second[1] == 1)
    assert not method.get_buffer("queue").requires_grad


def test_eval_mode_contrasts_alike_and_does_not_remember():
    one, two = make(4), make(4)
    for method in (one, two):
        step(method, batch(FEW, seed=1))
    two.eval()
    before = {name: value.clone() for name, value in two.state_dict().items()}
    assert step(one, batch(FULL, seed=2)).item() == step(two, batch(FULL, seed=2)).item()
    assert all(torch.equal(before[name], value) for name, value in two.state_dict().items())


def test_queue_keeps_to_the_width_it_has_seen():
    method = make(4)
    step(method, batch(FEW))
    outputs, observed = batch(FEW)
    with pytest.raises(ValueError, match="width 7 meet a queue of width 3"):
        method(Outputs(outputs.logits, embeddings=unit(2, 2, 4, 7)), observed, torch.arange(2))
    other = make(4, queue_size=3)
    with pytest.raises(RuntimeError, match="queue"):
        other.load_state_dict(method.state_dict())


# ---------------------------------------------------------------------------------------------- small batches
@pytest.mark.parametrize("form", ["code", "paper_a", "paper_b"])
@pytest.mark.parametrize("queue_size", [0, 10])
def test_no_entry_gives_zero_with_its_graph(form, queue_size):
    method = make(4, form=form, queue_size=queue_size)
    for earlier in (None, batch(FULL)):
        if earlier:
            step(method, earlier)
        given = batch([[0, 0, 0, 0]])
        lac = step(method, given)
        lac.backward()
        assert lac.item() == 0
        assert given[0].embeddings is not None and given[0].embeddings.grad is not None
        assert not given[0].embeddings.grad.any()


@pytest.mark.parametrize("form", ["code", "paper_a", "paper_b"])
def test_single_entry_has_only_its_other_view_and_costs_nothing(form):
    """Code: the one contrast is the positive, log 1. Paper: there is no other class to meet."""
    given = batch([[0, 1, 0, 0]])
    lac = step(make(4, form=form), given)
    lac.backward()
    assert lac.item() == pytest.approx(0, abs=1e-15)
    assert given[0].embeddings is not None and given[0].embeddings.grad is not None
    torch.testing.assert_close(given[0].embeddings.grad, torch.zeros(2, 1, 4, 3).double(), rtol=0, atol=1e-15)


def test_two_entries_of_one_class_share_a_denominator_of_three():
    given = batch([[1], [1]])
    assert step(make(1), given).item() == pytest.approx(loop_contrast(entries(given)), rel=1e-12)
    identical = unit(1, 1, 1, 3).expand(2, 2, 1, 3)
    same = Outputs(given[0].logits, embeddings=identical)
    assert step(make(1), (same, given[1])).item() == pytest.approx(math.log(3), rel=1e-12)


@pytest.mark.parametrize("form", ["paper_a", "paper_b"])
def test_anchors_that_meet_no_other_class_give_zero(form):
    given = batch([[1], [1], [1]])
    lac = step(make(1, form=form), given)
    lac.backward()
    assert lac.item() == 0
    assert given[0].embeddings is not None and given[0].embeddings.grad is not None
    assert not given[0].embeddings.grad.any()


def test_sure_present_cells_are_entries_and_sure_absent_or_known_absent_ones_are_not():
    method = make(4)
    outputs, _ = batch([[0, 0, 0, 0]])
    logits = double([[0.3, 2.0, -2.0, 9.0]]).expand(2, 1, 4)
    observed = torch.tensor([[1, 0, 0, -1]], dtype=torch.int8)
    method(Outputs(logits, embeddings=outputs.embeddings), observed, torch.tensor([0]))
    assert method.get_buffer("queue_labels").tolist() == [1, 2] + [0] * 8


# ---------------------------------------------------------------------------------------------- memory
class Largest(TorchDispatchMode):
    """The most elements of any tensor that is made, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else [made]:
            if isinstance(each, torch.Tensor):
                self.elements = max(self.elements, each.numel())
        return made


@pytest.mark.parametrize("form", ["code", "paper_a", "paper_b"])
def test_the_contrast_in_parts_is_the_whole_one_in_bounded_memory(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = (torch.rand(6, 20, generator=torch.Generator().manual_seed(1)) < 0.5).int().tolist()
    found, largest = [], []
    for pairs in (1 << 22, 500, 1):  # all at once, some rows, row by row
        monkeypatch.setattr(lac, "PAIRS", pairs)
        method = make(20, form=form, queue_size=200, wrap="ring")
        step(method, batch(labels, seed=1))  # its entries are in the queue then
        given = batch(labels, seed=2)
        assert given[0].embeddings is not None
        with Largest() as mode:
            loss = step(method, given)
            loss.backward()
        found.append((loss.detach(), given[0].embeddings.grad))
        largest.append(mode.elements)
    entries = sum(map(sum, labels))
    anchors = {"code": 2 * (2 * entries), "paper_a": 2 * entries, "paper_b": entries}[form]
    contrasts = (2 * entries) * (1 if form == "paper_b" else 2)
    assert largest[0] >= anchors * contrasts and largest[1] <= 1200 < anchors * contrasts / 4
    for loss, gradient in found[1:]:
        torch.testing.assert_close(loss, found[0][0], rtol=1e-12, atol=0)
        torch.testing.assert_close(gradient, found[0][1], rtol=1e-10, atol=1e-14)
