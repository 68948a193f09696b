"""What a set says and nothing ever hears."""

from __future__ import annotations

import json

import pytest
from tests.pipeline.policy_files import PLACE, Write, write

from pipeline.authoring import unused
from pipeline.policy import loading, policy_set
from pipeline.policy.analysis import Place, Survey
from pipeline.policy.metadata import rule_of

__all__ = ["write"]  # a fixture

HEAD = """\
# METADATA
# title: A rule
# custom: {{code: test.rule, severity: high, kinds: [text, tool_call], capabilities: [{capabilities}]}}
package cmf.rules.test.rule

"""
DENY = 'deny contains {{"code": "test.rule", "reason": "No."}} if {{\n\t{0}\n}}\n'
LIB = "package cmf.lib\n\nanswer := 42\n\nis_answer(x) if x == answer\n\nasked(x) if x == input.name\n"


def found(
    write: Write, text: str, *, capabilities: str = "", data: object = None, extra: dict[str, str] | None = None
) -> list[tuple[str, int, str]]:
    """(code, line behind the head, message) of everything that is found."""
    files = {PLACE: HEAD.format(capabilities=capabilities) + text, "cmf/lib/lib.rego": LIB, **(extra or {})}
    if data is not None:
        files["cmf/defaults/data.json"] = json.dumps(data)
    sources = loading.read(write(files), problems=[])
    survey = Survey([(module.path, module.text) for module in sources.modules])
    rules = [rule_of(module) for module in sources.modules if module.path == PLACE]
    listed = unused.findings(survey, sources, rules, lambda path: Place("data.json", len(path), 1))
    assert not any(one.refuses for one in listed)
    return [(one.code, one.place.line - 5 if one.place.module == PLACE else 0, one.message) for one in listed]


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    "condition",
    [
        "false",
        "1 > 2",
        'not "a" in {"a", "b"}',
        "_limit > 5",
        "lib.answer == 43",
        "lib.is_answer(43)",
        "x := 3\n\tx > 4",
        "count(_none) > 0",
        "some x in [1, 2]\n\tx > 2",
        "every x in [1, 2] { x > 1 }",
        'to_number("a") == 1',
        'print("so far", input.content)\n\t1 > 2',
    ],
)
def test_what_never_holds_is_found(write: Write, condition: str) -> None:
    rule = DENY.format(f"{condition}\n\tinput.content")
    text = f"import data.cmf.lib\n\n{rule}\n_limit := 4\n\n_none := []\n"

    never = [line for code, line, _ in found(write, text) if code == "check.never-true"]

    assert never == [4 if "\n" not in condition else 5]


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    "condition",
    [
        "1 < 2",
        "input.size_bytes > 4",
        "data.cmf.defaults.test.rule.on",
        "_settings.on",
        "lib.is_answer(input.size_bytes)",
        "lib.asked(42)",
        "some x in input.properties.big_integers\n\tx > 4",
        'input.content == "a" with input as {"content": "b"}',
        "_twice(3) == 6",
    ],
)
def test_what_can_hold_is_not(write: Write, condition: str) -> None:
    helpers = "_settings := data.cmf.defaults.test.rule\n\n_twice(x) := 2 * x\n"
    text = f"import data.cmf.lib\n\n{DENY.format(condition)}\n{helpers}"

    codes = {code for code, _, _ in found(write, text, data={"test": {"rule": {"on": False}}})}

    assert "check.never-true" not in codes


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ('input.role == "usr"', 'input.role is never "usr"'),
        ('"tool_cal" == input.kind', 'input.kind is never "tool_cal"'),
        ('not input.action != "run"', 'input.action is never "run"'),
        ('input.kind in {"text", "txt"}', 'input.kind is never "txt"'),
        ("input.is_pre == 1", "input.is_pre is never 1"),
        ("input.size_bytes == true", "input.size_bytes is never true"),
        ('input.size_bytes > "1000"', 'input.size_bytes is never "1000"'),
        ('"9" <= input.size_bytes', 'input.size_bytes is never "9"'),
        ("input.name < 3", "input.name is never 3"),
        ("input.name == null", "input.name is never null"),
        ('input.extensions.security.subject.roles == "a"', 'input.extensions.security.subject.roles is never "a"'),
    ],
)
def test_a_field_that_is_compared_with_what_it_never_is_is_found(write: Write, condition: str, message: str) -> None:
    listed = found(write, DENY.format(condition), capabilities="read_roles")

    assert [(line, said) for code, line, said in listed if code == "check.wrong-value"] == [(2, message)]


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    "condition",
    [
        'input.role == "user"',
        "input.is_pre == true",
        "input.size_bytes == 1.5",
        "input.size_bytes >= 1.5",
        'input.arguments.amount > "1000"',
        "input.properties.extra.ollama.done_reason == 7",
        "input.arguments.to == null",
        'input.kind in {"text", "tool_call"}',
        'input.kind == concat("", ["t", "ext"])',
    ],
)
def test_a_comparison_that_can_hold_is_not(write: Write, condition: str) -> None:
    assert [code for code, _, _ in found(write, DENY.format(condition))] == []


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ('input.kind == "tool_result"', 'input.kind is never "tool_result"'),
        ('input.kind in {"request", "response"}', 'input.kind is never "request" or "response"'),
        ('input.kind in {"tool_result", "tool_call"}', None),
        ('not input.kind == "tool_result"', None),
        ('input.kind != "tool_result"', None),
        ('input.action == "write"', 'input.action is never "write"'),
        ("input.is_pre == true", None),
        ("not input.is_pre", None),
        ('input.action == "execute"', None),
        ('input.action == "receive"', None),  # a text of a tool is
        ('input.kind == "tool_result" with input as {"kind": "tool_result"}', None),
    ],
)
def test_what_a_field_never_is_for_the_kinds_of_its_rule_is_found(
    write: Write, condition: str, message: str | None
) -> None:
    listed = found(write, DENY.format("_held") + f"\n_held if {{\n\t{condition}\n}}\n")

    assert [said for code, _, said in listed if code == "check.wrong-value"] == [message][: message is not None]


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    ("condition", "is_found"),
    [("input.is_pre", True), ("not input.is_post", True), ("input.is_post", False), ("not input.is_pre", False)],
)
def test_a_direction_that_no_kind_of_the_rule_has_is_found(write: Write, condition: str, is_found: bool) -> None:
    text = HEAD.format(capabilities="").replace("[text, tool_call]", "[tool_result]") + DENY.format(condition)

    listed = found(write, "", extra={PLACE: text})

    assert [code for code, _, _ in listed] == ["check.wrong-value"] * is_found


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    ("condition", "field"),
    [
        ("input.properties.resource_type", "input.properties.resource_type"),
        ("not input.properties.sampling.temperature", "input.properties.sampling"),
        ('input.properties["is_error"]', "input.properties.is_error"),
        ("_facts.is_error", "input.properties.is_error"),
        ("input.properties.tool_id", None),
        ("input.properties.message.id", None),
        ('input.properties[concat("", ["is_", "error"])]', None),
        ('input.properties.is_error with input as {"properties": {"is_error": true}}', None),
        ("input.arguments.to", None),
        ("count(input.origins) > 0", None),
    ],
)
def test_a_field_that_no_kind_of_the_rule_has_is_found(write: Write, condition: str, field: str | None) -> None:
    listed = found(write, DENY.format("_held") + f"\n_facts := input.properties\n\n_held if {{\n\t{condition}\n}}\n")

    said = [said for code, _, said in listed if code == "check.never-there"]
    assert said == [f"{field} is never there"][: field is not None]


@pytest.mark.spec("POL-37")
@pytest.mark.parametrize(
    ("kind", "field", "is_found"),
    [
        ("text", "arguments.to", True),
        ("prompt_request", "arguments.to", False),
        ("prompt_request", "origins[0].path", True),
        ("tool_call", "origins[0].path", False),
    ],
)
def test_arguments_and_their_origins_are_of_few_kinds(write: Write, kind: str, field: str, is_found: bool) -> None:
    text = HEAD.format(capabilities="").replace("[text, tool_call]", f"[{kind}]") + DENY.format(f"input.{field}")

    assert [code for code, _, _ in found(write, "", extra={PLACE: text})] == ["check.never-there"] * is_found


@pytest.mark.spec("POL-37")
def test_a_function_of_a_library_may_be_for_kinds_that_no_rule_has(write: Write) -> None:
    lib = 'package cmf.lib\n\nis_result if input.kind == "tool_result"\n'
    text = "import data.cmf.lib\n\n" + DENY.format("lib.is_result")

    assert found(write, text, extra={"cmf/lib/lib.rego": lib}) == []


@pytest.mark.spec("POL-36")
def test_settings_that_no_rule_reads_are_found_the_outermost_of_them(write: Write) -> None:
    text = DENY.format("input.size_bytes > _settings.max") + "\n_settings := data.cmf.defaults.test.rule\n"
    data = {"test": {"rule": {"max": 1, "mox": 2, "deep": {"a": 1}}, "other": {"b": 1}}}

    assert found(write, text, data=data) == [
        ("check.unused-setting", 0, "no rule reads data.cmf.defaults.test.other"),
        ("check.unused-setting", 0, "no rule reads data.cmf.defaults.test.rule.mox"),
        ("check.unused-setting", 0, "no rule reads data.cmf.defaults.test.rule.deep"),
    ]


@pytest.mark.spec("POL-36")
@pytest.mark.parametrize(
    "read", ["some x in _settings", "_settings[input.name]", "x := data.cmf.defaults.test", "_all"]
)
def test_settings_that_are_read_as_a_whole_are_all_read(write: Write, read: str) -> None:
    text = (
        DENY.format(f"{read}\n\tinput.content")
        + "\n_settings := data.cmf.defaults.test.rule\n\n_all if count(_settings)\n"
    )

    codes = [code for code, _, _ in found(write, text, data={"test": {"rule": {"a": {"b": 1}}}})]

    assert "check.unused-setting" not in codes


@pytest.mark.spec("POL-36")
def test_capabilities_helpers_imports_and_variables_without_a_use_are_found(write: Write) -> None:
    text = (
        "import data.cmf.lib\nimport data.cmf.lib as other  # lib\n\n"
        + DENY.format(
            "x := input.name\n\tsome k, v in input.arguments\n\tsome y\n\tinput.properties[y] == v\n\tlib.answer == 42"
        )
        + "\n_nobody if input.content\n\n_itself if not _nobody\n\nallow if input.content\n"
    )

    assert found(write, text, capabilities="read_labels, write_headers") == [
        ("check.unused-capability", -4, "test/rule does not need read_labels"),
        ("check.unused-import", 2, "other is imported but not used"),
        ("check.unused-variable", 5, "x is assigned but not used"),
        ("check.unused-variable", 6, "k is assigned but not used"),
        ("check.unused-helper", 14, "nothing uses _itself"),
        ("check.unused-helper", 16, "nothing uses allow"),
    ]


@pytest.mark.spec("POL-36")
def test_a_helper_that_a_test_asks_for_and_a_variable_of_the_head_are_used(write: Write) -> None:
    text = (
        'deny contains {"code": "test.rule", "reason": x} if some x in input.properties.big_integers\n'
        "\n_twice(x) := 2 * x\n"
    )
    tests = "package cmf.rules.test.rule_test\n\nimport data.cmf.rules.test.rule\n\ntest_a if rule._twice(1) == 2\n"

    assert found(write, text, extra={PLACE.replace(".rego", "_test.rego"): tests}) == []


@pytest.mark.spec("POL-36")
def test_the_shipped_policies_say_nothing_in_vain() -> None:
    sources = loading.read(policy_set.shipped())
    survey = Survey([(module.path, module.text) for module in sources.modules])
    rules = policy_set.load(policy_set.shipped()).rules

    assert unused.findings(survey, sources, rules, lambda _: Place("data.json", 0, 0)) == []
