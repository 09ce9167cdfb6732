import math

import torch

from pipeline.methods.shared.large_losses import large_losses


def test_large_losses_are_counted_exactly_or_as_the_authors_do():
    """Five steps of 0.005 of 320 cells are 8; the floats' running difference says a little more."""
    logits = torch.linspace(-1, 1, 320, dtype=torch.float64).view(16, 20)
    everything = torch.ones(16, 20, dtype=torch.bool)
    assert math.ceil(320 * (1 - (1 - 0.005 - 0.005 - 0.005 - 0.005 - 0.005))) == 9
    exact = large_losses(logits, everything, 0.005, 5, "exact")
    running = large_losses(logits, everything, 0.005, 5, "running")
    assert exact.flatten().nonzero().flatten().tolist() == list(range(312, 320))
    assert running.flatten().nonzero().flatten().tolist() == list(range(311, 320))


def test_large_losses_are_ranked_among_unknown_cells_with_ties():
    logits = torch.tensor([[2.0, 5.0, 2.0], [-1.0, 2.0, 3.0]])
    unknown = torch.tensor([[True, False, True], [True, False, True]])
    found = [large_losses(logits, unknown, 1 / 6, steps, "exact").tolist() for steps in range(7)]
    top = [[False, False, False], [False, False, True]]
    tied = [[True, False, True], [False, False, True]]
    assert found == [[[False] * 3] * 2, top, tied, tied] + [unknown.tolist()] * 3
    assert not large_losses(logits, torch.zeros(2, 3, dtype=torch.bool), 1.0, 1, "exact").any()
