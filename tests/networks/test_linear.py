import pytest
import torch

from pipeline.networks.boosted import BoostedHead
from pipeline.networks.linear import LinearHead, class_maps, scale_features


def head() -> LinearHead:
    made = LinearHead(3, 2, scale="none")
    with torch.no_grad():
        made.linear.weight.copy_(torch.tensor([[1.0, 0, 2], [0, -1, 0]]))
        made.linear.bias.copy_(torch.tensor([0.5, 1.0]))
    return made


def test_logits_are_an_affine_map_of_the_pooled_features():
    pooled = torch.tensor([[1.0, 2.0, 3.0]])
    for maps in (None, torch.full((1, 3, 2, 2), torch.nan)):
        answer = head()(maps, pooled)
        assert answer["logits"].tolist() == [[7.5, -1.0]] and answer["features"] is pooled
        assert list(answer) == ["logits", "features", *([] if maps is None else ["maps"])]


def test_class_maps_are_the_layer_at_each_place():
    maps = torch.arange(12.0).view(1, 3, 2, 2)  # channel 0 holds 0 to 3, channel 1 holds 4 to 7, channel 2 8 to 11
    expected = [[[[16.5, 19.5], [22.5, 25.5]], [[-3.0, -4.0], [-5.0, -6.0]]]]
    answer = head()(maps, maps.mean((2, 3)))
    assert answer["maps"].tolist() == expected
    torch.testing.assert_close(answer["maps"].mean((2, 3)), answer["logits"])


def test_class_maps_keep_the_precision_of_the_feature_maps():
    made = head()
    maps = torch.ones(1, 3, 1, 1, dtype=torch.bfloat16)
    found = class_maps(maps, made.linear.weight, made.linear.bias)
    assert found.dtype == torch.bfloat16 and found.flatten().tolist() == [3.5, 0.0]


# ---------------------------------------------------------------------------------------------- scale
def test_scaled_features_have_a_mean_square_of_one_whatever_their_length():
    pooled = torch.tensor([[3.0, 0, 4, 0], [0.03, 0, 0.04, 0], [0, 0, 0, 0], [-2e6, 2e6, 2e6, 2e6]])
    found, maps = scale_features(pooled, None, "unit")
    assert maps is None
    hand = [[1.2, 0, 1.6, 0], [1.2, 0, 1.6, 0], [0, 0, 0, 0], [-1, 1, 1, 1]]  # 3 / 5 * sqrt(4)
    torch.testing.assert_close(found, torch.tensor(hand, dtype=torch.float32))
    assert scale_features(pooled, None, "none")[0] is pooled


def test_scaled_logits_are_those_of_an_image_whatever_its_contrast():
    made = LinearHead(6, 2, scale="unit").double()
    maps = torch.randn(3, 6, 2, 2, dtype=torch.float64)
    once, brighter = (made(each, each.mean((2, 3))) for each in (maps, 7 * maps))
    for key in ("logits", "maps"):
        torch.testing.assert_close(once[key], brighter[key])
    torch.testing.assert_close(once["maps"].mean((2, 3)), once["logits"])
    torch.testing.assert_close(brighter["features"], 7 * maps.mean((2, 3)))  # as they are pooled


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_scaled_linear_head_is_the_boosted_one_of_factor_one(dtype: torch.dtype):
    linear, boosted = LinearHead(6, 2, scale="unit").to(dtype), BoostedHead(6, 2, factor=1.0, scale="unit").to(dtype)
    boosted.load_state_dict(linear.state_dict())
    maps = torch.randn(3, 6, 2, 2).to(dtype)
    one, other = (each(maps, maps.mean((2, 3))) for each in (linear, boosted))
    assert one["logits"].dtype == dtype
    torch.testing.assert_close(
        one["logits"], other["logits"], atol=0.05 if dtype == torch.bfloat16 else 1e-6, rtol=0.02
    )
    assert torch.equal(one["maps"], other["maps"])


def test_features_of_length_nought_stop_no_gradient():
    pooled = torch.zeros(1, 4, requires_grad=True)
    scale_features(pooled, None, "unit")[0].sum().backward()
    assert torch.equal(pooled.grad, torch.ones(1, 4))  # type: ignore[arg-type]
    tiny = torch.full((1, 4), 1e-42, requires_grad=True)
    found = scale_features(tiny, None, "unit")[0]
    found.sum().backward()
    assert torch.isfinite(found).all() and torch.isfinite(tiny.grad).all()  # type: ignore[arg-type]
