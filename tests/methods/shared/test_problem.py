"""What a method knows of its problem, counted by hand."""

from dataclasses import replace

import numpy as np
import torch

from pipeline.methods.shared.problem import describe

OBSERVED = np.array([[1, 0, -1], [0, 1, 1], [-1, -1, 1], [0, 0, 0]], np.int8)


def test_a_problem_counts_what_is_known() -> None:
    problem = describe(("a", "b", "c"), OBSERVED, 1.5, 7)
    assert (problem.n, problem.observed_absences, problem.expected_positives, problem.width) == (4, 3, 1.5, 7)
    assert problem.observed_counts.tolist() == [1, 1, 2] and problem.beliefs is None


def test_a_part_of_a_problem_is_that_of_its_images() -> None:
    rows = np.array([2, 0])
    whole = describe(("a", "b", "c"), OBSERVED, 1.5, 7)
    part = whole.take(rows, OBSERVED[rows])
    assert (part.n, part.observed_absences, part.expected_positives, part.width) == (2, 3, 1.5, 7)
    assert part.observed_counts.tolist() == [1, 0, 1] and part.classes == whole.classes and part.beliefs is None
    beliefs = torch.arange(12.0).view(4, 3)
    part = replace(whole, beliefs=beliefs).take(rows, OBSERVED[rows])
    assert part.beliefs is not None and part.beliefs.tolist() == [[6, 7, 8], [0, 1, 2]]
