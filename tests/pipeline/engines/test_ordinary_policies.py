"""Policies that were written for OPA, with an entrypoint of their own, decide alike on both engines, unchanged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.opa_server import serving, write_bundle

from pipeline.decisions.decision import Effect
from pipeline.decisions.engine import Decided
from pipeline.policy import policy_set
from pipeline.policy.entrypoints import DECISION
from pipeline.policy.policy_set import PolicySet
from pipeline.run.assembly import Config, build_engine

# As people write them: `\d`, builtins that fail, negations of calls, defaults, imports, data, comprehensions.
POLICIES = {
    "boolean": (
        "data.app.authz.allow",
        """\
package app.authz

import rego.v1

default allow := false

allow if {
	input.kind == "text"
	not regex.match(`\\d{3}-\\d{2}-\\d{4}`, input.content)
	to_number(input.properties.version) <= data.app.limits.level
}

allow if "admin" in input.extensions.security.subject.roles
""",
    ),
    "without a default": ("data.app.authz.allow", "package app.authz\n\nallow if input.content == `fine`\n"),
    "object": (
        "data.app.authz.verdict",
        """\
package app.authz

verdict := {"allow": count(_violations) == 0, "reasons": _violations}

_violations contains sprintf("%s is too long: %d", [input.kind, n]) if {
	n := count(input.content)
	n > 20
}

_violations contains "no digits, please" if regex.match(`^\\w+\\s\\d+$`, input.content)
""",
    ),
    "deny set": (
        "data.app.authz.deny",
        """\
package app.authz

deny contains msg if {
	some word in split(lower(input.content), " ")
	word in data.app.words
	msg := sprintf("%q is not said here", [word])
}

deny contains {"code": "app.level", "reason": "too high"} if to_number(input.properties.version) > 3

deny contains "level" if not _numbered

_numbered if is_number(to_number(input.properties.version))
""",
    ),
}
DATA = '{"app": {"limits": {"level": 3}, "words": ["bad", "worse"]}}'
VIEWS = [
    {"kind": "text", "properties": {}, "extensions": {}} | own
    for own in (
        {"content": "fine", "properties": {"version": "2"}},
        {"content": "123-45-6789", "properties": {"version": "2"}},
        {"content": "١٢٣-٤٥-٦٧٨٩", "properties": {"version": "2"}},
        {"content": "fine", "properties": {"version": "many"}},
        {"content": "fine"},
        {},
        {"content": "a bad and Worse word, at length", "properties": {"version": "9"}},
        {"content": "word ٣", "properties": {"version": 4}},
        {"content": "word 3", "properties": {"version": None}},
        {"extensions": {"security": {"subject": {"roles": ["admin"]}}}, "content": "123-45-6789"},
    )
]


def policies_of(directory: Path, name: str) -> PolicySet:
    entrypoint, text = POLICIES[name]
    (directory / "app").mkdir(parents=True)
    (directory / "app" / "authz.rego").write_text(text)
    (directory / "data.json").write_text(DATA)
    return policy_set.load(directory, entrypoint=entrypoint, builtin_errors="undefined")


@pytest.mark.opa
@pytest.mark.spec("POL-10")
@pytest.mark.parametrize("name", POLICIES)
def test_an_entrypoint_of_ones_own_decides_alike_on_both_engines(name: str, opa_binary: Path, tmp_path: Path) -> None:
    policies = policies_of(tmp_path / "policies", name)
    documents = [json.dumps(view).encode() for view in VIEWS]
    question = ([DECISION] * len(VIEWS), b"{}", documents)
    embedded = build_engine(policies, "embedded", Config())
    with serving(opa_binary, write_bundle(policies, tmp_path / "bundle")) as url:
        server = build_engine(policies, "opa", Config(opa_url=url))
        theirs = server.evaluate(*question, timeout_seconds=20)
        server.close()

    ours = embedded.evaluate(*question, timeout_seconds=5)

    assert ours == theirs
    verdicts = [bool(one.value[Effect.DENY]) for one in ours if isinstance(one, Decided)]
    assert len(verdicts) == len(VIEWS)
    assert set(verdicts) == {True, False}
