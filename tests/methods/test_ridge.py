import torch

from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs

SETTINGS = [{}]


def test_hidden_labels_are_charged_towards_what_is_believed_of_their_image():
    believed = torch.tensor([[0.9, 0.2, 0.5], [0.1, 0.6, 0.3]])
    method = build("ridge", {}, Problem(2, ("a", "b", "c"), torch.tensor([1, 0, 0]), None, beliefs=believed))
    logits = torch.tensor([[0.4, -1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    observed = torch.tensor([[1, 0, -1]], dtype=torch.int8)
    method(Outputs(logits[None]), observed, torch.tensor([1]))["risk"].backward()  # the second image
    p = torch.sigmoid(logits.detach())
    expected = torch.stack([p[0, 0] - 1, p[0, 1] - believed[1, 1].double(), p[0, 2]]) / 3
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad[0], expected)
