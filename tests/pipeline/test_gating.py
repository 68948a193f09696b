"""What nobody is shown without the capability: credentials, and the context around messages, wherever it stands."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import pytest

from cmf import Extensions, HttpExtension, Message, Request, TextPart
from pipeline import Context, Guard
from pipeline.store.database import Store


@pytest.mark.spec("EXT-9")
def test_the_value_of_a_sensitive_header_is_in_nothing_that_is_made_of_it() -> None:
    headers = {"Authorization": "Bearer canary", "x_api-KEY": "canary", "X-Trace": "t"}
    message = Message(
        role="user", content=[TextPart(text="x")], extensions=Extensions(http=HttpExtension(headers=headers))
    )
    held = message.extensions.http  # type: ignore[union-attr]
    assert held is not None
    context = Context(headers=headers)
    request = Request(messages=[message])

    for value in (held, message, context, request, held.headers, next(message.iter_views()), Guard().run(message)):
        assert "canary" not in f"{value!r} {value!s} {value}"
    for value in (held, message, context, request):
        assert b"canary" not in value.model_dump_json() + pickle.dumps(value)
        assert "canary" not in str([value.model_dump(), dataclasses.asdict(value)])  # type: ignore[call-overload]
    assert "canary" not in str(
        [dict(held.headers), held.headers | {}, list(held.headers.values()), held.headers._values]
    )
    assert b"canary" not in pickle.dumps(held.headers._values)
    assert held.get_header("authorization") == context.get_header("AUTHORIZATION") == "Bearer canary"  # type: ignore[attr-defined]


@pytest.mark.spec("EXT-9")
def test_no_row_of_ledger_or_log_has_a_credential(tmp_path: Path) -> None:
    context = Context(session="s", headers={"Authorization": "Bearer canary-4711"})

    with Store.at(tmp_path / "store.db") as store:
        outcome = Guard(store=store).run(Message(role="user", content=[TextPart(text="hi")]), context=context)
        assert outcome.message is not None
        store.ledger().add("id:ann", "s", [outcome.message])

    assert outcome.message.extensions.http.get_header("authorization") == "Bearer canary-4711"  # type: ignore[union-attr]
    assert [file.name for file in tmp_path.iterdir() if b"canary" in file.read_bytes()] == []
