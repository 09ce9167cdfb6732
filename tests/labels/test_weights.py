from pathlib import Path

import numpy as np
import pytest

from pipeline.core.errors import ConfigError, SourceError
from pipeline.labels.table import Objects
from pipeline.labels.weights import bias_weights, by_closeness, by_frequency, by_size, read_weights
from tests.labels.cases import chance_of, drawn, settings, table


def test_frequent_classes_are_kept_in_proportion():
    truth = np.zeros((100, 3), np.int8)
    truth[:, 0] = 1
    truth[:20, 1] = 1
    chance = chance_of(drawn(table(truth), bias={"kind": "frequency", "power": 1.0}))
    assert chance[0] == pytest.approx([100 / 120, 20 / 120, 0])
    assert chance_of(drawn(table(truth), bias={"kind": "frequency", "power": -1.0}))[0] == pytest.approx(
        [1 / 6, 5 / 6, 0]
    )
    assert chance_of(drawn(table(truth), bias={"kind": "frequency", "power": 2.0}))[0] == pytest.approx(
        [25 / 26, 1 / 26, 0]
    )
    assert chance_of(drawn(table(truth), bias={"kind": "frequency", "power": 0.0}))[0].tolist() == [0.5, 0.5, 0]


def test_frequency_is_counted_in_the_official_training_part():
    truth, official = [[1, 1], [1, 0], [0, 1], [0, 1]], [0, 0, 1, 1]
    chance = chance_of(drawn(table(truth, official=official), bias={"kind": "frequency", "power": 1.0}))
    assert chance.tolist() == [[2 / 3, 1 / 3], [1, 0], [0, 1], [0, 1]]


def test_size_and_closeness():
    area = np.array([[0.5, 0.125, 0.0]], np.float32)
    offset = np.array([[0.75, 0.5, 0.0]], np.float32)
    objects = Objects(area, offset)
    assert by_size(objects, 1)(slice(None)) == pytest.approx(np.array([[1, 0.25, 2e-4]]))
    assert by_size(objects, 2)(slice(None)) == pytest.approx(np.array([[1, 0.0625, 4e-8]]))
    assert by_closeness(objects, 1)(slice(None)) == pytest.approx(np.array([[0.5, 1, 2e-4]]))  # no box: not the centre
    assert by_size(objects, -1)(slice(None)) == pytest.approx(np.array([[2e-4, 8e-4, 1]]))


def test_no_power_makes_a_weight_that_is_none():
    for power in (-20.0, 20.0):
        weights = by_frequency(np.array([0, 1, 10**6]), power)
        assert np.isfinite(weights).all() and (weights > 0).all() and weights.max() == 1


@pytest.mark.parametrize("kind", ["size", "centre"])
def test_boxes_are_needed_for_draws_by_them(kind):
    wanted = settings(bias={"kind": kind, "power": 1.0})
    with pytest.raises(ConfigError, match=rf"simulate\.bias: {kind} needs boxes, and the data gave none"):
        bias_weights(Path(), table([[1, 0]]), None, wanted)
    objects = Objects(np.full((1, 2), 0.25, np.float32), np.full((1, 2), 0.5, np.float32))
    assert bias_weights(Path(), table([[1, 0]]), objects, wanted)(np.arange(1)).tolist() == [[1, 1]]


# ---------------------------------------------------------------------------------------------- tables of weights
def read(tmp_path, text: str, name: str = "w.csv", probabilities: bool = False) -> np.ndarray:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return read_weights(tmp_path / name, table([[1, 1, 0], [0, 1, 0]]), probabilities)(np.arange(2))


def test_weights_of_classes(tmp_path):
    assert read(tmp_path, "class,weight\nb,+.2e1\na,0.\n").tolist() == [[0, 2, 0], [0, 2, 0]]
    assert read(tmp_path, "class,weight\nb,2\na,0\n").tolist() == [[0, 2, 0], [0, 2, 0]]  # c has no positive
    assert read(tmp_path, "class\tweight\r\na\t1e-1\r\nb\t3\r\n\r\nc\t7\r\n", "w.tsv").tolist() == [
        [0.1, 3, 0],
        [0, 3, 0],
    ]


def test_a_spreadsheet_may_write_semicolons(tmp_path):
    assert read(tmp_path, "class;weight\na;1\nb;2.5\n").tolist() == [[1, 2.5, 0], [0, 2.5, 0]]


def test_weights_of_cells(tmp_path):
    text = "image,class,weight\n000.jpg,a,1\n000.jpg,b,2\n./001.jpg,b,3\n001.jpg,c,9\n"
    assert read(tmp_path, "\ufeff" + text).tolist() == [[1, 2, 0], [0, 3, 0]]


def test_all_faults_of_a_table_are_told(tmp_path):
    text = "image,class,weight\n000.jpg,a,-1\nx.jpg,b,2\n000.jpg,z,3\n001.jpg,b\n000.jpg,b,2\n000.jpg,b,nan\n"
    text += "000.jpg,b,2\n../a,a,1\n"
    with pytest.raises(SourceError) as caught:
        read(tmp_path, text)
    told = str(caught.value)
    for words in (
        "w.csv: lines have another number of fields than 3: line 5",
        "2 images are not in the dataset, whose table.h5 has the names: line 3 'x.jpg', line 9 '../a'",
        "classes are not in the dataset: line 4 'z'",
        "2 weights are below 0 or none: line 2 '-1', line 7 'nan'",
        "duplicate cells: line 8 000.jpg, b",
        "2 present labels have no weight: 000.jpg a, 001.jpg b",
    ):
        assert words in told


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "columns are none"),
        ("class,weight\na,1\n\n\n\nb,oops\n", "below 0 or none: line 6 'oops'"),
        ("class,weight\na,1_0\nb,0x2\n", "below 0 or none: line 2 '1_0', line 3 '0x2'"),
        ("class,weight\na,.\nb,.e5\n", "below 0 or none: line 2 '.', line 3 '.e5'"),
        ("class,weight\na,1.2.3\nb,٣\n", "below 0 or none: line 2 '1.2.3', line 3 '٣'"),
        ('class,weight\na,"1\nb,1\n', "w.csv: line 2: unexpected end of data"),
        ("class,weight\na,0\nb,0.0\n", "none would stay known"),
        ("a,b\n", "columns are a, b, expected class, weight or"),
        ("class,weight\na,1\n", "classes have no weight: b"),
        ("class,weight\na,1\nb,x\n", "weights are below 0 or none: line 3 'x'"),
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path, text, words):
    with pytest.raises(SourceError, match=words):
        read(tmp_path, text)


def test_probabilities_are_at_most_1(tmp_path):
    assert read(tmp_path, "class,weight\na,1\nb,0.5\n", probabilities=True).max() == 1
    with pytest.raises(SourceError, match="weights are no probabilities or none: line 2 '1.5'"):
        read(tmp_path, "class,weight\na,1.5\nb,0.5\n", probabilities=True)
