import numpy as np
import pytest
import torch

from pipeline.training import augment
from pipeline.training.settings import StrongView
from tests import tiny

OFF = {"crop": 1.0, "cutout": 0.0, "operations": 0, "jitter": 0.0, "grayscale": 0.0}


def strong(**changes: float) -> augment.StrongAugmentation:
    magnitude = 9 if changes.get("operations") else 0
    return augment.StrongAugmentation(StrongView.model_validate(OFF | {"magnitude": magnitude} | changes))


def picture(seed: int = 0, height: int = 20, width: int = 20) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (3, height, width), dtype=np.uint8))


def test_flips_are_fair_and_repeat_and_differ_by_seed_epoch_and_view() -> None:
    n = 4000
    draws = [
        augment.draw_flips(n, *stream) for stream in ((0, 1, "weak"), (1, 1, "weak"), (0, 2, "weak"), (0, 1, "strong"))
    ]
    for draw in draws:
        assert draw.dtype == bool and abs(draw.sum() - n / 2) < 5 * np.sqrt(n) / 2
    for first in range(4):
        for second in range(first):  # independent: they agree on half, within five deviations
            assert abs((draws[first] == draws[second]).sum() - n / 2) < 5 * np.sqrt(n) / 2
    assert np.array_equal(draws[0], augment.draw_flips(n, 0, 1, "weak"))


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


# ---------------------------------------------------------------------------------------------- crops
@pytest.mark.parametrize(("height", "width", "smallest"), [(40, 40, 0.08), (64, 48, 0.5), (30, 90, 0.9), (5, 3, 0.01)])
def test_boxes_lie_in_the_image_and_have_the_area_and_the_ratio_that_was_asked_for(
    height: int, width: int, smallest: float
) -> None:
    found = augment.draw_boxes(3000, height, width, smallest, 0, 1, "weak")
    assert found.dtype == np.int64 and found.shape == (3000, 4)
    left, top, right, bottom = found.T
    wide, high = right - left, bottom - top
    assert left.min() == 0 and top.min() == 0 and right.max() == width and bottom.max() == height
    assert wide.min() >= 1 and high.min() >= 1
    for start, end, side, whole in ((left, right, wide, width), (top, bottom, high, height)):
        moved = side < whole
        assert not moved.any() or (start[moved].min() == 0 and end[moved].max() == whole)
    area = wide * high
    half = (wide + high) / 2 + 0.25  # what rounding both sides can change
    assert (area >= smallest * height * width - half).all() and area.max() > 0.95 * height * width - half.max()
    free = (wide < width) & (high < height)
    low, high_ratio = (wide[free] - 0.5) / (high[free] + 0.5), (wide[free] + 0.5) / (high[free] - 0.5)
    assert (low <= 4 / 3).all() and (high_ratio >= 3 / 4).all()


def test_areas_ratios_and_places_are_spread_as_in_random_resized_cropping() -> None:
    """Area uniform; ratio uniform in its logarithm where it fits; place uniform over what is left."""
    left, top, right, bottom = augment.draw_boxes(20000, 2000, 2000, 0.2, 0, 1, "weak").T.astype(float)
    wide, high = right - left, bottom - top
    area, ratio = wide * high / 2000**2, np.log(wide / high) / np.log(4 / 3)
    x, y = (left + 0.5) / (2001 - wide), (top + 0.5) / (2001 - high)
    small = area < 0.7  # any ratio in [3/4, 4/3] fits there

    def uniform(values: np.ndarray, low: float, high: float) -> bool:  # Kolmogorov-Smirnov, four deviations
        expected = np.linspace(low, high, len(values))
        return np.abs(np.sort(values) - expected).max() < 2 * (high - low) / np.sqrt(len(values))

    assert (
        uniform(area, 0.2, 1) and uniform(ratio[small], -1, 1) and uniform(x[small], 0, 1) and uniform(y[small], 0, 1)
    )
    assert np.abs(np.corrcoef([each[small] for each in (area, ratio, x, y)]) - np.eye(4)).max() < 0.04


def test_boxes_repeat_and_differ_by_seed_epoch_and_view() -> None:
    streams = ((0, 1, "weak"), (1, 1, "weak"), (0, 2, "weak"), (0, 1, "strong"))
    draws = [augment.draw_boxes(50, 40, 40, 0.2, *stream) for stream in streams]
    assert np.array_equal(draws[0], augment.draw_boxes(50, 40, 40, 0.2, 0, 1, "weak"))
    assert len({draw.tobytes() for draw in draws}) == 4
    mirrored = augment.draw_flips(4000, 0, 1, "weak")
    left, _, right, _ = augment.draw_boxes(4000, 40, 40, 0.2, 0, 1, "weak").T
    assert abs(np.corrcoef(mirrored, left / (41 - (right - left)))[0, 1]) < 0.08  # a stream of its own


def test_a_crop_is_cut_and_brought_to_size_bilinearly() -> None:
    images = torch.zeros(4, 3, 4, 8, dtype=torch.uint8)
    images[:, 0] = torch.arange(8, dtype=torch.uint8) * 30  # a ramp to the right
    images[:, 1] = (torch.arange(4, dtype=torch.uint8) * 60).view(4, 1)  # one downwards
    images[:, 2] = 77
    boxes = np.array([[0, 0, 8, 4], [2, 1, 6, 3], [7, 3, 8, 4], [4, 0, 8, 4]])
    found = augment.crop_and_resize(images, boxes)
    assert found.dtype == torch.uint8 and found.shape == images.shape
    assert torch.equal(found[0], images[0])
    # twice as large: at a quarter and three quarters between the centres, and the border repeated
    assert np.allclose(found[1, 0].float(), torch.tensor([60, 67.5, 82.5, 97.5, 112.5, 127.5, 142.5, 150]), atol=0.51)
    assert np.allclose(found[1, 1].float(), torch.tensor([60.0, 75, 105, 120]).view(4, 1), atol=0.51)
    assert (found[:, 2] == 77).all()
    assert (found[2, 0] == 210).all() and (found[2, 1] == 180).all()
    assert torch.equal(found[3, 1], images[3, 1])
    assert torch.equal(augment.crop_and_resize(images[3:], boxes[3:])[0], found[3])  # each image by its own box


def test_a_crop_that_shrinks_one_side_only_keeps_the_other() -> None:
    image = picture(3, 16, 16).unsqueeze(0)
    found = augment.crop_and_resize(image, np.array([[0, 4, 16, 12]]))
    assert not torch.equal(found, image)
    halves = found[0].float().view(3, 8, 2, 16).mean(2)  # two rows of the view to one of the image
    expected = image[0, :, 4:12].float()
    padded = torch.cat([expected[:, :1], expected, expected[:, -1:]], 1)
    near = 0.125 * padded[:, :-2] + 0.75 * padded[:, 1:-1] + 0.125 * padded[:, 2:]  # of (1, 3) / 4 and (3, 1) / 4
    torch.testing.assert_close(halves, near, rtol=0, atol=1.0)
