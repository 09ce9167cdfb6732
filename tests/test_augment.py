import numpy as np
import pytest
import torch

from pipeline import augment
from pipeline.config import StrongView
from tests import tiny

OFF = {"cutout": 0.0, "operations": 0, "magnitude": 9, "jitter": 0.0, "grayscale": 0.0}


def strong(**changes: float) -> augment.StrongAugmentation:
    return augment.StrongAugmentation(StrongView.model_validate(OFF | changes))


def picture(seed: int = 0, height: int = 20, width: int = 20) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (3, height, width), dtype=np.uint8))


def test_flips_are_fair_and_repeat_and_differ_by_seed_epoch_and_view() -> None:
    n = 4000
    draws = [augment.flips(n, *stream) for stream in ((0, 1, "weak"), (1, 1, "weak"), (0, 2, "weak"), (0, 1, "strong"))]
    for draw in draws:
        assert draw.dtype == bool and abs(draw.sum() - n / 2) < 5 * np.sqrt(n) / 2
    for first in range(4):
        for second in range(first):  # independent: they agree on half, within five deviations
            assert abs((draws[first] == draws[second]).sum() - n / 2) < 5 * np.sqrt(n) / 2
    assert np.array_equal(draws[0], augment.flips(n, 0, 1, "weak"))


def test_normalise() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).expand(2, 3, 1, 3)
    mean, std = torch.tensor([0.5, 0.0, 0.2]).view(3, 1, 1), torch.tensor([0.25, 1.0, 0.1]).view(3, 1, 1)
    expected = torch.tensor([[-2.0, -1.2, 2.0], [0.0, 0.2, 1.0], [-2.0, 0.0, 8.0]]).expand(2, 3, 3).unsqueeze(2)
    found = augment.normalise(images, mean, std)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)


def test_nothing_asked_is_nothing_done() -> None:
    assert torch.equal(strong()(picture(), 3), picture())


def test_a_view_is_its_seeds_alone_and_leaves_image_and_stream() -> None:
    view = augment.StrongAugmentation(StrongView.model_validate(tiny.STRONG))
    image = picture()
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = view(image, 5)
    assert torch.equal(torch.get_rng_state(), state) and torch.equal(image, picture())
    torch.manual_seed(99)
    assert torch.equal(view(image, 5), first)
    assert (first.dtype, first.shape) == (torch.uint8, image.shape)
    others = [view(image, seed) for seed in range(6, 20)]
    assert len({other.numpy().tobytes() for other in [first, *others]}) == 15


def test_a_view_leaves_the_streams_of_other_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise AssertionError("dropout on a GPU would start anew at every image")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", refuse)
    strong(cutout=0.5)(picture(), 5)


def test_the_stream_comes_back_after_an_error() -> None:
    state = torch.get_rng_state()
    with pytest.raises((RuntimeError, ValueError, TypeError)):
        strong(operations=2)(torch.zeros(5), 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_cutout_is_one_square_of_one_colour_cut_at_the_border() -> None:
    corners = set()
    for seed in range(60):
        image = picture(seed, 20, 30)
        changed = (strong(cutout=0.4)(image, seed) != image).any(0)
        rows, columns = changed.any(1).nonzero().flatten(), changed.any(0).nonzero().flatten()
        box = slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1)
        height, width = box[0].stop - box[0].start, box[1].stop - box[1].start
        top, bottom, left, right = box[0].start == 0, box[0].stop == 20, box[1].start == 0, box[1].stop == 30
        assert height == 8 or (height < 8 and (top or bottom))
        assert width == 12 or (width < 12 and (left or right))
        assert height >= 4 and width >= 6  # the centre lies in the picture
        filled = strong(cutout=0.4)(image, seed)[:, box[0], box[1]]
        assert (filled == filled[:, :1, :1]).all()
        corners.add((height, width, box[0].start, box[1].start))
    assert len(corners) > 40


def test_probabilities_of_colour_changes() -> None:
    image = picture()
    grey = [strong(grayscale=0.2)(image, seed) for seed in range(400)]
    hits = sum(bool((view[0] == view[1]).all() and (view[1] == view[2]).all()) for view in grey)
    assert abs(hits - 80) < 5 * 8  # sqrt(400 * 0.2 * 0.8) = 8
    jittered = sum(not torch.equal(strong(jitter=0.8)(image, seed), image) for seed in range(100))
    assert abs(jittered - 80) < 5 * 4
