"""The page in a real Chromium, driven by the keyboard, on a phone's width and a laptop's."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.labels.corrections import read_answers
from pipeline.review.answers import Answers
from pipeline.review.formats import place_answers, read_tasks
from pipeline.review.page import make_thumbnails, render_page
from pipeline.review.questions import Question
from pipeline.review.server import ReviewServer
from tests.review.asked import picture, questions, review
from tests.review.webdriver import BROWSER, DRIVER, Browser, wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (BROWSER and DRIVER), reason="no Chromium with its driver here: apt-get install chromium chromium-driver"
    ),
]
WIDTHS = pytest.mark.parametrize("width", [390, 1280])


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Browser]:
    with Browser(downloads) as session:
        yield session


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ReviewServer]:
    with ReviewServer(review(), Answers(tmp_path / "corrections" / "pets.csv", "Ann"), picture) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def check_nothing_leaves(browser: Browser, *allowed: str) -> None:
    asked = browser.requests()
    assert asked and all(address.startswith(("data:", "blob:", *allowed)) for address in asked), asked
    assert browser.complaints() == []
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "the page is wider than its window"


@WIDTHS
def test_keys_answer_and_answers_land_in_the_file(browser: Browser, server: ReviewServer, width: int) -> None:
    asked = questions()
    browser.open(server.address, width)
    browser.press("y", "n", "u", "y", "z", "Right", "Left", "n", "Enter", "y", "Escape")
    wait_for(lambda: browser.run("return document.body.dataset.waiting === '0'"))
    told = [(answer.path, answer.label, answer.value, answer.who) for _, answer in read_answers(server.answers.file)]
    values = {0: "present", 1: "absent", 3: "absent", 4: "present"}  # the third: unsure; the fourth: taken back once
    assert told == [(asked[at].path, asked[at].label, value, "Ann") for at, value in values.items()]
    assert browser.run("return document.getElementById('count').textContent") == f"5 of {len(asked)}"
    focused = "return document.activeElement.dataset.number"
    assert browser.run(focused) == "5"  # back from the enlarged picture, at the next open question

    browser.open(server.address, width)
    assert browser.run("return document.getElementById('count').textContent") == f"5 of {len(asked)}"
    assert browser.run(focused) == "5"
    check_nothing_leaves(browser, server.address)


@WIDTHS
def test_a_saved_page_keeps_its_answers_and_gives_them_as_a_file(
    browser: Browser, downloads: Path, tmp_path: Path, width: int
) -> None:
    page, asked = tmp_path / f"pets-{width}.html", questions()
    html = render_page(review(who=""), make_thumbnails(asked, picture)).replace("0123456789ab", f"width{width}")
    page.write_text(html, encoding="utf-8")
    browser.requests()
    browser.open(page.as_uri(), width)
    browser.press("n", "y", "u")
    count = "return document.getElementById('count').textContent"
    assert browser.run(count) == f"3 of {len(asked)}"

    def kept() -> bool:  # the browser stores in its own time
        browser.open(page.as_uri(), width)
        return browser.run(count) == f"3 of {len(asked)}"

    wait_for(kept)
    browser.run("const who = document.getElementById('who'); who.value = '=Ann, B.'; who.focus()")
    browser.press("y", "n")  # letters of a name are no answers
    browser.run("document.getElementById('who').blur()")
    browser.press("s")
    saved = downloads / "pets.csv"
    wait_for(saved.is_file)
    found = read_tasks(saved, "", "")
    saved.unlink()
    assert [answer[:4] for answer in found] == [
        (asked[0].path, asked[0].label, "absent", "=Ann, B.yn"),
        (asked[1].path, asked[1].label, "present", "=Ann, B.yn"),
    ]
    check_nothing_leaves(browser, page.as_uri())


def test_a_saved_page_gives_its_own_answers_each_by_who_gave_it(
    browser: Browser, downloads: Path, tmp_path: Path
) -> None:
    """Two people and two pages of one dataset, in one browser."""
    asked = questions()
    saved = downloads / "pets.csv"

    def answer(part: slice, who: str, *keys: str) -> list[tuple[str, ...]]:
        page = tmp_path / "pets.html"
        html = render_page(review("", asked[part]), make_thumbnails(asked, picture))
        page.write_text(html.replace("0123456789ab", "shared"), encoding="utf-8")
        browser.open(page.as_uri(), 1280)
        browser.run(
            f"const who = document.getElementById('who'); who.value = {who!r}; who.dispatchEvent(new Event('input'))"
        )
        browser.press(*keys, "s")
        wait_for(saved.is_file)
        found = [answer[:4] for answer in read_tasks(saved, "", "")]
        saved.unlink()
        return found

    def told(at: int, value: str, who: str) -> tuple[str, ...]:
        return asked[at].path, asked[at].label, value, who

    assert answer(slice(0, 4), "Ann", "y") == [told(0, "present", "Ann")]
    wanted = [told(0, "present", "Ann"), told(1, "absent", "Bob")]
    assert answer(slice(0, 4), "Bob", "n") == wanted
    assert answer(slice(1, 4), "Cem", "y") == [wanted[1], told(2, "present", "Cem")]
    assert answer(slice(4, 6), "Cem", "n") == [told(4, "absent", "Cem")]


def test_a_name_that_turns_the_writing_is_saved_as_it_is_and_shown_escaped(
    browser: Browser, downloads: Path, tmp_path: Path
) -> None:
    path, label = "a\u202egpj\u200e.jpg", "c\u200fd"
    asked = [Question(0, path, label, "train", 0.5, 0.01, ())]
    (tmp_path / "pets.html").write_text(render_page(review(asked=asked), make_thumbnails(asked, picture)), "utf-8")
    browser.open((tmp_path / "pets.html").as_uri(), 1280)
    browser.press("Enter", "y")
    large = "return document.querySelector('#large img').alt + document.getElementById('large-ask').textContent"
    assert browser.run(large) == r"a\u202egpj\u200e.jpgc\u200fd? yes"
    assert browser.run("return document.getElementById('said').textContent") == r"c\u200fd: yes. 1 of 1"
    browser.press("Escape", "s")
    saved = downloads / "pets.csv"
    wait_for(saved.is_file)
    (answer,) = place_answers(read_tasks(saved, "", ""), [path], [label], saved.name)
    saved.unlink()
    assert answer[:4] == (path, label, "present", "Ann")


def test_what_a_person_needs_is_said_to_who_does_not_see(browser: Browser, server: ReviewServer) -> None:
    browser.open(server.address, 1280)
    browser.press("y")
    assert browser.run("return document.getElementById('said').textContent").endswith(": yes. 1 of 14")
    unnamed = """
    const named = (e) => e.textContent.trim() || e.ariaLabel || e.alt || e.labels?.length || e.ariaHidden;
    return [...document.querySelectorAll('button, input, a, img, meter, progress, dialog, article')]
      .filter((e) => !named(e) && !e.closest('dialog')).map((e) => e.outerHTML.slice(0, 80))"""
    assert browser.run(unnamed) == []
    pressed = "return document.querySelector('.card').querySelector('[aria-pressed=true]').dataset.value"
    assert browser.run(pressed) == "present"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(browser: Browser, server: ReviewServer, dark: bool) -> None:
    """Contrast of at least 4.5, as WCAG asks for."""
    browser.open(server.address, 1280, dark=dark)
    browser.press("y", "n", "u")
    ratio = r"""
    const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    const light = (colour) => {
      const [r, g, b] = colour.match(/[\d.]+/g).map((v) => linear(v / 255));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
    };
    const ground = (e) => {
      const colour = getComputedStyle(e).backgroundColor;
      return /^rgba.*, 0\)$/.test(colour) ? ground(e.parentElement) : colour;
    };
    const contrast = (e) => light(getComputedStyle(e).color) / light(ground(e));
    return [...document.querySelectorAll('p, b, h1, h2, em, small, button:enabled, a, span, kbd, label')]
      .filter((e) => e.offsetParent && Math.max(contrast(e), 1 / contrast(e)) < 4.5)
      .map((e) => e.outerHTML.slice(0, 90))"""
    assert browser.run(ratio) == []
