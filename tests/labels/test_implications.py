import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from pipeline.core.errors import SourceError
from pipeline.labels.implications import Implications, Rules, describe_implied, make_implications

CLASSES = ("animal", "cat", "dog", "pet", "puppy", "sofa")
PARENTS = {"cat": ("animal", "pet"), "dog": ("animal",), "puppy": ("dog",)}
PLAIN = Rules(PARENTS, (("cat", "dog"),))


def closed(rules: Rules, present: set[str], absent: set[str]) -> tuple[set[str], set[str]]:
    """What rules imply, one small step after another until there is none."""
    present = set(present)
    while True:
        more = {parent for child in present for parent in rules.parents.get(child, ())} - present
        if not more:
            break
        present |= more
    absent = absent - present
    while True:
        more = {child for child, parents in rules.parents.items() if absent & set(parents)}
        for group in rules.exclusive:
            if present & set(group):
                more |= set(group) - present
        if not more - absent:
            return present, absent
        absent |= more


def coded(present: set[str], absent: set[str]) -> list[int]:
    return [int(name in present) - int(name in absent) for name in CLASSES]


# ---------------------------------------------------------------------------------------------- by hand
@pytest.mark.parametrize(
    ("present", "absent", "wanted"),
    [
        ({"puppy"}, set(), {"animal": 1, "cat": -1, "dog": 1, "puppy": 1}),
        ({"cat"}, set(), {"animal": 1, "cat": 1, "pet": 1, "dog": -1, "puppy": -1}),
        (set(), {"animal"}, {"animal": -1, "cat": -1, "dog": -1, "puppy": -1}),
        (set(), {"puppy"}, {"puppy": -1}),
        ({"animal"}, {"dog"}, {"animal": 1, "dog": -1, "puppy": -1}),
        ({"puppy"}, {"animal", "pet"}, {"animal": 1, "cat": -1, "dog": 1, "pet": -1, "puppy": 1}),  # the child counts
        ({"sofa"}, set(), {"sofa": 1}),
    ],
)
def test_what_labels_imply(present: set[str], absent: set[str], wanted: dict[str, int]) -> None:
    found = make_implications(CLASSES, PLAIN).imply(np.array([coded(present, absent)], np.int8))
    assert dict(zip(CLASSES, found.labels[0].tolist(), strict=True)) == dict.fromkeys(CLASSES, 0) | wanted
    overruled = [name for name, over in zip(CLASSES, found.overruled[0], strict=True) if over]
    assert overruled == (["animal"] if "puppy" in present and absent else [])


def test_what_was_implied_is_counted() -> None:
    rules = make_implications(CLASSES, PLAIN)
    told = np.array([coded({"puppy"}, {"animal"}), coded({"cat"}, set()), coded(set(), set())], np.int8)
    found = describe_implied(CLASSES, told, rules.imply(told))
    kinds = ("made_present", "of_them_said_to_be_absent", "made_absent")
    assert [found[kind] for kind in kinds] == [4, 1, 3]
    assert found["classes"] == {
        "animal": dict(zip(kinds, (2, 1, 0), strict=True)),
        "cat": dict(zip(kinds, (0, 0, 1), strict=True)),
        "dog": dict(zip(kinds, (1, 0, 1), strict=True)),
        "pet": dict(zip(kinds, (1, 0, 0), strict=True)),
        "puppy": dict(zip(kinds, (0, 0, 1), strict=True)),
    }


@pytest.mark.parametrize(
    ("parents", "exclusive", "words"),
    [
        ({"kitten": ("cat",)}, (), "parents: no class kitten; there are animal, cat, dog"),
        ({"cat": ("feline",)}, (), "parents: no class feline"),
        ({}, (("cat", "unicorn"),), "exclusive: no class unicorn"),
        (
            {"cat": ("pet",), "pet": ("animal",), "animal": ("cat",)},
            (),
            "parents: .*cat.* is a cycle: a class is no anc",
        ),
        ({"cat": ("cat",)}, (), "parents: cat -> cat is a cycle"),
        ({}, (("cat",),), r"exclusive: \[cat\]: a set names two classes or more, each once"),
        ({}, (("cat", "dog", "cat"),), r"exclusive: \[cat, dog, cat\]: a set names two"),
        (PARENTS, (("puppy", "animal"),), "animal and puppy exclude each other, so puppy could never be present"),
        (PARENTS, (("animal", "pet"),), "animal and pet exclude each other, so cat could never be present"),
    ],
)
def test_rules_that_cannot_hold_are_named(parents, exclusive, words) -> None:
    with pytest.raises(SourceError, match=words):
        make_implications(CLASSES, Rules(parents, exclusive))


def test_rules_come_back_from_their_text() -> None:
    rules = Rules({"ä": ("b", "c")}, (("ä", "d"),))
    assert Rules.from_json(rules.to_json()) == rules
    assert bool(rules) and not Rules({}, ()) and rules.all_parents() == {"b", "c"}


# ---------------------------------------------------------------------------------------------- over all rules
NAMES = st.sampled_from(CLASSES)


@st.composite
def ruled(draw: st.DrawFn) -> tuple[Rules, Implications]:
    """Rules that can hold: parents come later in a random order."""
    order = draw(st.permutations(CLASSES))
    parents = {}
    for place, child in enumerate(order[:-1]):
        if names := draw(st.lists(st.sampled_from(order[place + 1 :]), max_size=2, unique=True)):
            parents[child] = tuple(names)
    groups = st.lists(NAMES, min_size=2, max_size=3, unique=True).map(tuple)
    rules = Rules(parents, tuple(draw(st.lists(groups, max_size=2))))
    try:
        return rules, make_implications(CLASSES, rules)
    except SourceError:
        assume(False)
        raise


def conflicts(rules: Rules, present: set[str]) -> bool:
    above = closed(rules, present, set())[0]
    return any(len(above & set(group)) > 1 for group in rules.exclusive)


@checks(max_examples=300, deadline=None)
@given(made=ruled(), data=st.data())
def test_labels_imply_what_small_steps_do_and_nothing_more_a_second_time(made, data) -> None:
    rules, implications = made
    cells = data.draw(st.lists(st.sampled_from([1, 0, -1, 0]), min_size=len(CLASSES), max_size=len(CLASSES)))
    present = {name for name, cell in zip(CLASSES, cells, strict=True) if cell == 1}
    absent = {name for name, cell in zip(CLASSES, cells, strict=True) if cell == -1}
    told = np.array([cells], np.int8)
    pair = implications.find_conflict(told[0] == 1)
    assert (pair is not None) == conflicts(rules, present)
    if pair is not None:
        assert {CLASSES[column] for column in pair} <= present
        return
    found = implications.imply(told)
    assert found.labels.dtype == np.int8
    assert found.labels[0].tolist() == coded(*closed(rules, present, absent))
    assert (found.overruled == ((told == -1) & (found.labels == 1))).all()
    again = implications.imply(found.labels)
    assert np.array_equal(again.labels, found.labels) and not again.overruled.any()


@checks(max_examples=100, deadline=None)
@given(made=ruled(), shuffled=st.permutations(range(len(CLASSES))), data=st.data())
def test_the_order_of_classes_and_rules_does_not_matter(made, shuffled, data) -> None:
    rules, implications = made
    other = Rules(dict(reversed(rules.parents.items())), tuple(group[::-1] for group in rules.exclusive[::-1]))
    cells = data.draw(st.lists(st.sampled_from([1, 0, -1, 0]), min_size=len(CLASSES), max_size=len(CLASSES)))
    told = np.array([cells], np.int8)
    assume(implications.find_conflict(told[0] == 1) is None)
    moved = make_implications([CLASSES[place] for place in shuffled], other).imply(told[:, shuffled])
    assert np.array_equal(moved.labels, implications.imply(told).labels[:, shuffled])


@checks(max_examples=50, deadline=None)
@given(made=ruled(), seed=st.integers(0, 99))
def test_what_a_draw_of_true_labels_implies_is_true(made, seed) -> None:
    """So the oracles and the rates of simulate hold with rules as without."""
    rules, implications = made
    generator = np.random.default_rng(seed)
    truth = (generator.random((20, len(CLASSES))) < 0.4).astype(np.int8)
    truth = truth[[implications.find_conflict(row == 1) is None for row in truth]]
    truth = implications.imply(truth * np.int8(2) - np.int8(1)).labels
    known = implications.imply(np.where(generator.random(truth.shape) < 0.3, truth, 0).astype(np.int8))
    assert ((known.labels == 0) | (known.labels == truth)).all() and not known.overruled.any()
