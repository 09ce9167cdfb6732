"""Summaries of stages: a jinja2 template, filled in and stored as ``summary.md``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from pipeline.core.files import write_text
from pipeline.core.text import show_text


def write_summary(path: str | Path, template: Path, context: Mapping[str, Any]) -> None:
    """Render a template of Markdown and write it to a file.

    Args:
        path: Target file, ``summary.md``.
        template: Template file, ``<stage>.md.j2``; it may include others of its folder.
        context: Values by the names that the template uses. They are not escaped.

    Raises:
        jinja2.UndefinedError: The template uses a name that the context lacks.
    """  # noqa: DOC502  raised by jinja2
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        finalize=lambda value: show_text(value) if isinstance(value, str) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    write_text(path, environment.get_template(template.name).render(context))
