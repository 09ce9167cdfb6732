"""The label-wise transformer against a plain transcription of its layers."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from pipeline.core.errors import ConfigError
from pipeline.networks.label_transformer import LabelClassifier, LabelTransformer, position_code

SIZES: dict[str, Any] = {
    "dim": None,
    "heads": 2,
    "feedforward": 12,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "dropout": 0.1,
}


def make(width: int = 8, classes: int = 3, seed: int = 0, **sizes: Any) -> LabelTransformer:
    torch.manual_seed(seed)
    return LabelTransformer(width, classes, **{**SIZES, **sizes}).double().eval()


def maps(batch: int = 2, width: int = 8, height: int = 3, columns: int = 2, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, width, height, columns, generator=generator, dtype=torch.float64)


def attend(state: dict[str, Tensor], name: str, query: Tensor, key: Tensor, value: Tensor, heads: int) -> Tensor:
    """Multi-head attention, head by head."""
    d = query.shape[-1]
    q, k, v = (
        x @ state[f"{name}.in_proj_weight"][i * d : (i + 1) * d].T + state[f"{name}.in_proj_bias"][i * d : (i + 1) * d]
        for i, x in enumerate((query, key, value))
    )
    size, parts = d // heads, []
    for h in range(heads):
        at = slice(h * size, (h + 1) * size)
        score = q[..., at] @ k[..., at].transpose(-1, -2) / math.sqrt(size)
        parts.append(torch.softmax(score, -1) @ v[..., at])
    return torch.cat(parts, -1) @ state[f"{name}.out_proj.weight"].T + state[f"{name}.out_proj.bias"]


def normed(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return (
        centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * state[f"{name}.weight"]
        + state[f"{name}.bias"]
    )


def affine(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def reference(transformer: LabelTransformer, x: Tensor, heads: int = 2) -> Tensor:
    """Label vectors, layer by layer."""
    state = {name: value.detach() for name, value in transformer.state_dict().items()}
    if "reduce.weight" in state:
        x = torch.einsum("bdhw,ed->behw", x, state["reduce.weight"][:, :, 0, 0]) + state["reduce.bias"][:, None, None]
    place = sine_code(x.shape[2], x.shape[3], x.shape[1])
    tokens = x.permute(0, 2, 3, 1).flatten(1, 2)

    def block(name: str, target: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        target = normed(state, f"{name}.norm1", target + attend(state, f"{name}.attention", query, key, value, heads))
        hidden = affine(state, f"{name}.widen", target).clamp(min=0)
        return normed(state, f"{name}.norm2", target + affine(state, f"{name}.narrow", hidden))

    for layer in range(len(transformer.encoder)):
        tokens = block(f"encoder.{layer}", tokens, tokens + place, tokens + place, tokens)
    labels = torch.zeros(len(x), *state["queries"].shape, dtype=x.dtype)
    for layer in range(len(transformer.decoder)):
        labels = block(f"decoder.{layer}", labels, labels + state["queries"], tokens + place, tokens)
    return normed(state, "norm", labels)


def sine_code(height: int, width: int, d: int) -> Tensor:
    """Entry by entry, as in DETR with positions normalised to 2 pi and temperature 10000."""
    code = torch.zeros(height * width, d, dtype=torch.float64)
    for row in range(height):
        for column in range(width):
            for i in range(d // 2):
                rate = 10000 ** (2 * (i // 2) / (d // 2))
                wave = math.sin if i % 2 == 0 else math.cos
                code[row * width + column, i] = wave(2 * math.pi * (row + 1) / height / rate)
                code[row * width + column, d // 2 + i] = wave(2 * math.pi * (column + 1) / width / rate)
    return code


def test_position_code():
    torch.testing.assert_close(position_code(maps(1, 8, 3, 5)), sine_code(3, 5, 8), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "sizes",
    [{}, {"dim": 4}, {"encoder_layers": 0}, {"encoder_layers": 2, "decoder_layers": 1}, {"heads": 4, "dim": 16}],
)
def test_forward_is_the_transcription(sizes):
    transformer = make(**sizes)
    expected = reference(transformer, maps(), sizes.get("heads", 2))
    torch.testing.assert_close(transformer(maps()), expected, rtol=1e-10, atol=1e-12)


def test_shapes_follow_the_batch_and_any_map_size():
    for sizes, d in (({}, 8), ({"dim": 4}, 4)):
        transformer = make(classes=7, **sizes)
        assert transformer.dim == d
        for batch, height, columns in [(1, 1, 1), (3, 2, 5)]:
            assert transformer(maps(batch, 8, height, columns)).shape == (batch, 7, d)


def test_images_and_classes_are_answered_apart():
    """Without self-attention among the queries a class's answer does not depend on which others are asked."""
    transformer = make()
    whole = transformer(maps())
    torch.testing.assert_close(whole[1:], transformer(maps()[1:]), rtol=1e-10, atol=1e-12)
    few = make(classes=2)
    state = transformer.state_dict()
    few.load_state_dict({**state, "queries": state["queries"][[2, 0]]})
    torch.testing.assert_close(few(maps()), whole[:, [2, 0]], rtol=1e-10, atol=1e-12)


def test_place_matters():
    transformer = make()
    assert (transformer(maps()) - transformer(maps().flip(-1))).abs().max() > 1e-3


def test_no_projection_is_no_parameter():
    assert list(make().reduce.parameters()) == []
    assert make(dim=4).get_parameter("reduce.weight").shape == (4, 8, 1, 1)


def test_initialisation():
    transformer = make(64, 50, feedforward=128)
    for parameter, fan in [
        (transformer.get_parameter("encoder.0.widen.weight"), 64 + 128),
        (transformer.get_parameter("decoder.1.narrow.weight"), 64 + 128),
        (transformer.get_parameter("decoder.0.attention.out_proj.weight"), 64 + 64),
    ]:
        bound = math.sqrt(6 / fan)
        assert 0.95 * bound < parameter.abs().max() <= bound
    assert 0.9 < transformer.queries.std() < 1.1
    assert torch.equal(make(seed=3).queries, make(seed=3).queries)
    assert not torch.equal(make(seed=3).queries, make(seed=4).queries)


def test_dropout_is_of_training_only():
    transformer = make(dropout=0.5)
    assert torch.equal(transformer(maps()), transformer(maps()))
    transformer.train()
    assert not torch.equal(transformer(maps()), transformer(maps()))


def test_pooled_features_alone_are_refused():
    with pytest.raises(ValueError, match="feature maps"):
        make()(None)


@pytest.mark.parametrize(("dim", "heads"), [(6, 2), (8, 3), (None, 5)])
def test_impossible_widths_are_refused(dim, heads):
    with pytest.raises(ConfigError, match="head.dim.* multiple of 4"):
        make(dim=dim, heads=heads)


def test_each_label_has_a_classifier_of_its_own():
    classifier = LabelClassifier(2, 3)
    with torch.no_grad():
        classifier.weight.copy_(torch.tensor([[1.0, 2, 3], [0, -1, 0]]))
        classifier.bias.copy_(torch.tensor([0.5, -2]))
    labels = torch.tensor([[[1.0, 1, 1], [5, 7, 9]], [[0, 0, 2], [0, 0, 0]]])
    assert classifier(labels).tolist() == [[6.5, -9], [6.5, -2]]


def test_the_start_of_the_classifiers():
    torch.manual_seed(0)
    classifier = LabelClassifier(50, 64)
    for parameter in classifier.parameters():
        assert 0.8 / 8 < parameter.abs().max() <= 1 / 8
