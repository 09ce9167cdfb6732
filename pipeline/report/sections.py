"""The sections of the page, in their order; one that would show nothing becomes a line of the last."""

from pipeline.report import evidence, missed, origin, scores
from pipeline.report.blocks import UNMEASURED
from pipeline.report.collect import Row
from pipeline.report.draft import Draft


def sections(draft: Draft) -> list[Row]:
    """Make the sections.

    Args:
        draft: The page as it grows; gains the files of the sections.

    Returns:
        One mapping a section: ``id``, ``short`` and full ``title``, ``lead`` and ``blocks``.
    """
    first = scores.headline(draft)
    others = [
        *([] if draft.all_truth else [missed.missed(draft)]),
        scores.maps(draft),
        scores.curves(draft),
        evidence.separation(draft),
        evidence.landscapes(draft),
        evidence.audit(draft),
        scores.second_stage(draft),
        origin.data(draft),
    ]
    shown = [section for section in others if any(map(_shows, section["blocks"]))]
    return [first, *shown, origin.rest(draft, [_instead(draft, item) for item in others if item not in shown])]


def _shows(block: Row) -> bool:
    return block["kind"] != "heading" and block.get("class") != UNMEASURED


def _instead(draft: Draft, section: Row) -> str:
    """Return the line that stands for a section without content."""
    unmeasured = " ".join(block["text"] for block in section["blocks"] if block["kind"] == "text")
    why = ", or their files are missing" if draft.collected.missing else ""
    return f"{section['short']}: {unmeasured or f'Nothing to show: params.yaml asks for no such runs{why}.'}"
