"""Pages of the site for the files outside docs/ that its texts link to: hooks of mkdocs.

On disk and on a host of Git, ``../pipeline/methods/em.py`` leads to the file itself. The site holds a copy of each such
file as a page of its own, so that the strict build can tell a broken link.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"\]\(\.\./([^)#\s]+)")
"""A link out of docs/."""
LANGUAGES = {".py": "python", ".yaml": "yaml", ".tsv": "text", ".md": "markdown"}


def _page(path: str) -> str:
    """Return the page of a file, named by its path from the project root."""
    return f"source/{path}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file that a text links to.

    Args:
        files: Files of the site.
        config: Its configuration.

    Returns:
        The same files and the new pages.
    """
    root = Path(config.docs_dir).parent
    texts = [Path(config.docs_dir, file.src_uri).read_text(encoding="utf-8") for file in files.documentation_pages()]
    for path in sorted({path for text in texts for path in LINK.findall(text)}):
        if (root / path).is_file():
            content = (root / path).read_text(encoding="utf-8")
            language = LANGUAGES.get(Path(path).suffix, "text")
            front = f'---\ntitle: "{path}"\nsearch: {{exclude: true}}\nhide: [toc]\n---\n# {path}\n'
            files.append(File.generated(config, _page(path), content=f"{front}~~~~~~{language}\n{content}\n~~~~~~\n"))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links out of docs/ to their pages.

    Args:
        markdown: Text of a page.
        page: The page.
        config: Configuration of the site.
        files: Its files.

    Returns:
        The text with those links replaced; a link to a file that is not there stays, and is a fault of the build.
    """

    def replace(match: re.Match[str]) -> str:
        return f"]({_page(match[1])}" if files.get_file_from_path(_page(match[1])) else match[0]

    return markdown if page.file.src_uri.startswith("source/") else LINK.sub(replace, markdown)
