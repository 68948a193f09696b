"""What the documentation site needs beside docs/: hooks of MkDocs, named in mkdocs.yml.

The first page is the README. Pages link to sources, which the site does not hold: such links lead to `source_url`,
and are plain text where that is not set. Pictures outside docs/ are taken in.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
FIRST = "index.md"


def on_files(files: Any, config: Any) -> Any:
    """The files of docs/, with the README as first page, and the pictures that pages show."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    files.append(File.generated(config, FIRST, content=readme))
    for picture in ROOT.glob("bench/results/*.svg"):
        uri = str(picture.relative_to(ROOT))
        files.append(File.generated(config, uri, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """The text of a page, with links that the site can follow."""
    folder = "" if page.file.src_uri == FIRST else join("docs", dirname(page.file.src_uri))

    def rewritten(link: re.Match[str]) -> str:
        picture, text, target, anchor = link.group(1), link.group(2), link.group(3), link.group(4) or ""
        path = normpath(join(folder, target))
        inside = path.removeprefix("docs/")
        if picture:
            steps = "../" * page.file.src_uri.count("/")
            return f"![{text}]({steps}{path})" if files.get_file_from_path(path) else link.group()
        if files.get_file_from_path(normpath(join(dirname(page.file.src_uri), target))):
            return link.group()
        if path == "README.md":
            return f"[{text}]({'../' * page.file.src_uri.count('/')}{FIRST}{anchor})"
        page_of_folder = join(inside, "README.md")
        if (ROOT / path).is_dir() and files.get_file_from_path(page_of_folder):
            return f"[{text}]({'../' * page.file.src_uri.count('/')}{page_of_folder}{anchor})"
        if not (ROOT / path).exists():
            return link.group()  # the strict build refuses it
        source = config.extra["source_url"]
        return f"[{text}]({source.rstrip('/')}/{path}{anchor})" if source else text

    return LINK.sub(rewritten, markdown)
