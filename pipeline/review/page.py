"""The page of a review: one HTML file that asks nothing of any server, or the one that the loopback server hands out.

Its script and its style are allowed by their digests, and nothing else is: a name in the data that looks like a script
stays text. What is shown is escaped where it would turn the direction of writing; what comes back is the name itself.
"""

import base64
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import jinja2
import numpy as np
from PIL import Image

from pipeline.core.text import show_text
from pipeline.labels.corrections import Correction
from pipeline.review.questions import Question

TEMPLATES = Path(__file__).parent / "templates"
THUMBNAIL, LARGE = 360, 2048
"""Longest side in pixels, of a picture on the page and of one that is looked at alone."""
ORDERS = {
    "gain": "Labels come first whose answers are expected to teach most: likely there but not sure, and of classes "
    "that few pictures show.",
    "score": "Labels come first that the model takes to be present.",
    "random": "Labels were picked at random.",
}


@dataclass(frozen=True)
class Review:
    """What is reviewed.

    Args:
        dataset: Its name.
        digest: What tells its images and classes from others', for the answers that a browser keeps.
        questions: The questions, class by class.
        order: How they were chosen, a key of `ORDERS`.
        who: Who answers; empty: the page asks.
    """

    dataset: str
    digest: str
    questions: Sequence[Question]
    order: str
    who: str


def encode_jpeg(pixels: np.ndarray, side: int, quality: int) -> bytes:
    """Return a picture as JPEG.

    Args:
        pixels: (h, w, 3) uint8.
        side: Its longer side at most, in pixels.
        quality: Of JPEG, up to 95.
    """
    image = Image.fromarray(pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()


def make_thumbnails(questions: Sequence[Question], picture: Callable[[int], np.ndarray]) -> dict[int, str]:
    """Return the pictures of questions as data for a page, by row.

    Args:
        questions: The questions.
        picture: Returns the (h, w, 3) uint8 pixels of a row.
    """
    rows = dict.fromkeys(question.row for question in questions)
    return {row: base64.b64encode(encode_jpeg(picture(row), THUMBNAIL, 82)).decode() for row in rows}


def render_page(review: Review, thumbnails: Mapping[int, str], answers: Mapping[int, Correction] | None = None) -> str:
    """Return the page.

    Args:
        review: What is reviewed.
        thumbnails: Pictures by row, as `make_thumbnails` gives them.
        answers: What the server has stored, by the number of the question; None: a page for itself.

    Returns:
        HTML.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=lambda value: show_text(value) if type(value) is str else value,  # style and script stay as they are
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = ((TEMPLATES / f"review.{kind}.j2").read_text(encoding="utf-8") for kind in ("css", "js"))
    numbered = list(enumerate(review.questions))
    sections = [(label, list(part)) for label, part in groupby(numbered, key=lambda pair: pair[1].label)]
    return environment.get_template("review.html.j2").render(
        review=review,
        sections=sections,
        thumbnails=thumbnails,
        answers={} if answers is None else answers,
        serves=answers is not None,
        chosen=ORDERS[review.order],
        style=style,
        script=script,
        policy=content_policy(style, script, answers is not None),
    )


def content_policy(style: str, script: str, serves: bool) -> str:
    """Return what a page may load and run: its own style and script, data, and of a server what lies there."""
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, script)]
    own = "; connect-src 'self'" if serves else ""
    return (
        f"default-src 'none'; img-src data:{' ' + chr(39) + 'self' + chr(39) if serves else ''}; "
        f"style-src 'sha256-{digests[0]}'; script-src 'sha256-{digests[1]}'; base-uri 'none'; form-action 'none'{own}"
    )
