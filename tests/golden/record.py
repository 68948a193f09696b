"""Record the cassettes again: `python -m tests.golden.record`. When to do that stands in README.md beside this file.

Each cassette is one exchange with a scripted upstream: the request is what the adapter sends for `conversation.json`,
with an operator's credentials, scrubbed before it is written; the response is what the script of that upstream answers,
and stays as it is in the cassette. The golden file is the canonical form of the whole exchange, to the byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cmf import Message, Request, adapters
from cmf.json.codec import dumps, loads
from cmf.message.ids import IdMap, Ids, stamp, unstamp
from cmf.message.security import is_sensitive

HERE = Path(__file__).parent
NOW = datetime(2026, 5, 8, 9, 0, 4, tzinfo=UTC)
SCRUBBED = "[scrubbed]"
CREDENTIALS = {"Authorization": "Bearer sk-operator-EXAMPLE-0000", "X-Api-Key": "sk-operator-EXAMPLE-0000"}
_TOKEN = re.compile(r"\bsk-[A-Za-z0-9-]{8,}")


def conversation(format_name: str, model: str) -> Request:
    """The fixed canonical request, for one format's model."""
    request = Request.model_validate(loads((HERE / "conversation.json").read_bytes()))
    if format_name == "aisdk":  # its chats offer tools and settings on the server, not in the request
        return Request(messages=request.messages)
    return request.with_options(model=model)


def ids_of(cassette: Mapping[str, Any]) -> IdMap:
    """The session's id map, in which the provider has its own names for the calls so far."""
    id_map = IdMap()
    for canonical, provider_id in cassette["tool_ids"].items():
        id_map.link(canonical, cassette["format"], provider_id)
    return id_map


def sent(cassette: Mapping[str, Any]) -> dict[str, Any]:
    """The HTTP request that goes to the upstream for the conversation."""
    name = cassette["format"]
    adapter = adapters.get(name)
    wire = unstamp(conversation(name, cassette["model"]), ids_of(cassette), provider=name)
    call = adapter.to_http(wire)
    return {"method": call.method, "path": call.path, "headers": dict(call.headers), "body": adapter.to_wire(wire)}


def received(cassette: Mapping[str, Any]) -> list[Message]:
    """The canonical conversation with the answer in the cassette; ids and times come from a fixed clock."""
    name = cassette["format"]
    request = conversation(name, cassette["model"])
    ids = Ids(lambda: NOW)
    ids._last = (int(NOW.timestamp() * 1000), 0)  # so that the ids of a recording are the same ones each time
    response = adapters.get(name).from_wire_response(cassette["response"]["body"], request)
    stamped = stamp(response, ids, lambda: NOW, ids_of(cassette), provider=name, session_id="sess_golden")
    return [*request.messages, stamped.message]


def golden(messages: list[Message]) -> bytes:
    """The bytes of a golden file: one canonical message a line."""
    return b"".join(message.model_dump_json() + b"\n" for message in messages)


def scrubbed(exchange: Any) -> Any:
    """The exchange without credentials: sensitive headers by name, keys in any text by their shape."""
    if isinstance(exchange, dict):
        return {
            key: SCRUBBED if is_sensitive(key) and isinstance(item, str) else scrubbed(item)
            for key, item in exchange.items()
        }
    if isinstance(exchange, list):
        return [scrubbed(item) for item in exchange]
    return _TOKEN.sub(SCRUBBED, exchange) if isinstance(exchange, str) else exchange


def main() -> None:
    """Write every cassette's request and golden file again."""
    for path in sorted(HERE.glob("*.cassette.json")):
        cassette = loads(path.read_bytes())
        request = sent(cassette)
        request["headers"] |= CREDENTIALS
        cassette["request"] = scrubbed(request)
        cassette["response"]["headers"] = scrubbed(cassette["response"]["headers"])
        path.write_text(json.dumps(cassette, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        path.with_name(f"{cassette['format']}.golden.jsonl").write_bytes(golden(received(cassette)))


def cassettes() -> list[dict[str, Any]]:
    """Every cassette, by format."""
    return [loads(path.read_bytes()) for path in sorted(HERE.glob("*.cassette.json"))]


def same_bytes(left: Any, right: Any) -> bool:
    """Whether two JSON values are written to the same bytes, key order included."""
    return dumps(left) == dumps(right)


if __name__ == "__main__":
    main()
