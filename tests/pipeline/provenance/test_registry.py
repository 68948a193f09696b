"""What is registered of what traffic names: found without guessing, stamped where it arises and on all that follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cmf import (
    Choice,
    DataPolicy,
    Extensions,
    Message,
    ObjectSecurityProfile,
    PromptRequestPart,
    PromptResultPart,
    Request,
    ResourcePart,
    ResourceRefPart,
    Response,
    RetentionPolicy,
    SecurityExtension,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    iter_views,
)
from cmf.json.frozen import freeze
from pipeline import Context
from pipeline.decisions.context import ingest
from pipeline.decisions.errors import ConfigError
from pipeline.provenance.profile import profiles_schema
from pipeline.provenance.profiles import Profiles
from pipeline.provenance.registry import Lookup, Registry, event_entity, look_up, merged, retention_of

NOTHING = frozenset[tuple[str, str]]()


def profiles(**entries: Any) -> Profiles:
    return Profiles.load({"profiles": {name.replace("__", "/"): entry for name, entry in entries.items()}})


def known(
    value: Any, registry: Profiles, context: Context | None = None, lifted: frozenset[tuple[str, str]] = NOTHING
) -> Any:
    """`value` as it is judged, and what was found."""
    context = context or Context()
    found = look_up(value, Registry(registry, context), lifted)
    return ingest(value, context, frozenset(), found.known), found


def labels(value: Any, registry: Profiles, **more: Any) -> list[set[str]]:
    judged, _ = known(value, registry, **more)
    messages = judged.messages if isinstance(judged, Request) else [choice.message for choice in judged.choices]
    return [set(message.extensions.security.labels) for message in messages]


def called(name: str, arguments: Any = None, call_id: str | None = "1", namespace: str | None = None) -> Message:
    part = ToolCallPart(name=name, namespace=namespace, arguments=arguments or {}, tool_call_id=call_id)
    return Message(role="assistant", content=[part])


def result(content: Any, call_id: str | None = "1", name: str | None = None, **more: Any) -> Message:
    return Message(role="tool", content=[ToolResultPart(tool_call_id=call_id, tool_name=name, content=content, **more)])


def says(text: str, role: str = "user", *brought: str) -> Message:
    extensions = Extensions(security=SecurityExtension(labels=frozenset(brought))) if brought else None
    return Message(role=role, content=[TextPart(text=text)], extensions=extensions)


# -- lookup ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("DATA-1")
def test_what_the_traffic_says_of_access_and_use_is_not_believed() -> None:
    own = SecurityExtension(objects={"pay": ObjectSecurityProfile()}, data={"pay": DataPolicy()})
    message = says("x").model_copy(update={"extensions": Extensions(security=own)})

    judged, _ = known(message, Profiles())

    assert (judged.extensions.security.objects, judged.extensions.security.data) == ({}, {})


@pytest.mark.spec("DATA-1")
def test_each_message_has_the_entries_of_what_it_names() -> None:
    registry = Profiles.load(
        {
            "profiles": {
                "bank/pay": {"object": {"permissions": ["pay"]}, "data_policy": {"denied_actions": ["export"]}},
                "prompt://s/ask": {"object": {"permissions": ["ask"]}, "data_policy": {"denied_actions": ["log"]}},
                "db://hr/Pay": {"object": {"permissions": ["hr"]}, "data_policy": {"denied_actions": ["train"]}},
            }
        }
    )
    asks = Message(
        role="assistant",
        content=[
            ToolCallPart(name="pay", namespace="bank", arguments={}, tool_call_id="1"),
            PromptRequestPart(name="ask", server_id="s", prompt_request_id="p"),
            ResourceRefPart(uri="DB://HR/Pay"),
        ],
    )
    answers = Message(
        role="tool",
        content=[
            ToolResultPart(tool_call_id="1", tool_name="pay", content="ok"),
            PromptResultPart(prompt_name="ask", prompt_request_id="p", messages=[says("hello")]),
            ResourcePart(uri="db://hr/Pay", content="5"),
        ],
    )

    judged, _ = known(Request(messages=[says("hi"), asks, answers]), registry)

    found = [message.extensions.security for message in judged.messages]
    assert (found[0].objects, found[0].data) == ({}, {})
    assert {uri: one.permissions for uri, one in found[1].objects.items()} == {
        "tool://bank/pay": ("pay",),
        "prompt://s/ask": ("ask",),
        "db://hr/Pay": ("hr",),
    }
    assert {uri: one.denied_actions for uri, one in found[2].data.items()} == {
        "tool_result://pay": ("export",),
        "prompt_result://ask": ("log",),
        "db://hr/Pay": ("train",),
    }
    assert (found[1].data, found[2].objects) == ({}, {})
    shown = {view.path: view for view in iter_views(judged)}
    assert shown["messages[1].content[0]"].object == ObjectSecurityProfile(permissions=("pay",))
    assert shown["messages[2].content[1].messages[0].content[0]"].data_policy == DataPolicy(denied_actions=("log",))


@pytest.mark.spec("DATA-1")
def test_the_tools_that_are_offered_are_judged_with_their_profiles() -> None:
    registry = profiles(pay={"object": {"permissions": ["pay"]}})
    request = Request(
        messages=[says("hi"), says("again")], tools=[ToolDefinition(name="pay"), ToolDefinition(name="x")]
    )

    judged, _ = known(request, registry)

    assert {view.path: view.object for view in iter_views(judged) if view.path.startswith("tools")} == {
        "tools[0]": ObjectSecurityProfile(permissions=("pay",)),
        "tools[1]": None,
    }
    assert judged.messages[1].extensions.security.objects == {}


@pytest.mark.spec("DATA-1")
def test_the_context_s_own_entries_come_before_the_registry_s() -> None:
    registry = profiles(pay={"object": {"permissions": ["a"]}, "data_policy": {"apply_labels": ["a"]}})
    context = Context(
        objects={"pay": ObjectSecurityProfile(permissions=("b",))}, data={"pay": DataPolicy(apply_labels=("b",))}
    )

    judged, _ = known(Request(messages=[called("pay"), result("x", name="pay")]), registry, context)

    views = {view.path: view for view in iter_views(judged)}
    assert views["messages[0].content[0]"].object.permissions == ("b",)  # type: ignore[union-attr]
    assert views["messages[1].content[0]"].data_policy.apply_labels == ("b",)  # type: ignore[union-attr]
    assert judged.messages[1].extensions.security.labels == {"b"}


@pytest.mark.spec("DATA-1")
def test_a_registry_that_fails_is_an_error_and_not_an_empty_one() -> None:
    def answer(uri: str) -> None:
        raise OSError

    with pytest.raises(ConfigError):
        look_up(called("pay"), Registry(Profiles.load(answer), Context()), NOTHING)


@pytest.mark.spec("DATA-2")
def test_a_name_that_two_servers_have_grants_nothing_and_is_bound_by_both() -> None:
    registry = profiles(
        a__pay={"object": {}, "data_policy": {"apply_labels": ["a"], "allowed_actions": ["read", "send"]}},
        b__pay={"object": {}, "data_policy": {"apply_labels": ["b"], "allowed_actions": ["send"]}},
    )

    judged, _ = known(Request(messages=[called("pay", call_id=None), result("x", None, "pay")]), registry)

    assert judged.messages[0].extensions.security.objects == {}
    assert judged.messages[1].extensions.security.data["tool_result://pay"].allowed_actions == ("send",)
    assert judged.messages[1].extensions.security.labels == {"a", "b"}


@pytest.mark.spec("DATA-2")
def test_entries_of_the_context_under_an_ambiguous_name_bind_as_well() -> None:
    context = Context(data={"a/pay": DataPolicy(apply_labels=("a",)), "pay": DataPolicy(apply_labels=("b",))})

    assert labels(Request(messages=[result("x", None, "pay")]), Profiles(), context=context) == [{"a", "b"}]
    assert labels(Request(messages=[result("x", None, "other")]), Profiles(), context=context) == [set()]


@pytest.mark.spec("DATA-2")
def test_a_result_is_bound_by_its_call_and_by_the_name_that_it_gives_itself() -> None:
    registry = profiles(pay={"result": {"labels": ["pay"]}}, read={"result": {"labels": ["read"]}})

    assert labels(Request(messages=[called("pay"), result("x", name="read")]), registry)[1] == {"pay", "read"}
    assert labels(Request(messages=[called("pay"), called("read"), result("x")]), registry)[2] == {"pay", "read"}
    assert labels(Request(messages=[called("pay", call_id=None), result("x", None)]), registry)[1] == {"pay"}
    assert labels(Request(messages=[called("pay", call_id=None), result("x", None, "read")]), registry)[1] == {"read"}
    assert labels(Request(messages=[result("x", "unknown")]), registry) == [set()]


@pytest.mark.spec("DATA-2")
def test_policies_that_meet_forbid_what_any_of_them_forbids() -> None:
    loose = DataPolicy(apply_labels=("a",))
    strict = DataPolicy(denied_actions=("log",), allowed_actions=(), retention=RetentionPolicy(policy="session"))
    aged = DataPolicy(retention=RetentionPolicy(max_age_seconds=5))

    assert merged([loose]) is loose
    assert merged([loose, strict, aged]) == DataPolicy(
        apply_labels=("a",),
        denied_actions=("log",),
        allowed_actions=(),
        retention=RetentionPolicy(policy="session", max_age_seconds=5),
    )
    assert merged([loose, aged]).allowed_actions is None


# -- labels ------------------------------------------------------------------------------------------------------------

PAY = {
    "data_policy": {"apply_labels": ["pii"]},
    "result": {"labels": ["hr"], "field_labels": {"**.salary": ["secret"]}},
}


@pytest.mark.spec("DATA-3")
def test_labels_hold_where_they_arise_and_from_there_on() -> None:
    request = Request(messages=[says("hi"), called("pay"), result({"salary": 5}), says("thanks")])

    stamped = labels(request, profiles(pay=PAY))

    assert stamped == [set(), set(), {"pii", "hr", "secret"}, {"pii", "hr", "secret"}]


@pytest.mark.spec("DATA-3")
def test_labels_that_a_message_brings_hold_for_later_ones_too() -> None:
    assert labels(Request(messages=[says("a"), says("b", "user", "x"), says("c")]), Profiles()) == [set(), {"x"}, {"x"}]


@pytest.mark.spec("DATA-3")
def test_choices_stand_beside_each_other_and_share_their_labels() -> None:
    choices = [Choice(message=says("a", "assistant")), Choice(message=says("b", "assistant", "x"))]

    assert labels(Response(choices=choices), Profiles()) == [{"x"}, {"x"}]


@pytest.mark.spec("DATA-3")
@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"salary": 5}, {"pii", "hr", "secret"}),
        ({"people": [{"salary": None}]}, {"pii", "hr", "secret"}),
        ({"name": "Ann"}, {"pii", "hr"}),
        ('{"name": "Ann"}', {"pii", "hr"}),
        ("name: Ann", {"pii", "hr"}),
        ("Ann has 5", {"pii", "hr", "secret"}),  # no fields: it may hold any
        ((TextPart(text='{"name": "Ann"}'), TextPart(text='{"salary": 1}')), {"pii", "hr", "secret"}),
        ((TextPart(text='{"name": "Ann"}'),), {"pii", "hr"}),
    ],
)
def test_a_field_brings_its_labels_if_it_is_there(content: Any, found: set[str]) -> None:
    assert labels(Request(messages=[called("pay"), result(content)]), profiles(pay=PAY))[1] == found


@pytest.mark.spec("DATA-3")
def test_an_error_may_hold_any_field() -> None:
    assert "secret" in labels(Request(messages=[called("pay"), result({"n": 1}, is_error=True)]), profiles(pay=PAY))[1]


@pytest.mark.spec("DATA-3")
def test_nested_content_brings_its_labels_too() -> None:
    registry = Profiles.load(
        {
            "profiles": {
                "pay": {"result": {"labels": ["tool"]}},
                "db://x": PAY,
                "prompt://_/ask": {"result": {"labels": ["p"]}},
            }
        }
    )
    resource = ResourcePart(uri="db://x", content="5")
    inside = PromptResultPart(
        prompt_name="ask",
        messages=[Message(role="tool", content=[ToolResultPart(tool_name="pay", content=(resource,))])],
    )

    judged, found = known(Request(messages=[Message(role="user", content=[inside])]), registry)

    assert judged.messages[0].extensions.security.labels == {"tool", "pii", "hr", "secret", "p"}
    assert {one.entity.uri: one.names for one in found.returned} == {
        "prompt://_/ask": {None},
        "tool://_/pay": {None, "pay"},
        "db://x": {None, "pay"},
    }


@pytest.mark.spec("DATA-3")
def test_the_same_data_in_resent_history_is_the_same_event() -> None:
    registry = profiles(pay=PAY)
    first = Request(messages=[called("pay", call_id="a"), result("x", "a")])
    later = Request(
        messages=[called("pay", call_id="b"), result("x", "b", "pay", extra=freeze({"cache": 1})), says("and?")]
    )
    other = Request(messages=[called("pay", call_id="a"), result("y", "a")])

    events = [known(request, registry)[1].stamped(NOTHING) for request in (first, later, other)]

    assert events[0] == events[1]
    assert events[0].isdisjoint(events[2])
    assert {event_entity(event) for _, event in events[0]} == {"tool://_/pay"}
    assert event_entity("dec_1") is None


@pytest.mark.spec("DATA-5")
def test_a_declassified_event_stamps_no_more_and_others_do() -> None:
    registry = profiles(pay=PAY)
    one = Request(messages=[called("pay"), result({"n": "x"}), says("and?")])
    lifted = frozenset((label, event) for label, event in known(one, registry)[1].stamped(NOTHING) if label == "pii")
    more = Request(messages=[*one.messages, called("pay", call_id="2"), result({"n": "y"}, "2")])

    assert labels(one, registry, lifted=lifted) == [set(), {"hr"}, {"hr"}]
    assert labels(more, registry, lifted=lifted)[-1] == {"hr", "pii"}


@pytest.mark.spec("DATA-4")
def test_the_result_of_a_tool_that_writes_has_the_labels_of_its_arguments() -> None:
    registry = profiles(pay=PAY, save={"actions": ["write"]})
    request = Request(
        messages=[called("pay"), result({"salary": 5}), called("save", {"text": "5"}, "2"), result("saved", "2")]
    )

    assert labels(request, registry)[3] == {"pii", "hr", "secret"}


_LABELS = st.frozensets(st.sampled_from("abc"), max_size=2)
_MESSAGE = st.one_of(
    st.builds(lambda brought: says("x", "user", *brought), _LABELS),
    st.builds(lambda name: result("x", None, name), st.sampled_from(["one", "two", "three"])),
    st.builds(lambda name: called(name, call_id=None), st.sampled_from(["one", "two"])),
)
_REGISTRY = profiles(one={"result": {"labels": ["one"]}}, two={"data_policy": {"apply_labels": ["two"]}})


@pytest.mark.spec("DATA-3")
@given(st.lists(_MESSAGE, max_size=6), _LABELS)
def test_labels_never_shrink(messages: list[Message], session: frozenset[str]) -> None:
    request = Request(messages=messages)
    found = look_up(request, Registry(_REGISTRY, Context()), NOTHING)

    judged = ingest(request, Context(labels=frozenset("z")), session, found.known)

    carried = session | {"z"}
    for before, after, about in zip(messages, judged.messages, found.known, strict=True):
        own = before.extensions.security.labels if before.extensions and before.extensions.security else frozenset()
        carried |= own | about.labels
        assert after.extensions is not None
        assert after.extensions.security is not None
        assert after.extensions.security.labels == carried


# -- what servers say --------------------------------------------------------------------------------------------------


@pytest.mark.spec("DATA-11")
def test_what_a_server_says_of_the_tool_is_there_for_policy_as_its_claim() -> None:
    tool = ToolDefinition(
        name="look",
        description="Looks.",
        input_schema={"type": "object"},
        extra={"mcp": {"title": "Look", "annotations": {"readOnlyHint": True}, "outputSchema": {"type": "object"}}},
    )
    registry = Profiles().with_mcp_tools([tool, ToolDefinition(name="plain", extra={"mcp": {"title": 5}})], server="s")

    both = Message(
        role="assistant",
        content=[ToolCallPart(name=name, namespace="s", arguments={}) for name in ("look", "plain")],
    )

    judged, _ = known(
        Request(messages=[called("look", namespace="s"), called("look"), called("plain", namespace="s"), both]),
        registry,
    )

    told = judged.messages[0].extensions.mcp.tool
    assert (told.name, told.title, told.server_id, told.annotations) == ("look", "Look", "s", {"readOnlyHint": True})
    assert (told.input_schema, told.output_schema, told.description) == (
        {"type": "object"},
        {"type": "object"},
        "Looks.",
    )
    assert judged.messages[1].extensions.mcp is None
    assert judged.messages[3].extensions.mcp is None  # of which of the two it would be said, nobody could tell
    plain = judged.messages[2].extensions.mcp.tool
    assert (plain.title, plain.output_schema, plain.annotations) == (None, None, {})


@pytest.mark.spec("DATA-1")
def test_messages_that_name_nothing_share_one_context() -> None:
    judged, found = known(Request(messages=[says("a"), says("b"), called("none")]), profiles(pay=PAY))

    assert judged.messages[0].extensions is judged.messages[1].extensions is judged.messages[2].extensions
    assert isinstance(found, Lookup)
    assert look_up(says("a"), Registry(Profiles(), Context()), NOTHING).returned == ()


@pytest.mark.spec("PRF-8")
@pytest.mark.spec("DATA-1")
def test_the_example_of_profiles_binds_what_it_says() -> None:
    file = Path(__file__).resolve().parents[3] / "examples" / "profiles.yaml"
    jsonschema.Draft202012Validator(profiles_schema()).validate(yaml.safe_load(file.read_text()))
    registry = Profiles.load(file)
    rows = [{"name": "Ann", "salary": 5, "note": "great"}]
    asks = called("payroll", namespace="hr")

    judged, found = known(Request(messages=[says("hi"), asks, result(rows, name="payroll")]), registry)

    views = {view.path: view for view in iter_views(judged)}
    assert views["messages[1].content[0]"].object.permissions == ("read:compensation",)  # type: ignore[union-attr]
    assert views["messages[2].content[0]"].data_policy.denied_actions == ("export", "forward", "train")  # type: ignore[union-attr]
    assert judged.messages[2].extensions.security.labels == {"pii", "financial", "third-party"}
    assert retention_of(one.policy for one in found.returned) == RetentionPolicy(policy="session", max_age_seconds=3600)
    assert registry.trusts("hr")
    assert not registry.trusts("web")
    assert (registry.tool_schema("tool://mail/send") or {})["required"] == ["to"]
