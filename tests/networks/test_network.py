from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from pipeline.core import files
from pipeline.core.errors import ConfigError
from pipeline.networks.network import Network, cpu_state, on_backbone, restore
from pipeline.networks.pools import at_places, pool
from pipeline.networks.settings import HEAD_GIVES, Head, Pool
from pipeline.networks.timm_backbone import describe
from tests import tiny

BOOSTED = {"kind": "boosted", "factor": 5.0, "scale": "none"}
BOTTLENECK = {**{key: value for key, value in tiny.EMBEDDING.items() if key != "embedding"}, "kind": "bottleneck"}
BOTTLENECK |= {"latent": 4, "samples": 10}
PLACES = {"kind": "places", "sharpness": 0.5}
HEADS = [tiny.LINEAR, PLACES, BOOSTED, tiny.EMBEDDING, BOTTLENECK]
every_head = pytest.mark.parametrize("head", HEADS, ids=[head["kind"] for head in HEADS])


def trained(head: dict[str, Any], on_images: bool) -> Network:
    """A network whose running statistics have moved, in eval mode."""
    network = tiny.network(head, on_images)
    if on_images:
        network.train()(tiny.images(6).plain(np.arange(6)))
    return network.eval()


def given(network: Network) -> Tensor:
    return (tiny.images(6) if network.backbone else tiny.features(6)).plain(np.arange(6))


def answer(network: Network) -> dict[str, Tensor]:
    with torch.no_grad():
        return network(given(network))


# ---------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize(("head", "on_images"), [(tiny.LINEAR, False), *((head, True) for head in HEADS)])
def test_a_weights_file_is_enough_to_rebuild_a_network(tmp_path: Path, head: dict[str, Any], on_images: bool) -> None:
    network = trained(head, on_images)
    files.write_torch(tmp_path / "weights.pt", network.content())
    torch.manual_seed(5)
    state = torch.get_rng_state()
    again = restore(tmp_path / "weights.pt")
    assert torch.equal(torch.get_rng_state(), state), "restoring draws nothing"
    assert not again.training
    found, expected = answer(again), answer(network)
    assert found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)
    assert again.content()["architecture"] == network.architecture
    assert not on_images or (again.mean, again.std) == (tiny.MEAN, tiny.STD)


def test_a_stored_state_does_not_follow_the_network() -> None:
    network = trained(tiny.LINEAR, True)
    content = network.content()
    kept = {name: value.clone() for name, value in content["state"].items()}
    with torch.no_grad():
        for value in network.state_dict().values():
            value.add_(1)
    assert all(torch.equal(content["state"][name], value) for name, value in kept.items())
    assert all(not value.requires_grad and value.device.type == "cpu" for value in cpu_state(network).values())


@every_head
def test_a_fresh_head_on_a_stored_backbone(tmp_path: Path, head: dict[str, Any]) -> None:
    source = trained(tiny.LINEAR, True)
    assert source.backbone is not None
    content = {"architecture": tiny.BACKBONE, "state": source.backbone.state_dict()}
    files.write_torch(tmp_path / "backbone.pt", content)
    made = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(on_backbone(tmp_path / "backbone.pt", head, 5, ["mean"]))
    for network in made:
        state = {name.removeprefix("backbone."): value for name, value in network.state_dict().items()}
        assert all(torch.equal(state[name], value) for name, value in source.backbone.state_dict().items())
        sizes = {"width": 8, "classes": 5, "pools": ["mean"]}
        assert network.architecture == {"backbone": tiny.BACKBONE, **sizes, "head": head}
    heads = [torch.cat([value.flatten() for value in network.head.parameters()]) for network in made]
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    assert answer(made[0])["logits"].shape == (6, 5)


# ---------------------------------------------------------------------------------------------- forward
def test_a_head_on_features_gives_what_it_gives_on_images() -> None:
    network = trained(tiny.LINEAR, True)
    assert network.backbone is not None
    head = Network({"backbone": None, "width": 8, "classes": tiny.C, "head": tiny.LINEAR})
    head.head.load_state_dict(network.head.state_dict())
    with torch.no_grad():
        pooled = network.backbone.pool(network.backbone(given(network)))
        torch.testing.assert_close(head(pooled)["logits"], answer(network)["logits"])


@pytest.mark.parametrize("pools", [["mean"], ["sqrt"], ["top4", "mean", "sqrt"]])
@pytest.mark.parametrize("head", [tiny.LINEAR, PLACES], ids=["linear", "places"])
def test_pooled_features_and_places_of_the_cache_give_what_images_give(head: dict[str, Any], pools: list[Pool]) -> None:
    """In training pooled features decide, whatever the head; evaluated, `places` reads features of places."""
    sizes = {"pools": pools, "width": 8 * len(pools), "classes": tiny.C, "head": head}
    network = Network({"backbone": tiny.BACKBONE, **sizes})
    alone = Network({"backbone": None, **sizes})
    alone.head.load_state_dict(network.head.state_dict())
    assert network.backbone is not None
    network.backbone.eval()
    images = tiny.images(6).plain(np.arange(6))
    with torch.no_grad():
        maps = network.backbone(images)
        pooled = pool(network.backbone, maps, pools)
        places = at_places(network.backbone, maps, pools)
        for training in (True, False):
            network.head.train(training)
            alone.train(training)
            given = places if head["kind"] == "places" and not training else pooled
            torch.testing.assert_close(alone(given)["logits"], network(images)["logits"])
        if pools == ["sqrt"]:
            torch.testing.assert_close(network(images)["maps"].mean((2, 3)), network.head.linear(pooled))


def test_every_kind_of_head_is_tried_here() -> None:
    assert {head["kind"] for head in HEADS} == set(HEAD_GIVES)
    for head in HEADS:
        TypeAdapter(Head).validate_python(head)


@every_head
def test_a_network_gives_what_it_says_it_provides(head: dict[str, Any]) -> None:
    network = trained(head, True)
    assert network.provides() == {*answer(network), "parameters"} - {"logits"}
    assert network.provides() == {*HEAD_GIVES[head["kind"]], "parameters"}


@every_head
def test_a_network_on_cached_features_gives_no_maps(head: dict[str, Any]) -> None:
    network = tiny.network(head)
    assert network.provides() == {*HEAD_GIVES[head["kind"]], "parameters"} - {"maps"}
    if head["kind"] in ("linear", "places"):
        assert network.provides() == {*answer(network), "parameters"} - {"logits"}
    else:  # the preflight refuses it, since there is no map to read
        with pytest.raises(ValueError, match="feature maps"):
            answer(network)


@every_head
def test_views_go_through_one_pass_and_come_apart(head: dict[str, Any]) -> None:
    network = trained(head, True)
    images = given(network)
    with torch.no_grad():
        whole, half = network(images), network(images[3:])
    for name, value in whole.items():
        torch.testing.assert_close(value.unflatten(0, (2, 3))[1], half[name], rtol=1e-4, atol=1e-6, msg=name)


# ---------------------------------------------------------------------------------------------- training
@every_head
def test_one_step_moves_every_weight_of_head_and_backbone(tmp_path: Path, head: dict[str, Any]) -> None:
    network = tiny.network(head, True).train()
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    before = cpu_state(network)
    torch.manual_seed(0)
    result = network(given(network))
    extra = [result[name][..., 0].sum() for name in ("embeddings", "posterior") if name in result]
    torch.stack([result["logits"].square().sum(), *extra]).sum().backward()
    optimizer.step()
    for name, value in network.named_parameters():
        assert not torch.equal(value, before[name]), name
    files.write_torch(tmp_path / "weights.pt", network.content())
    found, expected = answer(restore(tmp_path / "weights.pt")), answer(network.eval())
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@every_head
def test_trained_weights_are_the_parameters_of_two_or_more_axes(head: dict[str, Any]) -> None:
    network = tiny.network(head, True)
    weights = network.weights()
    assert all(any(weight is other for other in network.parameters()) for weight in weights)
    kept = {name for name, value in network.named_parameters() if any(value is weight for weight in weights)}
    vectors = {name for name, value in network.named_parameters() if value.shape == (value.numel(),)}
    assert kept | vectors == {name for name, _ in network.named_parameters()} and not kept & vectors
    network.freeze(["layers"], False)
    assert all(name.startswith("head.") for name, value in network.named_parameters() if value.requires_grad)
    assert len(network.weights()) == sum(name.startswith("head.") for name in kept)


def test_a_boosted_network_starts_from_a_linear_one() -> None:
    linear, boosted = (
        trained(tiny.LINEAR, True),
        tiny.network({"kind": "boosted", "factor": 1.0, "scale": "none"}, True, seed=1),
    )
    boosted.load_state_dict(linear.state_dict())
    found, expected = answer(boosted.eval()), answer(linear)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------------------------------------- freezing
def frozen(network: Network) -> set[str]:
    return {name for name, parameter in network.named_parameters() if not parameter.requires_grad}


def test_freezing_takes_modules_by_whole_names() -> None:
    network = tiny.network(on_images=True)
    network.freeze(["layers.1"], False)
    assert frozen(network) == {f"backbone.layers.1.{part}" for part in ("0.weight", "1.weight", "1.bias")}
    network.freeze([], False)
    assert len(frozen(network)) == 3
    for prefix in ("layers.1.1.weight.", "layers.9", "layer", "lay", "head", "", "backbone"):
        with pytest.raises(ConfigError, match=f"freeze: the backbone has no module '{prefix}'"):
            tiny.network(on_images=True).freeze([prefix], False)
    with pytest.raises(ConfigError, match="no module 'layers.1'"):
        tiny.network().freeze(["layers.1"], False)


def test_freezing_names_timms_modules_as_timm_does() -> None:
    backbone = describe("test_resnet", 64) | {"mean": tiny.MEAN, "std": tiny.STD}
    network = Network({"backbone": backbone, "width": 96, "classes": 2, "head": tiny.LINEAR})
    network.freeze(["layer1", "bn1"], False)
    found = frozen(network)
    assert {name.split(".")[2] for name in found} == {"layer1", "bn1"}
    assert found == {
        name
        for name, _ in network.named_parameters()
        if name.startswith(("backbone.model.layer1.", "backbone.model.bn1."))
    }


@every_head
def test_freezing_batch_norm_leaves_everything_else(head: dict[str, Any]) -> None:
    network = tiny.network(head, True)
    network.freeze([], True)
    names = {f"backbone.layers.{block}.1.{part}" for block in range(5) for part in ("weight", "bias")}
    assert frozen(network) == names
    assert [type(module) for module in network.batch_norms()] == [torch.nn.BatchNorm2d] * 5


def test_training_moves_no_frozen_batch_norm() -> None:
    network = trained(tiny.LINEAR, True)
    network.freeze([], True)
    before = cpu_state(network)
    network.train()
    for module in network.batch_norms():
        module.eval()
    optimizer = torch.optim.SGD([each for each in network.parameters() if each.requires_grad], 0.1, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        network(given(network))["logits"].square().mean().backward()
        optimizer.step()
    after = network.state_dict()
    same = {name for name in before if torch.equal(before[name], after[name])}
    assert same == {name for name in before if name.startswith("backbone.") and name.split(".")[3] == "1"}
