from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from pipeline.networks.settings import DigitsBackbone
from pipeline.networks.small import SmallBackbone
from pipeline.sources import digits
from pipeline.training import pretrain

CPU = torch.device("cpu")


def settings(**changes: Any) -> DigitsBackbone:
    block = {"source": "digits", "width": 16, "size": 24, "images": 70, "epochs": 2, "batch_size": 20}
    return DigitsBackbone.model_validate(block | {"learning_rate": 1e-2, "seed": 0} | changes)


def train(block: DigitsBackbone) -> tuple[SmallBackbone, float]:
    return pretrain.pretrain(block, partial(digits.single, block.images, block.size, block.seed), CPU)


def test_the_small_network_learns_what_it_is_shown_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    def single(count: int, size: int, seed: int, *names: str) -> tuple[np.ndarray, np.ndarray]:
        generator = np.random.default_rng(["train", "check"].index(names[0]))
        shown = generator.choice([3, 7], count)
        ground = np.where(shown == 3, 60, 190)[:, None, None, None]
        return (ground + generator.integers(0, 50, (count, size, size, 3))).astype(np.uint8), shown

    monkeypatch.setattr(digits, "single", single)
    found, accuracy = train(settings(images=200, epochs=4))
    assert accuracy == 1.0
    assert isinstance(found, SmallBackbone) and not found.training and found.width == 16
    torch.manual_seed(5)
    again, _ = train(settings(images=200, epochs=4))
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in found.state_dict().items())
    other, _ = train(settings(seed=1))
    assert not torch.equal(next(other.parameters()), next(found.parameters()))


def test_it_sees_whole_batches_and_other_pictures_than_it_is_checked_on(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[Any, ...]] = []
    sizes: list[int] = []
    single, forward = digits.single, SmallBackbone.forward

    def seen(*arguments: Any) -> tuple[np.ndarray, np.ndarray]:
        drawn.append(arguments)
        return single(*arguments)

    def counted(self: SmallBackbone, images: torch.Tensor) -> torch.Tensor:
        sizes.append(len(images) if self.training else -len(images))
        return forward(self, images)

    rates: list[float] = []
    step = torch.optim.Adam.step

    def noted(self: torch.optim.Adam, *arguments: Any) -> Any:
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(digits, "single", seen)
    monkeypatch.setattr(SmallBackbone, "forward", counted)
    monkeypatch.setattr(torch.optim.Adam, "step", noted)
    train(settings())
    assert drawn == [(70, 24, 0, "train"), (70, 24, 0, "check")]
    assert sizes == [20] * 3 * 2 + [-70]
    np.testing.assert_allclose(rates, 1e-2 * (1 + np.cos(np.pi * np.arange(6) / 6)) / 2)
