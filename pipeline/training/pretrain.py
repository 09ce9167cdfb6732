"""Pretraining of the small network on single digits: what ImageNet is to the papers' ResNet-50."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from pipeline.core import seeds
from pipeline.core.progress import track
from pipeline.networks.settings import DigitsBackbone
from pipeline.networks.small import SmallBackbone
from pipeline.training import augment
from pipeline.training.inputs import batches

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)  # of [0, 1] values; scenes are dark grounds with bright strokes


def pretrain(
    settings: DigitsBackbone, pictures: Callable[[str], tuple[np.ndarray, np.ndarray]], device: torch.device
) -> tuple[SmallBackbone, float]:
    """Train the small network to name the one digit of a picture.

    Args:
        settings: Width, pictures and their size, epochs, optimiser.
        pictures: Maps a purpose, "train" or "check", to (N, size, size, 3) uint8 single-digit pictures and (N,) digits.
        device: Where to train.

    Returns:
        The backbone on the CPU in eval mode, and its accuracy in [0, 1] on pictures it was not trained on (of the same
        source digits).
    """
    seeds.seed_torch(settings.seed, "pretrain")
    network = SmallBackbone(settings.width).to(device)
    classifier = nn.Linear(settings.width, 10).to(device)
    parameters = [*network.parameters(), *classifier.parameters()]
    optimizer = torch.optim.Adam(parameters, settings.learning_rate)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    steps = settings.epochs * (settings.images // settings.batch_size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def read(purpose: str) -> tuple[torch.Tensor, torch.Tensor]:
        pixels, shown = pictures(purpose)
        return augment.normalise(torch.from_numpy(pixels).permute(0, 3, 1, 2), mean, std), torch.from_numpy(shown)

    def logits(images: torch.Tensor) -> torch.Tensor:
        return classifier(network.pool(network(images.to(device))))

    images, shown = read("train")
    for epoch in range(1, settings.epochs + 1):
        order = seeds.numpy_generator(settings.seed, "pretrain", "order", epoch).permutation(len(shown))
        network.train()
        cut = [index for index in batches(len(shown), settings.batch_size, order) if len(index) == settings.batch_size]
        for index in track(cut, f"pretrain epoch {epoch}/{settings.epochs}", len(cut), "step"):
            loss = F.cross_entropy(logits(images[index]), shown[index].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
    network.eval()
    images, shown = read("check")
    with torch.inference_mode():
        right = [(logits(images[index]).argmax(1).cpu() == shown[index]).sum() for index in batches(len(shown), 500)]
    return network.cpu(), float(torch.stack(right).sum()) / len(shown)
