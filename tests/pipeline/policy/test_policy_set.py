"""Loading policies: what would leave something unjudged is refused, with its place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.pipeline.policy_files import GOOD, PLACE, Write, refusal, write

from cmf.enums import ViewKind
from cmf.json.frozen import thaw
from pipeline.policy import policy_set, portability
from pipeline.policy.analysis import Survey

__all__ = ["write"]  # a fixture


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


@pytest.mark.spec("POL-6")
@pytest.mark.parametrize(
    "reads",
    [
        "x := data.cmf.defaults.test.rule.limit",
        "_settings := data.cmf.defaults.test.rule\n\nx := _settings.limit",
    ],
)
def test_a_rule_that_reads_a_missing_setting_is_refused(write: Write, reads: str) -> None:
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
@pytest.mark.parametrize(
    ("name", "text", "place", "words"),
    [
        (
            "data.json",
            '{"a": 1,\n}',
            (2, 1),
            "not strict JSON: expecting property name enclosed in double quotes; check",
        ),
        ("data.json", '{"a": 1, "a": 2}', (0, 0), "an object has the same key twice ($.a); send each key once"),
        ("data.json", "\ufeff{}", (0, 0), "starts with a byte order mark; encode as UTF-8 without a BOM"),
        ("data.yaml", "a: 1\na: 2\n", (2, 0), "not YAML: duplicate key; correct it there"),
        ("data.yaml", "a:\n\tb: 2\n", (2, 0), "not YAML: found character '\\t' that cannot start any token"),
    ],
)
def test_data_that_cannot_be_read_say_what_is_wrong_and_where(
    write: Write, name: str, text: str, place: tuple[int, int], words: str
) -> None:
    error = refusal(write({PLACE: GOOD, f"cmf/own/{name}": text}))

    assert (error.line, error.column) == place
    assert words in str(error)


@pytest.mark.spec("POL-2")
def test_a_module_with_a_byte_order_mark_is_the_module_without(write: Write) -> None:
    marked = policy_set.load(write({PLACE: f"\ufeff{GOOD}"}, name="marked"))

    assert marked.revision == policy_set.load(write({PLACE: GOOD}, name="plain")).revision


@pytest.mark.spec("POL-2")
def test_the_same_data_in_two_files_is_refused(write: Write) -> None:
    files = {"a/data.json": '{"b": {"c": 1}}', "a/b/data.yaml": "c: 1\n"}

    assert refusal(write({PLACE: GOOD} | files)).code == "policy.bad-data"


@pytest.mark.spec("POL-4")
@pytest.mark.parametrize("modes", [{"test/other": "off"}, {"test/rule": "sometimes"}])
def test_a_mode_for_an_unknown_rule_or_an_unknown_mode_is_refused(write: Write, modes: dict[str, str]) -> None:
    assert refusal(write({PLACE: GOOD}), modes=modes).code == "policy.unknown-mode"


@pytest.mark.spec("POL-9")
def test_the_revision_is_the_same_wherever_and_in_whatever_order(write: Write) -> None:
    files = {PLACE: GOOD, "own/defaults/data.json": '{"a": 1, "b": {"c": 2, "d": 3}}'}
    there = {"own/defaults/data.json": '{"b": {"d": 3, "c": 2},\n "a": 1}', PLACE: GOOD}

    assert policy_set.load(write(files)).revision == policy_set.load(write(there, "there")).revision


@pytest.mark.spec("POL-9")
@pytest.mark.parametrize(
    ("path", "text"),
    [
        (PLACE, GOOD + "\n"),
        ("own/defaults/data.json", '{"a": 2}'),
        ("own/defaults/data.json", '{"a": 1.0}'),
        ("own/defaults/data.json", '{"a": "1"}'),
        ("own/other/data.json", '{"a": 1}'),
        ("cmf/lib/x.rego", "package cmf.lib.x\n\nf(x) := x\n"),
    ],
)
def test_the_revision_changes_with_any_change(write: Write, path: str, text: str) -> None:
    files = {PLACE: GOOD, "own/defaults/data.json": '{"a": 1}'}
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
    base = write({PLACE: GOOD, "own/defaults/data.json": '{"a": {"x": 1, "y": 2}}'})
    other = GOOD.replace("test.rule", "test.more").replace("cmf.rules.test.more", "cmf.rules.test.more")
    mine = write(
        {
            "cmf/rules/test/more/more.rego": other,
            PLACE: GOOD.replace("A rule", "My rule"),
            "own/defaults/data.json": '{"a": {"y": 3}}',
        },
        "mine",
    )

    policies = policy_set.load(base, mine)

    assert [(rule.id, rule.title) for rule in policies.rules] == [("test/more", "A rule"), ("test/rule", "My rule")]
    assert policies.data["own"]["defaults"] == {"a": {"x": 1, "y": 3}}


@pytest.mark.spec("POL-1")
def test_a_set_cannot_be_changed(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD, "a/data.json": '{"b": 1}'}))

    with pytest.raises(TypeError):
        policies.data["a"]["b"] = 2  # type: ignore[index]
    with pytest.raises(AttributeError):
        policies.revision = "x"  # type: ignore[misc]


@pytest.mark.spec("POL-12")
def test_a_bundle_holds_everything_and_names_its_revision(write: Write) -> None:
    policies = policy_set.load(write({PLACE: GOOD, "own/data.json": '{"a": 1}'}))

    files = policies.bundle()

    manifest = json.loads(files[".manifest"])
    assert manifest == {"revision": policies.revision, "roots": ["cmf", "own"], "rego_version": 1}
    assert json.loads(files["data.json"]) == {"own": {"a": 1}}
    assert {module.path for module in policies.modules} < set(files)


@pytest.mark.spec("POL-6")
def test_the_shipped_set_loads_and_is_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    policies = policy_set.load(policy_set.shipped())

    assert len(policies.rules) >= 11
    assert all(policies.rules_for(kind) for kind in ViewKind)


@pytest.mark.spec("POL-6")
def test_every_setting_of_the_shipped_set_is_needed(tmp_path: Path) -> None:
    """Take any one away, and the set does not load: none can go missing in silence."""
    shipped = policy_set.load(policy_set.shipped())
    survey = Survey(shipped.sources.modules)
    settings = thaw(shipped.data["cmf"]["defaults"])
    for category, rules in settings.items():
        for rule, values in rules.items():
            for name in values:
                less = settings | {category: rules | {rule: {key: it for key, it in values.items() if key != name}}}
                found = portability.findings(survey, {"cmf": {"defaults": less}}, shipped.rules, strict=True)
                assert "policy.no-setting" in {one.code for one in found}, f"{category}.{rule}.{name}"

    copy = tmp_path / "policies"
    shutil.copytree(policy_set.shipped(), copy)
    path = copy / "cmf" / "defaults" / "data.json"
    whole = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(whole | {category: rules | {rule: {}}}), encoding="utf-8")
    assert refusal(copy).code == "policy.no-setting"
