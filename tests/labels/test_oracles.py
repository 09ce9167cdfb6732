import numpy as np
import pytest

from pipeline.labels.oracles import label_sets
from tests.labels.cases import table


def test_label_sets_by_hand():
    truth = [[1, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    scored = [[1, 1, 1, 0], [1, 1, 0, 1], [1, 1, 1, 1]]
    single = np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]], np.int8)
    labels = label_sets(table(truth, scored), single)
    assert {name: values.tolist() for name, values in labels.items()} == {
        "single": single.tolist(),
        "all": [[1, 1, -1, 0], [-1, -1, 0, 1], [-1, -1, -1, -1]],
        "negatives": [[0, 1, -1, 0], [-1, -1, 0, 1], [-1, -1, -1, -1]],
    }
    assert {values.dtype for values in labels.values()} == {np.dtype(np.int8)}


def test_oracles_of_labels_that_are_not_exhaustive_know_no_more():
    single = np.array([[1, -1, 0]], np.int8)
    labels = label_sets(table([[1, 0, 0]], [[1, 1, 0]], exhaustive=False), single)
    assert [values.tolist() for values in labels.values()] == [[[1, -1, 0]]] * 3 and len(labels) == 3


@pytest.mark.parametrize("truth, scored", [([[0, 1]], [[1, 1]]), ([[0, 1]], [[0, 1]])])
def test_an_observed_positive_must_be_a_known_positive(truth, scored):
    with pytest.raises(ValueError, match="row 0, class 0"):
        label_sets(table(truth, scored), np.array([[1, 0]], np.int8))


def test_label_sets_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match="differ in shape"):
        label_sets(table([[1, 1], [1, 1]]), np.ones((2, 3), np.int8))
