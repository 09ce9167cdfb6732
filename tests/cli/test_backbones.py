"""The table of backbones: facts against what is known of ResNet-18, and the page against the table."""

from pathlib import Path

import pytest

from benchmarks.backbones import END, SPEED, START
from pipeline.cli import backbones
from pipeline.cli.main import main
from pipeline.core.errors import ConfigError
from pipeline.core.files import read_tsv

RESNET18 = {
    "model": "resnet18.tv_in1k",
    "parameters": "11.2 M",  # 11,689,512 of its paper's network, less the 513,000 of the classifier
    "own size": "224 px",
    "read at": "224 px",
    "features": "512",
    "map": "7 x 7",
    "licence of the weights": "bsd-3-clause",
}


@pytest.fixture
def stored(repository: Path) -> list[dict[str, str]]:
    return read_tsv(repository / backbones.TABLE)


def test_the_facts_of_a_model_are_those_that_are_known() -> None:
    assert backbones.make_row(backbones.read_facts("resnet18.tv_in1k")) == RESNET18


def test_the_stored_table_is_of_the_recommended_ones_and_holds_these_facts(stored) -> None:
    assert [row["model"] for row in stored] == list(backbones.RECOMMENDED)
    assert all(tuple(row) == (*backbones.COLUMNS, SPEED) for row in stored)
    (row,) = (row for row in stored if row["model"] == "resnet18.tv_in1k")
    assert {key: row[key] for key in RESNET18} == RESNET18
    assert all(float(row[SPEED]) > 0 for row in stored if row[SPEED])
    assert sum(bool(row[SPEED]) for row in stored) > 9


def test_the_page_holds_the_stored_table(stored, repository: Path) -> None:
    page = (repository / "docs/backbones.md").read_text().partition(START)[2].partition(END)[0]
    lines = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in page.strip().splitlines()]
    head, _, *rows = lines
    assert head == [*backbones.COLUMNS, SPEED]
    assert rows == [list(row.values()) for row in stored]


def test_the_verb_prints_it(repository: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(repository)
    assert main(["backbones"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["model", *backbones.RECOMMENDED]


def test_a_pattern_lists_names_and_whether_they_are_read(capsys) -> None:
    assert main(["backbones", "test_resnet.r160"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("test_resnet.r160_in1k") and "160 px  read at 224 px: " in line
    assert backbones.find_names("resnet18.tv*") == ["resnet18.tv_in1k"]


def test_what_cannot_be_read_says_why(monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(backbones, "LARGEST", 1000)
        line = backbones.describe_line(backbones.read_facts("resnet18.tv_in1k"), 20)
    assert line.endswith("not read: 0.0 billion parameters, not tried")

    def refuse(name: str, size: int) -> dict[str, object]:
        raise ConfigError(f"backbone.model: {name} takes no pictures of {size} pixels")

    monkeypatch.setattr("pipeline.networks.timm_backbone.describe", refuse)
    facts = backbones.read_facts("resnet18.tv_in1k")
    assert facts.read == "resnet18.tv_in1k takes no pictures of 224 pixels"
    assert backbones.make_row(facts)["read at"] == "not read"


def test_a_name_that_is_not_there_names_those_near_it(capsys) -> None:
    assert main(["backbones", "resnett18"]) == 1
    assert "timm has no model with weights of the name resnett18; near it are resnet" in capsys.readouterr().err
