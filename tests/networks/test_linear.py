import torch

from pipeline.networks.linear import LinearHead


def test_logits_are_an_affine_map_of_the_pooled_features():
    head = LinearHead(3, 2)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0, 0, 2], [0, -1, 0]]))
        head.linear.bias.copy_(torch.tensor([0.5, 1.0]))
    pooled = torch.tensor([[1.0, 2.0, 3.0]])
    for maps in (None, torch.full((1, 3, 2, 2), torch.nan)):
        answer = head(maps, pooled)
        assert list(answer) == ["logits"]
        assert answer["logits"].tolist() == [[7.5, -1.0]]
