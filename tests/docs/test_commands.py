"""Commands of README and docs/ that stand under ``<!-- run -->``: executed in a small project, outputs compared.

A ``bash`` block must exit with 0. A ``console`` block holds commands behind ``$ `` and what they print, where ``...``
stands for anything.
"""

import doctest
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from PIL import Image
from sybil import Document, Example, Region
from sybil.example import SybilFailure
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

from tests import copies

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
MARK = "<!-- run -->\n"
BLOCKS = RawFencedCodeBlockLexer(
    re.compile(r"(?P<language>bash|console)\n"), mapping={"language": "language", "source": "source"}
)
PHOTOS = {"cat": 52, "chair": 7, "dog": 92, "horse": 25, "person": 50, "sheep": 14}
"""Pictures by class of the folder in the pages on images of one's own."""


def commands(language: str, source: str) -> list[tuple[str, str | None]]:
    """Commands of a block with what they should print; None: anything."""
    if language == "bash":
        return [(source, None)]
    _, *parts = re.split(r"^\$ ", source, flags=re.MULTILINE)
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


def evaluate(example: Example) -> str | None:
    """Run a block in the project of its document's namespace; return what is wrong."""
    root = example.namespace["root"]
    environment = copies.ENVIRONMENT | {"PYTHONPATH": str(root), "SPML_DEVICE": "cpu"}
    for command, wanted in commands(*example.parsed):
        words = ["bash", "-euc", command]
        done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            return f"{command!r} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
        rules = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        if wanted is not None and not doctest.OutputChecker().check_output(wanted, done.stdout, rules):
            return f"{command!r} printed\n{done.stdout}\nand not\n{wanted}"
    return None


def marked(document: Document) -> Iterable[Region]:
    """The blocks of a page that are to be run."""
    for region in BLOCKS(document):
        if document.text[: region.start].endswith(MARK):
            found = region.lexemes
            yield Region(region.start, region.end, (found["language"], found["source"]), evaluate)


def parse(path: Path) -> Document:
    return Document.parse(str(path), marked)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a project of small settings, prepared and committed, and a folder of photos beside it."""
    folder = tmp_path_factory.mktemp("commands")
    root = folder / "project"
    copies.project(ROOT, root, "tiny")
    for name in ("README.md", "Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "docs", root / "docs")
    (root / ".venv").symlink_to(sys.prefix)
    copies.run(root, "dvc", "repro", "-q", "simulate@digits-0")
    copies.run(root, "git", "add", ".")
    copies.run(root, "git", "commit", "-qm", "prepared")
    for name, count in PHOTOS.items():
        (folder / "My photos" / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (1, 1)).save(folder / "My photos" / name / f"{name}_{number}.png")
    return folder


@pytest.mark.parametrize(
    "path", [path for path in PAGES if MARK in path.read_text(encoding="utf-8")], ids=lambda path: path.stem
)
def test_what_a_page_tells_to_run_runs(path: Path, state: Path, tmp_path: Path) -> None:
    shutil.copytree(state, tmp_path, symlinks=True, dirs_exist_ok=True)
    document = parse(path)
    document.namespace["root"] = tmp_path / "project"
    for example in document:
        example.evaluate()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_mark_has_a_block(path: Path) -> None:
    document = parse(path)
    assert len(list(document)) == len(re.findall(f"^{MARK.strip()}", document.text, re.MULTILINE))


@pytest.mark.parametrize(
    ("block", "fault"),
    [
        ("bash\ntrue", None),
        ("bash\nfalse\ntrue", "exited with 1"),
        ("bash\necho $unset", "unbound variable"),
        ("console\n$ echo one two\none   ...\n$ true", None),
        ("console\n$ echo one\none\n$ echo two\nthree", "'echo two' printed\ntwo"),
        ("console\n$ echo one", "'echo one' printed\none"),
    ],
)
def test_a_block_fails_for_a_status_or_another_output(block: str, fault: str | None, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n```bash\nfalse\n```\n\n{MARK}```{block}\n```\n")
    document = parse(page)
    document.namespace["root"] = tmp_path
    (example,) = document
    if fault is None:
        example.evaluate()
    else:
        with pytest.raises(SybilFailure) as error:
            example.evaluate()
        assert fault in error.value.result
