"""Real bodies, wounded: an adapter refuses them or reads them whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from cmf.adapters import get
from cmf.adapters.wire import layout
from cmf.errors import CmfError
from cmf.json.frozen import same_spelling
from cmf.message.request import Response
from tests.cmf.adapters.mediation import adapter_constants, unseen_strings
from tests.cmf.adapters.tally import decoded, emitted, inputs
from tests.cmf.adapters.wiredata import Side, changed, first_difference, records

JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 2**70, -(2**63), "", "x", "\ud83d", "\u0000", "[DONE]", [], {},
    [[]], [None], {"": None},
    {"type": "text"}, {"type": "nonsense", "text": 1}, [{"role": "user"}], {"a": {"b": [{"c": None}]}},
)  # fmt: skip


@st.composite
def hostile_bodies(draw: st.DrawFn, format_name: str) -> tuple[Side, Any]:
    """A recorded body with one to four wounds: junk for a value, a key lost, renamed or repeated, items swapped."""
    record = draw(st.sampled_from([one for one in records(format_name) if one.sides]))
    side, body = draw(st.sampled_from(record.sides))
    for _ in range(draw(st.integers(1, 4))):
        paths = list(_paths(body))
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        body = changed(body, path[:-1], draw(st.sampled_from(_wounds(path[-1], draw(st.sampled_from(JUNK))))))
    return side, body


def _paths(body: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for step, item in steps:
        yield (*path, step)
        yield from _paths(item, (*path, step))


def _wounds(step: Any, junk: Any) -> list[Callable[[Any], Any]]:
    def put(holder: Any) -> Any:
        copy = holder.copy()
        copy[step] = junk
        return copy

    def lose(holder: Any) -> Any:
        copy = holder.copy()
        del copy[step]
        return copy

    def more(holder: Any) -> Any:
        return [*holder, holder[step]] if isinstance(holder, list) else {**holder, "Unheard": junk}

    return [put, put, lose, more]


def check_hostile(format_name: str, side: Side, body: Any) -> None:
    """Refused with a CmfError, or read: then it has views, it encodes, and it hides no string from policy.

    A request or reply also has to encode to the very body that was read, if its layout is kept whatever its size.
    """
    adapter = get(format_name)
    constants = adapter_constants(format_name)
    wires = [event.get("data") for event in body if isinstance(event, dict)] if side == "stream" else body
    try:
        with patch.object(layout, "MAX_SHARE", math.inf):
            value = decoded(adapter, side, body)
        out = [emitted(adapter, value)]
        if isinstance(value, Response):
            out.append(adapter.to_wire_events(value))
        inputs(value)
    except CmfError:
        return
    assert unseen_strings(out, value, constants) == [], "emitted, but not judged"
    if side != "stream":
        assert unseen_strings(wires, value, constants) == [], "accepted, but not shown"
        assert same_spelling(out[0], body), f"accepted, but written otherwise: {first_difference(out[0], body)}"
