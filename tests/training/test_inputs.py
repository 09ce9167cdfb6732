import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pipeline.core import seeds
from pipeline.core.errors import ConfigError
from pipeline.training import augment
from pipeline.training.inputs import FeatureInputs, ImageInputs, Inputs, Subset, batches, predict
from pipeline.training.settings import StrongView
from tests import tiny

CPU = torch.device("cpu")
STRONG = StrongView.model_validate(tiny.STRONG)
N = 9


def plain(n: int = N) -> Tensor:
    """Normalised images, straight from the formula."""
    scaled = (tiny.pixels(n) / 255 - np.array(tiny.MEAN)) / np.array(tiny.STD)
    return torch.from_numpy(scaled.astype(np.float32)).permute(0, 3, 1, 2)


# ---------------------------------------------------------------------------------------------- features
def test_features_are_rows_of_the_matrix_in_float32() -> None:
    matrix = tiny.numbers(N, 4).astype(np.float16)
    inputs = FeatureInputs(matrix, None, False)
    index = np.array([4, 0, 4])
    for found in (inputs.plain(index), inputs.views(index, ("weak",), 0, 1)):
        assert found.dtype == torch.float32 and np.array_equal(found.numpy(), matrix[index].astype(np.float32))
    assert len(inputs) == N


def test_mirrored_features_are_taken_where_the_image_is_flipped() -> None:
    matrix, mirrored = tiny.numbers(N, 4), tiny.numbers(N, 4, seed=1)
    inputs = FeatureInputs(matrix, mirrored, True)
    index = np.array([8, 2, 5, 0])
    for epoch in (1, 2):
        flipped = augment.draw_flips(N, 7, epoch, "weak")
        expected = np.where(flipped[:, None], mirrored, matrix)[index]
        assert np.array_equal(inputs.views(index, ("weak",), 7, epoch).numpy(), expected)
    assert np.array_equal(inputs.plain(index).numpy(), matrix[index])
    unflipped = FeatureInputs(matrix, mirrored, False).views(np.arange(N), ("weak",), 7, 1)
    assert np.array_equal(unflipped.numpy(), matrix)


def test_what_a_cache_cannot_give() -> None:
    with pytest.raises(ConfigError, match="linear_init.flip: needs the mirrored view"):
        FeatureInputs(tiny.numbers(N, 4), None, True)
    with pytest.raises(ConfigError, match=r"no view \('weak', 'strong'\)"):
        tiny.features(N).views(np.arange(2), ("weak", "strong"), 0, 1)


# ---------------------------------------------------------------------------------------------- images
def test_plain_images_are_normalised_rows_of_the_split() -> None:
    inputs = ImageInputs(tiny.pixels(N), np.array([7, 1, 4]), tiny.MEAN, tiny.STD, flip=True, strong=STRONG)
    assert len(inputs) == 3
    torch.testing.assert_close(inputs.plain(np.array([2, 0])), plain()[[4, 7]])


def test_a_weak_view_is_flipped_left_to_right_by_seed_epoch_and_row_of_the_split() -> None:
    rows = np.arange(N)[::-1].copy()
    inputs = ImageInputs(tiny.pixels(N), rows, tiny.MEAN, tiny.STD, flip=True)
    index = np.array([3, 8, 1, 0, 6])
    for epoch in (1, 2, 3):
        flipped = torch.from_numpy(augment.draw_flips(N, 5, epoch, "weak_0")[index])
        images = plain()[rows[index]]
        expected = torch.stack([image.flip(2) if flip else image for image, flip in zip(images, flipped, strict=True)])
        torch.testing.assert_close(inputs.views(index, ("weak",), 5, epoch), expected)
    torch.testing.assert_close(tiny.images(N).views(index, ("weak",), 5, 1), plain()[index])


def test_views_lie_one_after_the_other_and_do_not_depend_on_the_batch() -> None:
    inputs = tiny.images(N, flip=True, strong=STRONG)
    names = ("weak", "strong", "strong")
    whole = inputs.views(np.arange(N), names, 3, 2).unflatten(0, (3, N))
    assert not torch.equal(whole[1], whole[2]), "two views of a kind are two draws"
    for index in batches(N, 4, np.array([5, 2, 8, 0, 7, 1, 6, 3, 4])):
        part = inputs.views(index, names, 3, 2).unflatten(0, (3, len(index)))
        torch.testing.assert_close(part, whole[:, index], rtol=0, atol=0)
    torch.testing.assert_close(inputs.views(np.arange(N), ("weak",), 3, 2), whole[0], rtol=0, atol=0)
    assert not torch.equal(inputs.views(np.arange(N), names, 3, 3), whole.flatten(0, 1))


def test_a_strong_view_is_the_augmentation_of_the_flipped_image() -> None:
    inputs = tiny.images(N, flip=True, strong=STRONG)
    flipped = augment.draw_flips(N, 3, 1, "strong_1")
    expected = []
    for row in (6, 2):
        image = torch.from_numpy(tiny.pixels(N)[row]).permute(2, 0, 1)
        image = image.flip(2) if flipped[row] else image
        expected.append(augment.StrongAugmentation(STRONG)(image, seeds.derive_seed(3, "strong_1", 1, row)))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (tiny.MEAN, tiny.STD))
    found = inputs.views(np.array([6, 2]), ("weak", "strong"), 3, 1)[2:]
    torch.testing.assert_close(found, augment.normalise(torch.stack(expected), mean, std))


def test_views_that_do_not_exist() -> None:
    with pytest.raises(ConfigError, match="strong: .*needs the settings of the strong view"):
        tiny.images(N).views(np.arange(2), ("weak", "strong"), 0, 1)
    with pytest.raises(ConfigError, match="no view is called 'medium'"):
        tiny.images(N, strong=STRONG).views(np.arange(2), ("medium",), 0, 1)


# ---------------------------------------------------------------------------------------------- crops and their places
def ramps(n: int, height: int, width: int) -> np.ndarray:
    """Pictures whose red is the place from left to right, green from top to bottom, blue the row of the split."""
    pixels = np.zeros((n, height, width, 3), np.uint8)
    pixels[..., 0] = np.round(255 * (np.arange(width) + 0.5) / width)
    pixels[..., 1] = np.round(255 * (np.arange(height) + 0.5) / height)[:, None]
    pixels[..., 2] = np.arange(n)[:, None, None] * 9
    return pixels


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("crop", [1.0, 0.3])
def test_geometry_tells_where_every_pixel_of_a_view_comes_from(crop: float, flip: bool) -> None:
    n, height, width = 20, 48, 96
    rows = np.arange(n)[::-1].copy()
    strong = StrongView.model_validate(
        {"crop": crop, "cutout": 0.0, "operations": 0, "magnitude": 0, "jitter": 0.0, "grayscale": 0.0}
    )
    inputs = ImageInputs(ramps(n, height, width), rows, (0, 0, 0), (1, 1, 1), flip=flip, crop=crop, strong=strong)
    index, names = np.array([3, 19, 0, 7, 11, 12]), ("weak", "strong", "strong")
    views = inputs.views(index, names, 4, 2).unflatten(0, (3, 6))
    geometry = inputs.geometry(index, names, 4, 2)
    assert geometry.dtype == torch.float32 and geometry.shape == (3, 6, 5)
    u, v = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    for place in range(3):
        for b, row in enumerate(rows[index]):
            left, top, right, bottom, mirrored = geometry[place, b].tolist()
            across = left + (1 - u if mirrored else u) * (right - left)
            down = top + v * (bottom - top)
            red, green, blue = views[place, b].numpy()
            # the outermost pixels of a crop repeat its border; 8 bits and two roundings
            assert np.abs(red - across)[:, 2:-2].max() < 0.008 and np.abs(red - across).max() < 0.02
            assert np.abs(green - down[:, None])[2:-2].max() < 0.008 and np.abs(green - down[:, None]).max() < 0.02
            assert np.abs(blue * 255 - 9 * row).max() < 0.01
    boxes, mirrored = geometry[..., :4].flatten(0, 1), geometry[..., 4].flatten()
    assert set(mirrored.tolist()) == ({0.0, 1.0} if flip else {0.0})
    if crop == 1:
        assert torch.equal(boxes, torch.tensor([0.0, 0, 1, 1]).expand(18, 4))
    else:
        assert len(set(map(tuple, boxes.tolist()))) == 18, "each view of each image has a crop of its own"
        assert ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).min() > 0.28


def test_crops_do_not_depend_on_the_batch_and_change_with_seed_and_epoch() -> None:
    inputs, names = tiny.images(N, flip=True, crop=0.3, strong=STRONG), ("weak", "strong")
    whole, places = inputs.views(np.arange(N), names, 3, 2), inputs.geometry(np.arange(N), names, 3, 2)
    for index in batches(N, 4, np.array([5, 2, 8, 0, 7, 1, 6, 3, 4])):
        part = inputs.views(index, names, 3, 2).unflatten(0, (2, len(index)))
        torch.testing.assert_close(part, whole.unflatten(0, (2, N))[:, index], rtol=0, atol=0)
        assert torch.equal(inputs.geometry(index, names, 3, 2), places[:, index])
    for seed, epoch in ((4, 2), (3, 3)):
        assert not torch.equal(inputs.geometry(np.arange(N), names, seed, epoch), places)
    assert torch.equal(places[1, :, :4], torch.tensor([0.0, 0, 1, 1]).expand(N, 4)), "the strong view has its own crop"
    assert not torch.equal(places[0, :, :4], places[1, :, :4])


def test_evaluation_is_never_cropped() -> None:
    torch.testing.assert_close(tiny.images(N, flip=True, crop=0.3).plain(np.arange(N)), plain())


def test_who_gives_geometry() -> None:
    assert tiny.images(N).provides == {"geometry"} and tiny.features(N).provides == frozenset()
    with pytest.raises(ConfigError, match="cached features have no geometry"):
        tiny.features(N).geometry(np.arange(2), ("weak",), 0, 1)


# ---------------------------------------------------------------------------------------------- batches, predictions
@pytest.mark.parametrize(
    ("whole", "names"),
    [
        (FeatureInputs(tiny.numbers(9, 4), tiny.numbers(9, 4, seed=1), True), ("weak",)),
        (tiny.images(9, flip=True, crop=0.5, strong=tiny.strong()), ("weak", "strong")),
    ],
    ids=["features", "images"],
)
def test_a_part_sees_the_views_that_its_images_have_in_the_whole(whole: Inputs, names: tuple[str, ...]) -> None:
    rows = np.array([7, 2, 3, 8])
    part, at = Subset(whole, rows), np.array([3, 0])
    everything = whole.views(np.arange(9), names, 5, 2).unflatten(0, (len(names), 9))[:, [8, 7]]
    torch.testing.assert_close(part.views(at, names, 5, 2).unflatten(0, (len(names), 2)), everything)
    torch.testing.assert_close(part.plain(at), whole.plain(np.array([8, 7])))
    assert (len(part), part.provides) == (4, whole.provides)
    if "geometry" in whole.provides:
        geometry = whole.geometry(np.arange(9), names, 5, 2)[:, [8, 7]]
        torch.testing.assert_close(part.geometry(at, names, 5, 2), geometry)
    else:
        with pytest.raises(ConfigError, match="cached features have no geometry"):
            part.geometry(at, names, 5, 2)


def test_batches_cover_an_order_once() -> None:
    assert [part.tolist() for part in batches(7, 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [part.tolist() for part in batches(4, 2, np.array([3, 1, 0, 2]))] == [[3, 1], [0, 2]]
    assert list(batches(0, 3)) == []


def test_predictions_are_eval_mode_logits_of_every_row_in_order() -> None:
    network, inputs = tiny.network(on_images=True), tiny.images(N)
    network.train()(inputs.plain(np.arange(N)))  # moves the running statistics away from 0 and 1
    found = predict(network, inputs, 4, CPU)
    assert (found.shape, found.dtype) == ((N, tiny.C), np.float32)
    with torch.no_grad():
        expected = network.eval()(plain())["logits"].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_predictions_do_not_depend_on_the_batch_size() -> None:
    network, inputs = tiny.network(on_images=True), tiny.images(N)
    network.train()(inputs.plain(np.arange(N)))
    whole = predict(network, inputs, 100, CPU)
    for size in (1, 2, 4):  # one row alone, and a last batch of one: 9 = 4 + 4 + 1
        np.testing.assert_allclose(predict(network, inputs, size, CPU), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_predicting_leaves_modes_state_and_gradients_as_they_were(training: bool) -> None:
    network = tiny.network(on_images=True).train(training)
    for module in network.batch_norms()[:2]:
        module.train(not training)  # as frozen batch norm within a network that trains
    modes = [module.training for module in network.modules()]
    state = {name: value.clone() for name, value in network.state_dict().items()}
    predict(network, tiny.images(N), 4, CPU)
    assert [module.training for module in network.modules()] == modes
    assert all(torch.equal(value, network.state_dict()[name]) for name, value in state.items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in network.parameters())
    network(tiny.images(N).plain(np.arange(4)))["logits"].sum().backward()  # no inference tensor is left behind


def test_predictions_in_half_precision_come_out_in_float32() -> None:
    class Half(nn.Module):
        def forward(self, inputs: Tensor) -> dict[str, Tensor]:
            return {"logits": inputs.half()}

    assert predict(Half(), tiny.features(N), 4, CPU).dtype == np.float32
