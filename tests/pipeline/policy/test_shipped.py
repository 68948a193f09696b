"""What every set can import, the word for the shipped policies, and modes that data say."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest
from tests.pipeline.policy_files import GOOD, PLACE, Write, decide, refusal, write

from cmf.enums import ViewKind
from cmf.message.message import Message, TextPart
from pipeline.authoring.check import Job, check
from pipeline.decisions.decision import Mode
from pipeline.guard import Guard
from pipeline.policy import policy_set
from pipeline.policy.shipped import shipped
from pipeline.run.assembly import load_policies

__all__ = ["write"]  # a fixture

WITH_LIBRARY = GOOD.replace(
    "deny contains", "import data.cmf.lib.secrets\nimport data.cmf.lib\n\ndeny contains"
).replace(
    "if input.properties.redacted",
    'if {\n\tcount(secrets.kinds_in(input.content)) > 0\n\tlib.uri_matches(input.uri, "tool://*/send")\n}',
)
VIEW = {"kind": "text", "content": "AKIAIOSFODNN7EXAMPLE", "uri": "tool://mail/send", "path": ""}


@pytest.mark.spec("POL-52")
def test_the_library_comes_with_what_it_needs_and_no_more(write: Write) -> None:
    loaded = policy_set.load(write({PLACE: WITH_LIBRARY}))

    added = {module.path for module in loaded.sources.modules} - {PLACE}
    assert added == {"cmf/lib/lib.rego", "cmf/lib/scan/scan.rego", "cmf/lib/secrets/secrets.rego"}
    assert set(loaded.data["cmf"]["defaults"]) == {"data"}
    answer = decide(loaded, loaded.entrypoint(ViewKind.TEXT), VIEW)
    assert isinstance(answer, dict)
    assert len(answer["deny"]) == 1
    elsewhere = decide(loaded, loaded.entrypoint(ViewKind.TEXT), VIEW | {"content": "nothing"})
    assert isinstance(elsewhere, dict)
    assert answer["deny"] != elsewhere["deny"] == []


@pytest.mark.spec("POL-52")
def test_nothing_is_added_to_a_set_that_names_nothing_of_it(write: Write) -> None:
    assert [module.path for module in policy_set.load(write({PLACE: GOOD})).sources.modules] == [PLACE]


@pytest.mark.spec("POL-52")
def test_what_a_set_holds_itself_stays_as_it_is(write: Write) -> None:
    own = "package cmf.lib\n\nuri_matches(a, b) if false\n"
    settings = json.dumps({"data": {"secrets": {"hint": "x"}}})
    loaded = policy_set.load(write({PLACE: WITH_LIBRARY, "cmf/lib/lib.rego": own, "cmf/defaults/data.json": settings}))

    (lib,) = [module for module in loaded.modules if module.path == "cmf/lib/lib.rego"]
    assert lib.text == own
    assert loaded.data["cmf"]["defaults"]["data"]["secrets"]["hint"] == "x"
    assert "patterns" in loaded.data["cmf"]["defaults"]["data"]["secrets"]


@pytest.mark.spec("POL-52")
def test_a_bundle_of_such_a_set_has_its_revision(write: Write, tmp_path: Path) -> None:
    loaded = policy_set.load(write({PLACE: WITH_LIBRARY}))
    for name, content in loaded.bundle().items():
        target = tmp_path / "bundle" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    assert policy_set.load(tmp_path / "bundle").revision == loaded.revision


@pytest.mark.spec("POL-35", "POL-52")
def test_a_check_finds_nothing_in_the_library_and_what_is_misspelt_of_it(write: Write) -> None:
    folder = write({PLACE: WITH_LIBRARY.replace("#   capabilities: [read_labels]\n", "")})
    assert check(Job(places=[folder], own=[folder], cases=[], today=date(2026, 1, 1))).findings == ()

    text = WITH_LIBRARY.replace("#   capabilities: [read_labels]\n", "").replace("kinds_in", "kinds_on")
    (finding,) = check(Job(places=[write({PLACE: text})], own=[folder], cases=[], today=date(2026, 1, 1))).findings
    assert (finding.code, finding.hint) == ("policy.unknown-function", "did you mean data.cmf.lib.secrets.kinds_in?")


@pytest.mark.spec("POL-52")
def test_shipped_is_a_word_and_a_directory_of_that_name_is_a_path(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write({PLACE: GOOD}, name="shipped")
    monkeypatch.chdir(tmp_path)

    assert load_policies("shipped").revision == policy_set.load(shipped()).revision
    both = load_policies(["shipped", folder])
    assert {"test/rule", "data/secrets"} <= {rule.id for rule in both.rules}
    assert [rule.id for rule in load_policies("./shipped").rules] == ["test/rule"]
    assert [rule.id for rule in load_policies(Path("shipped")).rules] == ["test/rule"]


# -- modes -------------------------------------------------------------------------------------------------------------

MODES = "cmf/modes/data.yaml"


@pytest.mark.spec("POL-53")
@pytest.mark.parametrize(
    ("said", "mode"),
    [
        ("test/rule: observe", Mode.OBSERVE),
        ("test/rule: off", Mode.OFF),
        ("test/rule: 'off'", Mode.OFF),
        ("test/*: observe", Mode.OBSERVE),
        ("{test/rule: enforce, test/*: off}", Mode.ENFORCE),
        ("{test/*: off, test/rule: observe}", Mode.OBSERVE),
        ("{test/*: observe, '*': off}", Mode.OBSERVE),
        ("'*': off", Mode.OFF),
    ],
)
def test_data_say_the_mode_of_a_rule(write: Write, said: str, mode: Mode) -> None:
    loaded = policy_set.load(write({PLACE: GOOD, MODES: said}))

    assert loaded.modes == {"test/rule": mode}
    assert loaded.rules_for(ViewKind.TEXT) == (() if mode is Mode.OFF else loaded.rules)
    assert loaded.revision != policy_set.load(write({PLACE: GOOD}, name="plain")).revision


@pytest.mark.spec("POL-53")
@pytest.mark.parametrize("said", ["test/rul: off", "tes/*: off", "test/rule: on", "test/rule: [off]", "'t*': off"])
def test_a_mode_of_no_rule_and_a_word_that_is_none_are_refused(write: Write, said: str) -> None:
    error = refusal(write({PLACE: GOOD, MODES: said}))

    assert (error.code, error.path) == ("policy.unknown-mode", "data.cmf.modes")


@pytest.mark.spec("POL-53")
def test_modes_that_are_no_object_are_refused(write: Write) -> None:
    assert refusal(write({PLACE: GOOD, "cmf/data.json": '{"modes": []}'})).code == "policy.unknown-mode"


@pytest.mark.spec("POL-35", "POL-53")
def test_a_check_says_which_rules_data_put_off_and_which_it_names_amiss(write: Write) -> None:
    def found(said: str) -> list[str]:
        folder = write(
            {PLACE: GOOD.replace("#   capabilities: [read_labels]\n", "").replace("redacted", "extra"), MODES: said}
        )
        report = check(Job(places=[folder], own=[folder], cases=[], today=date(2026, 1, 1)))
        return [one.code for one in report.findings]

    assert found("test/rule: off") == ["check.rule-off"]
    assert found("test/rul: off") == ["policy.unknown-mode"]


@pytest.mark.spec("POL-53")
def test_a_settings_directory_puts_a_shipped_rule_off_and_another_to_observing(write: Write) -> None:
    settings = write({MODES: "data/secrets: off\ndata/pii: observe\n"})
    message = Message(role="user", content=[TextPart(text="Key AKIAIOSFODNN7EXAMPLE, card 4111 1111 1111 1111")])

    for policies, hits in (
        (None, {"data/secrets": True, "data/pii": True}),
        (settings, {"data/pii": False}),
    ):
        with Guard(policies) as guard:
            (view,) = guard.decide(message).views
        assert {hit.rule: hit.enforced for hit in view.hits if hit.rule in ("data/secrets", "data/pii")} == hits
