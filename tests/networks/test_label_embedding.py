"""The label embedding head against a plain transcription of its layers."""

import math

import pytest
import torch
from torch import Tensor

from pipeline.config import ConfigError
from pipeline.networks.label_embedding import LabelEmbeddingHead, position_code

SIZES = {"heads": 2, "feedforward": 12, "encoder_layers": 1, "decoder_layers": 2, "dropout": 0.1, "embedding": 5}


def make(dim: int | None = None, width: int = 8, classes: int = 3, seed: int = 0, **sizes) -> LabelEmbeddingHead:
    torch.manual_seed(seed)
    return LabelEmbeddingHead(width, classes, dim=dim, **{**SIZES, **sizes}).double().eval()


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


def reference(head: LabelEmbeddingHead, x: Tensor, heads: int = 2) -> tuple[Tensor, Tensor]:
    state = {name: value.detach() for name, value in head.state_dict().items()}
    if "reduce.weight" in state:
        x = torch.einsum("bdhw,ed->behw", x, state["reduce.weight"][:, :, 0, 0]) + state["reduce.bias"][:, None, None]
    place = sine_code(x.shape[2], x.shape[3], x.shape[1])
    tokens = x.permute(0, 2, 3, 1).flatten(1, 2)

    def block(name: str, target: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        target = normed(state, f"{name}.norm1", target + attend(state, f"{name}.attention", query, key, value, heads))
        hidden = affine(state, f"{name}.widen", target).clamp(min=0)
        return normed(state, f"{name}.norm2", target + affine(state, f"{name}.narrow", hidden))

    for layer in range(len(head.encoder)):
        tokens = block(f"encoder.{layer}", tokens, tokens + place, tokens + place, tokens)
    labels = torch.zeros(len(x), *state["queries"].shape, dtype=x.dtype)
    for layer in range(len(head.decoder)):
        labels = block(f"decoder.{layer}", labels, labels + state["queries"], tokens + place, tokens)
    labels = normed(state, "norm", labels)
    logits = torch.einsum("bcd,cd->bc", labels, state["weight"]) + state["bias"]
    embeddings = affine(state, "project.2", affine(state, "project.0", labels).clamp(min=0))
    return logits, embeddings / embeddings.norm(dim=-1, keepdim=True)


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
    head = make(**sizes)
    answer = head(maps(), None)
    logits, embeddings = reference(head, maps(), sizes.get("heads", 2))
    torch.testing.assert_close(answer["logits"], logits, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(answer["embeddings"], embeddings, rtol=1e-10, atol=1e-12)


def test_shapes_follow_the_batch_and_any_map_size():
    head = make(classes=7)
    for batch, height, columns in [(1, 1, 1), (3, 2, 5)]:
        answer = head(maps(batch, 8, height, columns), None)
        assert answer["logits"].shape == (batch, 7)
        assert answer["embeddings"].shape == (batch, 7, 5)
        norms = answer["embeddings"].norm(dim=-1)
        torch.testing.assert_close(norms, torch.ones_like(norms))


def test_images_and_classes_are_answered_apart():
    """Without self-attention among the queries a class's answer does not depend on which others are asked."""
    head = make()
    whole = head(maps(), None)
    alone = head(maps()[1:], None)
    torch.testing.assert_close(whole["logits"][1:], alone["logits"], rtol=1e-10, atol=1e-12)
    order = [2, 0]
    few = make(classes=2)
    state = head.state_dict()
    few.load_state_dict({**state, **{name: state[name][order] for name in ("queries", "weight", "bias")}})
    answer = few(maps(), None)
    torch.testing.assert_close(answer["logits"], whole["logits"][:, order], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(answer["embeddings"], whole["embeddings"][:, order], rtol=1e-10, atol=1e-12)


def test_place_matters():
    head = make()
    moved = maps().flip(-1)
    assert (head(maps(), None)["logits"] - head(moved, None)["logits"]).abs().max() > 1e-3


def test_no_projection_is_no_parameter():
    assert list(make().reduce.parameters()) == []
    assert make(dim=4).get_parameter("reduce.weight").shape == (4, 8, 1, 1)


def test_initialisation():
    torch.manual_seed(0)
    head = LabelEmbeddingHead(64, 50, dim=None, **{**SIZES, "feedforward": 128})
    for parameter, fan in [
        (head.get_parameter("encoder.0.widen.weight"), 64 + 128),
        (head.get_parameter("decoder.1.narrow.weight"), 64 + 128),
        (head.get_parameter("decoder.0.attention.out_proj.weight"), 64 + 64),
    ]:
        bound = math.sqrt(6 / fan)
        assert 0.95 * bound < parameter.abs().max() <= bound
    for parameter in (head.weight, head.bias):
        assert 0.8 / 8 < parameter.abs().max() <= 1 / 8
    assert 0.9 < head.queries.std() < 1.1
    assert torch.equal(make(seed=3).queries, make(seed=3).queries)
    assert not torch.equal(make(seed=3).queries, make(seed=4).queries)


def test_published_size():
    """About 175 M parameters with a ResNet-50, whose 23.5 M are not here."""
    with torch.device("meta"):
        head = LabelEmbeddingHead(
            2048,
            80,
            dim=None,
            heads=4,
            feedforward=8192,
            encoder_layers=1,
            decoder_layers=2,
            dropout=0.1,
            embedding=128,
        )
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


def test_dropout_is_of_training_only():
    head = make(dropout=0.5)
    assert torch.equal(head(maps(), None)["logits"], head(maps(), None)["logits"])
    head.train()
    assert not torch.equal(head(maps(), None)["logits"], head(maps(), None)["logits"])


def test_embeddings_leave_autocast_in_float32():
    head = make().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answer = head(maps().float(), None)
    assert answer["embeddings"].dtype == torch.float32
    torch.testing.assert_close(answer["embeddings"].norm(dim=-1), torch.ones(2, 3), rtol=1e-5, atol=0)


def test_pooled_features_alone_are_refused():
    with pytest.raises(ValueError, match="feature maps"):
        make()(None, torch.zeros(1, 8))


@pytest.mark.parametrize(("dim", "heads"), [(6, 2), (8, 3), (None, 5)])
def test_impossible_widths_are_refused(dim, heads):
    with pytest.raises(ConfigError, match="head.dim.* multiple of 4"):
        make(dim=dim, heads=heads)
