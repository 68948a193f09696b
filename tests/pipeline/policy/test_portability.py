"""What a policy says that is heard otherwise, or not at all, is found when it is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from tests.cmf.strategies import values
from tests.pipeline.policy_files import GOOD, PLACE, Write, refusal, write

from cmf.enums import Capability
from cmf.json.codec import loads
from cmf.views.iterate import iter_views
from cmf.views.view import MessageView
from pipeline.decisions.policy_input import SessionFacts, whole
from pipeline.policy import policy_set, portability

__all__ = ["write"]  # a fixture

FACTS = SessionFacts(labels=frozenset({"pii"}), counters={"calls": 1}, events=[{"event": "x"}], approvals=[{"id": "a"}])
HEAD = GOOD.split("\ndeny", 1)[0]


def rule(body: str, *, kinds: str = "text, tool_call", capabilities: str = "read_labels") -> dict[str, str]:
    text = HEAD.replace("kinds: [text, tool_call]", f"kinds: [{kinds}]")
    text = text.replace("capabilities: [read_labels]", f"capabilities: [{capabilities}]")
    return {PLACE: f'{text}\nimport data.cmf.lib\n\ndeny contains {{"code": "c", "reason": "r"}} if {{\n{body}\n}}\n'}


LIB = {"cmf/lib/lib.rego": "package cmf.lib\n\nf(x) if x == 1\n\ng(x) := input.session.counters[x]\n\nlater if f(1)\n"}


@pytest.mark.spec("POL-25")
@pytest.mark.parametrize(
    ("body", "code", "hint"),
    [
        ("regex.match(`(?x)a b`, input.content)", "policy.regex-dialect", "flags i, m, s and U"),
        ("regex.match(`a(?=b)`, input.content)", "policy.regex-dialect", "(?:…)"),
        ('regex.replace(input.content, `\\u0041`, "") == ""', "policy.regex-dialect", "\\x{…}"),
        ("regex.match(_pattern, input.content)", "policy.regex-dialect", "group"),
        ("regex.match(_joined, input.content)", "policy.regex-dialect", "group"),
        ("regex.match(_settings.pattern, input.content)", "policy.regex-dialect", "group"),
        ("input.size_bytes > 9007199254740993", "policy.big-integer", "string"),
        ("not startswith(input.content, `a`)", "policy.negated-reference", "its own rule"),
        ('not "a" in input.extensions.security.labels', "policy.negated-reference", "its own rule"),
        ("not input.size_bytes > 3", "policy.negated-reference", "its own rule"),
        ("not lib.f(input.content)", "policy.negated-reference", "its own rule"),
        ("not input.content\nnot lib.f(input.content)", "policy.negated-reference", "its own rule"),
        ("count([input.content]) > 0\nnot lib.f(input.name)", "policy.negated-reference", "its own rule"),
        ("count([1 | input.content]) > 0\nnot lib.f(input.content)", "policy.negated-reference", "its own rule"),
        ("input.content with input as {}\nnot lib.f(input.content)", "policy.negated-reference", "its own rule"),
        ("input.content\nnot lib.f(input.content) with input as {}", "policy.negated-reference", "its own rule"),
        ("not lib.f(_sometimes)", "policy.negated-reference", "its own rule"),
        ("not lib.f(data.elsewhere.thing)", "policy.negated-reference", "its own rule"),
        ("input.contents == 1", "policy.unknown-field", "content"),
        ('input.messages[_].role == "system"', "policy.unknown-field", "a rule sees one part"),
        ("input.extensions.security.label == 1", "policy.unknown-field", "labels"),
        ("input.extensions.security.subject.role", "policy.unknown-field", "roles"),
        ('object.get(input, "contents", "") == ""', "policy.unknown-field", "content"),
        ("input.properties.mesage_count > 3", "policy.unknown-field", "message_count"),
        ("input.properties.sampling.temprature > 1", "policy.unknown-field", "temperature"),
        ("input.extensions.security.subject.roles[_]", "policy.no-capability", "read_roles"),
        ("who := input.extensions.security.subject\nwho.roles[_]", "policy.no-capability", "read_roles"),
        ("input.extensions.agent.turn > 3", "policy.no-capability", "read_agent"),
        ('input.extensions.http.headers["x"]', "policy.no-capability", "read_headers"),
        ("lib.g(`calls`) > 3", "policy.no-capability", "read_agent"),
        ("input.name == nobody", "policy.unknown-name", "`nobody := …`"),
        ("\tinput.name == _alway  # not {x | _alway}", "policy.unknown-name", "did you mean _always?"),
        ("not lib.f(nobody)", "policy.unknown-name", "`nobody := …`"),
    ],
)
def test_constructs_that_the_engines_read_differently_are_refused_with_their_place(
    write: Write, body: str, code: str, hint: str
) -> None:
    rego = rule(body)
    rego[PLACE] += (
        '\n_always := 1\n\n_pattern := `a**`\n\n_joined := concat("", [_pattern, "b"])\n'
        "\n_sometimes := 1 if input.content\n"
        "\n_settings := data.cmf.defaults.test.rule\n"
    )
    defaults = {"cmf/defaults/data.json": '{"test": {"rule": {"pattern": "a**"}}}'}

    error = refusal(write(rego | LIB | defaults))

    assert (error.code, error.path) == (code, "cmf/lib/lib.rego" if "lib.g" in body else PLACE)
    assert error.line > 0
    assert hint in error.hint


@pytest.mark.spec("POL-25")
@pytest.mark.parametrize(
    "body",
    [
        r"regex.match(`\d+\s\w\b`, input.content)",
        "not _holds",
        "not input.name",
        "is_string(input.content)\nnot startswith(input.content, `a`)",
        "input.properties.big_integers[_] > 1\nnot lib.f(input.properties.big_integers)",
        "count([1 | input.content != `b`; not lib.f(input.content)]) > 0",
        'not input.role == "user"',
        "not input.role == input.content",
        "not lib.f(_always)",
        "not lib.f(data.cmf.defaults.test.rule.limit)",
        "not lib.f(object.get(input.properties, `is_error`, 1))",
        "not count([1 | some x in input.properties.big_integers; x > 1]) > 0",
        "not 1 in {x | some x in input.properties.big_integers}",
        "some x in input.properties.big_integers\nnot lib.f(x)",
        "count([path | walk(input.properties, [path, _])]) > 1",
        "count([1 | input.properties.big_integers[i] == 1]) > 0",
        "count({y | input.properties.big_integers[_] = y}) > 1",
        'count([v | {"k": v} = input.properties.extra]) == 1',
        "input.properties.big_integers[i] == 1",
        "input.size_bytes > 9007199254740991",
        "input.properties.extra.at.all == input.extensions.custom.anything",
    ],
)
def test_what_both_engines_hear_alike_is_loaded(write: Write, body: str) -> None:
    rego = rule(body)
    rego[PLACE] += '\n_holds if startswith(input.content, "a")\n\n_always := {1, 2}\n'
    defaults = {"cmf/defaults/data.json": '{"test": {"rule": {"limit": 1}}}'}

    policies = policy_set.load(write(rego | LIB | defaults))

    assert [one for one in policies.findings if one.refuses] == []


@pytest.mark.spec("POL-25")
@pytest.mark.parametrize("negated", ["lib.f(x.y)", "lib.f(split(x, `@`)[1])"])
def test_a_negated_member_of_a_local_or_a_call_is_a_warning_and_no_error(write: Write, negated: str) -> None:
    policies = policy_set.load(write(rule(f"some x in input.properties.big_integers\nnot {negated}") | LIB))

    assert [(one.code, one.place.line) for one in policies.findings] == [("policy.negated-reference", 16)]


@pytest.mark.spec("POL-25")
@pytest.mark.parametrize(
    ("read", "codes"),
    [("n", ["policy.no-format"]), ("openai_chat.n", []), ('["openai_chat.key"].n', []), ("[format].n", [])],
)
def test_a_wire_field_that_is_not_under_a_format_is_reported(write: Write, read: str, codes: list[str]) -> None:
    reference = f"input.properties.extra{read if read[0] == '[' else '.' + read}"

    policies = policy_set.load(write(rule(f"some format in input.content\n{reference} > 3")))

    assert [one.code for one in policies.findings] == codes


@pytest.mark.spec("POL-25")
@pytest.mark.parametrize(
    ("name", "near"), [("require_aproval", "require_approval"), ("redactions", "redact"), ("denied", "deny")]
)
def test_a_set_that_is_called_almost_as_an_effect_is_refused(write: Write, name: str, near: str) -> None:
    extra = f"\n{name} contains 1 if input.content\n\n_hosts contains 2 if input.content\n"

    error = refusal(write({PLACE: GOOD + extra}))
    used = write({PLACE: f"{GOOD}{extra}\nwarn contains {{}} if count({name}) > 1\n"}, name="used")

    assert (error.code, error.line, error.hint) == (
        "policy.unknown-effect",
        GOOD.count("\n") + 2,
        f"did you mean {near}?",
    )
    assert policy_set.load(used).rules


@pytest.mark.spec("POL-25")
@pytest.mark.parametrize(
    ("condition", "message", "hint"),
    [
        ("input.name in data.acme.tols", "data.acme.tols is neither a rule nor data", "did you mean tools?"),
        ("input.name in acme.tools.names", "data.acme.tools.names is neither a rule nor data", "remove it"),
        ("data.other.thing.more", "data.other is neither a rule nor data", "remove it"),
        (
            "input.name == data.cmf.rules.test.rule.limit",
            "data.cmf.rules.test.rule.limit is neither a rule nor data",
            "did you mean _limit?",
        ),
        ("acme.tools[_] == data.acme[input.name]", None, ""),
        ("data.cmf.rules.test.rule._limit == 1", None, ""),
    ],
)
def test_data_that_are_not_given_are_reported(write: Write, condition: str, message: str | None, hint: str) -> None:
    text = GOOD.replace("input.properties.redacted", condition).replace("deny", "import data.acme\n\ndeny", 1)
    files = {PLACE: f"{text}\n_limit := 1\n", "acme/data.json": '{"tools": ["a"]}'}

    found = [one for one in policy_set.load(write(files)).findings if one.code == "policy.unknown-data"]

    assert len(found) == (message is not None)
    assert all(one.message.endswith(message or "") and hint in one.hint and one.place.line == 14 for one in found)


@pytest.mark.spec("POL-26")
@pytest.mark.parametrize(
    ("field", "kinds", "hint"),
    [
        ("arguments.to", "text", "tool_call"),
        ("arguments.to", "tool_result, resource", "prompt_request"),
        ("uri", "text, thinking", "tool_call"),
        ("name", "thinking", "tool_call"),
        ("extensions.security.object.permissions", "text", "tool_call"),
    ],
)
def test_a_field_that_no_kind_of_the_rule_has_is_refused(write: Write, field: str, kinds: str, hint: str) -> None:
    error = refusal(write(rule(f"input.{field}", kinds=kinds, capabilities="read_objects") | LIB))

    assert error.code == "policy.field-of-no-kind"
    assert hint in error.hint


@pytest.mark.spec("POL-26")
def test_a_field_that_one_kind_of_the_rule_has_is_loaded(write: Write) -> None:
    assert policy_set.load(write(rule("input.arguments.to", kinds="text, tool_call") | LIB)).rules


@pytest.mark.spec("POL-27")
@pytest.mark.parametrize(
    ("rego", "capabilities"),
    [
        ("allow if input.content", set()),
        ("allow if input.extensions.security.subject.roles[_] == `a`", {"read_roles"}),
        ("allow if input.session.labels[_]", {"read_labels"}),
        ("allow if count(input.session) > 0", {"read_labels", "read_agent"}),
        ("allow if f(input)\n\nf(x) if x.content", set(map(str, portability.EVERYTHING))),
    ],
)
def test_policies_without_metadata_see_what_they_read(write: Write, rego: str, capabilities: set[str]) -> None:
    policies = policy_set.load(write({"app/a.rego": f"package app\n\n{rego}\n"}), entrypoint="data.app.allow")

    assert {str(one) for one in policies.capabilities} == capabilities


@pytest.mark.spec("POL-27")
def test_findings_in_policies_without_metadata_are_warnings_and_no_refusal(write: Write) -> None:
    rego = 'package app\n\nallow if not startswith(input.path_of_mine, "/x")\n'

    policies = policy_set.load(write({"app/a.rego": rego}), entrypoint="data.app.allow")

    assert {one.code for one in policies.findings} == {"policy.unknown-field", "policy.negated-reference"}


@pytest.mark.spec("POL-28")
def test_denials_that_a_failing_builtin_could_remove_are_reported(write: Write) -> None:
    rego = (
        "package app\n\ndeny contains 1 if to_number(input.content) > 3\n\n"
        "deny contains 2 if is_string(input.content)\n\nnote contains 3 if lower(input.content)\n"
    )
    directory = write({"app/a.rego": rego})

    strict = policy_set.load(directory, entrypoint="data.app.deny")
    ordinary = policy_set.load(directory, entrypoint="data.app.deny", builtin_errors="undefined")

    assert strict.findings == ()
    assert [(one.code, one.place.line) for one in ordinary.findings] == [("policy.may-vanish", 3)]
    assert strict.revision != ordinary.revision


@pytest.mark.spec("POL-28")
def test_builtin_errors_are_strict_or_undefined(write: Write) -> None:
    assert refusal(write({PLACE: GOOD}), builtin_errors="lenient").code == "policy.bad-option"


# -- the tables are true -----------------------------------------------------------------------------------------------


def paths(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield at
    if isinstance(value, dict):
        for key, member in value.items():
            yield from paths(member, (*at, key))


def test_what_is_local_is_not_what_changes() -> None:
    assert portability.is_local([("content",), ("properties", "x"), ("extensions", "custom")])
    for changing in (
        "session.labels",
        "origins",
        "extensions.http.headers",
        "extensions",
        "extensions.security.labels",
    ):
        assert not portability.is_local([("content",), tuple(changing.split("."))])
    assert not portability.is_local([()])


def test_where_the_session_holds_nothing_what_is_of_it_does_not_change() -> None:
    labels = ("extensions", "security", "labels")
    assert portability.is_local([("session", "counters"), ("origins",), labels], alone=True)
    for changing in (("extensions", "http"), ("extensions", "agent"), ("extensions",), ("extensions", "security"), ()):
        assert not portability.is_local([("content",), changing], alone=True)


def fields(view: MessageView) -> set[tuple[str, ...]]:
    return set(paths(loads(whole(view, FACTS, []))))


@given(values)
def test_views_have_no_field_that_the_checks_do_not_know(value: Any) -> None:
    for view in iter_views(value):
        for path in fields(view):
            assert portability.stray(path) is None, path
            kinds = next((kinds for gate, kinds in portability.KINDS_WITH.items() if path[: len(gate)] == gate), None)
            assert kinds is None or view.kind in kinds, (view.kind, path)


@given(values)
def test_what_the_checks_ask_a_capability_for_is_not_there_without_it(value: Any) -> None:
    for view in iter_views(value, capabilities=()):
        assert [path for path in fields(view) if portability.gates_of(path)] == []


@pytest.mark.parametrize("capability", sorted(portability.EVERYTHING))
@settings(max_examples=20)
@given(value=values)
def test_each_capability_shows_only_what_it_is_asked_for(capability: Capability, value: Any) -> None:
    for view in iter_views(value, capabilities=[capability]):
        assert {gate for path in fields(view) for gate in portability.gates_of(path)} <= {capability}


@pytest.mark.spec("POL-25")
@pytest.mark.parametrize("package", ["rules.mine", "cmf.rule.test.more", "authz"])
def test_a_set_of_effects_that_nothing_evaluates_is_refused(write: Write, package: str) -> None:
    stray = f'package {package}\n\ndeny contains {{"code": "a", "reason": "No."}} if input.content\n'

    error = refusal(write({PLACE: GOOD, "more/more.rego": stray}))

    assert (error.code, error.path, error.line) == ("policy.unreached", "more/more.rego", 3)
    assert f"data.{package}.deny" in error.message
    used = stray.replace("deny", "hits") + "\ndeny contains hit if some hit in hits\n"
    asked = GOOD + f"\ndeny contains hit if some hit in data.{package}.deny\n"
    assert policy_set.load(write({PLACE: asked, "more/more.rego": used}, "used")).rules
