"""The bottleneck head: what it computes without noise in full, its noise by moments."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pipeline.networks.bottleneck import BottleneckHead, log_deviation
from pipeline.networks.label_transformer import LabelClassifier, LabelTransformer
from tests.methods.cases import close, double, golden
from tests.networks.test_label_transformer import SIZES, affine, maps, reference

LATENT = 4


def make(classes: int = 3, samples: int = 10, **sizes: Any) -> BottleneckHead:
    torch.manual_seed(0)
    head = BottleneckHead(8, classes, latent=LATENT, samples=samples, **{**SIZES, "dropout": 0.0, **sizes})
    return head.double().eval()


def statistics(head: BottleneckHead, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and raw scale, from the label vectors' transcription."""
    state = {name: value.detach() for name, value in head.state_dict().items()}
    hidden = affine(state, "project.0", reference(head.transformer, x)).clamp(min=0)
    both = affine(state, "project.2", hidden)
    return both[..., :LATENT], both[..., LATENT:]


def test_evaluation_takes_the_mean():
    head = make(dim=4)
    answer = head(maps(), None)
    assert list(answer) == ["logits", "posterior"]
    mean, raw = statistics(head, maps())
    weight, bias = head.classifier.weight.detach(), head.classifier.bias.detach()
    torch.testing.assert_close(answer["posterior"][..., 0, :], mean, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(answer["posterior"][..., 1, :], raw, rtol=1e-10, atol=1e-12)
    expected = torch.einsum("bcd,cd->bc", mean, weight) + bias
    torch.testing.assert_close(answer["logits"], expected, rtol=1e-10, atol=1e-12)
    assert torch.equal(answer["logits"], head(maps(), None)["logits"])


@pytest.mark.parametrize("samples", [1, 10])
def test_training_logits_are_distributed_as_a_mean_of_samples(samples):
    """Expectation that of evaluation, variance sum w^2 std^2 / samples, labels independent."""
    head = make(samples=samples)
    with torch.no_grad():
        expected, posterior = head(maps(), None).values()
        deviation = (posterior[..., 1, :] / 2).clamp(-6, 6).exp()
        variance = (head.classifier.weight.square() * deviation.square()).sum(-1) / samples
        head.train()
        copies = 20_000
        head.transformer.register_forward_hook(lambda *_: kept.expand(copies, -1, -1, -1).flatten(0, 1))
        kept = make().transformer(maps())
        drawn = head(maps(), None)["logits"].unflatten(0, (copies, 2))
    standard = ((drawn - expected) / variance.sqrt()).flatten(1)  # (copies, B*C)
    assert standard.mean(0).abs().max() < 4 / math.sqrt(copies)
    covariance = standard.T @ standard / copies
    torch.testing.assert_close(covariance, torch.eye(6, dtype=torch.float64), rtol=0, atol=6 / math.sqrt(copies))


def test_noise_comes_from_the_global_stream_in_training_only():
    head = make()
    torch.manual_seed(3)
    state = torch.get_rng_state()
    head(maps(), None)
    assert torch.equal(torch.get_rng_state(), state)
    head.train()
    first, second = head(maps(), None)["logits"], head(maps(), None)["logits"]
    torch.manual_seed(3)
    assert torch.equal(first, head(maps(), None)["logits"]) and not torch.equal(first, second)


@pytest.mark.parametrize("case", golden("mime")[:8], ids=lambda case: case["name"])
def test_golden_deviation(case):
    close(log_deviation(double(case["raw_scale"])).exp(), case["expected"]["std"])


def test_deviation_is_clamped_on_both_sides():
    close(log_deviation(double([-40, -12, 0, 5, 12, 40])), [-6, -6, 0, 2.5, 6, 6])


def test_every_parameter_has_a_gradient_in_training():
    head = make(dim=4).train()
    answer = head(maps(), None)
    answer["logits"].square().sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all() and parameter.grad.any(), name


def test_a_seed_gives_transformer_projection_and_classifier_in_this_order():
    head = make(dim=4).float()
    torch.manual_seed(0)
    parts = [LabelTransformer(8, 3, **{**SIZES, "dim": 4})]
    parts += [nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2 * LATENT)), LabelClassifier(3, LATENT)]
    for own, alone in zip((head.transformer, head.project, head.classifier), parts, strict=True):
        assert all(torch.equal(value, alone.state_dict()[name]) for name, value in own.state_dict().items())


def test_posterior_leaves_autocast_in_float32():
    head = make().float().train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = head(maps().float(), torch.ones(2, 8))
    assert {value.dtype for value in answer.values()} == {torch.float32}
    assert answer["posterior"].shape == (2, 3, 2, LATENT) and answer["features"].shape == (2, 8)


def test_pooled_features_alone_are_refused():
    with pytest.raises(ValueError, match="feature maps"):
        make()(None, torch.zeros(1, 8))
