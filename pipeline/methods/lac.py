"""LAC: PLC plus label-wise contrast with queue.

loss = AN(weak) + weight_plc * PLC + weight_lac * LAC. Entries are cells that are observed present or that the weak view
is sure are present; each gives the embedding z of both views. With s_ij = z_i . z_j / temperature and P(i) the other
embeddings of i's class:
code: mean over anchors i, both views of the batch's entries and of the queue once they are in it, of
    the mean over P(i) of -(s_ij - log sum of exp s_ik over all k but i);
paper_a, paper_b (Eq. 7): 1/(B C) of the sum over the batch's anchors i and over P(i) of
    -(s_ij - log sum of exp s_ik over all k of another class). An anchor that meets no other class gives 0.
    paper_a: both views are anchors and contrasts. paper_b: weak views are anchors and contrasts, and the partner of an
    entry with itself is its strong view. Both readings are guesses; the queue is as it was before the batch.
Source: Xie et al., "Label-Aware Global Consistency for Multi-Label Learning with Single Positive Labels", NeurIPS 2022,
Eq. 2 and 4-7.
Authors' code: milkxie/SPML-LAC @a630052, second_stage.py and lib/utils/lacloss.py.
Published: COCO threshold 0.9, temperature 0.5, queue_size 512; elsewhere unpublished (searched: threshold 0.5 to 0.9,
temperature 0.1 to 2, queue_size 512 to 8192); both weights 1; form code, wrap published.
Differs: images are normalised as the backbone's pretraining did; theirs are not.
Differs: a batch with more entries than the queue has slots is contrasted whole and the queue keeps the newest; theirs
fails. A batch without entries gives 0.
Differs: in eval mode the loss is the same, but the queue is not written.
Guess: both views go through one forward pass, so that batch norm, where it is trained, takes its statistics of the two
together; the published recipe freezes it.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from pipeline.core.strict import Strict
from pipeline.methods.shared.base import Method
from pipeline.methods.shared.cells import Cells, assume_negative
from pipeline.methods.shared.consistency import confident, confident_labels, consistency, consistency_cells
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

PAIRS = 1 << 22
"""Pairs of anchor and contrast that are held at a time: some 100 MB in all, whatever the batch, classes and queue."""


class Settings(Strict):
    """Settings of LAC."""

    threshold: Annotated[float, Field(ge=0.5, le=1)]
    """Probability from which the weak view is sure of a label."""
    temperature: Annotated[float, Field(gt=0)]
    """Divisor of the inner products of unit embeddings."""
    queue_size: Annotated[int, Field(ge=0)]
    """Entries, of two embeddings each, that the queue remembers; 0: contrast within the batch only."""
    form: Literal["code", "paper_a", "paper_b"]
    """Which contrast; with ``code`` the PLC term has its code form too, else its paper form."""
    wrap: Literal["published", "ring"]
    """``ring``: the oldest entries go first. ``published``: a batch that does not fit behind the pointer, or just fits,
    is written from the start, so that the entries at the end stay until some batch reaches them."""
    weight_plc: Annotated[float, Field(ge=0)]
    """Weight of the consistency term."""
    weight_lac: Annotated[float, Field(ge=0)]
    """Weight of the contrast."""


class LabelAwareConsistency(Method):
    """PLC plus contrast of label embeddings.

    `queue` (K, 2, E) holds both views of each entry, `queue_labels` (K,) its class + 1 or 0 for an empty slot, and
    `pointer` the next slot. E is the network's: it is 0 until the first batch, or until a state is loaded.
    """

    Settings = Settings
    views = ("weak", "strong")
    needs = {"embeddings"}
    coupled = True

    queue: Tensor
    queue_labels: Tensor
    pointer: Tensor

    def __init__(self, settings: Settings, problem: Problem):
        super().__init__(settings, problem)
        self.register_buffer("queue", torch.zeros(settings.queue_size, 2, 0, dtype=torch.get_default_dtype()))
        self.register_buffer("queue_labels", torch.zeros(settings.queue_size, dtype=torch.int64))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.int64))

    @property
    def _consistency_form(self) -> Literal["code", "paper"]:
        return "code" if self.settings.form == "code" else "paper"

    def cells(self, logits: Tensor, observed: Tensor, index: Tensor) -> Cells:
        """Return the consistency term's cells at weak logits; arguments as in `Method.cells`."""
        return consistency_cells(logits, observed, self.settings.threshold, self._consistency_form)

    def pseudo_labels(self, logits: Tensor, observed: Tensor, index: Tensor) -> Tensor:
        """Return the labels that these logits are sure of; arguments as in `Method.pseudo_labels`."""
        return confident_labels(logits, observed, self.settings.threshold, self._consistency_form)

    def forward(self, outputs: Outputs, observed: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Return `an`, `plc` and `lac`, and remember the batch's entries while training.

        Args:
            outputs: Logits and embeddings of the weak and the strong view.
            observed: (B, C) int8 labels.
            index: (B,) int64 rows of the training split.

        Returns:
            The three weighted terms.

        Raises:
            ValueError: The embeddings are missing, or of another width than the queue's.
        """
        if outputs.embeddings is None:
            raise ValueError("lac needs label embeddings")
        width = outputs.embeddings.shape[-1]
        if self.queue.shape[-1] not in (0, width):
            raise ValueError(f"embeddings of width {width} meet a queue of width {self.queue.shape[-1]}")
        weak, strong = outputs.logits
        threshold, form = self.settings.threshold, self._consistency_form
        entries = confident(weak, observed, threshold, form)[0] | (observed == 1)
        rows, classes = entries.nonzero(as_tuple=True)
        current = outputs.embeddings[:, rows, classes].transpose(0, 1)  # (n, 2, E)
        lac = self._contrast(current, classes + 1) / (observed.numel() if form == "paper" else 1)
        return {
            "an": assume_negative(weak, observed).mean(),
            "plc": self.settings.weight_plc * consistency(weak, strong, observed, threshold, form),
            "lac": self.settings.weight_lac * lac,
        }

    def _contrast(self, current: Tensor, labels: Tensor) -> Tensor:
        """Return the contrast of (n, 2, E) embeddings, in the paper's forms as a sum; while training, remember them."""
        slots, pointer = self._slots(len(labels))
        if self.queue.shape[-1] == 0 and self.training:
            self.queue = current.new_zeros(len(self.queue), *current.shape[1:])
        kept = self.queue_labels > 0
        if self.settings.form == "code":
            kept[slots] = False  # the authors write first, and contrast what is in the queue then
        memory, memory_labels = self.queue[kept], self.queue_labels[kept]  # copies: the queue may be written below
        if memory.shape[-1] == 0:
            memory = current.new_zeros(0, *current.shape[1:])
        if self.training:
            written = len(labels) - len(slots)
            self.queue[slots] = current.detach()[written:].to(self.queue.dtype)
            self.queue_labels[slots] = labels[written:]
            self.pointer.fill_(pointer)
        if len(labels) == 0:
            return current.sum()  # 0, with its graph
        if self.settings.form == "paper_b":
            return self._weak_contrast(current, labels, memory, memory_labels)
        return self._both_views_contrast(current, labels, memory, memory_labels)

    def _slots(self, n: int) -> tuple[Tensor, int]:
        """Return the slots that the newest min(n, K) of n entries go to, and the pointer after them."""
        size, start = len(self.queue), int(self.pointer)
        fits = min(n, size)
        places = torch.arange(fits, device=self.queue.device)
        if self.settings.wrap == "published":
            start = 0 if start + n >= size else start
            return start + places, start + fits
        return (start + n - fits + places) % max(size, 1), (start + n) % max(size, 1)

    def _both_views_contrast(self, current: Tensor, labels: Tensor, memory: Tensor, memory_labels: Tensor) -> Tensor:
        n = 2 * len(labels)
        z = torch.cat([current, memory.to(current.dtype)]).flatten(0, 1)  # (2 (n + m), E), the batch's 2 n first
        classes = torch.cat([labels, memory_labels]).repeat_interleave(2)
        code = self.settings.form == "code"

        place = torch.arange(len(z), device=z.device)

        def of(rows: slice, z: Tensor) -> Tensor:
            similarity = z[rows] @ z.T / self.settings.temperature
            same = classes[rows, None] == classes
            other = place[rows, None] != place
            sums = _log_ratios(similarity, same & other, other if code else ~same)
            return sums / (same & other).sum(1) if code else sums

        if code:
            return -_by_rows(of, len(z), z).mean()
        return -_by_rows(of, n, z).sum()

    def _weak_contrast(self, current: Tensor, labels: Tensor, memory: Tensor, memory_labels: Tensor) -> Tensor:
        weak, strong = current.unbind(1)
        contrasts = torch.cat([weak, memory[:, 0].to(weak.dtype)])  # (n + m, E)
        classes = torch.cat([labels, memory_labels])
        place = torch.arange(len(contrasts), device=weak.device)

        def of(rows: slice, weak: Tensor, strong: Tensor, contrasts: Tensor) -> Tensor:
            own = (weak[rows] * strong[rows]).sum(1, keepdim=True)
            products = torch.where(place[rows, None] == place, own, weak[rows] @ contrasts.T)
            same = classes[rows, None] == classes
            return _log_ratios(products / self.settings.temperature, same, ~same)

        return -_by_rows(of, len(weak), weak, strong, contrasts).sum()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        stored = state_dict.get(prefix + "queue")
        if stored is not None and self.queue.shape[-1] == 0:
            self.queue = self.queue.new_zeros(*self.queue.shape[:2], stored.shape[-1], dtype=stored.dtype)
        super()._load_from_state_dict(state_dict, prefix, *args)


class _Recomputed(torch.autograd.Function):
    """Values of parts of the anchors, of which nothing is kept: each part is computed again for its gradient.

    As torch.utils.checkpoint, which imports a compiler of 200 MB with it.
    """

    @staticmethod
    def forward(ctx: Any, of: Callable[..., Tensor], parts: list[slice], *embeddings: Tensor) -> Tensor:
        """Return the values of all parts, one after the other."""
        ctx.of, ctx.parts = of, parts
        ctx.save_for_backward(*embeddings)
        return torch.cat([of(rows, *embeddings) for rows in parts])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of the embeddings."""
        embeddings = [each.detach().requires_grad_() for each in ctx.saved_tensors]
        for rows in ctx.parts:
            with torch.enable_grad():
                values = ctx.of(rows, *embeddings)
            values.backward(gradients[0][rows])
        return None, None, *(each.grad for each in embeddings)


def _by_rows(of: Callable[..., Tensor], anchors: int, *embeddings: Tensor) -> Tensor:
    """Return (A,) values of the anchors, so many at a time as have `PAIRS` pairs with the last embeddings."""
    size = max(1, PAIRS // len(embeddings[-1]))
    if anchors <= size:
        return of(slice(0, anchors), *embeddings)
    parts = [slice(start, min(start + size, anchors)) for start in range(0, anchors, size)]
    result: Any = _Recomputed.apply(of, parts, *embeddings)
    return result


def _log_ratios(similarity: Tensor, positives: Tensor, contrasts: Tensor) -> Tensor:
    """Return (A,) sums over each anchor's positives of s - log sum exp s over its contrasts; 0 without contrasts."""
    met = contrasts.any(1)
    # a row without contrasts gets a finite stand-in: the gradient of a log-sum-exp of nothing is not a number
    total = similarity.masked_fill(~contrasts & met[:, None], -torch.inf).logsumexp(1, keepdim=True)
    return torch.where(positives & met[:, None], similarity - total, 0).sum(1)


METHOD = LabelAwareConsistency
