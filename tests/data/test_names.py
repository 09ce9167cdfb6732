from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st

from pipeline.data.names import separates


def parts_by_hand(mark: str, values: list[str]) -> bool:
    """Whether two texts of other parts share one, and one of them has several."""
    split = [{part.strip() for part in value.split(mark)} for value in values]
    return any(len(one) > 1 and one & other and one != other for one in split for other in split)


@checks(max_examples=200, deadline=None)
@given(values=st.lists(st.text("ab; ", max_size=6), max_size=5))
def test_a_mark_separates_where_two_texts_share_a_part(values):
    assert separates(";", values) == parts_by_hand(";", values)


def test_telling_separators_takes_time_in_proportion():
    assert not separates(";", (f"a{number}; b{number}" for number in range(100_000)))
