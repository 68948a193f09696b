"""All that is wrong with a set, at once."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.pipeline.policy_files import GOOD, PLACE, Write, write

from pipeline.authoring.check import Job, Report, check, is_error
from pipeline.policy import policy_set
from pipeline.policy.metadata import Module, problems

__all__ = ["write"]  # a fixture

RULE = GOOD.replace("#   capabilities: [read_labels]\n", "").replace("redacted", "extra")
FINE = '{"code": "test.rule", "reason": "x"}'
TODAY = date(2026, 7, 1)
OTHER = "cmf/rules/test/other/other.rego"
OTHER_RULE = RULE.replace("test.rule", "test.other")
EXCEPTION = {"rule": "test/rule", "subject": "alice", "until": "2026-06-30", "owner": "ann", "reason": "x"}


def looked_at(*places: Path, cases: tuple[Path, ...] = (), **options: Any) -> Report:
    return check(Job(places=places, own=places[-1:], cases=cases, today=TODAY, **options))


def codes(report: Report) -> list[tuple[str, str, int]]:
    return [(one.code, one.place.module, one.place.line) for one in report.findings]


def cases(folder: Path, *spelled: dict[str, Any]) -> Path:
    path = folder / "a.yaml"
    path.write_text(yaml.safe_dump({"cases": list(spelled)}), encoding="utf-8")
    return path


@pytest.mark.spec("POL-35")
def test_every_module_that_is_no_rego_is_named_tests_included(write: Write) -> None:
    folder = write(
        {
            PLACE: RULE.replace("if input", "iff input"),
            OTHER: OTHER_RULE + "\ndeny contains :=\n",
            PLACE.replace(".rego", "_test.rego"): "package cmf.rules.test.rule_test\n\ntest_a if\n",
        }
    )

    report = looked_at(folder)

    assert not report.compiles
    assert {(code, module) for code, module, _ in codes(report)} == {
        ("policy.parse", OTHER),
        ("policy.parse", PLACE),
        ("policy.parse", PLACE.replace(".rego", "_test.rego")),
    }


@pytest.mark.spec("POL-35")
def test_a_test_that_is_no_rego_is_found_though_the_set_loads(write: Write) -> None:
    folder = write({PLACE: RULE, "cmf/rules/test/rule/rule_test.rego": "package a\n\ntest_a if\n"})

    report = looked_at(folder)

    assert report.compiles
    assert [code for code, _, _ in codes(report)] == ["policy.parse"]


@pytest.mark.spec("POL-35")
@pytest.mark.parametrize(
    ("files", "code"),
    [({}, "policy.no-directory"), ({"a.txt": ""}, "policy.empty"), ({PLACE: "deny if true"}, "policy.no-package")],
)
def test_what_cannot_be_read_at_all_is_one_finding(
    write: Write, tmp_path: Path, files: dict[str, str], code: str
) -> None:
    report = looked_at(write(files) if files else tmp_path / "nowhere")

    assert ([one.code for one in report.findings], report.compiles) == ([code], False)


@pytest.mark.spec("POL-35")
def test_what_does_not_fit_together_is_found_where_reading_succeeds(write: Write) -> None:
    report = looked_at(write({PLACE: RULE + "\n_a if _b\n\n_b if _a\n"}))

    assert ("policy.recursion" in [one.code for one in report.findings], report.compiles) == (True, False)


@pytest.mark.spec("POL-35")
def test_all_of_the_metadata_is_looked_at() -> None:
    text = (
        "# METADATA\n# title: ''\n# custom: {cod: a, severity: bad, kinds: [], capabilities: [see], mode: maybe,"
        "\n#   standards: one, stream: 4, code: A B, other: 1}\npackage cmf.rules.test.wrong\n\ndeny if true\n"
    )

    found = [(error.code, error.message) for error in problems(Module(PLACE, text))]

    assert sorted(found) == sorted(
        [
            ("policy.bad-package", "the package does not match the path"),
            ("policy.bad-effect", "`deny` is not defined as a set"),
            ("policy.bad-metadata", "unknown key custom.cod"),
            ("policy.bad-metadata", "unknown key custom.other"),
            ("policy.no-metadata", "METADATA has no title"),
            ("policy.bad-metadata", "custom.code is not a valid code"),
            ("policy.unknown-severity", "unknown value 'bad' of custom.severity"),
            ("policy.bad-metadata", "custom.kinds is empty"),
            ("policy.unknown-capabilities", "unknown value 'see' of custom.capabilities"),
            ("policy.unknown-mode", "unknown value 'maybe' of custom.mode"),
            ("policy.bad-metadata", "custom.standards is not a list of strings"),
            ("policy.bad-metadata", "custom.stream is not a valid lookahead"),
        ]
    )


@pytest.mark.spec("POL-35")
@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ("", ["METADATA"]),
        ("# METADATA\n# title: A\n", ["custom"]),
        ("# METADATA\n# custom: {}\n", ["custom.code", "custom.severity", "custom.kinds", "title"]),
    ],
)
def test_what_metadata_lacks_is_named_all_of_it(metadata: str, found: list[str]) -> None:
    text = f"{metadata}package cmf.rules.test.rule\n\ndeny contains {{}} if input.content\n"

    listed = problems(Module(PLACE, text))

    assert [error.message.rpartition(" ")[2].strip("`") for error in listed] == found
    assert {error.code for error in listed} == {"policy.no-metadata"}


@pytest.mark.spec("POL-35")
def test_all_findings_are_reported_at_once(write: Write) -> None:
    folder = write(
        {
            PLACE: RULE.replace("input.properties.extra", "http.send({}).x == input.nome")
            + "\nwarn contains {} if http.sent(input.extensions.security.labels)\n",
            OTHER: OTHER_RULE.replace("severity", "severe"),
            "cmf/data.json": json.dumps({"exceptions": [{**EXCEPTION, "until": "soon"}, {"rule": 1}]}),
        }
    )

    report = looked_at(folder, cases=(folder / "none.yaml",))

    assert not report.compiles
    assert sorted({one.code for one in report.findings}) == [
        "case.invalid",
        "policy.bad-effect",
        "policy.bad-exception",
        "policy.bad-metadata",
        "policy.banned-builtin",
        "policy.no-capability",
        "policy.no-metadata",
        "policy.unknown-field",
    ]
    assert len([one for one in report.findings if one.code == "policy.bad-exception"]) == 2
    assert len([one for one in report.findings if one.code == "policy.banned-builtin"]) == 2
    assert all(is_error(one) for one in report.findings)


@pytest.mark.spec("POL-35")
def test_exceptions_that_are_no_list_and_a_set_without_rules_are_found(write: Write) -> None:
    bad = looked_at(write({PLACE: RULE, "cmf/data.yaml": "exceptions: 1"}))
    none = looked_at(write({"a.rego": "package a\n\nx := 1\n"}, "none"))

    assert codes(bad) == [("policy.bad-exception", "cmf/data.yaml", 1)]
    assert codes(none) == [("policy.no-rules", "", 0)]


@pytest.mark.spec("POL-36")
def test_exceptions_that_have_ended_are_found_on_the_day_after_their_last(write: Write) -> None:
    spelled = json.dumps({"cmf": {"exceptions": [EXCEPTION, {**EXCEPTION, "until": "2026-07-01"}]}}, indent=1)

    report = looked_at(write({PLACE: RULE, "data.json": spelled}))

    assert codes(report) == [("check.exception-expired", "data.json", 3)]
    assert "owned by ann expired on 2026-06-30" in report.findings[0].message


@pytest.mark.spec("POL-35")
def test_a_rule_that_is_off_is_a_warning_and_a_setting_without_a_reader_has_its_line(write: Write) -> None:
    data = json.dumps({"test": {"rule": {"max": 3}}}, indent=1)

    report = looked_at(
        write({PLACE: RULE.replace("standards", "mode: off\n#   standards"), "cmf/defaults/data.json": data})
    )

    assert codes(report) == [("check.unused-setting", "cmf/defaults/data.json", 2), ("check.rule-off", PLACE, 1)]
    assert [is_error(one) for one in report.findings] == [True, False]


@pytest.mark.spec("POL-35")
def test_a_deny_that_could_vanish_is_found_in_a_set_that_is_loaded_that_way(write: Write) -> None:
    folder = write({PLACE: RULE.replace("input.properties.extra", "to_number(input.content) > 1")})

    assert codes(looked_at(folder)) == []
    assert [code for code, _, _ in codes(looked_at(folder, builtin_errors="undefined"))] == ["policy.may-vanish"]


@pytest.mark.spec("POL-35")
def test_rules_that_hit_in_no_case_and_on_no_sample_are_found_where_there_are_cases(
    write: Write, tmp_path: Path
) -> None:
    sample = {"kind": "text", "role": "user", "path": "x", "properties": {"extra": {}}, "extensions": {}}
    third = OTHER.replace("other", "third")
    folder = write(
        {
            PLACE: RULE.replace("input.properties.extra", 'input.content == "marked"'),
            OTHER: OTHER_RULE,
            "cmf/rules/test/other/samples/denied_a.json": json.dumps(sample),
            "cmf/rules/test/other/samples/denied_b.json": "{",
            third: RULE.replace("test.rule", "test.third").replace("extra", "container"),
            "cmf/rules/test/third/samples/denied_a.json": json.dumps({**sample, "kind": "song"}),
        }
    )
    case = {"name": "a", "conversation": [{"role": "user", "text": "marked"}], "expect": "deny"}

    assert codes(looked_at(folder)) == []
    assert codes(looked_at(folder, cases=(cases(tmp_path, case),))) == [("check.never-hit", third, 1)]


@pytest.mark.spec("POL-35")
def test_a_case_that_cannot_be_judged_is_a_finding(write: Write, tmp_path: Path) -> None:
    case = {"name": "a", "profiles": "none.yaml", "conversation": [{"role": "user", "text": "a"}], "expect": "deny"}

    found = codes(looked_at(write({PLACE: RULE}), cases=(cases(tmp_path, case),)))

    assert ("case.invalid", str(tmp_path / "a.yaml"), 0) in found


@pytest.mark.spec("POL-35")
def test_policies_that_are_not_made_of_rules_are_looked_at_too(write: Write) -> None:
    folder = write({"a.rego": "package a\n\nimport data.b\n\nallow if input.nome\n"})

    report = looked_at(folder, entrypoint="data.a.allow")

    assert [one.code for one in report.findings] == ["check.unused-import", "policy.unknown-field"]
    assert report.compiles


@pytest.mark.spec("POL-55")
@pytest.mark.parametrize(("kinds", "found"), [("text, tool_definition", 1), ("prompt_request", 0)])
def test_an_effect_that_is_for_none_of_its_kinds_is_found(write: Write, kinds: str, found: int) -> None:
    head = RULE[: RULE.index("deny contains")]
    kept = [f"#   kinds: [{kinds}]" if line.startswith("#   kinds:") else line for line in head.split("\n")]
    member = '{"code": "test.rule", "reason": "x", "pointer": "/arguments/a", "value": 1}'

    report = looked_at(write({PLACE: "\n".join(kept) + f"rewrite contains {member} if input.kind\n"}))

    told = [one for one in report.findings if one.code == "policy.bad-effect"]
    assert ["`rewrite` applies to views of kind tool_call and prompt_request" in one.message for one in told] == [
        True
    ] * found


@pytest.mark.spec("POL-55")
@pytest.mark.parametrize(("kinds", "found"), [("text, tool_result", 1), ("text, prompt_request", 0)])
def test_a_pointer_into_arguments_in_a_rule_whose_kinds_have_none_is_found(
    write: Write, kinds: str, found: int
) -> None:
    head = RULE[: RULE.index("deny contains")]
    kept = [f"#   kinds: [{kinds}]" if line.startswith("#   kinds:") else line for line in head.split("\n")]
    member = '{"code": "test.rule", "reason": "x", "pointer": "/arguments/a"}'

    report = looked_at(write({PLACE: "\n".join(kept) + f"redact contains {member} if input.kind\n"}))

    told = [one for one in report.findings if one.code == "policy.bad-effect"]
    assert ["only views of kind prompt_request and tool_call have" in one.message for one in told] == [True] * found


@pytest.mark.spec("POL-55")
@pytest.mark.parametrize(("kinds", "found"), [("image, tool_call", 1), ("image, tool_result", 0)])
def test_spans_in_a_rule_whose_kinds_have_no_text_are_found(write: Write, kinds: str, found: int) -> None:
    head = RULE[: RULE.index("deny contains")]
    kept = [f"#   kinds: [{kinds}]" if line.startswith("#   kinds:") else line for line in head.split("\n")]
    member = '{"code": "test.rule", "reason": "x", "spans": [[0, 1]]}'

    report = looked_at(write({PLACE: "\n".join(kept) + f"redact contains {member} if input.kind\n"}))

    told = [one for one in report.findings if one.code == "policy.bad-effect"]
    assert [one.message.startswith("`spans` cut the text of text, thinking") for one in told] == [True] * found


@pytest.mark.spec("POL-55")
@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ('input.arguments.to[_] != "ann"', 'write `not "ann" in input.arguments.to`'),
        ("_names[_] != input.name", "write `not input.name in _names`"),
        ('not "ann" in input.arguments.to', None),
        ('input.arguments.to[_] == "ann"', None),
        ('some one in input.arguments.to; one != "ann"', None),
    ],
)
def test_a_condition_that_any_other_member_meets_is_found(write: Write, condition: str, found: str | None) -> None:
    head = RULE[: RULE.index("deny contains")].replace("kinds: [text]", "kinds: [tool_call]")
    rest = f"deny contains {FINE} if {{\n\t_other\n}}\n\n_other if {{\n\t{condition}\n}}\n"

    report = looked_at(write({PLACE: f"{head}{rest}\n_names := data.cmf.defaults.names\n"}))

    told = [(one.hint, one.place.line) for one in report.findings if one.code == "check.any-differs"]
    assert told == ([] if found is None else [(found, head.count("\n") + 6)])


@pytest.mark.spec("POL-55")
@pytest.mark.parametrize(
    ("effect", "call", "found"),
    [
        ("redact", 'indexof(input.content, "a")', 1),
        ("redact", 'indexof_n(input.content, "a")[_]', 0),
        ("deny", 'indexof(input.content, "a")', 0),
    ],
)
def test_a_redaction_of_only_the_first_place_is_found(write: Write, effect: str, call: str, found: int) -> None:
    head = RULE[: RULE.index("deny contains")]
    member = '{"code": "test.rule", "reason": "x", "spans": [[_at, _at + 1]]}'

    report = looked_at(write({PLACE: f"{head}{effect} contains {member} if _at >= 0\n\n_at := {call}\n"}))

    assert [one.hint for one in report.findings if one.code == "check.first-only"] == [
        "write `some at in indexof_n(…)`, which finds every place"
    ] * found


@pytest.mark.spec("POL-55")
@pytest.mark.parametrize(
    ("member", "condition", "code", "words"),
    [
        ('"no"', "true", "policy.bad-effect", "an object, not a string"),
        ('sprintf("%s", [1])', "true", "policy.bad-effect", "an object, not a string"),
        ('{"code": "test.rule"}', "true", "policy.bad-effect", "has no reason"),
        ("msg", 'msg := "no"', "policy.bad-effect", "an object, not a string"),
        ("msg", 'msg := sprintf("no %v", [input.role])', "policy.bad-effect", "an object, not a string"),
        ("msg", 'msg := {"msg": "no"}', "policy.bad-effect", 'has no code and no reason; write `"code": …`'),
        (FINE, "time.now_ns() > 0", "policy.banned-builtin", "no clock: read input.extensions.request.timestamp"),
        (FINE, "input.content.matches(input.role)", "policy.unknown-function", "input.content.matches"),
        ('{"detail": {"code": 1, "reason": "x"}}', "true", "policy.bad-effect", "has no code and no reason"),
        ('{"code": "test.rule", "reason": why}', "true", "policy.unknown-name", "why is never given a value"),
        ('{"code": "test.rule", "reason": "x"}', "_smal", "policy.unknown-name", "did you mean _small?"),
    ],
)
def test_members_and_names_that_mean_nothing_are_found(
    write: Write, member: str, condition: str, code: str, words: str
) -> None:
    head = RULE[: RULE.index("deny contains")]
    rest = (
        f'deny contains {member} if {{\n\tinput.role == "user"\n\t{condition}\n\t_small\n}}\n\n_small if input.kind\n'
    )

    report = looked_at(write({PLACE: head + rest}))

    (found,) = [one for one in report.findings if one.code == code]
    assert is_error(found)
    assert words in f"{found.message}; {found.hint}"
    assert found.place.line >= head.count("\n")


@pytest.mark.spec("POL-55")
@pytest.mark.parametrize(
    ("effect", "fields", "words"),
    [
        ("label", "", 'has no label; write `"label": …`'),
        ("rewrite", ', "pointer": "/arguments/a"', 'has no value; write `"value": …`'),
        ("redact", "", "either spans or pointer"),
        ("redact", ', "spans": [[0, 1]], "pointer": "/arguments/a"', "either spans or pointer"),
        ("redact", ', "spans": [[0, 1]]', None),
        ("redact", ', "pointer": "/content"', "neither into /arguments/… nor into /properties/extra/…; use `spans`"),
        ("redact", ', "pointer": `/content` # why\n', "this pointer is neither into"),
        ("redact", ', "pointer": "/arguments/a"', None),
        ("redact", ', "pointer": "/properties/extra/a"', None),
        ("redact", ', "pointer": concat("/", ["", "content"])', None),
        ("redact", ', "pointer": _to', None),
        ("label", ', "label": "a"', None),
    ],
)
def test_members_without_what_their_effect_needs_are_found(
    write: Write, effect: str, fields: str, words: str | None
) -> None:
    rest = f'{effect} contains {{"code": "test.rule", "reason": "x"{fields}}} if input.role == "user"\n'

    report = looked_at(write({PLACE: RULE[: RULE.index("deny contains")] + rest}))

    found = [f"{one.message}; {one.hint}" for one in report.findings if one.code == "policy.bad-effect"]
    assert [words in said for said in found if words] == ([True] if words else [])
    assert len(found) == (words is not None)


@pytest.mark.spec("POL-55")
@pytest.mark.parametrize(
    "rest",
    [
        'deny contains {"code": "a", "reason": "{}: | \\" "} if input.role\n',
        "deny contains one if some one in _found\n\n_found := [{}]\n",
        'deny contains {name: "x" | some name in ["code", "reason"]} if input.role\n',
        'deny contains object.union({"code": "a"}, {"reason": "x"}) if input.role\n',
        'deny contains {"code": "a", "reason": _why} if 1\n\n_why := word if {\n\tword := input.name\n} else := "x"\n',
        'deny contains {"code": "a", "reason": f(y)} if {\n\tsome y in [1]\n\tevery x in [1] { x }\n}\n\nf(x) := x\n',
    ],
)
def test_members_that_are_worked_out_are_let_be(write: Write, rest: str) -> None:
    head = RULE[: RULE.index("deny contains")]

    found = {one.code for one in looked_at(write({PLACE: head + rest})).findings}

    assert found & {"policy.bad-effect", "policy.unknown-name"} == set()


@pytest.mark.spec("POL-35")
@pytest.mark.parametrize(
    ("files", "entrypoint", "hint"),
    [
        ({f"policy/{PLACE}": RULE}, None, "load the directory policy instead"),
        ({"a.rego": "package a.b\n\ndefault allow := false\n"}, None, "your own entrypoint (data.a.b.allow)"),
        ({"a.rego": "package a.b\n\ndefault allow := false\n"}, "a.b.allow", "did you mean data.a.b.allow?"),
    ],
)
def test_a_misspelled_name_is_reported_with_the_nearest_one(
    write: Write, files: dict[str, str], entrypoint: str | None, hint: str
) -> None:
    found = looked_at(write(files), entrypoint=entrypoint).findings

    assert hint in "".join(one.hint for one in found)


@pytest.mark.spec("POL-35")
def test_a_file_of_cases_that_is_no_yaml_has_its_line(write: Write, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("cases:\n  - {name: a, conversation: [{role: user, text: what?}]}\n", encoding="utf-8")

    (found,) = [one for one in looked_at(write({PLACE: RULE}), cases=(path,)).findings if one.code == "case.invalid"]

    assert found.place == (str(path), 2, 53)
    assert "quotes" in found.hint


@pytest.mark.spec("POL-35")
def test_a_set_whose_name_is_almost_an_effect_is_reported_once(write: Write) -> None:
    report = looked_at(write({PLACE: RULE + RULE[RULE.index("deny contains") :].replace("deny", "denies")}))

    assert [code for code, _, _ in codes(report)] == ["policy.unknown-effect"]


@pytest.mark.spec("POL-35")
def test_the_shipped_policies_have_no_errors() -> None:
    report = looked_at(policy_set.shipped())

    assert report.compiles
    assert [one for one in report.findings if is_error(one)] == []
