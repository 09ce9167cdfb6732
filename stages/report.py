"""Render what the other stages left into one page: ``python -m stages.report``.

Reads everything that params.yaml asks for; writes report/. ``--partial`` renders what exists and names the rest; it
leaves summary.json, which Git keeps, and writes summary.partial.json. No torch.
"""

from stages import entry  # isort: split

from pathlib import Path

from pipeline.config.params import read_params
from pipeline.report import page
from pipeline.report.read import collect


def report(root: Path, partial: bool = False) -> None:
    """Write report/: the page, its figures and tables, and summary.json (summary.partial.json of a partial page).

    Args:
        root: Project root.
        partial: Whether absent files are named in the page instead of refused.
    """
    page.write(root, collect(root, read_params(root / "params.yaml"), partial), partial)


if __name__ == "__main__":
    entry.run(report)
