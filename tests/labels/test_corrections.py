"""Answers about labels: their file line by line, and what stays known of them after a draw."""

from dataclasses import replace

import numpy as np
import pytest

from pipeline.core.errors import SourceError
from pipeline.core.faults import FaultyData
from pipeline.labels.corrections import (
    Correction,
    count_corrections,
    format_answers,
    read_answers,
    read_corrections,
    write_answers,
)
from pipeline.labels.draws import given
from pipeline.labels.implications import Rules
from pipeline.labels.observed import mark_not_shown, observed_file, read_shown, write_observed
from pipeline.labels.table import SPLITS, read_table, write_table
from tests.labels.cases import drawn, table

PATHS = ("a.jpg", "Grüße/ü 1, 2.jpg", '"q".jpg', "=x.jpg")
CLASSES = ("cat, big", "<script>", '"dog"', "été", "=1+1", "-")


def written(folder, text: str):
    file = folder / "pets.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_answers_are_labels_of_their_cells(tmp_path):
    file = written(tmp_path, "path,class,value,who,when\na.jpg,été,present,Ann,2026-01-02\n=x.jpg,-,absent,,\n")
    found = read_corrections(file, PATHS, CLASSES)
    expected = np.zeros((4, 6), np.int8)
    expected[0, 3], expected[3, 5] = 1, -1
    assert np.array_equal(found.labels, expected)
    assert found.lines == {(0, 3): 2, (3, 5): 3} and found.answers[0] == (
        "a.jpg",
        "été",
        "present",
        "Ann",
        "2026-01-02",
    )


def test_odd_names_come_back_as_they_were(tmp_path):
    answers = [Correction(path, name, "absent", "=Ann, B.", "now") for path in PATHS for name in CLASSES]
    write_answers(tmp_path / "pets.csv", answers)
    assert [answer for _, answer in read_answers(tmp_path / "pets.csv")] == answers
    assert (read_corrections(tmp_path / "pets.csv", PATHS, CLASSES).labels == -1).all()
    assert not any(line.startswith(("=", "-", "+", "@")) for line in format_answers(answers).splitlines())


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffpath,class,value,who,when\r\na.jpg,été,present,Ann,x\r\n",
        "class;value;path\nété; Present ;a.jpg\n",
        "path\tclass\tvalue\n\na.jpg\te\u0301te\u0301\tPRESENT\n\n",
        "Path,Class,Value\n./a.jpg , été,present\n",
    ],
)
def test_what_spreadsheets_save_is_read(text, tmp_path):
    labels = read_corrections(written(tmp_path, text), PATHS, CLASSES).labels
    assert labels[0, 3] == 1 and np.count_nonzero(labels) == 1


FAULTS = {
    "b.jpg,été,present,,": r"images are not in the dataset \(write .*\): line 2 'b.jpg'",
    "/a.jpg,été,present,,": r"invalid image paths: line 2: path '/a.jpg' is absolute",
    "../a.jpg,été,present,,": "climbs out of its folder",
    "a.jpg,ete,present,,": r"classes are not in the dataset \(mend the name, or delete the line\): line 2 'ete'",
    "a.jpg,été,yes,,": "values are neither present nor absent: line 2 'yes'",
    "a.jpg,été,present": "lines have another number of fields than 5: line 2",
    "a.jpg,été,present,Ann,\na.jpg,été,absent,Bob,": r"two answers .* differ "
    r"\(delete the wrong line\): line 3 says absent, line 2 present: 'a.jpg' 'été'",
    "a.jpg,été,present,Ann,\na.jpg,été,absent,Ann,": "two answers .* differ",
    'a.jpg,"été,present,,': "unexpected end of data",
}


@pytest.mark.parametrize("lines", FAULTS)
def test_a_fault_is_named_with_its_line(lines, tmp_path):
    file = written(tmp_path, f"path,class,value,who,when\n{lines}\n")
    with pytest.raises(SourceError, match=rf"^corrections/pets\.csv: .*{FAULTS[lines]}"):
        read_corrections(file, PATHS, CLASSES)


@pytest.mark.parametrize(
    "header", ["", "path,class", "path,class,value,note", "path,class,value,value", "a.jpg,été,present"]
)
def test_a_header_that_is_none_is_named(header, tmp_path):
    with pytest.raises(SourceError, match=r"corrections/pets\.csv: line 1: must be path,class,value,who,when"):
        read_corrections(written(tmp_path, f"{header}\n"), PATHS, CLASSES)


def test_all_faults_are_listed(tmp_path):
    lines = "\n".join(list(FAULTS)[:5])
    with pytest.raises(FaultyData) as caught:
        read_corrections(written(tmp_path, f"path,class,value,who,when\n{lines}\n"), PATHS, CLASSES)
    assert len(caught.value.lines) == 5


def test_answers_that_agree_count_once(tmp_path):
    text = "path,class,value,who\na.jpg,été,absent,Ann\na.jpg,été,absent,Bob\na.jpg,été,absent,Ann\n"
    found = read_corrections(written(tmp_path, text), PATHS, CLASSES)
    assert found.labels.sum() == -1 and len(found.answers) == 3
    assert found.repeated == ("corrections/pets.csv: line 4 says what line 2 says; delete one",)


def test_a_file_without_an_answer_is_none(tmp_path):
    assert read_corrections(written(tmp_path, "path,class,value,who,when\n"), PATHS, CLASSES).answers == ()


def test_counts_by_class_and_split(tmp_path):
    labels = np.array([[1, -1, 0], [0, 1, 1]], np.int8)
    lines = "x,a,absent,Ann\nx,b,absent,Ann\nx,c,present,Bob\ny,a,absent,\ny,b,present,"
    found = read_corrections(written(tmp_path, f"path,class,value,who\n{lines}\n"), ("x", "y"), ("a", "b", "c"))
    counts = count_corrections(labels, found, np.array([0, 2]), (SPLITS, ("a", "b", "c")))
    assert (counts["cells"], counts["agree"], counts["add"], counts["overturn"]) == (5, 2, 2, 1)
    assert counts["people"] == {"Ann": 2, "Bob": 1, "nobody named": 2}
    assert counts["classes"] == [
        {"class": "a", "split": "train", "agree": 0, "add": 0, "overturn": 1},
        {"class": "a", "split": "test", "agree": 0, "add": 1, "overturn": 0},
        {"class": "b", "split": "train", "agree": 1, "add": 0, "overturn": 0},
        {"class": "b", "split": "test", "agree": 1, "add": 0, "overturn": 0},
        {"class": "c", "split": "train", "agree": 0, "add": 1, "overturn": 0},
    ]


# ---------------------------------------------------------------------------------------------- what stays known
def test_a_hidden_label_that_was_answered_is_known_and_no_pick_of_the_draw():
    truth = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1]], np.int8)
    corrected = np.array([[1, 1, 0, -1], [0, 0, 0, 0], [0, -1, 0, 1]], np.int8)
    prepared = replace(table(truth), corrected=corrected)
    draw = drawn(prepared)
    known = draw.imply(prepared)
    assert np.array_equal(known.labels, np.where(corrected != 0, corrected, draw.observed))
    shown = mark_not_shown(prepared, *known)
    assert np.array_equal(shown == 1, draw.observed == 1)  # the draw's picks, answered or not
    assert np.array_equal(shown == 2, (corrected == 1) & (draw.observed != 1))
    assert np.array_equal(shown == -2, corrected == -1)


def test_given_labels_stay_picks_and_answers_are_none(tmp_path):
    """Of labels that are not exhaustive: what the data give is shown, what people answered beside it or instead not."""
    truth = np.array([[1, 1, 0], [0, 1, 0]], np.int8)
    scored = np.array([[1, 1, 1], [1, 1, 0]], bool)
    corrected = np.array([[0, 1, 0], [-1, 1, 0]], np.int8)  # the second row gave a, which was overturned
    prepared = replace(table(truth, scored, exhaustive=False), corrected=corrected)
    draw = given(prepared)
    assert draw.observed.tolist() == [[1, 0, -1], [0, 0, 0]]
    known = draw.imply(prepared)
    assert known.labels.tolist() == [[1, 1, -1], [-1, 1, 0]]
    table_file, file = tmp_path / "data/prepare/pets/table.h5", observed_file(tmp_path, "pets", 0)
    write_table(table_file, prepared)
    write_observed(file, {"single": known.labels}, table_file, *known[1:])
    assert read_shown(file, prepared).tolist() == [[1, 2, -1], [-2, 2, 0]]


def test_what_an_answer_implies_is_no_pick_either():
    """A given child shows its parent; the parent of an answered child is known by the answer alone."""
    rules = Rules({"a": ("b",)}, (("a", "c"),))
    truth = np.array([[1, 1, 0], [1, 1, 0]], np.int8)
    implied = np.array([[0, 1, 1], [0, 1, 1]], bool)
    corrected = np.array([[0, 0, 0], [1, 0, 0]], np.int8)
    prepared = replace(table(truth, exhaustive=False), rules=rules, implied=implied, corrected=corrected)
    assert mark_not_shown(prepared, *given(prepared).imply(prepared)).tolist() == [[1, 1, -2], [2, 2, -2]]


def test_a_table_keeps_its_corrections(tmp_path):
    prepared = replace(table([[1, 0], [0, 1]]), corrected=np.array([[1, 0], [-1, 0]], np.int8))
    write_table(tmp_path / "table.h5", prepared)
    found = read_table(tmp_path / "table.h5").take(np.array([1]))
    assert found.corrected is not None and found.corrected.tolist() == [[-1, 0]]
    with pytest.raises(ValueError, match=r"corrected is not what truth and scored say, for 000\.jpg and class b"):
        replace(table([[1, 0]]), corrected=np.array([[0, 1]], np.int8))
