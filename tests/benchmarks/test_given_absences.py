"""The absence that is given is that of the likeliest absent class."""

import numpy as np

from benchmarks.given_absences import give_likeliest


def test_the_likeliest_absent_class_is_given() -> None:
    truth = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 1]])
    logits = np.array([[9.0, -1.0, 2.0], [3.0, 8.0, 4.0], [0.0, 1.0, 2.0]])
    observed = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1]], np.int8)
    given = give_likeliest(observed, truth, logits)
    np.testing.assert_array_equal(given, [[1, 0, -1], [0, 1, -1], [0, 0, 1]])
    assert observed.min() == 0  # the labels as they were drawn stay
