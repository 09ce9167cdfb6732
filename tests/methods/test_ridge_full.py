import torch

from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

SETTINGS = [{}]


def test_it_is_full_labels_without_smoothing():
    problem = Problem(4, ("a", "b", "c"), torch.tensor([2, 1, 1]), None)
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(1, 4, 3, generator=generator, dtype=torch.float64)
    observed = torch.tensor([[1, -1, 0], [-1, -1, 1], [1, 1, 1], [-1, 0, -1]], dtype=torch.int8)
    rows = torch.arange(4)
    own = build("ridge_full", {}, problem)(Outputs(logits), observed, rows)["risk"]
    full = build("full", {"smoothing": 0.0, "floor": 0.0}, problem)(Outputs(logits), observed, rows)["risk"]
    torch.testing.assert_close(own, full)
