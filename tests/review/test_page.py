"""The page as text; what it does in a browser is tested in test_browser."""

import base64
import hashlib
import io
import re

import numpy as np
import pytest
from PIL import Image

from pipeline.core.text import ODD
from pipeline.labels.corrections import Correction
from pipeline.review.page import make_thumbnails, render_page
from pipeline.review.questions import Question
from tests.review.asked import CLASSES, Elements, picture, questions, review

STORED = {
    0: Correction(questions()[0].path, questions()[0].label, "present", "Ann", "now"),
    3: Correction(questions()[3].path, questions()[3].label, "absent", "Ann", "then"),
}


@pytest.fixture(scope="module", params=[None, STORED], ids=["file", "served"])
def html(request) -> str:
    return render_page(review(), make_thumbnails(questions(), picture), request.param)


def test_each_question_is_a_card_with_its_names_as_they_are(html):
    cards = [card for card in Elements(html).all("article")]
    asked = questions()
    assert [(card["data-path"], card["data-label"]) for card in cards] == [(each.path, each.label) for each in asked]
    assert [card["data-number"] for card in cards] == [str(number) for number in range(len(asked))]
    assert len(Elements(html).all("section")) == len(CLASSES)


TURNS = "".join(letter for letter in map(chr, range(0xA0, 0xD800)) if ODD.match(letter))
"""Marks that turn the direction of writing, which a path may hold."""


def test_marks_of_direction_come_back_and_are_not_shown():
    assert len(TURNS) == 12
    path, label = f"x{TURNS}y.jpg", f"c{TURNS}"
    asked = [Question(0, path, label, "train", 0.5, 0.01, (label,))]
    html = render_page(review(asked=asked), make_thumbnails(asked, picture))
    (card,) = Elements(html).all("article")
    assert (card["data-path"], card["data-label"]) == (path, label)
    assert sum(html.count(letter) for letter in TURNS) == 2 * len(TURNS)  # nowhere else
    assert r"x\u061c\u200e" in Elements(html).text


def test_names_of_the_data_stay_text(html):
    elements = Elements(html)
    assert len(elements.all("script")) == 1 and "49" not in elements.text.replace("0123456789ab", "")
    assert not any(name.startswith("on") for _, attributes in elements.found for name in attributes)
    assert not any("style" in attributes for _, attributes in elements.found)  # the policy would drop it


def test_the_policy_lets_the_pages_own_script_and_style_alone(html):
    (policy,) = [meta["content"] for meta in Elements(html).all("meta") if "http-equiv" in meta]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == "'none'" and "unsafe" not in policy
    for tag in ("script", "style"):
        text = re.search(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert text is not None
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"


def test_a_file_loads_nothing():
    html = render_page(review(), make_thumbnails(questions(), picture))
    elements = Elements(html)
    loaded = [value for _, attributes in elements.found for key in ("src", "href") if (value := attributes.get(key))]
    assert loaded and all(value.startswith(("data:", "#")) for value in loaded)
    assert "connect-src" not in html and "img-src data:;" in html


def test_pictures_are_small_and_right(html):
    images = [image["src"] for image in Elements(html).all("img") if "src" in image]
    assert len(images) == len(questions())
    for source, question in zip(images, questions(), strict=True):
        assert source is not None
        found = Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))
        assert found.size == (64, 48) and abs(int(np.asarray(found)[2, 2, 0]) - 40 * question.row) < 12


def test_what_was_answered_is_marked():
    html = render_page(review(), make_thumbnails(questions(), picture), STORED)
    stored = [(card["data-stored"], card["data-when"]) for card in Elements(html).all("article")]
    open_ = ("", "")
    assert stored == [("present", "now"), open_, open_, ("absent", "then"), *[open_] * (len(stored) - 4)]


def test_a_page_without_a_question_says_so():
    assert "Nothing to ask" in render_page(review(asked=[]), {})


def test_the_same_review_is_the_same_page():
    pages = [render_page(review(), make_thumbnails(questions(), picture)) for _ in range(2)]
    assert pages[0] == pages[1]
