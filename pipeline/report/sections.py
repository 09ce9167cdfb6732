"""The nine sections of the page, in their order."""

from pipeline.report import evidence, origin, scores
from pipeline.report.collect import Row
from pipeline.report.draft import Draft


def sections(draft: Draft) -> list[Row]:
    """Make the sections.

    Args:
        draft: The page as it grows; gains the files of the sections.

    Returns:
        One mapping a section: ``id``, ``short`` and full ``title``, ``lead`` and ``blocks``.
    """
    return [
        scores.headline(draft),
        scores.maps(draft),
        scores.curves(draft),
        evidence.separation(draft),
        evidence.landscapes(draft),
        evidence.audit(draft),
        scores.second_stage(draft),
        origin.data(draft),
        origin.rest(draft),
    ]
