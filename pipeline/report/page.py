"""Render the page and write ``report/``: one HTML file that opens without a network, and the files behind it.

The bytes depend on what was collected and on nothing else.
"""

from dataclasses import dataclass
from pathlib import Path

import jinja2

from pipeline.core.files import write_bytes, write_json, write_summary, write_text, write_tsv
from pipeline.report import caveats, findings, tables
from pipeline.report.collect import Collected, Row
from pipeline.report.draft import Draft, Files
from pipeline.report.findings import plus_minus
from pipeline.report.sections import sections

TEMPLATE = "page.html.j2"


@dataclass(frozen=True)
class Report:
    """Everything that is written."""

    html: str
    markdown: list[str]
    summary: Row
    files: Files


def build(collected: Collected) -> Report:
    """Make the page and all files beside it.

    Args:
        collected: What the stages left.

    Returns:
        The page's text, its short form in Markdown, the summary, figures and tables.
    """
    results = tables.results(collected)
    draft = Draft(collected, results)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # class names and paths come from data
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    names = [dataset.name for dataset in collected.datasets]
    html = environment.get_template(TEMPLATE).render(
        title=f"{'One label' if draft.one else 'Some labels'} per image: {', '.join(names)}",
        shown="one" if draft.one else "some",
        given=[caveats.scores_are(name, given) for name in names if (given := draft.given(name))],
        advice=caveats.SEE_ADVICE,
        full=[words for name in names if (words := draft.scores_are_true(name))],
        partial=bool(collected.missing),
        sections=sections(draft),
    )
    summary = tables.summary(results)
    return Report(html, _markdown(collected, results, summary, draft.files), summary, draft.files)


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
        write_bytes(folder / "figures" / f"{name}.png", image)
    for name, rows in report.files.tables.items():
        write_tsv(folder / "tables" / f"{name}.tsv", rows)
    for kind, suffix, names in (
        ("figures", ".png", report.files.figures),
        ("tables", ".tsv", report.files.tables),
    ):
        (folder / kind).mkdir(parents=True, exist_ok=True)  # an out of the stage, even without runs
        for path in (folder / kind).glob(f"*{suffix}"):
            if path.stem not in names:
                path.unlink()
    if partial:
        write_json(folder / "summary.partial.json", report.summary)
    else:
        write_json(folder / "summary.json", report.summary)
        (folder / "summary.partial.json").unlink(missing_ok=True)
    write_text(folder / "index.html", report.html)
    write_summary(folder / "summary.md", "Report", report.markdown)
    return report


def _markdown(collected: Collected, results: list[Row], summary: Row, files: Files) -> list[str]:
    runs = sum(len(arm.runs) for arm in collected.arms)
    lines = [
        f"Read: training runs {runs}, audits {len(collected.audits)}, Wasserstein analyses "
        f"{len(collected.wasserstein)}, landscapes {len(collected.landscapes)}. Wrote: figures {len(files.figures)}, "
        f"tables {len(files.tables)}. Missing: {len(collected.missing)}.",
        "",
    ]
    for dataset in collected.datasets:
        lines += [f"- {dataset.name}: {words}" for words in findings.findings(collected, results, dataset)]
    if any(row["given"] for row in results):
        lines += [f"- {caveats.TRUE_SCORES}: {caveats.ADVICE}"]
    lines += [
        "",
        "## Test mAP (percent; over the classes present, mean and sample standard deviation over seeds)",
        "",
        "| dataset | stage | method | test mAP | absent = 0 | supported | gap closed | seeds | head | protocol | "
        "knows the label density |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for dataset, stages in summary.items():
        for stage, methods in stages.items():
            for method, entry in methods.items():
                share = "–" if entry["gap_share"] is None else f"{entry['gap_share']:.0f} %"
                values = [plus_minus(entry[key]) for key in ("test_map", "test_map_absent_zero", "test_map_supported")]
                name = caveats.marked(dataset, entry.get("scores", ()))
                cells = [name, stage, method, *values, share, str(entry["test_map"]["n"])]
                cells += [entry["head"], entry["protocol"], "yes" if entry["knows_label_density"] else "no"]
                lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Missing", ""]
    lines += [f"- `{item.path}`: {item.reason}" for item in collected.missing] or ["- nothing"]
    return [
        *lines,
        "",
        "## Files",
        "",
        "- `index.html`: the page; it opens without a network, figures inside.",
        "- `summary.json`: dataset -> stage -> method -> numbers; the one result file that Git keeps; a partial page"
        " leaves it as it is and writes `summary.partial.json`.",
        "- `figures/<name>.png`, `tables/<name>.tsv`: each figure and its numbers; curves hold a column a method.",
    ]
