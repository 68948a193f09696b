"""What Rego finds under `input`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cmf.strategies import values
from tests.pipeline.conftest import write_rules

from cmf import (
    AgentExtension,
    Extensions,
    HttpExtension,
    ImagePart,
    Message,
    MessageView,
    ObjectSecurityProfile,
    PromptRequestPart,
    Request,
    ResourcePart,
    Response,
    SecurityExtension,
    SubjectExtension,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    iter_views,
)
from cmf.enums import Capability, Hook
from cmf.json.codec import dumps, loads
from pipeline import Guard
from pipeline.cli.schema import schema_of
from pipeline.decisions.policy_input import SessionFacts, shared_bytes, view_bytes, whole
from pipeline.policy.schemas import decision_schema, message_schema

EXTENSIONS = Extensions(
    security=SecurityExtension(
        labels={"pii"},
        subject=SubjectExtension(id="ann", roles={"a", "b"}, claims={"iss": "x"}),
        objects={"send": ObjectSecurityProfile(permissions=("mail",))},
    ),
    agent=AgentExtension(session_id="s", turn=1),
    http=HttpExtension(headers={"Authorization": "Bearer x", "X-Trace": "t"}),
    custom={"n": 1.0},
)
REQUEST = Request(
    model="openai:gpt",
    messages=[
        Message(
            role="assistant",
            extensions=EXTENSIONS,
            content=[
                TextPart(text="hi", extra={"w": {"k": [1, None]}}),
                ThinkingPart(text="hm", signature="c2ln"),
                ToolCallPart(name="send", arguments={"big": 2**60, "n": 1.0}, tool_call_id="c1"),
                ImagePart(type="base64", data="aGVsbG8=", media_type="image/png"),
                ResourcePart(uri="FILE:///a/../b", blob=b"\x89PNG\r\n\x1a\n"),
                PromptRequestPart(name="p", arguments={}),
            ],
        )
    ],
    tools=[ToolDefinition(name="send", description="d", input_schema={"type": "object"})],
)
SESSION = SessionFacts(labels=frozenset({"x"}), counters={"calls": 1}, events=[{"kind": "k"}], approvals=[{"id": "a"}])


def merged(shared: Any, own: Any) -> Any:
    if isinstance(shared, dict) and isinstance(own, dict):
        keys = [*shared, *(key for key in own if key not in shared)]
        return {
            key: merged(shared[key], own[key]) if key in shared and key in own else own.get(key, shared.get(key))
            for key in keys
        }
    return own


@pytest.mark.spec("INP-1")
def test_the_input_is_the_view_with_session_and_origins_and_nothing_else() -> None:
    for view in iter_views(REQUEST):
        document = loads(whole(view, SESSION, [{"path": "/a", "sources": []}]))

        assert document.pop("session") == SESSION.shown(view)
        assert document.pop("origins") == [{"path": "/a", "sources": []}]
        assert dumps(document) == dumps(loads(dumps(view.to_opa_input()["input"])))
        assert dumps(document) == whole(view, None)


@pytest.mark.spec("INP-2")
@pytest.mark.parametrize("capabilities", [None, [], ["read_labels"], ["read_objects", "read_roles", "read_headers"]])
@pytest.mark.parametrize("session", [SESSION, None])
def test_the_two_pieces_merge_to_the_whole(capabilities: list[str] | None, session: SessionFacts | None) -> None:
    origins = [{"path": "/n", "sources": [{"kind": "user", "labels": ["pii"]}]}]
    for view in iter_views(REQUEST, capabilities=capabilities):
        pieces = merged(loads(shared_bytes(view, session)), loads(view_bytes(view, origins)))

        assert pieces == loads(whole(view, session, origins))


@pytest.mark.spec("INP-3")
def test_the_session_is_gated() -> None:
    def shown(*capabilities: str) -> dict[str, Any]:
        (view,) = iter_views(Message(role="user", content=[TextPart(text="x")]), capabilities=capabilities)
        return SESSION.shown(view)

    assert shown() == {}
    assert shown("read_labels") == {"labels": ["x"]}
    assert shown("read_agent") == {"counters": {"calls": 1}, "events": [{"kind": "k"}], "approvals": [{"id": "a"}]}


TOLD = {
    "tag": 'label contains {"label": "secret", "code": "t.l", "reason": "x"} if input.name == "read"',
    "told": """\
warn contains {"code": "t.w", "reason": "x", "detail": {"seen": input.session.events}} if input.content == "x"
""",
}


@pytest.mark.spec("INP-3")
@pytest.mark.parametrize(
    ("capabilities", "types"), [("read_agent", ["tool_call"]), ("read_agent, read_labels", ["label", "tool_call"])]
)
def test_events_tell_of_labels_to_those_who_may_read_them(tmp_path: Path, capabilities: str, types: list[str]) -> None:
    call = ToolCallPart(tool_call_id="c", name="read", arguments={})
    with Guard(write_rules(tmp_path, TOLD, capabilities=capabilities)) as guard:
        guard.check(Message(role="assistant", content=[call]), session="s")
        decision = guard.decide(Message(role="user", content=[TextPart(text="x")]), session="s")

    [hit] = decision.hits
    assert [event["type"] for event in hit.detail["seen"]] == types


@pytest.mark.spec("INP-5")
def test_the_labels_of_sources_are_for_those_who_may_read_labels() -> None:
    origins = [{"path": "/n", "sources": [{"kind": "user", "labels": ["pii"]}]}]

    def shown(*capabilities: str) -> Any:
        views = iter_views(REQUEST, capabilities=capabilities)
        return loads(view_bytes(next(view for view in views if view.name == "send"), origins))["origins"]

    assert shown() == [{"path": "/n", "sources": [{"kind": "user"}]}]
    assert shown("read_labels") == origins


@pytest.mark.spec("INP-4")
def test_every_input_is_valid_under_the_schema_and_a_misspelt_field_is_not() -> None:
    validator = jsonschema.Draft202012Validator(schema_of("view"))
    validator.check_schema(schema_of("view"))
    inputs = [loads(whole(view, SESSION)) for value in (REQUEST, Response()) for view in iter_views(value)]

    for document in inputs:
        validator.validate(document)
    assert not validator.is_valid(inputs[0] | {"kid": "text"})
    assert not validator.is_valid({**inputs[0], "extensions": {"securty": {}}})


def test_sensitive_headers_are_never_in_an_input() -> None:
    documents = b"".join(whole(view, SESSION) for view in iter_views(REQUEST))

    assert b"Bearer" not in documents
    assert b"X-Trace" in documents


def test_messages_are_valid_under_their_schema() -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **message_schema()}

    jsonschema.validate(loads(REQUEST.messages[0].model_dump_json()), schema)
    assert "verdict" in decision_schema()["properties"]


@pytest.mark.spec("INP-1")
@given(values, st.sampled_from(Hook) | st.none(), st.sets(st.sampled_from(Capability)) | st.none())
def test_the_bytes_of_a_view_are_those_of_its_dictionary(
    value: Any, hook: Hook | None, capabilities: set[Capability] | None
) -> None:
    def views() -> list[MessageView]:
        return list(iter_views(value, hook=hook, capabilities=capabilities))

    for asked_first, shown_first in zip(views(), views(), strict=True):
        own, shared = view_bytes(asked_first), loads(shared_bytes(asked_first, None))["extensions"]
        expected = shown_first.to_opa_input()["input"]

        assert view_bytes(shown_first) == own
        assert asked_first.to_dict() == expected
        bare = loads(own)
        assert merged(shared, bare.pop("extensions", {})) == loads(dumps(expected.pop("extensions")))
        assert dumps(bare) == dumps(loads(dumps(expected)))
