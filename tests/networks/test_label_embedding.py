from typing import Any

import torch
from torch import nn

from pipeline.networks.label_embedding import LabelEmbeddingHead
from pipeline.networks.label_transformer import LabelClassifier, LabelTransformer
from tests.networks.test_label_transformer import SIZES, affine, maps, reference


def make(classes: int = 3, **sizes: Any) -> LabelEmbeddingHead:
    torch.manual_seed(0)
    return LabelEmbeddingHead(8, classes, embedding=5, **{**SIZES, **sizes}).double().eval()


def test_logits_and_embeddings_are_those_of_the_label_vectors():
    head = make(dim=4)
    answer = head(maps(), None)
    assert list(answer) == ["logits", "embeddings"]
    labels = reference(head.transformer, maps())
    state = {name: value.detach() for name, value in head.state_dict().items()}
    logits = torch.einsum("bcd,cd->bc", labels, state["classifier.weight"]) + state["classifier.bias"]
    projected = affine(state, "project.2", affine(state, "project.0", labels).clamp(min=0))
    expected = projected / projected.norm(dim=-1, keepdim=True)
    torch.testing.assert_close(answer["logits"], logits, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(answer["embeddings"], expected, rtol=1e-10, atol=1e-12)


def test_shapes_and_unit_length():
    answer = make(classes=7)(maps(3, 8, 2, 5), None)
    assert answer["logits"].shape == (3, 7) and answer["embeddings"].shape == (3, 7, 5)
    norms = answer["embeddings"].norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones_like(norms))


def test_pooled_features_are_handed_through():
    pooled = torch.ones(2, 8)
    assert make()(maps(), pooled)["features"] is pooled


def test_a_seed_gives_transformer_classifier_and_projection_in_this_order():
    """A trained network of a seed is the same one after the parts have moved."""
    head = make(dim=4).float()
    torch.manual_seed(0)
    parts = [LabelTransformer(8, 3, **{**SIZES, "dim": 4}), LabelClassifier(3, 4)]
    parts += [nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 5))]
    for own, alone in zip((head.transformer, head.classifier, head.project), parts, strict=True):
        expected = alone.state_dict()
        assert own.state_dict().keys() == expected.keys()
        assert all(torch.equal(value, expected[name]) for name, value in own.state_dict().items())


def test_published_size():
    """About 175 M parameters with a ResNet-50, whose 23.5 M are not here."""
    sizes = {"dim": None, "heads": 4, "feedforward": 8192, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.1}
    with torch.device("meta"):
        head = LabelEmbeddingHead(2048, 80, embedding=128, **sizes)
    layer = 4 * (2048 * 2048 + 2048) + 2 * 2048 * 8192 + 8192 + 2048 + 2 * 2 * 2048
    rest = 2 * 2048 + 80 * (2 * 2048 + 1) + 2048 * 2048 + 2048 + 2048 * 128 + 128
    assert sum(parameter.numel() for parameter in head.parameters()) == 3 * layer + rest


def test_first_stage_leaves_the_projection_at_its_seeded_start():
    """No loss on the embeddings, no gradient, no weight decay: the second stage starts from the same random values."""
    head = make().train()
    before = {name: value.clone() for name, value in head.state_dict().items()}
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(2):
        optimizer.zero_grad()
        head(maps(), None)["logits"].square().sum().backward()
        optimizer.step()
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith("project."), name


def test_every_parameter_has_a_gradient_once_embeddings_count():
    head = make(dim=4).train()
    answer = head(maps(), None)
    (answer["logits"].square().sum() + answer["embeddings"][..., 0].sum()).backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None and torch.isfinite(parameter.grad).all() and parameter.grad.any(), name


def test_embeddings_leave_autocast_in_float32():
    head = make().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = head(maps().float(), None)
    assert answer["embeddings"].dtype == torch.float32
    torch.testing.assert_close(answer["embeddings"].norm(dim=-1), torch.ones(2, 3), rtol=1e-5, atol=0)
