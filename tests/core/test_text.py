"""Text as it may be shown, and tables with long fields."""

import unicodedata
from pathlib import Path

import pytest

from pipeline.core.errors import SourceError
from pipeline.core.faults import Faults, check_class_names
from pipeline.core.text import read_rows, show_text, to_printable

TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""All that unicode lists under Bidi_Control."""


def test_what_is_shown_obeys_nobody() -> None:
    """Every character: none of a terminal's controls and of the turns of writing is left, all others stay."""
    for code in range(0x110000):
        letter = chr(code)
        kind = unicodedata.category(letter)
        obeyed = (kind == "Cc" and letter not in "\t\n") or kind == "Cs" or letter in TURNS
        assert (show_text(letter) != letter) is obeyed, hex(code)
        assert show_text(letter).isascii() or not obeyed
    assert show_text("a\tb\nc") == "a\tb\nc" and to_printable("a\tb\nc") == r"a\tb\nc"
    assert to_printable(b"\xff.jpg".decode("utf-8", "surrogateescape")) == r"\xff.jpg"
    assert to_printable("\x1b[31m\u202egpj.exe") == r"\x1b[31m\u202egpj.exe"


@pytest.mark.parametrize("name", ["cat\u202egod", "\u2066cat", "c\x1b[31mat", "ca\x9bt", "cat\nx", "\ud800", "", " "])
def test_a_name_that_is_not_shown_as_it_is_is_no_class(name: str) -> None:
    faults = Faults("labels.csv")
    check_class_names([name, "dog", "كلب", "👩‍🚀", "é"], faults, "labels.csv")
    with pytest.raises(SourceError, match=r"^labels\.csv: invalid class names? .*characters\): [^\n]*$") as raised:
        faults.raise_if_any()
    assert not set(TURNS + "\x1b\x9b") & set(str(raised.value))


def test_a_long_field_of_a_table_is_read(tmp_path: Path) -> None:
    """131,072 characters are the limit of the csv module: an image may have more tags than that."""
    (tmp_path / "a.csv").write_text("path,labels\na.jpg," + "cat;" * 50_000 + "\n")
    assert [len(fields[1]) for _, fields in read_rows(tmp_path / "a.csv", ",")] == [6, 200_000]
