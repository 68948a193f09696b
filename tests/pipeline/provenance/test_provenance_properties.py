"""Provenance against a reader that looks at everything each time; and how its work grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conversations import PROFILES, calls, index_of, returns, says, values_of

from cmf.enums import Role
from cmf.message.message import Message, TextPart, ToolCallPart, ToolResultPart
from pipeline.decisions.field_paths import Mark, leaves
from pipeline.provenance import matching, normalize_values
from pipeline.provenance.index import EVERYTHING, Index

# Few words, many joiners: values meet, overlap and nearly meet.
_WORD = st.sampled_from(["ann", "Ann", "bob", "5", "5.0", "1,000", "1000", "x.com", "https://X.com/a", "\u4f1a\u8bae"])
_JOIN = st.sampled_from([" ", "  ", "\n", ".", "@", "-", ", ", "/", ""])
TEXT = st.lists(st.tuples(_WORD, _JOIN), min_size=1, max_size=5).map(lambda pairs: "".join(map("".join, pairs)))
VALUE = TEXT | st.integers(-5, 1000) | st.sampled_from([5.0, 1000.0])
FIELDS = st.dictionaries(st.sampled_from(["sender", "id", "body"]), VALUE, max_size=3)
ARGUMENTS = st.dictionaries(st.sampled_from(["to", "text", "body"]), VALUE | st.lists(VALUE, max_size=2), max_size=2)
TOOL = st.sampled_from(["read_mail", "contacts", "catalogue", "save", "unheard_of"])


@st.composite
def exchanges(draw: st.DrawFn, number: int = 0) -> list[Message]:
    """A remark, or a call with its result."""
    if draw(st.booleans()):
        return [says(draw(st.sampled_from(["user", "system", "assistant"])), draw(TEXT))]
    tool_id = draw(st.none() | st.sampled_from(["1", "2", "3", "4", "5", "6"]))
    name = draw(TOOL)
    content = draw(st.lists(FIELDS, max_size=2) | FIELDS | TEXT)
    result = returns(content, tool_id, tool_name=name, is_error=draw(st.booleans()))
    return [calls(name, draw(ARGUMENTS), tool_id), result]


CONVERSATION = st.lists(exchanges(), max_size=6).map(lambda groups: [message for group in groups for message in group])


def trusted_texts(messages: list[Message]) -> Iterator[tuple[int, str, str | float]]:
    """Everything that could be trusted at the very best: the user's and system's words, fields with a trusting rule."""
    names: dict[str | None, str] = {}
    for number, message in enumerate(messages):
        for part in message.content:
            if isinstance(part, TextPart) and message.role in (Role.USER, Role.SYSTEM):
                yield number, message.role.value, part.text
            if isinstance(part, ToolCallPart):
                names[part.tool_call_id] = part.name
            if isinstance(part, ToolResultPart):
                yield from ((number, kind, text) for kind, text in trusted_fields(str(part.tool_name), part))


def trusted_fields(tool: str, part: ToolResultPart) -> Iterator[tuple[str, str | float]]:
    for path, content in leaves(part.content):
        is_key = path[-1:] == (Mark.KEY,)
        if tool in ("contacts", "save") or (tool == "catalogue" and is_key and len(path) == 2):
            yield "tool_result", content
        elif tool == "read_mail" and not part.is_error and path[1:] in (("sender",), ("id",)):
            yield "metadata", content


def has(text: str | float, value: Any) -> bool:
    """Whether `text` has `value`, by looking at all of it."""
    raw, wanted = str(text), str(value)
    keys = matching.text_keys(raw) | ({matching.number_key(text)} if not isinstance(text, str) else set())
    if isinstance(value, str):
        folded = matching.normal(wanted)
        plain = matching.stands_in(raw, wanted) or raw == wanted
        same = bool(folded) and (matching.stands_in(matching.normal(raw), folded) or matching.normal(raw) == folded)
        kinds = {normalize_values.kind_of(key) for key in matching.value_keys(wanted)} - {None}
        keys |= {key for kind in kinds for key in normalize_values.keys_in(str(kind), raw)}
        others = [] if matching.is_address(folded) else matching.alternates(matching.unmarked(folded))
        turned = any(matching.stands_in(matching.unmarked(matching.normal(raw)), other) for other in others)
        return turned or bool(matching.value_keys(wanted) & keys) or (plain if matching.is_case_bound(wanted) else same)
    return matching.number_key(value) in keys


def tells(text: str | float, value: Any) -> bool:
    """Whether a path or link in `text` has `value` as a piece: `5.0` of `ann/5.0` [PROV-15]."""
    return f"part:{value}" in normalize_values.keys_in("part", str(text))


@pytest.mark.spec("PROV-5")
@given(CONVERSATION, VALUE)
def test_a_value_is_called_trusted_only_if_a_trusted_text_has_it(messages: list[Message], value: Any) -> None:
    entry = asked(index_of(*messages), value)

    for source in entry["sources"]:
        if source["trust"] == "trusted":
            texts = [text for number, kind, text in trusted_texts(messages) if number == source["message"]]
            kinds = {kind for number, kind, _ in trusted_texts(messages) if number == source["message"]}
            assert source["kind"] in kinds
            assert any(has(text, value) or tells(text, value) for text in texts)


@pytest.mark.spec("PROV-5")
@given(CONVERSATION, VALUE)
def test_without_a_record_only_the_user_and_the_system_are_trusted(messages: list[Message], value: Any) -> None:
    entry = asked(index_of(*messages, known=frozenset()), value)

    assert {source["kind"] for source in entry["sources"] if source["trust"] == "trusted"} <= {"user", "system"}
    assert {source["kind"] for source in entry["sources"]} <= {"user", "system", "claimed"}


@pytest.mark.spec("PROV-4")
@given(CONVERSATION, VALUE)
def test_the_user_s_values_are_found_in_every_message(messages: list[Message], value: Any) -> None:
    said = [number for number, kind, text in trusted_texts(messages) if kind == "user" and has(text, value)]

    found = [source for source in asked(index_of(*messages), value)["sources"] if source["kind"] == "user"]

    assert len(found) == (1 if said else 0)
    assert all(source["trust"] == "trusted" and source["message"] in said for source in found)


@pytest.mark.spec("PROV-9")
@given(CONVERSATION, VALUE, st.integers(0, 12))
def test_feeding_in_two_steps_and_asking_between_changes_nothing(messages: list[Message], value: Any, cut: int) -> None:
    at_once = index_of(*messages)
    in_steps = index_of(*messages[:cut])
    asked(in_steps, value)
    for message in messages[cut:]:
        in_steps.extend(message)

    assert asked(in_steps, value) == asked(at_once, value) == asked(index_of(*messages), value)


@pytest.mark.spec("PROV-6")
@given(CONVERSATION)
def test_what_was_recorded_is_known_again(messages: list[Message]) -> None:
    index, record = Index(PROFILES), set()
    for message in messages:
        record.update(index.digests_of(message))
        index.extend(message, known=True)

    again = index_of(*messages, known=record)

    call = ToolCallPart(name="send", arguments={"to": ["ann", "bob", 5, "x.com"]})
    assert again.origins(call) == index.origins(call)


def asked(index: Index, value: Any) -> dict[str, Any]:
    return values_of(index, ToolCallPart(name="send", arguments={"to": value}))[0]


# -- growth ------------------------------------------------------------------------------------------------------------


def turn(number: int) -> list[Message]:
    """One turn that repeats the words of all others and has some of its own."""
    mail = [{"sender": f"ann{number}@x.com", "id": str(number), "body": f"the report number {number} of ann is late"}]
    return [
        says("user", f"please read the mail about report {number} and send it to ann"),
        calls("read_mail", {"q": f"report {number}"}, f"c{number}"),
        returns(mail, f"c{number}"),
        calls("send", {"to": f"ann{number}@x.com", "body": "the report of ann is late"}, f"s{number}"),
        returns("sent", f"s{number}"),
    ]


def work_of_turns(turns: int) -> list[int]:
    index, steps = Index(PROFILES, EVERYTHING), []
    for number in range(turns):
        before = index.work
        for message in turn(number):
            if message.role is Role.ASSISTANT:
                index.origins(message.content[0])
            index.extend(message)
        steps.append(index.work - before)
    return steps


@pytest.mark.spec("PROV-10")
def test_a_new_turn_costs_what_is_new_and_a_conversation_its_length() -> None:
    steps = work_of_turns(400)

    assert max(steps[200:]) <= 1.2 * max(steps[10:20])
    assert sum(steps) <= 2.2 * sum(steps[:200])


@pytest.mark.spec("PROV-10")
def test_a_value_of_common_words_is_compared_a_bounded_number_of_times() -> None:
    index = index_of(*(says("user", "is the report; the report") for _ in range(3_000)))
    before = index.work

    (entry,) = values_of(index, ToolCallPart(name="other", arguments={"to": "is the report the report"}))

    assert (entry["sources"], entry["complete"]) == ([], False)
    assert index.work - before < 2_100


@pytest.mark.spec("PROV-10")
def test_a_long_value_costs_its_length() -> None:
    costs = []
    for words in (1_000, 10_000):
        text = " ".join(f"w{number % 50}" for number in range(words))
        index = index_of(says("user", text), *(says("user", f"w1 w2 w3 {number}") for number in range(100)))
        before = index.work
        assert [source["match"] for source in asked(index, text)["sources"]] == ["exact"]
        costs.append(index.work - before)

    assert costs[1] <= 15 * costs[0]
