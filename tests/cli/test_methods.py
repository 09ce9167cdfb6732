"""The table of methods: complete, right where a paper says so, the same in README; a broken docstring is named."""

from pathlib import Path

import pytest

from pipeline.cli import methods
from pipeline.cli.methods import END, START, Entry, read_entry
from pipeline.core.errors import ConfigError
from pipeline.methods.shared import base

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
YEARS = {
    "an": 2021, "wan": 2021, "epr": 2021, "role": 2021, "ls": 2021, "iun": 2021, "full": 2021,  # Cole
    "em": 2022, "em_apl": 2022, "dw": 2022, "l1r": 2022, "l2r": 2022, "n_ls": 2022, "entmin": 2022,  # Zhou
    "focal": 2017, "asl": 2021, "hill": 2021, "splc": 2021,
    "ll_r": 2022, "ll_ct": 2022, "ll_cp": 2022, "plc": 2022, "lac": 2022, "smile": 2022,
    "en": 2023, "cl": 2023, "scl": 2023, "lasd": 2023, "mime": 2023, "gr": 2024, "framework": 2024,
    "draw": 2026,
}  # fmt: skip
DENSITY = {"epr", "role", "en", "cl", "scl", "lasd"}
NEEDS = {
    "an": "one label",
    "full": "all labels",
    "iun": "true negatives",
    "plc": "two views",
    "lac": "two views, own head (label embedding)",
    "lasd": "three views",
    "scl": "class maps, disk",
    "em_apl": "extra pass each epoch",
    "mime": "own head (bottleneck), extra pass each epoch",
}

GOOD = """GR: predicted soft labels.

risk = 0
Source: Chen et al. (first written 2019), "A loss", IJCAI 2024,
Eq. 4, https://arxiv.org/abs/2009.03501.
Authors' code: none is public.
Differs: from a version of 2025.
"""


@pytest.fixture(scope="module")
def rows() -> dict[str, Entry]:
    return {row.name: row for row in methods.read_entries()}


def test_every_method_has_a_row_and_a_short_idea(rows: dict[str, Entry], repository: Path) -> None:
    assert sorted(rows) == base.names()
    for row in rows.values():
        assert 1 <= len(row.idea.split()) <= 6
        assert (repository / row.file).is_file()


def test_years_are_those_of_the_sources(rows: dict[str, Entry]) -> None:
    assert {name: rows[name].year for name in YEARS} == YEARS


def test_who_knows_the_label_density(rows: dict[str, Entry]) -> None:
    assert {name for name in YEARS if rows[name].density} == DENSITY


def test_needs_are_plain_words(rows: dict[str, Entry]) -> None:
    assert {name: rows[name].needs for name in NEEDS} == NEEDS
    for row in rows.values():
        assert "_" not in row.needs, row


def test_oracles_stand_last_and_the_rest_by_year_then_name(rows: dict[str, Entry]) -> None:
    *others, first, second, third = rows.values()
    assert (first.name, second.name, third.name) == ("full", "iun", "ridge_full")
    assert others == sorted(others, key=lambda row: (row.year, row.name))


@pytest.mark.parametrize("page", [page for page in PAGES if START in page.read_text(encoding="utf-8")], ids=str)
def test_pages_hold_the_table(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    table = methods.format_markdown(methods.read_entries(), page.parent.relative_to(ROOT))
    assert methods.replace_table(text, table) == text, f"run `spml methods --write {page.relative_to(ROOT)}`"


def test_the_year_is_the_last_of_the_source_and_no_address_is_a_year() -> None:
    assert read_entry("gr", GOOD, base.load("an")) == Entry(
        "gr", 2024, "predicted soft labels", "one label", False, "pipeline/methods/gr.py"
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("GR: predicted soft labels.", "GR predicts soft labels.", "line 1 of the docstring is not `NAME: idea.`"),
        ("GR: predicted soft labels.", "GR: predicted soft labels", "line 1 of the docstring is not `NAME: idea.`"),
        ("GR: predicted soft labels.", "GR: a b c d e f g.", "an idea of 7 words; 6 at most"),
        ("Source: ", "From: ", "the docstring has no `Source:`"),
        ("Authors' code: ", "Code: ", "the docstring has no line `Authors' code:` after `Source:`"),
        ('(first written 2019), "A loss", IJCAI 2024', '"A loss", IJCAI', "`Source:` in the docstring names no year"),
        (GOOD, "", "line 1 of the docstring is not `NAME: idea.` (given: '')"),
    ],
)
def test_a_docstring_of_another_form_is_named(old: str, new: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_entry("gr", GOOD.replace(old, new), base.load("an"))
    assert str(error.value).startswith("pipeline/methods/gr.py: ") and words in str(error.value)


def test_a_method_without_a_docstring_is_named() -> None:
    with pytest.raises(ConfigError, match="pipeline/methods/gr.py: line 1"):
        read_entry("gr", None, base.load("an"))


def test_every_need_and_every_label_set_has_words() -> None:
    for need in base.NEEDS:
        for labels in ("single", "all", "negatives"):
            method = type("Made", (base.Method,), {"needs": {need}, "labels": labels, "views": ("weak", "strong")})
            needs = read_entry("made", GOOD, method).needs  # type: ignore
            assert "two views" in needs and "()" not in needs
            assert (labels == "single") or needs.startswith(
                {"all": "all labels", "negatives": "true negatives"}[labels]
            )


def test_a_table_replaces_the_earlier_one_and_nothing_else() -> None:
    table = methods.format_markdown([Entry("a", 2021, "an idea", "one label", True, "pipeline/methods/a.py")])
    page = "# Title\n| other | table |\n\n<!-- methods -->\n| old |\n| older |\n<!-- /methods -->\nafter\n"
    row = "| `a` | 2021 | an idea | one label | yes | [a.py](pipeline/methods/a.py) |"
    new = "\n".join(["| name | year | idea | needs | knows the label density | file |", *["| --- " * 6 + "|", row]])
    assert methods.replace_table(page, table) == page.replace("| old |\n| older |", new)
    for lines in ([], [START], [END], [END, START], [START, START, END], [START, END, END]):
        with pytest.raises(ConfigError, match="one line <!-- methods --> and, below it, one <!-- /methods -->"):
            methods.replace_table("\n".join(["# Title", *lines]), table)
