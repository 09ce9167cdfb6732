from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.core.resume import Checkpoint
from pipeline.networks.small import SmallBackbone
from pipeline.training.features import MIRRORED, PLAIN, compute_features, extract, read_features, write_features
from pipeline.training.inputs import batches
from tests import tiny

CPU = torch.device("cpu")
N = 7


@pytest.fixture
def backbone() -> SmallBackbone:
    """With running statistics away from 0 and 1, in train mode."""
    torch.manual_seed(0)
    made = SmallBackbone(8).train()
    made(tiny.images(N).plain(np.arange(N)))
    return made


def features(backbone: SmallBackbone, batch_size: int, mirrored: bool = False) -> list[np.ndarray]:
    return list(extract(backbone, tiny.images(N), batches(N, batch_size), CPU, mirrored))


def one_by_one(backbone: SmallBackbone, mirrored: bool) -> np.ndarray:
    backbone.eval()
    rows = []
    with torch.no_grad():
        for row in range(N):
            pixels = tiny.pixels(N)[row]
            pixels = pixels[:, ::-1] if mirrored else pixels
            scaled = ((pixels / 255 - np.array(tiny.MEAN)) / np.array(tiny.STD)).astype(np.float32)
            maps = backbone.layers(torch.from_numpy(scaled).permute(2, 0, 1)[None])
            rows.append(maps[0].flatten(1).mean(1).numpy())
    return np.stack(rows)


@pytest.mark.parametrize("mirrored", [False, True])
def test_features_are_spatial_means_in_eval_mode_in_row_order(backbone: SmallBackbone, mirrored: bool) -> None:
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    parts = features(backbone, 3, mirrored)
    assert [part.shape for part in parts] == [(3, 8), (3, 8), (1, 8)] and parts[0].dtype == np.float32
    np.testing.assert_allclose(np.concatenate(parts), one_by_one(backbone, mirrored), rtol=1e-5, atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


def test_the_batch_size_does_not_matter(backbone: SmallBackbone) -> None:
    whole = np.concatenate(features(backbone, 100))
    for size in (1, 2):
        np.testing.assert_allclose(np.concatenate(features(backbone, size)), whole, rtol=1e-5, atol=1e-6)


def test_an_interrupted_run_goes_on_and_mirrors_the_training_rows_alone(
    backbone: SmallBackbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after every number of batches; no image is passed through the network twice, but for the last batch."""
    train, images = np.array([0, 2, 5, 6]), tiny.images(N)
    rows, passed = {PLAIN: np.arange(N), MIRRORED: train}, []
    plain = type(images).plain
    expected = {PLAIN: one_by_one(backbone, False), MIRRORED: one_by_one(backbone, True)[train]}
    for stop in range(1, 7):
        path = tmp_path / str(stop)
        passed.clear()

        def read(self: object, index: np.ndarray, stop: int = stop) -> torch.Tensor:
            if len(passed) == stop:
                passed.append([])
                raise KeyboardInterrupt
            passed.append(index.tolist())
            return plain(self, index)  # type: ignore[arg-type]

        monkeypatch.setattr(type(images), "plain", read)
        for _ in range(2):
            with Checkpoint(path, 0) as checkpoint:
                try:
                    arrays = compute_features(backbone, images, rows, ("test", 2, CPU), checkpoint)
                except KeyboardInterrupt:
                    continue
                write_features(path / "features.h5", [], arrays, "float32", "test", a=1)
                break
        assert sum(map(len, passed)) == N + len(train)
        features, mirrored = read_features(path / "features.h5", N, len(train))
        assert mirrored is not None
        np.testing.assert_allclose(features, expected[PLAIN], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mirrored, expected[MIRRORED], rtol=1e-5, atol=1e-6)
