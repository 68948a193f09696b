"""From any media to media that a model may be sent: get the bytes where that is allowed, then check and redraw them.

Spec: docs/spec/media.md. What comes out is base64 and a true media type, always; a URL or file reference never leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cmf.errors import MediaError
from cmf.message.message import MediaPart, Message, Part
from cmf.message.request import Request, Response
from cmf.message.transform import map_parts, part_paths
from cmf.models.capabilities import ModelCapabilities
from pipeline.decisions.errors import needs
from pipeline.media.fetch import Fetcher, FetchSettings

with needs("media"):
    from cmf.models.media import MediaLimits, carries_bytes, prepare, with_bytes

OpenFile = Callable[[MediaPart], Awaitable[bytes]]
"""The bytes behind a `file_ref` part; raises MediaError where there are none for this subject."""

MAX_REFERENCES = 32  # URLs and file references of one value; each is a request that somebody else can cause
AT_ONCE = 4

_T = TypeVar("_T", bound=Message | Request | Response)


class MediaPipeline:
    """Prepares the media of whole values.

    Args:
        fetcher: what fetches, and from where; by default URLs are fetched from nowhere.
        open_file: what knows the bytes of file references; by default none are known.
    """

    def __init__(
        self,
        limits: MediaLimits | None = None,
        *,
        fetcher: Fetcher | None = None,
        open_file: OpenFile | None = None,
    ) -> None:
        self._limits = limits or MediaLimits()
        self._fetcher = fetcher or Fetcher(FetchSettings())
        self._open_file = open_file

    async def prepare(self, value: _T, capabilities: ModelCapabilities) -> _T:
        """`value` with all its media as the target takes it; other tasks run meanwhile.

        Raises:
            MediaError: a part that cannot be had or accepted, with its path; nothing is left half done.
        """
        resolved = await self._resolved(value)
        return await asyncio.to_thread(prepare, resolved, capabilities, self._limits)

    async def _resolved(self, value: _T) -> _T:
        """`value` with the bytes of what it refers to in place of the reference."""
        parts = part_paths(value)
        references = {path: part for path, part in parts if isinstance(part, MediaPart) and not carries_bytes(part)}
        if len(references) > MAX_REFERENCES:
            what, code = f"more than {MAX_REFERENCES} references to media", "media.too-many-references"
            raise MediaError(what, code=code, hint="send fewer at once")
        turn = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            tasks = {path: group.create_task(self._outcome(part, path, turn)) for path, part in references.items()}
        bodies = {path: task.result() for path, task in tasks.items()}
        for body in bodies.values():
            if isinstance(body, MediaError):
                raise body

        def put(part: Part, path: str) -> Part:
            body = bodies.get(path)
            return with_bytes(part, body) if isinstance(part, MediaPart) and isinstance(body, bytes) else part

        return map_parts(value, put)

    async def _outcome(self, part: MediaPart, path: str, turn: asyncio.Semaphore) -> bytes | MediaError:
        """The content of a reference; a refusal is a value, so that the first one in order is reported."""
        async with turn:
            try:
                if part.type == "url":
                    return await self._fetcher.fetch(part.data)
                if self._open_file is None:
                    hint = "give MediaPipeline an open_file"
                    raise MediaError("nothing here knows file references", code="media.file-not-known", hint=hint)
                return await self._open_file(part)
            except MediaError as error:
                error.at(path)
                return error
