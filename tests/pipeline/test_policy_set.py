"""Loading policies: what would leave something unjudged is refused, with its place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.enums import Capability, ViewKind
from pipeline import policy_set
from pipeline.decision import Effect, Mode
from pipeline.engines.base import Decided
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.errors import PolicyError
from pipeline.policy_set import PolicySet

GOOD = """\
# METADATA
# title: A rule
# description: It refuses what is marked.
# custom:
#   code: test.rule
#   severity: high
#   kinds: [text, tool_call]
#   capabilities: [read_labels]
#   standards: [OWASP-LLM01]
package cmf.rules.test.rule

deny contains {"code": "test.rule", "reason": "Marked."} if input.marked
"""
PLACE = "cmf/rules/test/rule/rule.rego"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function (path → text, …) that gives the directory that holds them."""

    def put(files: dict[str, str], name: str = "policies") -> Path:
        for path, text in files.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        return tmp_path / name

    return put


def refusal(directory: Path, **options: object) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        policy_set.load(directory, **options)  # type: ignore[arg-type]
    assert caught.value.hint
    return caught.value


def decide(policies: PolicySet, entrypoint: str, view: object) -> object:
    engine = EmbeddedEngine(
        [(module.path, module.text) for module in policies.modules], policies.data, policies.entrypoints
    )
    (result,) = engine.evaluate([entrypoint], b"{}", [json.dumps(view).encode()], timeout_seconds=5.0)
    assert isinstance(result, Decided), result
    return result.value


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("POL-6")
def test_a_directory_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none").code == "policy.no-directory"


@pytest.mark.spec("POL-6")
@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({}, "policy.empty"),
        ({"README.md": "x"}, "policy.empty"),
        ({"a/a_test.rego": "package a_test"}, "policy.empty"),
        ({".hidden/a.rego": "package a"}, "policy.empty"),
        ({"cmf/lib/a.rego": "package cmf.lib\n\nf(x) := x\n"}, "policy.no-rules"),
        ({"a.rego": "# nothing here\n"}, "policy.no-package"),
    ],
)
def test_a_set_without_a_rule_is_refused(write: Write, files: dict[str, str], code: str) -> None:
    assert refusal(write(files | {"note.txt": ""})).code == code


@pytest.mark.spec("POL-1")
def test_a_file_that_is_not_utf8_is_refused(write: Write) -> None:
    directory = write({PLACE: GOOD})
    (directory / "x.rego").write_bytes(b"package x # \xff\n")

    assert refusal(directory).code == "policy.unreadable"


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
        ("code: test.rule", "code: Test Rule", "policy.bad-metadata", 2),
        ("code: test.rule", "code: [test]", "policy.bad-metadata", 2),
        ("severity: high", "severity: grave", "policy.unknown-severity", 2),
        ("[text, tool_call]", "[text, tool_cal]", "policy.unknown-kind", 2),
        ("[text, tool_call]", "[]", "policy.bad-metadata", 2),
        ("[text, tool_call]", "text", "policy.bad-metadata", 2),
        ("[read_labels]", "[read_everything]", "policy.unknown-capabilities", 2),
        ("#   severity: high", "#   severity: high\n#   mode: maybe", "policy.unknown-mode", 2),
        ("#   severity: high", "#   severity: high\n#   mode: true", "policy.unknown-mode", 2),
        ("#   severity: high", "#   severity: high\n#   kindz: [text]", "policy.bad-metadata", 2),
        ("#   severity: high", "#   severity: high\n#   severity: info", "policy.bad-metadata", 5),
        ("#   severity: high", "#   severity: high\n#   stream: some", "policy.bad-metadata", 2),
        ("#   severity: high", "#   severity: high\n#   stream: {max_match: 0}", "policy.bad-metadata", 2),
        ("#   severity: high", "#   severity: high\n#   stream: {max_match: true}", "policy.bad-metadata", 2),
        ("# custom:", "# custom: [", "policy.bad-metadata", 5),
        ("# title: A rule", "# - title", "policy.bad-metadata", 3),
        ("[OWASP-LLM01]", "[1]", "policy.bad-metadata", 2),
    ],
)
def test_metadata_that_is_missing_or_unknown_is_refused(
    write: Write, found: str, instead: str, code: str, line: int
) -> None:
    assert found in GOOD
    error = refusal(write({PLACE: GOOD.replace(found, instead)}))

    assert error.code == code
    assert abs(error.line - line) <= 2
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
        "deny if input.marked",
        "deny := true if input.marked",
        'deny["x"] if input.marked',
        'deny := ["x"]',
        "deny.x contains 1 if input.marked",
        "default deny := false",
        "  warn := 1",
        "label(x) := x",
        "redact = 1",
        "rewrite { input.marked }",
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


@pytest.mark.spec("POL-6")
@pytest.mark.parametrize(
    "reads",
    [
        "x := data.cmf.defaults.test.rule.limit",
        "_settings := data.cmf.defaults.test.rule\n\nx := _settings.limit",
    ],
)
def test_a_setting_that_nobody_gives_is_refused(write: Write, reads: str) -> None:
    given = {"cmf/defaults/data.json": '{"test": {"rule": {"other": 1}}}'}
    error = refusal(write({PLACE: f"{GOOD}\n{reads}\n"} | given))

    assert error.code == "policy.no-setting"
    assert "data.cmf.defaults.test.rule.limit" in error.message
    assert error.line == len((GOOD + reads).splitlines()) + 1

    policy_set.load(write({"cmf/defaults/data.json": '{"test": {"rule": {"limit": 1}}}'}))


@pytest.mark.spec("POL-2")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("data.json", "{"),
        ("data.json", '{"a": 1, "a": 2}'),
        ("data.json", "[1]"),
        ("data.json", '{"a": NaN}'),
        ("data.json", '{"a": 9007199254740993}'),
        ("data.json", '{"a": [{"b": 1e300}]}'),
        ("data.yaml", "a: 1\na: 2\n"),
        ("data.yaml", "a: [1\n"),
        ("data.yaml", "a: 2024-01-02\n"),
        ("data.yaml", "a: .inf\n"),
        ("data.yaml", "1: a\n"),
        ("data.yaml", "a: !!python/object/apply:os.system [id]\n"),
        ("data.yml", "- a\n"),
    ],
)
def test_data_that_two_readers_could_take_differently_is_refused(write: Write, name: str, text: str) -> None:
    error = refusal(write({PLACE: GOOD, f"cmf/own/{name}": text}))

    assert (error.code, error.path) == ("policy.bad-data", f"cmf/own/{name}")


@pytest.mark.spec("POL-2")
def test_the_same_said_in_two_files_is_refused(write: Write) -> None:
    files = {"a/data.json": '{"b": {"c": 1}}', "a/b/data.yaml": "c: 1\n"}

    assert refusal(write({PLACE: GOOD} | files)).code == "policy.bad-data"


@pytest.mark.spec("POL-6")
@pytest.mark.parametrize(
    "entrypoint", ["data.app.authz.alow", "data.app.other.allow", "app.authz.allow", "data.app", ""]
)
def test_an_entrypoint_that_is_not_there_is_refused(write: Write, entrypoint: str) -> None:
    directory = write({"app/authz.rego": "package app.authz\n\nallow := true\n"})

    assert refusal(directory, entrypoint=entrypoint).code == "policy.no-entrypoint"


@pytest.mark.spec("POL-4")
@pytest.mark.parametrize("modes", [{"test/other": "off"}, {"test/rule": "sometimes"}])
def test_a_mode_for_an_unknown_rule_or_an_unknown_mode_is_refused(write: Write, modes: dict[str, str]) -> None:
    assert refusal(write({PLACE: GOOD}), modes=modes).code == "policy.unknown-mode"


# -- what a set is -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("POL-4")
def test_a_rule_says_what_its_metadata_says(write: Write) -> None:
    (rule,) = policy_set.load(write({PLACE: GOOD})).rules

    assert (rule.id, rule.code, rule.title) == ("test/rule", "test.rule", "A rule")
    assert rule.kinds == {ViewKind.TEXT, ViewKind.TOOL_CALL}
    assert rule.capabilities == {Capability.READ_LABELS}
    assert (rule.mode, rule.severity, rule.standards) == (Mode.ENFORCE, "high", ("OWASP-LLM01",))
    assert (rule.effects, rule.stream_chars) == ((Effect.DENY,), None)


@pytest.mark.spec("POL-4")
@pytest.mark.parametrize("spelling", ["off", '"off"', "false"])
def test_off_is_off_though_yaml_says_it_is_false(write: Write, spelling: str) -> None:
    text = GOOD.replace("#   severity: high", f"#   severity: high\n#   mode: {spelling}")
    policies = policy_set.load(write({PLACE: text}))

    assert policies.modes == {"test/rule": Mode.OFF}
    assert policies.rules_for(ViewKind.TEXT) == ()


@pytest.mark.spec("POL-4")
def test_a_stream_length_is_characters(write: Write) -> None:
    text = GOOD.replace("#   severity: high", "#   severity: high\n#   stream: {max_match: 40}")

    assert policy_set.load(write({PLACE: text})).rules[0].stream_chars == 40


@pytest.mark.spec("POL-7")
def test_a_kind_is_judged_by_the_rules_that_name_it(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD}))
    empty = {effect.value: [] for effect in Effect}
    hit = {"code": "test.rule", "reason": "Marked.", "rule": "test/rule"}

    for kind in ViewKind:
        view = {"kind": kind, "marked": True}
        expected = empty | ({"deny": [hit]} if kind in {ViewKind.TEXT, ViewKind.TOOL_CALL} else {})
        assert decide(policies, policies.entrypoint(kind), view) == expected
        assert decide(policies, "data.cmf.main.decision", view) == expected


@pytest.mark.spec("POL-7")
@pytest.mark.parametrize("view", [{}, {"kind": "txt"}, {"kind": None}])
def test_the_general_entrypoint_refuses_what_is_of_no_kind(write: Write, view: object) -> None:
    decision = decide(policy_set.load(write({PLACE: GOOD})), "data.cmf.main.decision", view)

    assert isinstance(decision, dict)
    assert [hit["code"] for hit in decision["deny"]] == ["policy.unknown-kind"]


@pytest.mark.spec("POL-7")
def test_a_rule_that_is_off_is_not_asked_and_one_that_observes_is(write: Write) -> None:
    directory = write({PLACE: GOOD})
    view = {"kind": "text", "marked": True}

    for mode, hits in ((Mode.OFF, 0), (Mode.OBSERVE, 1), (Mode.ENFORCE, 1)):
        policies = policy_set.load(directory, modes={"test/rule": mode})
        decision = decide(policies, policies.entrypoint(ViewKind.TEXT), view)
        assert isinstance(decision, dict)
        assert len(decision["deny"]) == hits
        assert policies.modes == {"test/rule": mode}


@pytest.mark.spec("POL-8")
@pytest.mark.parametrize("member", ['"no"', "1", "null", '["a"]'])
def test_an_effect_that_is_no_object_stays_a_hit(write: Write, member: str) -> None:
    policies = policy_set.load(write({PLACE: GOOD + f"\ndeny contains {member} if input.odd\n"}))

    decision = decide(policies, policies.entrypoint(ViewKind.TEXT), {"kind": "text", "odd": True})

    assert isinstance(decision, dict)
    assert [(hit["code"], hit["rule"]) for hit in decision["deny"]] == [("policy.bad-effect", "test/rule")]


@pytest.mark.spec("POL-9")
def test_the_revision_is_the_same_wherever_and_in_whatever_order(write: Write) -> None:
    files = {PLACE: GOOD, "cmf/defaults/data.json": '{"a": 1, "b": {"c": 2, "d": 3}}'}
    there = {"cmf/defaults/data.json": '{"b": {"d": 3, "c": 2},\n "a": 1}', PLACE: GOOD}

    assert policy_set.load(write(files)).revision == policy_set.load(write(there, "there")).revision


@pytest.mark.spec("POL-9")
@pytest.mark.parametrize(
    ("path", "text"),
    [
        (PLACE, GOOD + "\n"),
        ("cmf/defaults/data.json", '{"a": 2}'),
        ("cmf/defaults/data.json", '{"a": 1.0}'),
        ("cmf/defaults/data.json", '{"a": "1"}'),
        ("cmf/other/data.json", '{"a": 1}'),
        ("cmf/lib/x.rego", "package cmf.lib.x\n\nf(x) := x\n"),
    ],
)
def test_the_revision_changes_with_any_change(write: Write, path: str, text: str) -> None:
    files = {PLACE: GOOD, "cmf/defaults/data.json": '{"a": 1}'}
    before = policy_set.load(write(files)).revision

    after = policy_set.load(write(files | {path: text}, "after")).revision

    assert before != after
    assert len(after) == 64


@pytest.mark.spec("POL-9")
def test_the_revision_knows_modes_that_change_what_is_asked(write: Write) -> None:
    directory = write({PLACE: GOOD})

    assert policy_set.load(directory).revision != policy_set.load(directory, modes={"test/rule": "off"}).revision


@pytest.mark.spec("POL-1")
def test_a_later_directory_adds_replaces_and_sets(write: Write) -> None:
    base = write({PLACE: GOOD, "cmf/defaults/data.json": '{"a": {"x": 1, "y": 2}}'})
    other = GOOD.replace("test.rule", "test.more").replace("cmf.rules.test.more", "cmf.rules.test.more")
    mine = write(
        {
            "cmf/rules/test/more/more.rego": other,
            PLACE: GOOD.replace("A rule", "My rule"),
            "cmf/defaults/data.json": '{"a": {"y": 3}}',
        },
        "mine",
    )

    policies = policy_set.load(base, mine)

    assert [(rule.id, rule.title) for rule in policies.rules] == [("test/more", "A rule"), ("test/rule", "My rule")]
    assert policies.data["cmf"]["defaults"] == {"a": {"x": 1, "y": 3}}


@pytest.mark.spec("POL-1")
def test_a_set_cannot_be_changed(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD, "a/data.json": '{"b": 1}'}))

    with pytest.raises(TypeError):
        policies.data["a"]["b"] = 2  # type: ignore[index]
    with pytest.raises(AttributeError):
        policies.revision = "x"  # type: ignore[misc]


# -- somebody's own Rego -----------------------------------------------------------------------------------------------

OWN = {
    "boolean": ("allow", "default allow := false\n\nallow if input.ok"),
    "object": ("answer", 'default answer := {"allow": false}\n\nanswer := {"allow": true, "by": "x"} if input.ok'),
    "texts": ("deny", 'deny contains "not ok" if not input.ok'),
    "objects": ("deny", 'deny contains {"code": "own", "reason": "Not ok."} if not input.ok'),
    "list": ("denials", 'denials := [d | some d in ["not ok"]; not input.ok]'),
}
UNREADABLE = {
    "undefined": ("allow", "allow if input.never"),
    "null": ("allow", "allow := null"),
    "text": ("allow", 'allow := "yes"'),
    "number": ("allow", "allow := 1"),
    "object without allow": ("allow", "allow := {}"),
    "object with another allow": ("allow", 'allow := {"allow": "true"}'),
}


@pytest.mark.spec("POL-10")
@pytest.mark.parametrize("shape", OWN)
@pytest.mark.parametrize("is_ok", [False, True])
def test_an_entrypoint_of_ones_own_allows_and_denies(write: Write, shape: str, is_ok: bool) -> None:
    name, text = OWN[shape]
    directory = write({"app/authz.rego": f"package app.authz\n\n{text}\n"})
    policies = policy_set.load(directory, entrypoint=f"data.app.authz.{name}")

    decision = decide(policies, policies.entrypoint(ViewKind.TEXT), {"kind": "text", "ok": is_ok})

    assert isinstance(decision, dict)
    assert len(decision["deny"]) == (0 if is_ok else 1)
    assert all(hit["rule"] == f"data.app.authz.{name}" and hit["reason"] for hit in decision["deny"])
    assert decision.keys() == {effect.value for effect in Effect}


@pytest.mark.spec("POL-10")
@pytest.mark.parametrize("shape", UNREADABLE)
def test_an_answer_that_cannot_be_read_is_a_deny(write: Write, shape: str) -> None:
    name, text = UNREADABLE[shape]
    directory = write({"app/authz.rego": f"package app.authz\n\n{text}\n"})
    policies = policy_set.load(directory, entrypoint=f"data.app.authz.{name}")

    decision = decide(policies, policies.entrypoint(ViewKind.TEXT), {"kind": "text"})

    assert isinstance(decision, dict)
    assert [hit["code"] for hit in decision["deny"]] == ["policy.bad-result"]


# -- bundles and the shipped set ---------------------------------------------------------------------------------------


@pytest.mark.spec("POL-12")
def test_a_bundle_holds_everything_and_names_its_revision(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD, "own/data.json": '{"a": 1}'}))

    files = policies.bundle()

    manifest = json.loads(files[".manifest"])
    assert manifest == {"revision": policies.revision, "roots": ["cmf", "own"], "rego_version": 1}
    assert json.loads(files["data.json"]) == {"own": {"a": 1}}
    assert {module.path for module in policies.modules} < set(files)


@pytest.mark.spec("POL-11")
def test_the_batch_module_knows_every_entrypoint_and_the_revision(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD}))

    text = policies.batch_module.text

    assert policies.revision in text
    assert all(f'"{entrypoint}"' in text for entrypoint in policies.entrypoints)
    assert policies.batch_module not in policies.modules


@pytest.mark.spec("POL-6")
def test_the_shipped_set_loads_and_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    policies = policy_set.load(policy_set.shipped())

    assert len(policies.rules) >= 11
    assert all(policies.rules_for(kind) for kind in ViewKind)


@pytest.mark.spec("POL-6")
def test_every_setting_of_the_shipped_set_is_needed(tmp_path: Path) -> None:
    """Take any one away, and the set does not load: none can go missing in silence."""
    copy = tmp_path / "policies"
    shutil.copytree(policy_set.shipped(), copy)
    path = copy / "cmf" / "defaults" / "data.json"
    settings = json.loads(path.read_text(encoding="utf-8"))

    for category, rules in settings.items():
        for rule, values in rules.items():
            for name in values:
                less = {key: value for key, value in values.items() if key != name}
                path.write_text(json.dumps(settings | {category: rules | {rule: less}}), encoding="utf-8")
                assert refusal(copy).code == "policy.no-setting", f"{category}.{rule}.{name}"


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
