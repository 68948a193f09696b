"""What a rule must say of itself, and where it must be."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.policy_files import GOOD, PLACE, Write, refusal, write

from cmf.enums import Capability, ViewKind
from pipeline.decisions.decision import Effect, Mode
from pipeline.decisions.errors import PolicyError
from pipeline.policy import policy_set
from pipeline.policy.lookahead import Lookahead
from pipeline.policy.metadata import load_yaml, yaml_problem

__all__ = ["write"]  # a fixture


@pytest.mark.spec("POL-3")
@pytest.mark.parametrize(
    ("path", "package", "code"),
    [
        ("cmf/rules/test/rule/other.rego", "cmf.rules.test.rule", "policy.bad-package"),
        ("cmf/rules/test/other/rule.rego", "cmf.rules.test.rule", "policy.bad-package"),
        ("elsewhere/rule.rego", "cmf.rules.test.rule", "policy.bad-package"),
        (PLACE, "cmf.rules.test.other", "policy.bad-package"),
        (PLACE, "cmf.rules.rule", "policy.bad-package"),
        (PLACE, "cmf.rules.test.rule.more", "policy.bad-package"),
        (PLACE, "app.rule", "policy.bad-package"),
        (PLACE, 'cmf.rules.test["rule"]', "policy.bad-package"),
        ("cmf/rules/test/default/default.rego", "cmf.rules.test.default", "policy.reserved-name"),
        ("cmf/rules/Test/rule/rule.rego", "cmf.rules.Test.rule", "policy.reserved-name"),
        ("cmf/main/main.rego", "cmf.main", "policy.reserved-name"),
        ("cmf/x.rego", "cmf.main.text", "policy.reserved-name"),
        ("cmf/x.rego", "cmf.effect", "policy.reserved-name"),
    ],
)
def test_a_rule_in_the_wrong_place_or_name_is_refused(write: Write, path: str, package: str, code: str) -> None:
    error = refusal(write({path: GOOD.replace("cmf.rules.test.rule", package)}))

    assert (error.code, error.path) == (code, path)


@pytest.mark.spec("POL-3")
def test_a_second_module_of_a_rule_is_refused(write: Write) -> None:
    error = refusal(write({PLACE: GOOD, "cmf/rules/test/rule/more.rego": GOOD}))

    assert (error.code, error.path) == ("policy.bad-package", "cmf/rules/test/rule/more.rego")


@pytest.mark.spec("POL-4")
@pytest.mark.parametrize(
    ("found", "instead", "code", "line"),
    [
        ("# METADATA\n", "# metadata\n", "policy.no-metadata", 10),
        ("# title: A rule\n", "", "policy.no-metadata", 2),
        ("# title: A rule\n", "# title: ''\n", "policy.no-metadata", 2),
        ("#   code: test.rule\n", "", "policy.no-metadata", 2),
        ("#   severity: high\n", "", "policy.no-metadata", 2),
        ("#   kinds: [text, tool_call]\n", "", "policy.no-metadata", 2),
        ("# custom:\n", "# custom: 7\n# other:\n", "policy.no-metadata", 2),
        ("code: test.rule", "code: Test Rule", "policy.bad-metadata", 5),
        ("code: test.rule", "code: [test]", "policy.bad-metadata", 5),
        ("severity: high", "severity: grave", "policy.unknown-severity", 6),
        ("[text, tool_call]", "[text, tool_cal]", "policy.unknown-kind", 7),
        ("[text, tool_call]", "[]", "policy.bad-metadata", 7),
        ("[text, tool_call]", "text", "policy.bad-metadata", 7),
        ("[read_labels]", "[read_everything]", "policy.unknown-capabilities", 8),
        ("#   severity: high", "#   severity: high\n#   mode: maybe", "policy.unknown-mode", 7),
        ("#   severity: high", "#   severity: high\n#   mode: true", "policy.unknown-mode", 7),
        ("#   severity: high", "#   severity: high\n#   kindz: [text]", "policy.bad-metadata", 7),
        ("#   severity: high", "#   severity: high\n#   severity: info", "policy.bad-metadata", 7),
        ("#   severity: high", "#   severity: high\n#   stream: some", "policy.bad-metadata", 7),
        ("#   severity: high", "#   severity: high\n#   stream: {max_match: 0}", "policy.bad-metadata", 7),
        ("#   severity: high", "#   severity: high\n#   stream: []", "policy.bad-metadata", 7),
        ("#   severity: high", "#   severity: high\n#   stream: [{max_match: 1}, whole]", "policy.bad-metadata", 7),
        *(
            ("#   severity: high", f"#   severity: high\n#   stream: {{{said}}}", "policy.bad-metadata", 7)
            for said in (
                *(
                    "",
                    "max_match: true",
                    "max_match: data.length",
                    "max_word: 0",
                    "max_words: 9",
                    "max_match: 4, max_word: 9",
                ),
                *("max_match: 9, where: input.x", "max_match: 9, where: 7", "max_word: 9, where: data.x"),
                *("opened_by: [x]", "max_match: 9, opened_by: [x]", "max_word: 9, opened_by: x"),
                *("max_word: 9, opened_by: ['a b']", "max_word: 9, opened_by: ['']", "max_word: 9, opened_by: [1]"),
            )
        ),
        ("# custom:", "# custom: [", "policy.bad-metadata", 6),
        ("# title: A rule", "# - title", "policy.bad-metadata", 3),
        ("# title: A rule", "# title: A rule\n# mode: observe", "policy.bad-metadata", 3),
        ("# description:", "# descripton:", "policy.bad-metadata", 3),
        ("[OWASP-LLM01]", "[1]", "policy.bad-metadata", 9),
    ],
)
def test_metadata_that_is_missing_or_unknown_is_refused(
    write: Write, found: str, instead: str, code: str, line: int
) -> None:
    assert found in GOOD
    error = refusal(write({PLACE: GOOD.replace(found, instead)}))

    assert (error.code, error.line) == (code, line)
    assert str(error).startswith(f"{PLACE}:{error.line}: ")


@pytest.mark.spec("POL-4")
def test_metadata_of_something_else_is_not_the_rules(write: Write) -> None:
    """Only the block right above the package counts."""
    parted = GOOD.replace("package cmf", "\npackage cmf")

    assert refusal(write({PLACE: parted})).code == "policy.no-metadata"


@pytest.mark.spec("POL-5")
@pytest.mark.parametrize(
    "definition",
    [
        "deny if input.properties.redacted",
        "deny := true if input.properties.redacted",
        'deny["x"] if input.properties.redacted',
        'deny := ["x"]',
        "deny.x contains 1 if input.properties.redacted",
        "default deny := false",
        "  warn := 1",
        "label(x) := x",
        "redact = 1",
        "rewrite { input.properties.redacted }",
    ],
)
def test_a_set_that_is_defined_as_something_else_is_refused(write: Write, definition: str) -> None:
    error = refusal(write({PLACE: f"{GOOD}\n{definition}\n"}))

    assert (error.code, error.line) == ("policy.bad-effect", len(GOOD.splitlines()) + 2)


@pytest.mark.spec("POL-5")
def test_a_rule_that_contributes_to_nothing_is_refused(write: Write) -> None:
    silent = GOOD.replace("deny contains", "denied contains") + "\n# deny contains nothing\n"

    assert refusal(write({PLACE: silent})).code == "policy.no-effect"


@pytest.mark.spec("POL-5")
def test_a_set_over_two_lines_is_asked_for(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD.replace("deny contains", "deny\ncontains")}))

    assert policies.rules[0].effects == (Effect.DENY,)


@pytest.mark.spec("POL-4")
def test_a_rule_says_what_its_metadata_says(write: Write) -> None:
    (rule,) = policy_set.load(write({PLACE: GOOD})).rules

    assert (rule.id, rule.code, rule.title) == ("test/rule", "test.rule", "A rule")
    assert rule.kinds == {ViewKind.TEXT, ViewKind.TOOL_CALL}
    assert rule.capabilities == {Capability.READ_LABELS}
    assert (rule.mode, rule.severity, rule.standards) == (Mode.ENFORCE, "high", ("OWASP-LLM01",))
    assert (rule.effects, rule.lookaheads) == ((Effect.DENY,), None)


@pytest.mark.spec("POL-4")
@pytest.mark.parametrize("spelling", ["off", '"off"', "false"])
def test_off_is_off_though_yaml_says_it_is_false(write: Write, spelling: str) -> None:
    text = GOOD.replace("#   severity: high", f"#   severity: high\n#   mode: {spelling}")
    policies = policy_set.load(write({PLACE: text}))

    assert policies.modes == {"test/rule": Mode.OFF}
    assert policies.rules_for(ViewKind.TEXT) == ()


@pytest.mark.spec("POL-4", "POL-63")
@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("{max_match: 40}", [Lookahead(chars=40)]),
        ("{max_match: 40, where: data.words}", [Lookahead(chars=40, where="data.words")]),
        ("{max_word: 99}", [Lookahead(word=99)]),
        ("[{max_match: 4}, {max_word: 9, opened_by: ['<!--']}]", [Lookahead(4), Lookahead(0, None, 9, ("<!--",))]),
    ],
)
def test_a_rule_s_stream_lookahead_is_read_from_metadata(write: Write, said: str, found: list[Lookahead]) -> None:
    text = GOOD.replace("#   severity: high", f"#   severity: high\n#   stream: {said}")

    assert policy_set.load(write({PLACE: text})).rules[0].lookaheads == tuple(found)


@given(st.text(max_size=200))
@pytest.mark.spec("POL-4")
def test_no_text_in_place_of_metadata_crashes_the_loader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    directory = tmp_path_factory.mktemp("odd")
    path = directory / PLACE
    path.parent.mkdir(parents=True)
    lines = "\n".join(f"# {line}" for line in text.splitlines())
    path.write_bytes(
        f"# METADATA\n{lines}\npackage cmf.rules.test.rule\n\ndeny contains 1 if true\n".encode(errors="ignore")
    )

    with pytest.raises(PolicyError):
        policy_set.load(directory)


def test_yaml_that_aliases_make_enormous_or_endless_is_refused() -> None:
    """Ten lines of aliases spell 10^9 values; a policy or a case from a stranger must not."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]

    for text in ("\n".join(lines), "&a [*a]", "[" * 100_000):
        with pytest.raises(yaml.YAMLError):
            load_yaml(text)


@pytest.mark.parametrize(
    "text", ["until: 2026-13-01", "at: 2026-01-01T25:00:00Z", f"n: {'9' * 5_000}", "a: !!bool so", "a: !!timestamp x"]
)
def test_a_value_that_is_none_of_its_type_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as refused:
        load_yaml(f"first: 1\n{text}\n")

    line, _, problem = yaml_problem(refused.value)
    assert line == 2
    assert problem.startswith("not a valid ")


def test_a_few_aliases_are_what_they_stand_for() -> None:
    assert load_yaml("base: &base {a: 1}\nboth: [*base, *base]\n")["both"] == [{"a": 1}, {"a": 1}]
    assert load_yaml("") is None
