"""Whole numbers of the command line."""

import argparse

import pytest

from pipeline.core.arguments import whole_number


@pytest.mark.parametrize(("text", "value"), [("0", 0), ("7", 7), ("007", 7), ("10", 10)])
def test_a_number_of_the_range_is_read(text: str, value: int) -> None:
    assert whole_number(0, 10)(text) == value


@pytest.mark.parametrize("text", ["", "-1", "+3", "11", "1.0", "1e1", " 3", "3\n", "x", "٣", "1_0", "9" * 5000])  # noqa: RUF001
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is no whole number from 0 to 10$"):
        whole_number(0, 10)(text)


def test_without_a_most_any_number_of_18_digits_is_one() -> None:
    assert whole_number(1)("9" * 18) == 10**18 - 1
    for text in ("0", "9" * 19):
        with pytest.raises(argparse.ArgumentTypeError, match="is no whole number from 1$"):
            whole_number(1)(text)
