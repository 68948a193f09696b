"""Settings that a rule cannot use: they would switch it off without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pipeline.policy_files import GOOD, PLACE, Write, refusal, write

from pipeline.decisions.errors import PolicyError
from pipeline.guard import Guard
from pipeline.policy import loading, policy_set

__all__ = ["write"]  # a fixture

URIS = "data.cmf.defaults.tools.tool_allowed"
DECLARED = GOOD.replace(
    "#   standards: [OWASP-LLM01]\n",
    "#   settings:\n#     most: {type: integer, minimum: 1, maximum: 9}\n"
    "#     tools: {type: array, minItems: 1, items: {type: string, format: uri-pattern}}\n",
)


def found(directory: Path, *, over: str | Path = "shipped") -> list[str]:
    """Every problem with the settings in a directory of data."""
    problems: list[PolicyError] = []
    loading.read(over, directory, problems=problems)
    return [str(problem) for problem in problems]


def of(rule: str, values: object) -> str:
    category, name = rule.split("/")
    return json.dumps({category: {name: values}})


@pytest.mark.spec("POL-69", "GRD-5")
@pytest.mark.parametrize(
    ("rule", "values", "says"),
    [
        ("tools/tool_allowed", {"denied": "tool://x/y"}, ".denied: expected a list: a URI pattern, found a text"),
        ("tools/tool_allowed", {"denied": None}, ".denied: expected a list: a URI pattern, found null"),
        ("tools/tool_allowed", {"denied": [None]}, ".denied[0]: expected a URI pattern, found null"),
        ("tools/tool_allowed", {"denied": {"a": 1}}, ".denied: expected a list: a URI pattern, found an object"),
        ("tools/tool_allowed", {"denied": [""]}, ".denied[0]: this is not a URI pattern"),
        ("tools/tool_allowed", {"denied": ["delete_*"]}, "for the rule's kinds it is prompt://SERVER/NAME or tool://"),
        ("tools/tool_allowed", {"denied": ["tool://delete"]}, "write tool://_/delete"),
        ("tools/tool_allowed", {"denied": ["tools://**/x"]}, "for the rule's kinds it is"),
        ("tools/tool_allowed", {"denied": [" tool://a/b"]}, "for the rule's kinds it is"),
        ("tools/tool_allowed", {"denied": ["tool://a/b "]}, "write tool://a/b%20"),
        ("tools/tool_allowed", {"denied": ["tool://**/a/b/c"]}, "it is tool://NAMESPACE/NAME"),
        ("tools/tool_allowed", {"deneid": []}, ".deneid: unknown name; did you mean denied?"),
        ("tools/tool_allowed", {"tools.tool_allowed.denied": []}, "unknown name"),
        ("tools/tool_allowed", ["tool://a/b"], "tool_allowed: expected an object"),
        ("tools/tool_allowd", {"denied": []}, "no rule here has these settings; did you mean tools/tool_allowed?"),
        ("tool/tool_allowed", {"denied": []}, "no rule here has these settings; did you mean tools/tool_allowed?"),
        ("request/model_allowed", {"any_classification": ["gpt-*"]}, "for the rule's kinds it is llm://PROVIDER/MODEL"),
        ("identity/tool_role", {"tools": {"tool://a/b": {"role": ["x"]}}}, ".role: unknown name; did you mean roles?"),
        ("identity/tool_role", {"tools": {"tool://a/b": {}}}, "expected an object of at least 1: roles, permissions"),
        ("identity/tool_role", {"tools": {"send": {"roles": ["x"]}}}, "a URI begins with a scheme"),
        ("identity/tool_role", {"tools": {"tool://a/b": {"roles": "x"}}}, "found a text; write a list"),
        ("tools/definition_pinned", {"pins": {"tool://a/*": {"description": "x"}}}, "write it without `*`"),
        ("tools/destructive_approval", {"destructive_names": ["delete_*"]}, "write the name itself"),
        ("tools/argument_bounds", {"bounds": {"tool://a/b": {"n": {"max": "5"}}}}, "found a text; write it without"),
        ("tools/argument_bounds", {"bounds": {"tool://a/b": {"n": {"maximum": 5}}}}, "unknown name; did you mean max?"),
        ("tools/argument_bounds", {"bounds": {"tool://a/b": {"n": {"pattern": "("}}}}, "it has no pattern: correct it"),
        ("tools/tool_name", {"patterns": [""]}, "this is not a regular expression (RE2); it has empty"),
        ("tools/definition_poisoned", {"patterns": {"a": "x(?=y)"}}, "this is not a regular expression"),
        ("data/ssrf", {"internal_hosts": ["https://a.example"]}, "write the host alone, in lower case"),
        ("data/ssrf", {"internal_hosts": ["A.example"]}, "write the host alone, in lower case"),
        ("data/ssrf", {"internal_hosts": ["a.example:80"]}, "write the host alone, in lower case"),
        ("data/ssrf", {"internal_hosts": ["*example"]}, "write the host alone, in lower case"),
        ("data/ssrf", {"internal_hosts": []}, "found an empty list; leave it out, or switch the rule off by its mode"),
        ("data/ssrf", {"metadata_hosts": ["Metadata.example"]}, "metadata_hosts[0]: expected a name, found a text"),
        ("data/pii", {"redact": ["card"]}, "expected `payment_card` or `us_ssn` or `iban`"),
        ("data/pii", {"max_masked": -1}, "expected a whole number, ≥ 0, found a number"),
        ("data/pii", {"max_masked": True}, "expected a whole number, ≥ 0, found true or false"),
        ("data/pii", {"replacement": "masked"}, "expected `mask` or `hash` or `drop` or `token`"),
        ("data/path_traversal", {"max_steps_up": 1000000}, "expected a whole number, ≥ 0, ≤ 16"),
        ("data/sql_write", {"arguments": []}, "found an empty list"),
        ("data/label_to_sink", {"forbidden_labels": [" secret"]}, "write it without blanks at its ends"),
        ("data/media_type_mismatch", {"allowed_unknown": ["pdf"]}, "write it in lower case, without parameters"),
        ("session/call_limit", {"at_most": {"tool://a/b": "3"}}, "expected a whole number, ≥ 0, found a text"),
        ("session/call_limit", {"at_most": {"tool://a/b": 1.5}}, "expected a whole number"),
        ("session/call_limit", {"at_most": {"send": 3}}, "at_most.send: the name is not a URI pattern"),
        ("session/budget", {"limits": {"cost_usd": "5 USD"}}, "expected a number, ≥ 0, found a text"),
        ("session/budget", {"limits": {"tool://a/b": 5}}, "a tool's is calls:<tool uri>"),
        ("session/budget", {"limits": {"calls:send": 5}}, "the name is not a counter"),
        ("session/sequence", {"steps": [{"before": "tool://a/b"}]}, "before (required), first (required)"),
        ("provenance/irreversible", {"unless_asked": "false"}, "expected true or false, found a text"),
        ("provenance/asked_for", {"effect": "warn"}, "expected `require_approval` or `deny`"),
    ],
)
def test_a_setting_that_a_rule_cannot_use_is_refused(write: Write, rule: str, values: object, says: str) -> None:
    directory = write({"cmf/defaults/data.json": of(rule, values)})

    with pytest.raises(PolicyError) as caught:
        Guard(directory)

    assert caught.value.code in ("policy.bad-setting", "policy.unknown-setting")
    assert (caught.value.path, caught.value.line) == ("cmf/defaults/data.json", 1)
    assert f"data.cmf.defaults.{rule.split('/')[0]}" in caught.value.message
    assert caught.value.hint
    assert says in str(caught.value)


@pytest.mark.spec("POL-69")
@pytest.mark.parametrize(
    ("rule", "values"),
    [
        ("tools/tool_allowed", {"allowed": [], "denied": ["**/delete_*", "tool://**", "tool://a*/b", "prompt://*/x"]}),
        ("tools/provider_executed", {"allowed": ["tool://_/web_search"]}),
        ("identity/tool_role", {"tools": {"file:///etc/**": {"roles": []}, "tool://a/b": {"permissions": ["p"]}}}),
        ("data/ssrf", {"allowed_hosts": ["[::1]", "127.0.0.1", "*.corp.example", "bücher.example", "a_b"]}),
        ("data/egress", {"tools": ["tool://mail/*"], "allowed_hosts": [], "mail_domains": ["*"]}),
        ("session/budget", {"limits": {"calls:tool://a/b": 3, "cost_usd": 0.5, "tokens": 0}}),
        ("request/model_allowed", {"by_classification": {"secret": []}}),
    ],
)
def test_settings_that_a_rule_can_use_are_taken(write: Write, rule: str, values: object) -> None:
    assert found(write({"cmf/defaults/data.json": of(rule, values)})) == []


@pytest.mark.spec("POL-69")
@pytest.mark.parametrize(
    ("path", "data", "says"),
    [
        ("cmf/defalts/data.json", {}, "data.cmf.defalts: unknown name; did you mean defaults?"),
        ("cmf/defaults/data.json", {"tools": "off"}, "data.cmf.defaults.tools: no rule here has these settings"),
        ("cmf/data.json", {"defaults": []}, "data.cmf: expected an object"),
        ("data.json", {"cmf": "x"}, "data.cmf: expected an object"),
        ("data.json", {"tools": {"tool_allowed": {"denied": []}}}, f"put them below {URIS}"),
        ("defaults/data.json", {"tools": {"tool_allowed": {"denied": []}}}, f"put them below {URIS}"),
        ("cmf/data.json", {"tools": {"tool_allowed": {"denied": []}}}, "data.cmf.tools: unknown name"),
        ("policy/cmf/defaults/data.json", {"tools": {"tool_allowed": {"denied": []}}}, f"put them below {URIS}"),
        ("data.json", {"cmf.defaults.tools.tool_allowed.denied": []}, "unknown name; known: cmf"),
        ("data.json", {"cfm": {"modes": {"data/pii": "off"}}}, "data.cfm: unknown name; did you mean cmf?"),
    ],
)
def test_settings_where_no_rule_looks_for_them_are_refused(write: Write, path: str, data: Any, says: str) -> None:
    problems = found(write({path: json.dumps(data)}))

    assert len(problems) == 1
    assert problems[0].startswith(f"{path}:1:1: data")
    assert says in problems[0]


@pytest.mark.spec("POL-69")
def test_the_file_and_line_are_those_that_decide(write: Write) -> None:
    first = {"cmf/defaults/data.json": of("tools/tool_allowed", {"denied": ["tool://a/b"]})}
    second = {"cmf/defaults/tools/data.yaml": yaml.safe_dump({"tool_allowed": {"allowed": [], "denied": "tool://a/b"}})}
    base, mine = write(first, "base"), write(second, "mine")

    (problem,) = found(mine, over=policy_set.shipped())
    with pytest.raises(PolicyError) as caught:
        policy_set.load("shipped", base, mine)

    assert problem.startswith(f"cmf/defaults/tools/data.yaml:3:1: {URIS}.denied: expected a list")
    assert str(caught.value) == problem


@pytest.mark.spec("POL-69", "POL-45")
def test_settings_in_a_bundle_are_held_to_the_rules_too(write: Write) -> None:
    bundle = write(
        {".manifest": "{}", "data.json": json.dumps({"cmf": {"defaults": {"data": {"pii": {"redct": []}}}}})}
    )

    with pytest.raises(PolicyError) as caught:
        policy_set.load("shipped", bundle)

    assert (caught.value.code, caught.value.path) == ("policy.unknown-setting", "data.json")


@pytest.mark.spec("POL-68", "POL-69")
@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"most": 0}, "expected a whole number, ≥ 1, ≤ 9, found a number"),
        ({"most": "3"}, "write it without quotes"),
        ({"tools": []}, "found an empty list"),
        ({"tools": ["send"]}, "for the rule's kinds it is tool://NAMESPACE/NAME"),
        ({"mots": 1}, "unknown name; did you mean most?"),
    ],
)
def test_a_rule_of_ones_own_declares_its_settings(write: Write, values: object, says: str) -> None:
    error = refusal(write({PLACE: DECLARED, "cmf/defaults/data.json": of("test/rule", values)}))

    assert says in str(error)


@pytest.mark.spec("POL-68")
def test_a_rule_that_declares_none_takes_any_and_so_do_data_of_ones_own(write: Write) -> None:
    own = "package own\n\nlimit := data.cmf.defaults.shared.limits.most\n"
    data = {"test": {"rule": {"a": None}}, "shared": {"limits": {"most": 1}}}
    files = {PLACE: GOOD, "own/own.rego": own, "own/data.json": '{"x": {"y": {"z": 1}}}'}

    assert policy_set.load(write(files | {"cmf/defaults/data.json": json.dumps(data)})).rules


@pytest.mark.spec("POL-69")
def test_settings_of_a_shipped_rule_that_is_not_loaded_are_refused_unless_the_library_reads_them(write: Write) -> None:
    reads = GOOD.replace("\ndeny", "\nimport data.cmf.lib.pii\n\ndeny").replace(
        "input.properties.redacted", "pii.in_content"
    )
    data = {"cmf/defaults/data.json": of("data/pii", {"max_masked": "3"})}

    without = refusal(write({PLACE: GOOD} | data, "without"))
    library = refusal(write({PLACE: reads} | data, "library"))

    assert (without.code, library.code) == ("policy.unknown-setting", "policy.bad-setting")
    assert '"shipped"' in without.hint


@pytest.mark.spec("POL-68")
@pytest.mark.parametrize(
    ("declared", "says"),
    [
        ("[most]", "it is no object of schemas by name"),
        ("{most: integer}", "most: write a JSON Schema"),
        ("{most: {type: whole}}", "most: it is no JSON Schema"),
        ("{most: {type: integer, minimun: 1}}", "unknown keyword minimun; did you mean minimum?"),
        ("{most: {type: array, items: {type: string, format: uri_pattern}}}", "did you mean uri-pattern?"),
        ("{most: {type: object, properties: {a: {}}}}", "most: write a JSON Schema"),
        ("{most: {type: object, additionalProperties: {type: string, formatt: uri}}}", "unknown keyword formatt"),
    ],
)
def test_a_declaration_that_checks_nothing_is_refused(write: Write, declared: str, says: str) -> None:
    text = GOOD.replace("#   standards: [OWASP-LLM01]\n", f"#   settings: {declared}\n")

    error = refusal(write({PLACE: text}))

    assert (error.code, error.line) == ("policy.bad-metadata", 9)
    assert says in error.message


@pytest.mark.spec("POL-68")
def test_every_setting_of_a_shipped_rule_is_declared_and_no_other() -> None:
    shipped = policy_set.load("shipped")
    settings = shipped.data["cmf"]["defaults"]

    declared = {rule.id: set(rule.settings) for rule in shipped.rules if rule.settings is not None}

    assert declared == {
        f"{category}/{name}": set(values) for category, rules in settings.items() for name, values in rules.items()
    }
