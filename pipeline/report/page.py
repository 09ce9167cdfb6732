"""Render the page and write ``report/``: one HTML file that opens without a network, and the files behind it.

The bytes depend on what was collected and on nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.core import files
from pipeline.report import frames, record
from pipeline.report.context import Files, Page, Part
from pipeline.report.findings import findings
from pipeline.report.frames import Results
from pipeline.report.read import Collected
from pipeline.report.sections import (
    audit,
    curves,
    data,
    headline,
    landscapes,
    missed,
    rest,
    scores,
    search,
    second_stage,
    separation,
)
from pipeline.report.text import environment

Maker = Callable[[Page, Results], Part]
SECTIONS: tuple[tuple[str, str, Maker], ...] = (
    ("headline", "Findings", headline.part),
    ("missed", "Missed labels", missed.part),
    ("map", "mAP", scores.part),
    ("curves", "Curves", curves.part),
    ("wasserstein", "Separation", separation.part),
    ("landscape", "Landscapes", landscapes.part),
    ("audit", "Pseudo-labels", audit.part),
    ("lac", "Second stage", second_stage.part),
    ("search", "Settings", search.part),
    ("data", "Data", data.part),
)
"""Anchor (and template), name in the menu, and what makes the part of one dataset, in the order of the page."""


@dataclass(frozen=True)
class Report:
    """Everything that is written."""

    html: str
    markdown: str
    summary: dict[str, Any]
    compared: dict[str, Any]
    files: Files


@dataclass(frozen=True)
class Section:
    """A section of the page; one that would show nothing becomes a line of the last."""

    id: str
    short: str
    html: str


def build(collected: Collected) -> Report:
    """Make the page and all files beside it.

    Args:
        collected: What the stages left.

    Returns:
        The page's text, its short form in Markdown, the summary, what DVC compares, figures and tables.
    """
    page = Page(collected)
    html = environment(escape=True).get_template("page.html.j2").render(page=page, sections=_sections(page))
    summary = record.summary(page.results.values())
    markdown = environment(escape=False).get_template("summary.md.j2")
    text = markdown.render(page=page, summary=summary, findings=findings)
    return Report(html, text, summary, record.compared(page.results.values()), page.files)


def _sections(page: Page) -> list[Section]:
    templates, sections, left_out = environment(escape=True), [], []

    def render(name: str, short: str, **content: Any) -> None:
        template = templates.get_template(f"{name}.html.j2")
        html = template.render(page=page, id=name, number=len(sections) + 1, **content)
        sections.append(Section(name, short, html))

    for name, short, make in SECTIONS:
        if (name == "missed" and page.all_truth) or (name == "search" and not page.collected.params.grid.search):
            continue
        parts = [make(page, result) for result in page.results.values()]
        if name == "headline" or any(part.content for part in parts):
            render(name, short, parts=parts)
        else:
            left_out.append((short, [part.unmeasured for part in parts if part.unmeasured]))
    render("rest", "Missing, reproduce", parts=[], content=rest.content(page), left_out=left_out)
    return sections


def write(root: Path, collected: Collected, partial: bool = False) -> Report:
    """Write ``report/`` below the root, and remove figures and tables that an earlier page had and this one has not.

    Args:
        root: Project root.
        collected: What the stages left.
        partial: Whether results may be missing: the summary then goes to summary.partial.json, which Git ignores.

    Returns:
        What was written.
    """
    report = build(collected)
    folder = root / "report"
    for name, image in report.files.figures.items():
        files.write_bytes(folder / "figures" / f"{name}.png", image)
    for name, frame in report.files.tables.items():
        files.write_tsv(folder / "tables" / f"{name}.tsv", frames.records(frame))
    for kind, names in (("figures/*.png", report.files.figures), ("tables/*.tsv", report.files.tables)):
        (folder / kind).parent.mkdir(parents=True, exist_ok=True)  # an out of the stage, even without runs
        for path in folder.glob(kind):
            if path.stem not in names:
                path.unlink()
    if partial:
        files.write_json(folder / "summary.partial.json", report.summary)
    else:
        files.write_json(folder / "summary.json", report.summary)
        files.write_json(folder / "metrics.json", report.compared)
        (folder / "summary.partial.json").unlink(missing_ok=True)
    files.write_text(folder / "index.html", report.html)
    files.write_text(folder / "summary.md", report.markdown)
    return report
