"""What the playground's page holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.authoring.playground.states import state

from cmf.errors import CmfError
from cmf.json.value import replace
from cmf.message.request import Request, Response
from pipeline.authoring.playground.state import MAX_FILES, MAX_TEXT, PaneError, PolicyFile, State, read_case, state_of
from pipeline.decisions.errors import PolicyError


@pytest.mark.spec("PLAY-4")
@pytest.mark.parametrize(
    ("pane", "conversation", "context", "line"),
    [
        ("conversation", "- {role: user,\n  text: hi", "", 2),
        ("conversation", "a: 1\na: 2", "", 2),
        ("conversation", "just words", "", 0),
        ("conversation", "[" * 100_000, "", 0),
        ("conversation", "- {role: nobody, text: hi}", "", 0),
        ("conversation", "x" * (MAX_TEXT + 1), "", 0),
        ("context", "- {role: user, text: hi}", "subject: [", 1),
        ("context", "- {role: user, text: hi}", "subject: {id: ann, height: 3}", 0),
        ("context", "- {role: user, text: hi}", "- a list", 0),
        ("context", "- {role: user, text: hi}", "session: {labels: 3}", 0),
    ],
)
def test_an_invalid_text_is_reported_with_pane_and_line(pane: str, conversation: str, context: str, line: int) -> None:
    with pytest.raises(PaneError) as caught:
        read_case(State(conversation=conversation, context=context))

    assert caught.value.pane == pane
    assert caught.value.line == line
    assert caught.value.hint


@pytest.mark.spec("PLAY-2")
def test_no_file_of_this_machine_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "mail.json").write_text('{"messages": []}')
    named = f"conversation: {{from: openai_chat, file: {tmp_path}/mail.json}}"

    for conversation, context in ((named, ""), ("- {role: user, text: hi}", f"profiles: {tmp_path}/p.yaml")):
        with pytest.raises(PaneError):
            read_case(State(conversation=conversation, context=context))


@pytest.mark.spec("PLAY-2")
@pytest.mark.parametrize(
    "path",
    ["/etc/passwd.rego", "../up.rego", "a/../../b.rego", ".hidden/a.rego", "a//b.rego", "notes.txt", "./a.rego", ""],
)
def test_a_path_outside_a_policy_set_is_refused(path: str) -> None:
    with pytest.raises(PolicyError):
        State(files=(PolicyFile(path=path, text=""),)).contents()


@pytest.mark.spec("PLAY-12")
def test_too_many_files_and_one_twice_are_refused() -> None:
    file = PolicyFile(path="a.rego", text="package a")
    many = tuple(PolicyFile(path=f"a{number}.rego", text="") for number in range(MAX_FILES + 1))

    for files in ((file, file), many):
        with pytest.raises(PolicyError):
            State(files=files).contents()


@pytest.mark.spec("PLAY-2")
def test_a_conversation_is_short_or_in_a_wire_format() -> None:
    wire = State(format="openai_chat", conversation='{"messages": [{"role": "user", "content": "hi"}]}')
    reply = State(conversation="conversation: [{role: user, text: hi}]\nreply: {text: ho}", context="subject: {id: a}")

    assert isinstance(read_case(wire).traffic, Request)
    assert isinstance(read_case(reply).traffic, Response)
    assert read_case(reply).context.subject is not None
    for wrong in (replace(wire, format="no_such"), replace(wire, kind="stream"), replace(wire, conversation="{")):
        with pytest.raises(PaneError):
            read_case(wrong)


@pytest.mark.spec("PLAY-2")
def test_a_state_is_read_from_what_it_was_written_as() -> None:
    from cmf.json.codec import dumps

    held = state(context="subject: {id: ann}")

    assert state_of(dumps(held.to_json())) == held
    for body in (b"[]", b"{", b'{"files": 3}', b'{"conversation": 1}', b'{"more": ""}'):
        with pytest.raises(CmfError):
            state_of(body)
