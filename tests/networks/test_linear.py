import torch

from pipeline.networks.linear import LinearHead, class_maps


def head() -> LinearHead:
    made = LinearHead(3, 2)
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
