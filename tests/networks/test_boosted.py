import pytest
import torch
from torch import Tensor

from pipeline.networks.boosted import BoostedHead
from pipeline.networks.linear import LinearHead


def maps(batch: int = 3) -> Tensor:
    return torch.randn(batch, 6, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def make(factor: float = 5.0) -> BoostedHead:
    torch.manual_seed(0)
    return BoostedHead(6, 2, factor=factor, scale="none").double()


def test_positive_places_are_boosted_and_others_not():
    """By hand: class maps [[2, -3], [1, 0]] and their negatives less 1."""
    head = BoostedHead(1, 2, factor=5.0, scale="none")
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        head.linear.bias.copy_(torch.tensor([0.0, -1.0]))
    pooled = torch.tensor([[9.0]])
    answer = head(torch.tensor([[[[2.0, -3.0], [1.0, 0.0]]]]), pooled)
    assert list(answer) == ["logits", "features", "maps"] and answer["features"] is pooled
    assert answer["maps"].tolist() == [[[[2, -3], [1, 0]], [[-3, 2], [-2, -1]]]]
    assert answer["logits"].tolist() == [[(10 - 3 + 5 + 0) / 4, (-3 + 10 - 2 - 1) / 4]]


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_gradient_is_boosted_where_the_map_is_positive(factor):
    head = make(factor)
    given = maps().requires_grad_()
    answer = head(given, given.mean((2, 3)))
    answer["logits"][:, 1].sum().backward()
    slope = torch.where(answer["maps"][:, 1:2] > 0, factor, 1.0) / 12
    torch.testing.assert_close(given.grad, slope * head.linear.weight[1].detach().view(1, 6, 1, 1))


def test_factor_one_is_the_linear_head_under_mean_pooling():
    boosted, linear = make(1.0), LinearHead(6, 2, scale="none").double()
    linear.load_state_dict(boosted.state_dict())
    pooled = maps().mean((2, 3))
    first, second = boosted(maps(), pooled), linear(maps(), pooled)
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(first[name], second[name], rtol=1e-12, atol=1e-14)


def test_weights_fit_a_linear_head_and_start_as_its_own_do():
    torch.manual_seed(0)
    linear, boosted = LinearHead(6, 2, scale="none").double(), make()
    assert list(linear.state_dict()) == list(boosted.state_dict()) == ["linear.weight", "linear.bias"]
    assert torch.equal(linear.linear.weight, boosted.linear.weight)
    assert torch.equal(linear.linear.bias, boosted.linear.bias)


def test_a_boost_lifts_logits_and_never_lowers_them():
    plain, boosted = make(1.0)(maps(), maps().mean((2, 3))), make(5.0)(maps(), maps().mean((2, 3)))
    assert (boosted["logits"] > plain["logits"]).all()
    assert torch.equal(boosted["maps"], plain["maps"])


def test_pooled_features_alone_are_refused():
    with pytest.raises(ValueError, match="the boosted head reads feature maps: .*pooled"):
        make()(None, torch.zeros(1, 6))
