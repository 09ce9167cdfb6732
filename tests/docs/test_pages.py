"""The pages: short where they should be, no broken link or image, no command that is not there, the site builds."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AT_ROOT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
PAGES = [*AT_ROOT, *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """Names of the headings of a page, as hosts of Git and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(path: Path) -> list[str]:
    """Links of a page that lead nowhere, those of the web left out."""
    faults = []
    for link in LINK.findall(FENCED.sub("", read(path))):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.is_file() or (anchor and anchor not in anchors(read(target))):
            faults.append(link)
    return faults


def test_readme_and_contributing_are_short() -> None:
    assert len(read(ROOT / "README.md").splitlines()) <= 150
    assert len(read(ROOT / "CONTRIBUTING.md").splitlines()) <= 45


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_and_images_resolve(path: Path) -> None:
    assert broken(path) == []


def test_a_broken_link_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Some `title`: two\n[a](page.md#some-title-two) [b](#none) ![c](none.png) [d](https://e.org/none)\n"
    )
    assert broken(page) == ["#none", "none.png"]


def test_every_page_is_linked_from_readme_and_index() -> None:
    names = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert names <= {Path(link).name for link in re.findall(r"\]\((docs/[\w-]+\.md)", read(ROOT / "README.md"))}
    assert names <= {Path(link).name for link in re.findall(r"\]\(([\w-]+\.md)", read(ROOT / "docs/index.md"))}


def test_images_are_small() -> None:
    for path in (ROOT / "docs/images").iterdir():
        assert path.stat().st_size < 300_000, path


@pytest.mark.parametrize("path", [path for path in PAGES if path.stem != "CHANGELOG"], ids=lambda path: path.stem)
def test_modules_targets_and_profiles_that_are_named_are_there(path: Path) -> None:
    text = read(path)
    for module in re.findall(r"python -m ((?:stages|benchmarks|pipeline)[\w.]*)", text):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").is_file(), module
    targets = re.findall(r"^(\w+):", read(ROOT / "Makefile"), re.MULTILINE)
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", text, re.MULTILINE)) <= set(targets)
    profiles = {found.stem for found in (ROOT / "profiles").glob("*.yaml")} | {"default", "my_photos"}
    assert set(re.findall(r"PROFILE=([a-z]\w*)", text)) <= profiles | {"name"}


def build(root: Path, target: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    return subprocess.run(words, cwd=root, capture_output=True, text=True)


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    page = read(tmp_path / "methods.html")
    assert 'href="source/pipeline/methods/em.py.html"' in page  # a file outside docs/ is a page of the site
    assert "class Settings" in re.sub("<[^>]+>", "", read(tmp_path / "source/pipeline/methods/em.py.html"))


def test_broken_links_are_faults_of_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/sources.py", tmp_path / "docs")
    (tmp_path / "there.py").write_text("")
    settings = read(ROOT / "mkdocs.yml").partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(settings + "\nnav: [index.md]\n")
    (tmp_path / "docs/index.md").write_text("# Page\n[a](../there.py) [b](../gone.py) ![c](none.png) [d](#none)\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    named = [name for name in ("there.py", "gone.py", "none.png", "#none") if f"{name}'" in done.stderr]
    assert named == ["gone.py", "none.png", "#none"]
