"""What a template and its context become."""

from pathlib import Path

import jinja2
import pytest

from pipeline.core.summary import write_summary


def write(folder: Path, text: str, **context: object) -> str:
    template = folder / "stage.md.j2"
    template.write_text(text, encoding="utf-8")
    write_summary(folder / "summary.md", template, context)
    return (folder / "summary.md").read_text(encoding="utf-8")


def test_values_enter_as_they_are(tmp_path: Path) -> None:
    text = "# {{ title }}\n\n{% for name in names %}\n- {{ name }}\n{% endfor %}\n{% if names %}\nEnd\n{% endif %}\n\n"
    shown = write(tmp_path, text, title="<b> & é", names=["a", "`b`"])
    assert shown == "# <b> & é\n\n- a\n- `b`\nEnd\n"


def test_a_template_may_include_another(tmp_path: Path) -> None:
    (tmp_path / "part.md.j2").write_text("{{ n }} images", encoding="utf-8")
    assert write(tmp_path, "{% include 'part.md.j2' %}.\n", n=3) == "3 images.\n"


def test_a_name_that_is_not_given_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(jinja2.UndefinedError, match="'title' is undefined"):
        write(tmp_path, "# {{ title }}")
    assert not (tmp_path / "summary.md").exists()
