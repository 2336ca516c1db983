"""Hook of MkDocs: the pages and files outside docs/ that the site shows, so that each link works on the site, too.

README.md is the start page. Another page in the root of the repository, and a file or folder that a page links to, is shown
below `repository/`: pages as pages, folders as lists of their files, files as they are.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
SHOWN_AS = {"README.md": "index.md", "README.zh-CN.md": "index.zh-CN.md"}
ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(?=[)#])")


def on_files(files: Files, *, config: Any) -> Files:
    """Add the start pages, the pages of the root, and everything that pages link to."""
    wanted = [*SHOWN_AS, *ROOT_PAGES]
    for file in files.documentation_pages():
        wanted += _linked(f"docs/{file.src_uri}", file.content_string)
    for path in [path for path in wanted if path.endswith(".md")]:
        wanted += _linked(path, (ROOT / path).read_text(encoding="utf-8"))
    for path in dict.fromkeys(wanted):
        if files.get_file_from_path(_place(path)) is None:
            files.append(_shown(path, config))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point the links of a page to the places of the site."""
    here = page.file.src_uri
    origin = next((path for path in (*SHOWN_AS, *ROOT_PAGES) if _place(path) == here), f"docs/{here}")
    if here.startswith("repository/") and origin.startswith("docs/"):
        return markdown

    def moved(link: re.Match[str]) -> str:
        path = _path(origin, link[1])
        return link[1] if path is None else os.path.relpath(_place(path), PurePosixPath(here).parent)

    return LINK.sub(moved, markdown)


def _linked(page: str, markdown: str) -> Iterator[str]:
    """Yield the paths outside docs/ that a page links to."""
    for link in LINK.findall(markdown):
        path = _path(page, link)
        if path is not None and not path.startswith("docs/"):
            yield path


def _path(page: str, link: str) -> str | None:
    """Return the path in the repository to which a page links; None if it does not exist, which MkDocs reports."""
    path = os.path.normpath(PurePosixPath(page).parent / link)
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def _place(path: str) -> str:
    """Return the place of a path of the repository among the site's files."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in SHOWN_AS:
        return SHOWN_AS[path]
    return f"repository/{path}/index.md" if (ROOT / path).is_dir() else f"repository/{path}"


def _shown(path: str, config: Any) -> File:
    """Return a file of the site with the content of a path: a folder's is a list of its files."""
    source = ROOT / path
    if not source.is_dir():
        return File.generated(config, _place(path), content=source.read_bytes())
    names = sorted(str(file.relative_to(source)) for file in source.rglob("*") if file.is_file())
    listed = "".join(f"- `{name}`\n" for name in names if "__pycache__" not in name)
    return File.generated(config, _place(path), content=f"# {path}\n\nFiles in this folder of the repository:\n\n{listed}")
