import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.core import hdf5
from pipeline.core.errors import ConfigError, FileError
from pipeline.core.resume import Checkpoint
from pipeline.methods import scl
from pipeline.methods.shared.base import build
from pipeline.methods.shared.problem import Problem
from pipeline.networks.interface import Outputs
from pipeline.networks.network import cpu_state
from pipeline.training.inputs import Inputs
from pipeline.training.loop import Data, Trainer
from tests import tiny
from tests.methods.cases import close, generator

SETTINGS = [
    {"decay": 0.8, "first": "assume_negative", "distance": "squared", "weight_consistency": 1.0, "size": 4},
    {"decay": 0.5, "first": "positives_only", "distance": "absolute", "weight_consistency": 0.3, "size": 2},
]
N, C = 5, 2
WHOLE = [0.0, 0.0, 1.0, 1.0, 0.0]


def make(folder: Path | None, n: int = N, name: str = "scl", **changes: Any) -> Any:
    settings = SETTINGS[0] | changes
    if name == "en":
        settings = {key: settings[key] for key in ("decay", "first")}
    method = build(name, settings, Problem(n, ("",) * C, torch.tensor([2, 1]), 0.9)).double()
    if folder:
        folder.mkdir(exist_ok=True)
        method.open_disk(folder)
    return method


def labels(n: int = N) -> Tensor:
    observed = torch.zeros(n, C, dtype=torch.int8)
    observed[torch.arange(n), torch.arange(n) % C] = 1
    return observed


def outputs(maps: Tensor, places: list[list[float]]) -> Outputs:
    """Maps and geometry of one view; the logit is the mean of its map."""
    return Outputs(maps.mean((3, 4)), maps=maps, geometry=torch.tensor([places], dtype=torch.float64))


def heat(method: Any, epoch: int) -> np.ndarray:
    """What an epoch leaves, once it is flushed."""
    return np.array(method.heat[epoch % 2])


# ---------------------------------------------------------------------------------------------- resampling
def bilinear(grid: list[list[float]], y: float, x: float) -> float:
    """Value at a place of [0, 1] x [0, 1] between the centres of a grid, whose border holds beyond them."""

    def along(place: float, n: int) -> list[tuple[int, float]]:
        at = min(max(place * n - 0.5, 0.0), n - 1.0)
        low = min(int(at), max(n - 2, 0))
        return [(low, 1 - (at - low)), (min(low + 1, n - 1), at - low)]

    return sum(
        wy * wx * grid[i][j] for i, wy in along(y, len(grid)) for j, wx in along(x, len(grid[0])) if wy > 0 and wx > 0
    )


def random_places(n: int, draw: torch.Generator) -> list[list[float]]:
    boxes = torch.rand(n, 2, 2, generator=draw, dtype=torch.float64).sort(1).values  # (corner, axis)
    boxes[:, 1] += (1 - boxes[:, 1]) * 0.5
    return [[*box.flatten().tolist(), float(k % 2)] for k, box in enumerate(boxes)]


@pytest.mark.parametrize(("height", "width", "size"), [(3, 5, 4), (1, 1, 3), (6, 2, 1), (4, 4, 4)])
def test_the_grid_under_a_crop_and_a_flip_is_what_grid_sample_says(height: int, width: int, size: int) -> None:
    draw = generator(1)
    grid = torch.rand(6, C, size, size, generator=draw, dtype=torch.float64)
    geometry = torch.tensor(random_places(6, draw), dtype=torch.float64)
    found = scl.resample(grid, *scl.view_of_grid(geometry, height, width, size))
    theta = torch.zeros(6, 2, 3, dtype=torch.float64)  # from [-1, 1] of the view to [-1, 1] of the image
    left, top, right, bottom, flip = geometry.T
    theta[:, 0, 0], theta[:, 0, 2] = (right - left) * (1 - 2 * flip), left + right - 1
    theta[:, 1, 1], theta[:, 1, 2] = bottom - top, top + bottom - 1
    places = F.affine_grid(theta, [6, C, height, width], align_corners=False)
    expected = F.grid_sample(grid, places, padding_mode="border", align_corners=False)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 6, 7, 14])
def test_the_whole_image_at_the_grids_size_is_itself_either_way(n: int, dtype: torch.dtype) -> None:
    maps = torch.rand(1, C, n, n, generator=generator(2), dtype=torch.float64).to(dtype)
    for flip in (0.0, 1.0):
        geometry = torch.tensor([[*WHOLE[:4], flip]], dtype=torch.float64)
        expected = maps.flip(3) if flip else maps
        for weights in (scl.view_of_grid(geometry, n, n, n), scl.grid_of_view(geometry, n, n, n)):
            found = scl.resample(maps, *(each.to(dtype) for each in weights))
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_a_view_is_laid_on_the_centres_that_its_crop_covers() -> None:
    """A 2 x 4 view of the right half, mirrored, on a grid of 4: one row of values each, columns in reverse."""
    view = torch.tensor([[[[1.0, 2, 3, 4], [5, 6, 7, 8]]]], dtype=torch.float64)
    geometry = torch.tensor([[0.5, 0.25, 1.0, 0.75, 1.0]], dtype=torch.float64)
    found = scl.resample(view, *scl.grid_of_view(geometry, 4, 2, 4))
    expected = [[0, 0, 0, 0], [0, 0, 3.5, 1.5], [0, 0, 7.5, 5.5], [0, 0, 0, 0]]
    close(found[0, 0], expected)


def test_a_place_of_the_view_keeps_its_value_on_the_way_there_and_back() -> None:
    """A plane a + b x + c y goes through bilinear sampling unchanged, where no border is near."""
    geometry = torch.tensor([[0.2, 0.1, 0.9, 0.7, 1.0], [0.3, 0.3, 0.7, 0.8, 0.0]], dtype=torch.float64)
    size, height, width = 20, 9, 11
    centres = (torch.arange(size, dtype=torch.float64) + 0.5) / size
    plane = (1 + 2 * centres.view(1, 1, 1, -1) - 3 * centres.view(1, 1, -1, 1)).expand(2, 1, size, size)
    view = scl.resample(plane, *scl.view_of_grid(geometry, height, width, size))
    back = scl.resample(view, *scl.grid_of_view(geometry, size, height, width))
    inner = 0
    for b, (left, top, right, bottom, _) in enumerate(geometry.tolist()):
        margins = (right - left) / width, (bottom - top) / height
        for i, y in enumerate(centres.tolist()):
            for j, x in enumerate(centres.tolist()):
                if left + margins[0] < x < right - margins[0] and top + margins[1] < y < bottom - margins[1]:
                    inner += 1
                    assert back[b, 0, i, j].item() == pytest.approx(1 + 2 * x - 3 * y, abs=1e-12)
    assert inner > 60


# ---------------------------------------------------------------------------------------------- the loss and the heat
@pytest.mark.parametrize("distance", ["squared", "absolute"])
@pytest.mark.parametrize(("height", "width", "size"), [(3, 5, 4), (4, 4, 4), (2, 2, 5)])
def test_slow_oracle(distance: str, height: int, width: int, size: int, tmp_path: Path) -> None:
    """Place by place and cell by cell, over epochs with random crops, flips and rows left out; its risk is EN's."""
    own = {"distance": distance, "decay": 0.7}
    method, plain = make(tmp_path / "a", size=size, weight_consistency=2.5, **own), make(None, name="en", **own)
    draw, observed = generator(5), labels()
    stored: list[list[list[list[float | None]]]]
    stored = [[[[None] * size for _ in range(size)] for _ in range(C)] for _ in range(N)]
    compared = uncompared = 0
    for epoch in range(1, 5):
        for each in (method, plain):
            each.begin_epoch(epoch, 4)
        order = torch.randperm(N, generator=draw)[:-1]  # one image misses the epoch
        for index in (order[:3], order[3:]):
            maps = torch.randn(1, len(index), C, height, width, generator=draw, dtype=torch.float64).requires_grad_()
            places = [WHOLE if epoch == 3 and k == 0 else place for k, place in enumerate(random_places(3, draw))]
            answer = outputs(maps, places[: len(index)])
            terms = method(answer, observed[index], index)
            assert list(terms) == ["risk", "consistency"]
            close(terms["risk"], plain(Outputs(answer.logits.detach()), observed[index], index)["risk"].item())
            terms["consistency"].backward()
            total, slopes = 0.0, torch.zeros(1, len(index), C, height, width)
            for b, i in enumerate(index.tolist()):
                left, top, right, bottom, flip = places[b]
                new = copy.deepcopy(stored[i])
                for c in range(C):
                    heats = torch.sigmoid(maps[0, b, c]).tolist()
                    has = [[float(value is not None) for value in row] for row in stored[i][c]]
                    values = [[value or 0.0 for value in row] for row in stored[i][c]]
                    for v in range(height):
                        for u in range(width):
                            across = (u + 0.5) / width
                            x = left + (1 - across if flip else across) * (right - left)
                            y = top + (v + 0.5) / height * (bottom - top)
                            if bilinear(has, y, x) < 1 - 1e-9:
                                uncompared += 1
                                continue
                            compared += 1
                            gap = heats[v][u] - bilinear(values, y, x)
                            total += gap**2 if distance == "squared" else abs(gap)
                            outer = 2 * gap if distance == "squared" else math.copysign(1, gap)
                            slopes[0, b, c, v, u] = outer * heats[v][u] * (1 - heats[v][u])
                    for p in range(size):
                        for q in range(size):
                            down = ((p + 0.5) / size - top) / (bottom - top)
                            across = ((q + 0.5) / size - left) / (right - left)
                            if 0 <= down < 1 and 0 <= across < 1:
                                fresh = bilinear(heats, down, 1 - across if flip else across)
                                old = stored[i][c][p][q]
                                new[c][p][q] = fresh if old is None else 0.7 * old + 0.3 * fresh
                stored[i] = new
            scale = 2.5 / (len(index) * C * height * width)
            assert terms["consistency"].item() == pytest.approx(scale * total, rel=1e-5, abs=1e-12)
            assert maps.grad is not None
            torch.testing.assert_close(maps.grad, scale * slopes.double(), rtol=1e-4, atol=1e-7)
        method.flush()
        expected = np.array([[[[value or 0.0 for value in row] for row in c] for c in i] for i in stored])
        np.testing.assert_allclose(heat(method, epoch), expected, rtol=1e-6)
    assert compared > 40 and uncompared > 40


def test_the_first_epoch_has_no_past_to_agree_with(tmp_path: Path) -> None:
    method, index = make(tmp_path / "a"), torch.arange(N)
    method.begin_epoch(1, 3)
    for _ in range(2):  # not even with itself
        terms = method(outputs(torch.randn(1, N, C, 4, 4, generator=generator()), [WHOLE] * N), labels(), index)
        assert terms["consistency"].item() == 0
    assert method.pseudo_labels(torch.zeros(N, C), labels(), index).unique().tolist() == [0]


def test_maps_that_do_not_change_agree_with_themselves(tmp_path: Path) -> None:
    method, index = make(tmp_path / "a"), torch.arange(N)
    maps = torch.randn(1, N, C, 4, 4, generator=generator(), dtype=torch.float64)
    for epoch in (1, 2, 3):
        method.begin_epoch(epoch, 3)
        terms = method(outputs(maps.flip(4) if epoch == 2 else maps, [[*WHOLE[:4], epoch == 2]] * N), labels(), index)
        method.flush()
        assert terms["consistency"].item() < 1e-12
        np.testing.assert_allclose(heat(method, epoch), torch.sigmoid(maps[0]), atol=1e-6)
    method.begin_epoch(4, 4)
    terms = method(outputs(maps + 1, [WHOLE] * N), labels(), index)
    assert terms["consistency"].item() == pytest.approx(
        (torch.sigmoid(maps + 1) - torch.sigmoid(maps)).square().mean().item(), rel=1e-5
    )


def test_heat_that_underflows_is_heat_all_the_same(tmp_path: Path) -> None:
    method, index = make(tmp_path / "a", decay=0.5), torch.arange(N)
    cold = torch.full((1, N, C, 4, 4), -200.0)
    for epoch in (1, 2):
        method.begin_epoch(epoch, 3)
        method(outputs(cold, [WHOLE] * N), labels(), index)
        method.flush()
        assert (heat(method, epoch) > 0).all() and heat(method, epoch).max() < 1e-37
    method.begin_epoch(3, 3)
    terms = method(outputs(torch.zeros(1, N, C, 4, 4), [WHOLE] * N), labels(), index)
    assert terms["consistency"].item() == pytest.approx(0.25)


def test_labels_are_those_of_the_negatives_in_force(tmp_path: Path) -> None:
    method, observed, index = make(tmp_path / "a"), labels(), torch.arange(N)
    maps = torch.randn(1, N, C, 4, 4, generator=generator(4), dtype=torch.float64)
    method.begin_epoch(1, 2)
    method(outputs(maps, [WHOLE] * N), observed, index)
    method.begin_epoch(2, 2)
    means, expected = maps.mean((3, 4))[0], torch.zeros(N, C, dtype=torch.int8)
    for c, positives in enumerate((3, 2)):  # two and one third of 0.9 times 5, halves upwards
        for i in means[:, c].argsort().tolist()[: N - positives]:
            expected[i, c] = -1 if observed[i, c] == 0 else 0
    assert torch.equal(method.pseudo_labels(means, observed, index), expected)
    assert (expected == -1).sum() > 1


# ---------------------------------------------------------------------------------------------- the disk
def seen_once(folder: Path | None) -> Any:
    """A method in its second epoch, every row met in the first."""
    method = make(folder)
    method.begin_epoch(1, 4)
    maps = torch.randn(1, N, C, 4, 4, generator=generator(1), dtype=torch.float64)
    method(outputs(maps, [WHOLE] * N), labels(), torch.arange(N))
    method.flush()
    method.begin_epoch(2, 4)
    return method


def test_neither_eval_mode_nor_a_lack_of_disk_compares_or_writes(tmp_path: Path) -> None:
    method, bare = seen_once(tmp_path / "a"), seen_once(None)
    before = [np.array(each) for each in method.heat]
    maps = torch.zeros(1, N, C, 4, 4, dtype=torch.float64)
    state = {name: value.clone() for name, value in method.state_dict().items()}
    method.eval()
    evaluated = method(outputs(maps, [WHOLE] * N), labels(), torch.arange(N))
    assert evaluated["consistency"].item() == 0 and evaluated["risk"].item() > 0
    assert all(np.array_equal(a, b) for a, b in zip(before, method.heat, strict=True))
    assert all(torch.equal(value, state[name]) for name, value in method.state_dict().items())
    assert bare(outputs(maps, [WHOLE] * N), labels(), torch.arange(N))["consistency"].item() == 0
    bare.flush()
    method.train()
    assert method(outputs(maps, [WHOLE] * N), labels(), torch.arange(N))["consistency"].item() > 0


def test_a_row_left_out_keeps_its_heat_through_both_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scl, "CHUNK", 2)
    method = seen_once(tmp_path / "a")
    first = heat(method, 1)
    for epoch in (2, 3, 4):
        method.begin_epoch(epoch, 4)
        maps = torch.randn(1, 1, C, 4, 4, generator=generator(epoch), dtype=torch.float64)
        method(outputs(maps, [WHOLE]), labels()[:1], torch.tensor([3]))
        method.flush()
        now = heat(method, epoch)
        assert np.array_equal(np.delete(now, 3, 0), np.delete(first, 3, 0)) and not np.array_equal(now[3], first[3])


def test_what_an_abandoned_run_left_in_the_folder_is_no_heat(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    for parity in (0, 1):
        hdf5.open_array(folder / f"heat_{parity}.f32", (N, C, 4, 4), "float32")[:] = 0.9
    found, expected = seen_once(folder), seen_once(tmp_path / "b")
    assert np.array_equal(heat(found, 1), heat(expected, 1))
    answer = outputs(torch.zeros(1, N, C, 4, 4, dtype=torch.float64), [WHOLE] * N)
    terms = [method(answer, labels(), torch.arange(N)) for method in (found, expected)]
    assert terms[0]["consistency"].item() == terms[1]["consistency"].item()


def test_it_says_what_disk_it_needs_and_refuses_too_small_a_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need = 2 * 3000 * C * 4 * 4 * 4
    free = [need]
    monkeypatch.setattr(scl.shutil, "disk_usage", lambda _: SimpleNamespace(free=free[0]))
    make(tmp_path / "a", n=3000)
    line = capsys.readouterr().out
    assert "2 x 3000 x 2 x 4 x 4 x 4 bytes are 0.000768 GB" in line
    assert str(tmp_path / "a") in line and "has 0.000768 GB free" in line
    free[0] -= 1
    with pytest.raises(ConfigError, match=r"0\.000768 GB.*SPML_SCRATCH"):
        make(tmp_path / "b", n=3000)
    assert list((tmp_path / "b").iterdir()) == []
    held = hdf5.open_array(tmp_path / "b" / "heat_0.f32", (3000, C, 4, 4), "float32")
    held[:] = 0.5  # as an interrupted run left it
    held.flush()
    free[0] = need // 2
    make(tmp_path / "b", n=3000)


def test_heat_of_another_size_is_refused(tmp_path: Path) -> None:
    make(tmp_path / "a", size=3)
    with pytest.raises(FileError, match=r"heat_0\.f32: 360 bytes"):
        make(tmp_path / "a", size=4)


# ---------------------------------------------------------------------------------------------- resume
class Stop(Exception):
    """The process is killed."""


class Mortal:
    """Images that fail at one batch of one epoch."""

    def __init__(self, images: Inputs, death: tuple[int, int]) -> None:
        self.images, self.death, self.steps = images, death, list[int]()
        self.provides, self.plain, self.geometry = images.provides, images.plain, images.geometry

    def __len__(self) -> int:
        return len(self.images)

    def views(self, index: np.ndarray, names: tuple[str, ...], seed: int, epoch: int) -> Tensor:
        if (epoch, self.steps.count(epoch)) == self.death:
            raise Stop
        self.steps.append(epoch)
        return self.images.views(index, names, seed, epoch)


EPOCHS = 4


def attempt(path: Path, n: int, death: tuple[int, int] = (0, 0)) -> tuple[Any, list[int]]:
    """A process that trains until it ends or dies before the given batch (from 0) of the given epoch."""
    pictures, network = tiny.images(n, flip=True, crop=0.4), tiny.network(on_images=True)
    if n == 9:
        pictures.pixels = tiny.pixels(n)[:, ::2, ::2]  # whose last maps are 1 x 1
    images = Mortal(pictures, death)
    problem = Problem(n, ("a", "b", "c"), tiny.observed(n).sum(0, dtype=torch.int64), 1.4, 8)
    method = build("scl", SETTINGS[0] | {"size": 3, "decay": 0.6}, problem)
    torch.manual_seed(int(np.random.default_rng().integers(1 << 30)))
    checkpoint = Checkpoint(path, 1e9)  # yet each epoch is saved: what lies on disk must not fall behind
    settings = tiny.training(epochs=EPOCHS, momentum=0.9, batch_norm="train")

    def score(logits: np.ndarray) -> float:
        return float(np.round(1000 * np.sin(logits.astype(np.float64) * 7).sum(), 6) % 100)

    try:
        data = Data(images, tiny.observed(n), tiny.images(5, seed=9), score)
        history = Trainer(network, method, data, tiny.plan(settings, 0.05, seed=2), checkpoint).fit()
    except Stop:
        return None, images.steps
    finally:
        checkpoint.close()  # as the system does when a process ends
    files = {file.name: file.read_bytes() for file in sorted(checkpoint.folder.iterdir())}
    return (cpu_state(network), cpu_state(method), vars(history), files), images.steps


def leaves(content: Any, place: str = "") -> dict[str, Any]:
    """Every value of a nested structure, tensors as their bytes."""
    if isinstance(content, dict | list | tuple):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        return {place: len(content)} | {
            k: v for key, value in items for k, v in leaves(value, f"{place}/{key}").items()
        }
    return {place: content.contiguous().numpy().tobytes() if isinstance(content, Tensor) else content}


@pytest.mark.parametrize("n", [9, 10])  # of 9, on which batch norm cannot train one by one, each epoch leaves one out
def test_a_resumed_run_ends_with_the_same_bytes(n: int, tmp_path: Path) -> None:
    expected, steps = attempt(tmp_path / "whole.pt", n)
    batches = steps.count(1)
    assert batches == (2 if n == 9 else 3)
    assert {row["consistency"] > 0 for row in expected[2]["rows"][1:]} == {True}
    assert set(expected[3]) == {"heat_0.f32", "heat_1.f32"} and len(set(expected[3].values())) == 2
    for epoch in range(1, EPOCHS + 1):
        for batch in range(batches if n == 9 else 1):
            path = tmp_path / f"{epoch}_{batch}.pt"
            assert attempt(path, n, (epoch, batch))[0] is None
            found, steps = attempt(path, n)
            assert sorted(set(steps)) == list(range(epoch, EPOCHS + 1)), "it went on, and did not start anew"
            assert leaves(found) == leaves(expected), (epoch, batch)


def test_a_run_killed_between_an_epoch_and_its_checkpoint_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = attempt(tmp_path / "whole.pt", 9)
    save, flush, calls = Checkpoint.save, scl.ConsistentMaps.flush, list[str]()

    def dies(name: str, at: int, real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> None:
            calls.append(name)
            if calls.count(name) == at:
                raise Stop
            real(*arguments, **options)

        return call

    for at in range(1, EPOCHS + 1):
        for name, kind, real in (("save", Checkpoint, save), ("flush", scl.ConsistentMaps, flush)):
            path = tmp_path / f"{name}_{at}.pt"
            calls.clear()
            with monkeypatch.context() as patch:
                patch.setattr(kind, name, dies(name, at, real))
                assert attempt(path, 9)[0] is None
            found, _ = attempt(path, 9)
            assert leaves(found) == leaves(expected), (name, at)


def test_a_run_may_be_killed_again_and_again(tmp_path: Path) -> None:
    expected, _ = attempt(tmp_path / "whole.pt", 9)
    for death in ((1, 1), (2, 0), (2, 1), (2, 1), (3, 1), (4, 1)):
        assert attempt(tmp_path / "run.pt", 9, death)[0] is None
    assert leaves(attempt(tmp_path / "run.pt", 9)[0]) == leaves(expected)
