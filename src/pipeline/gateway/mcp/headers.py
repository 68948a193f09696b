"""Checks of the HTTP headers of MCP requests. Spec: mcp-proxy.md [MCPX-61] ff."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.mcp.request import NAMED
from pipeline.gateway.http.refusal import Refusal
from pipeline.mcp.frames import INVALID_REQUEST, Frame
from pipeline.mcp.http_server import SESSION, VERSION
from pipeline.mcp.link import ALONE, VERSIONS
from pipeline.mcp.param_headers import PREFIX, ParamHeaders
from pipeline.mcp.refusals import HEADER_MISMATCH, UNSUPPORTED_VERSION, Refused

_BASE64: Final = re.compile(r"=\?base64\?([A-Za-z0-9+/=]*)\?=")


def check_accepts(headers: Mapping[str, str], *kinds: str) -> None:
    """Refusal 406 unless `Accept` includes each of these media types."""
    accepted = {media_type.partition(";")[0].strip().lower() for media_type in headers.get("accept", "").split(",")}
    if not all({kind, f"{kind.partition('/')[0]}/*", "*/*"} & accepted for kind in kinds):
        raise Refusal(406, "http.accept", f"Accept {' and '.join(kinds)}.")


def check_routing(headers: Mapping[str, str], frame: Frame, version: Any, params: ParamHeaders) -> None:
    """Raise Refused if headers contradict the message: whoever routes by headers would be misled.

    Those of arguments are compared where the tool is known from a list.
    """
    if version != ALONE:
        raise Refused(
            UNSUPPORTED_VERSION,
            "mcp.version",
            "No message of this revision stands alone.",
            supported=list(VERSIONS),
            requested=version if isinstance(version, str) else "",
        )
    if headers.get(VERSION) != version:
        raise _mismatch("The headers name another revision than the body, or none.")
    if SESSION in headers or frame.method == "initialize":
        raise Refused(INVALID_REQUEST, "mcp.session-begun", "This revision has no sessions.")
    named = frame.params.get(NAMED[frame.method]) if frame.method in NAMED else None
    if headers.get("mcp-method", frame.method) != frame.method or (
        named is not None and "mcp-name" in headers and _decoded(headers["mcp-name"]) != named
    ):
        raise _mismatch("The headers name another method or target than the body.")
    own = params.of(frame.body)
    claimed = {name: text for name, text in headers.items() if name.startswith(PREFIX)}
    if own is not None and any(_decoded(text) != _decoded(own.get(name, "")) for name, text in claimed.items()):
        raise _mismatch("A header names another value of an argument than the body.")


def _mismatch(message: str) -> Refused:
    return Refused(HEADER_MISMATCH, "mcp.header-mismatch", message)


def _decoded(text: str) -> str | None:
    match = _BASE64.fullmatch(text)
    if match is None:
        return text
    try:
        return base64.b64decode(match[1], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
