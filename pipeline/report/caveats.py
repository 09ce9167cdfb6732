"""What must be said beside scores: what they are against, what nobody measured, and when a split is small."""

from collections.abc import Collection, Sequence

from pipeline.report.collect import SCORED, Dataset
from pipeline.report.tables import GIVEN

TRUE_SCORES = "How to get true scores"
ADVICE = (
    "Label a small sample of the images in full and make it val and test: of each image say of every class whether it "
    "applies. In a csv: one column for each class; rows of val and test hold 1 or 0, cells of train stay blank where "
    "nobody knows, and a column “split” says train, val or test. In a json: “labels” lists the classes that apply, "
    "“absent” those that do not, and “split” says which. Each class must be missing from some image of val and of "
    "test. “spml init” on the folder writes the settings for such a file, with “exhaustive: false”, which is about all "
    "images and stays. The scores of val and test are then true ones; what "
    "is missed among the labels of train stays unknown."
)
"""What makes scores true where labels are not exhaustive; it stands once on a page."""
SEE_ADVICE = f"“{TRUE_SCORES}” in section 1 says what to do."
FEW = 200
"""Images of the test split below which a handful of them moves a mean average precision by points."""


def marked(words: str, given: Collection[str], about: Sequence[str] = ("test",)) -> str:
    """Say in brackets behind a text about scores what they are against, where that is not full labels.

    Args:
        words: The text.
        given: Of val and test, those scored by the labels that were given.
        about: Those whose scores the text is about.

    Returns:
        The text; which split is meant is said where it is not all that the text is about.
    """
    mine = [split for split in about if split in given]
    if not mine:
        return words
    stop = "." * words.endswith(".")
    which = "" if len(mine) == len(about) else f"{' and '.join(mine)} "
    return f"{words.removesuffix('.')} ({which}{GIVEN}){stop}"


def scores_are(dataset: str, given: Collection[str]) -> str:
    """Return the head of a sentence about what the scores of a dataset are against, of which ``given`` names some."""
    which = "Scores" if len(given) > 1 else f"{' and '.join(given).capitalize()} scores"
    return f"{which} of {dataset} are {GIVEN}"


def scores_are_true(dataset: str, given: Collection[str]) -> str:
    """Return the sentence about what is labelled in full of a dataset that is not: empty where ``given`` has both."""
    full = [split for split in SCORED if split not in given]
    if not full:
        return ""
    these = "these scores are true ones" if len(full) > 1 else "its scores are true ones"
    verb = "are" if len(full) > 1 else "is"
    return f"{' and '.join(full).capitalize()} of {dataset} {verb} labelled in full: {these}."


def unmeasured(dataset: str, what: str) -> str:
    """Say that something could not be measured on data some of whose training labels are unknown.

    Args:
        dataset: Name of the dataset.
        what: What could not be measured.

    Returns:
        A sentence.
    """
    return f"Not measured on {dataset}: {what}; nobody knows which of its unknown training labels are present."


def caution(dataset: Dataset) -> str:
    """Say that small differences mean nothing where the test split is small.

    Args:
        dataset: A dataset.

    Returns:
        A sentence; empty where that split has at least ``FEW`` images, and at most a tenth of the classes have fewer
        positives in it than ``report.min_support``.
    """
    if dataset.table is None:
        return ""
    index, least = dataset.table.rows("test"), dataset.min_support
    positives = ((dataset.table.truth[index] == 1) & dataset.table.scored[index]).sum(axis=0)
    rare, classes = int((positives < least).sum()), len(positives)
    if len(index) >= FEW and 10 * rare <= classes:
        return ""
    below = f" and {rare} of {classes} classes below {least} positives" if rare else ""
    return f"With {len(index):,} test images{below}, small differences mean nothing."
