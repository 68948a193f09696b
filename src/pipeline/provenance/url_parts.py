"""What links and paths tell of: the pieces that they are made of. Spec: [PROV-15]."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final
from urllib.parse import unquote

_CHUNK: Final = re.compile(r"[^\s<>\"'`(){}\[\],;|]+")
MAX_LINKS: Final = 256  # links and paths of one text that are taken apart
MAX_STEPS: Final = 12  # steps of one that is


def parts_in(text: str) -> set[str]:
    """What is told by links and paths: pieces of the path of a link, values of its query, the end of a file's path.

    Apart from these, as folders, where a path begins: what lies beside a file was not named by naming the file.
    """
    found: set[str] = set()
    chunks = (match[0] for match in _CHUNK.finditer(text)) if "/" in text else iter(())
    for chunk in islice((chunk for chunk in chunks if "/" in chunk), MAX_LINKS):
        link = chunk.rstrip(".,;:!?*_")
        path, _, rest = link.partition("?")
        path, _, fragment = path.partition("#")
        steps = path.partition("://")[2].split("/")[1:] if "://" in path else path.split("/")
        if ".." in steps or len(steps) > MAX_STEPS:
            continue
        for start in range(len(steps)):
            for end in range(start + 1, len(steps) + 1):
                kind = "part" if "://" in path or end == len(steps) else "folder"
                found.add(f"{kind}:{'/'.join(steps[start:end])}")
        values = [piece.partition("=")[2] for piece in rest.partition("#")[0].split("&")] if "://" in path else []
        found.update(f"part:{unquote(value)}" for value in values)
        if fragment.isdecimal() and "://" not in path:
            found |= {f"part:{path}", f"part:{fragment}"}  # owner/repository#1
    return found - {"part:", "folder:"}
