"""What a variant of finetune starts from: another method's linear head, or one that boosts."""

from pathlib import Path
from typing import Any

import pytest
import torch

from pipeline.core import files
from pipeline.core.errors import FileError
from pipeline.methods.shared import base
from pipeline.networks.network import restore
from stages.finetune import finetune
from stages.linear_init import linear_init
from tests import tiny
from tests.training.test_run import Project, states

BOOSTED = {"kind": "boosted", "factor": 5.0, "scale": "none"}


@pytest.fixture
def project(tmp_path: Path, repository: Path) -> Project:
    """A project with the linear heads of two methods, whose fine-tuning changes no weight to speak of."""
    made = Project(tmp_path, repository)
    made.put(made.cache, features=tiny.numbers(36, 8))
    for method in ("an", "em_apl"):
        linear_init(made.root, "digits", method, 0, 0)
    made.set("finetune", learning_rate=1e-30, batch_norm="frozen", epochs=1)
    return made


def variant(project: Project, method: str, start: str, **stage: Any) -> str:
    key = f"digits-{method}-0-0-x"
    run = {
        "dataset": "digits",
        "method": method,
        "draw": 0,
        "seed": 0,
        "start": start,
        "set": {"stage": stage, "method": {}},
    }
    project.sections["variants"]["finetune"] = {key: run}
    project.write_params()
    return key


@pytest.mark.parametrize(
    ("method", "start", "stage"),
    [
        ("plc", "an", {"strong": tiny.STRONG}),
        ("em_apl", "an", {}),
        ("em_apl", "em_apl", {}),
        ("em_apl", "em_apl", {"head": BOOSTED}),
        ("plc", "em_apl", {"strong": tiny.STRONG, "head": BOOSTED}),
    ],
)
def test_a_variant_starts_from_the_head_that_it_names(
    project: Project, monkeypatch: pytest.MonkeyPatch, method: str, start: str, stage: dict[str, Any]
) -> None:
    inherited: list[Any] = []
    monkeypatch.setattr(base.Method, "inherit", lambda self, state: inherited.append(state))
    key = variant(project, method, start, **stage)
    finetune(project.root, "digits", method, 0, 0, key)
    first, whole = states(project, "linear_init", f"digits-{start}-0-0"), states(project, "finetune", key)
    head = {name: value for name, value in whole.items() if name.startswith("head.")}
    assert head.keys() == first.keys() and all(torch.equal(value, first[name]) for name, value in head.items())
    other = states(project, "linear_init", f"digits-{'an' if start == 'em_apl' else 'em_apl'}-0-0")
    assert not torch.equal(other["head.linear.weight"], head["head.linear.weight"])
    assert len(inherited) == (method == start)  # a method's memory is its own
    read = files.read_json(project.folder("finetune", key) / "manifest.json")["inputs"]
    first_run = [f"runs/linear_init/digits-{start}-0-0/{name}.pt" for name in ("method", "weights")]
    assert [path for path in read if path.startswith("runs/")] == first_run[method != start :]


def test_without_the_head_that_it_names(project: Project) -> None:
    key = variant(project, "em_apl", "full")
    with pytest.raises(FileError, match="runs/linear_init/digits-full-0-0/weights.pt: no such file"):
        finetune(project.root, "digits", "em_apl", 0, 0, key)
    assert not project.folder("finetune", key).exists()


BOTH = {"kind": "linear", "scale": ["none", "unit"]}


@pytest.mark.parametrize("scale", ["none", "unit"])
@pytest.mark.parametrize("kind", ["linear", "boosted"])
def test_a_head_keeps_the_scale_that_a_search_chose_for_it(project: Project, scale: str, kind: str) -> None:
    """The search's choice, in fine-tuning and in the stored network: at a rate of nothing, the start's own logits."""
    project.set("linear_init", head=tiny.LINEAR | {"scale": scale})
    linear_init(project.root, "digits", "an", 0, 0)
    boosted = {"kind": "boosted", "factor": 1.0, "scale": BOTH["scale"]}
    project.set("linear_init", head=BOTH)  # what the search of a head that is stored at one scale looks like
    project.set("finetune", head=BOTH if kind == "linear" else boosted)
    finetune(project.root, "digits", "an", 0, 0)
    content = files.read_torch(project.folder("finetune", "digits-an-0-0") / "weights.pt")
    assert (content["architecture"]["head"]["kind"], content["architecture"]["head"]["scale"]) == (kind, scale)
    network = restore(project.folder("finetune", "digits-an-0-0") / "weights.pt")
    pixels = torch.randn(5, 3, 16, 16)
    maps = network.backbone(pixels)  # type: ignore[misc]
    pooled = network.backbone.pool(maps)  # type: ignore[union-attr]
    if scale == "unit":
        pooled = pooled / pooled.square().mean(1, keepdim=True).sqrt()
    first = states(project, "linear_init", "digits-an-0-0")
    expected = pooled @ first["head.linear.weight"].T + first["head.linear.bias"]
    torch.testing.assert_close(network(pixels)["logits"], expected)


@pytest.mark.parametrize(("before", "asked"), [("none", "unit"), ("unit", "none")])
def test_a_head_of_another_scale_is_refused(project: Project, before: str, asked: str) -> None:
    project.set("linear_init", head=tiny.LINEAR | {"scale": before})
    linear_init(project.root, "digits", "an", 0, 0)
    project.set("finetune", head=tiny.LINEAR | {"scale": asked})
    with pytest.raises(
        FileError, match=f"weights.pt: its head is .*'{before}'}}, finetune.head asks for .*'{asked}'}}"
    ):
        finetune(project.root, "digits", "an", 0, 0)


def test_a_head_of_an_earlier_version_is_refused(project: Project) -> None:
    path = project.folder("linear_init", "digits-an-0-0") / "weights.pt"
    content = files.read_torch(path)
    del content["architecture"]["head"]["scale"]
    files.write_torch(path, content)
    with pytest.raises(FileError, match=r"weights.pt: its head is {'kind': 'linear'}, finetune.head asks for "):
        finetune(project.root, "digits", "an", 0, 0)
    with pytest.raises(
        FileError, match=r"weights.pt: describes a network that cannot be built \(.*; run its stage again"
    ):
        restore(path)
