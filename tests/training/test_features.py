from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.core import files, hdf5, seal
from pipeline.core.errors import FileError
from pipeline.core.resume import Checkpoint
from pipeline.labels.table import Table
from pipeline.networks.settings import Pool
from pipeline.networks.small import SmallBackbone
from pipeline.training.features import (
    MIRRORED,
    PLACES,
    PLAIN,
    Extractor,
    compute_features,
    read_features,
    write_features,
)
from pipeline.training.inputs import batches
from pipeline.training.settings import Features
from tests import tiny

CPU = torch.device("cpu")
N = 7
SPLIT = np.array([0, 1, 0, 2, 1, 0, 0], np.uint8)
TRAIN = np.array([0, 2, 5, 6])
SETTINGS = Features(dtype="float32", pools=["mean", "sqrt", "top4"], places=True, mirrored=True, batch_size=2)


@pytest.fixture
def backbone() -> SmallBackbone:
    """With running statistics away from 0 and 1, in train mode."""
    torch.manual_seed(0)
    made = SmallBackbone(8).train()
    made(tiny.images(N).plain(np.arange(N)))
    return made


def table() -> Table:
    truth, paths = np.zeros((N, 1), np.int8), tuple(f"{row}.png" for row in range(N))
    return Table(("a",), paths, truth, np.ones((N, 1), bool), SPLIT, (SPLIT == 2).astype(np.uint8))


def extractor(backbone: SmallBackbone, *pools: Pool) -> Extractor:
    return Extractor(backbone, list(pools), 2, CPU, "test")


def features(backbone: SmallBackbone, batch_size: int, mirrored: bool = False) -> list[np.ndarray]:
    cut = batches(N, batch_size)
    return [part[PLAIN] for part in extractor(backbone, "mean").extract(tiny.images(N), cut, mirrored)]


def one_by_one(backbone: SmallBackbone, mirrored: bool) -> np.ndarray:
    return np.stack([maps.mean(1) for maps in maps_one_by_one(backbone, mirrored)])


def pooled_by_hand(maps: np.ndarray) -> np.ndarray:
    """Features of an image by all three pools, of its (D, P) map."""
    roots = [[np.sign(x) * ((abs(x) + 1e-4) ** 0.5 - 0.01) for x in channel] for channel in maps]
    largest = [sorted(channel)[-4:] for channel in maps]
    return np.array([sum(channel) / len(channel) for rows in (maps, roots, largest) for channel in rows])


def maps_one_by_one(backbone: SmallBackbone, mirrored: bool) -> list[np.ndarray]:
    backbone.eval()
    rows = []
    with torch.no_grad():
        for row in range(N):
            pixels = tiny.pixels(N)[row]
            pixels = pixels[:, ::-1] if mirrored else pixels
            scaled = ((pixels / 255 - np.array(tiny.MEAN)) / np.array(tiny.STD)).astype(np.float32)
            maps = backbone.layers(torch.from_numpy(scaled).permute(2, 0, 1)[None])
            rows.append(maps[0].flatten(1).numpy())
    return rows


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
    images, passed = tiny.images(N), []
    maps = {mirrored: maps_one_by_one(backbone, mirrored) for mirrored in (False, True)}
    plain = type(images).plain
    expected = {
        PLAIN: np.stack([pooled_by_hand(each) for each in maps[False]]),
        MIRRORED: np.stack([pooled_by_hand(maps[True][row]) for row in TRAIN]),
        PLACES: np.stack([[pooled_by_hand(place[:, None]) for place in each.T] for each in maps[False]]),
    }
    extracting = extractor(backbone, *SETTINGS.pools)
    shapes = {PLAIN: (24,), PLACES: (24, 2, 2)}
    assert extracting.shapes(images, True) == shapes
    monkeypatch.setattr(Extractor, "shapes", lambda *_: shapes)  # it reads an image
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
                    arrays = compute_features(extracting, images, TRAIN, SETTINGS, checkpoint)
                except KeyboardInterrupt:
                    continue
                write_features(path / "features.h5", [], arrays, SETTINGS, "test", a=1)
                made = checkpoint.folder / "places.h5"
                seal.append(made)
                files.link_or_copy(made, path / "places.h5")
                break
        assert sum(map(len, passed)) == N + len(TRAIN)
        cache = read_features(path / "features.h5", table(), True)
        assert cache.mirrored is not None and cache.places is not None and cache.pools == SETTINGS.pools
        np.testing.assert_allclose(cache.plain, expected[PLAIN], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(cache.mirrored, expected[MIRRORED], rtol=1e-5, atol=1e-6)
        places = cache.places[np.arange(N)].reshape(N, 24, 4).transpose(0, 2, 1)  # (images, places, features)
        np.testing.assert_allclose(places, expected[PLACES], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lacks", ["features", "pools"])
def test_a_cache_of_other_code_is_named(tmp_path: Path, lacks: str) -> None:
    with hdf5.create(tmp_path / "features.h5") as file:
        if lacks != "features":
            hdf5.write_array(file, "features", np.ones((N, 2)), axes="image, feature", units="none")
        if lacks != "pools":
            file.attrs["pools"] = '["mean"]'
    with pytest.raises(FileError, match=rf"features\.h5: holds no `{lacks}`; run the stage features again"):
        read_features(tmp_path / "features.h5", table(), True)
