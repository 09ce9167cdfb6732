"""Questions about pictures and classes whose names are as odd as they may be."""

from html.parser import HTMLParser

import numpy as np

from pipeline.review.page import Review
from pipeline.review.questions import Question

CLASSES = ("<script>alert(1)</script>", 'dog "big"', "cat, small", "été", "=1+1", "a;b|c", "{{ 7 * 7 }}")
PATHS = (
    "plain.jpg",
    "Grüße/ü 1.jpg",
    "q\"uote'.jpg",
    "a,b;\u202ec\u200e.png",
    "<img src=x onerror=alert(1)>.jpg",
    "=sum.jpg",
)


def questions() -> list[Question]:
    """Two questions about each class, class by class."""
    return [
        Question(row, PATHS[row], label, "train", 0.25 + 0.1 * row, 0.01, (CLASSES[number - 1],) * (row % 2))
        for number, label in enumerate(CLASSES)
        for row in (number % len(PATHS), (number + 2) % len(PATHS))
    ]


def review(who: str = "Ann", asked: list[Question] | None = None) -> Review:
    return Review("pets", "0123456789ab", questions() if asked is None else asked, "gain", who)


def picture(row: int) -> np.ndarray:
    """A gradient of 48 x 64 pixels, of another colour for each row."""
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[..., 0], pixels[..., 1] = 40 * row, np.arange(64) * 3
    return pixels


class Elements(HTMLParser):
    """All elements of a page: tag and attributes; and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]
