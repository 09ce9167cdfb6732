import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.networks.places import PlacesHead, log_mean_exp

LOGITS = st.lists(st.floats(-80, 80, width=32), min_size=1, max_size=6)


@given(LOGITS, st.floats(0.01, 20))
def test_log_mean_exp_is_the_formula_and_lies_between_mean_and_largest(logits: list[float], sharpness: float) -> None:
    places = torch.tensor(logits, dtype=torch.float64).view(1, 1, 1, -1)
    found = float(log_mean_exp(places, sharpness))
    largest = max(logits)  # taken out, so that no power overflows
    total = sum(math.exp(sharpness * (logit - largest)) for logit in logits)
    assert found == pytest.approx(largest + math.log(total / len(logits)) / sharpness, abs=1e-9)
    assert sum(logits) / len(logits) - 1e-9 <= found <= largest + 1e-9


def test_it_is_the_mean_where_places_agree_or_sharpness_vanishes() -> None:
    generator = torch.Generator().manual_seed(0)
    places = torch.randn(2, 3, 2, 4, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(log_mean_exp(places, 1e-7), places.mean((2, 3)), atol=1e-5, rtol=0)
    torch.testing.assert_close(log_mean_exp(torch.full((1, 2, 3, 3), -4.5), 0.2), torch.full((1, 2), -4.5))


def test_pooled_logits_train_and_places_score() -> None:
    torch.manual_seed(0)
    head = PlacesHead(3, 2, sharpness=0.5)
    maps, pooled = torch.randn(4, 3, 2, 2), torch.randn(4, 3)
    for module in (head.train(), head.eval()):
        torch.testing.assert_close(module(None, pooled)["logits"], head.linear(pooled))
    answer = head.train()(maps, pooled)
    torch.testing.assert_close(answer["logits"], head.linear(pooled))
    scored = head.eval()(maps, pooled)
    torch.testing.assert_close(scored["logits"], log_mean_exp(answer["maps"], 0.5))
    assert torch.equal(scored["maps"], answer["maps"]) and answer["features"] is pooled
