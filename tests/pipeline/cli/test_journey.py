"""The half hour of a policy author, from an empty folder to a policy that is proven, signed and turned on."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli.app import app

RUN = CliRunner()
RULE = """\
# METADATA
# title: Payments have a bound
# description: A payment above the bound of the payer's role is refused.
# custom:
#   code: pay.bound
#   severity: high
#   kinds: [tool_call]
#   capabilities: [read_roles]
#   mode: observe
package cmf.rules.pay.bound

deny contains {
	"code": "pay.bound",
	"reason": "This payment is above your bound.",
} if {
	input.name == "pay"
	not _is_within
}

_is_within if {
	some role in input.extensions.security.subject.roles
	input.arguments.amount <= data.cmf.defaults.pay.bound[role]
}
"""
CASES = """\
name: payments
defaults: {subject: {id: ann, roles: [clerk]}}
cases:
  - name: a clerk pays little
    conversation: [{role: user, text: pay joe}]
    reply: {tool_call: {name: pay, args: {amount: 7}}}
    matrix: {reply.tool_call.args.amount: [7, 700], "subject.roles": [[clerk], [chief]]}
    expect_table: [[allow, allow], [deny, allow]]
"""


def cmf(*arguments: str, code: int = 0, text: str | None = None) -> str:
    result = RUN.invoke(app, list(arguments), input=text)
    assert result.exit_code == code, (arguments, result.stdout, result.stderr)
    return result.stdout


def traffic(amount: int) -> str:
    call = {"id": "c", "type": "function", "function": {"name": "pay", "arguments": json.dumps({"amount": amount})}}
    return json.dumps({"model": "gpt-5", "messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]})


@pytest.mark.native
@pytest.mark.spec("CLI-75")
def test_from_an_empty_folder_to_a_proven_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = time.monotonic()
    monkeypatch.setenv("PATH", str(tmp_path))  # neither OPA nor Regal nor git
    monkeypatch.chdir(tmp_path)

    # A project, green from the start.
    cmf("init", "demo", "--template", "empty")
    monkeypatch.chdir("demo")
    assert "2 passed, 0 failed" in cmf("test")

    # What policy sees; nobody has to say what format it is.
    Path("pay.json").write_text(traffic(700), encoding="utf-8")
    assert "input.arguments.amount = 700" in cmf("view", "pay.json")

    # The first rule, with a mistake, which is named with its place.
    rule = Path("policy/cmf/rules/pay/bound/bound.rego")
    rule.parent.mkdir(parents=True)
    rule.write_text(RULE.replace("input.name", "input.nmae"), encoding="utf-8")
    assert "bound.rego:16:2: no view has input.nmae; did you mean name?" in cmf("check", code=1)
    rule.write_text(RULE, encoding="utf-8")
    assert "data.cmf.defaults.pay.bound" in cmf("check", code=1)
    settings = Path("policy/cmf/defaults/pay/data.yaml")
    settings.parent.mkdir()
    settings.write_text("bound: {clerk: 100, chief: 1000}\n", encoding="utf-8")

    # One request: it would be refused, and is not yet.
    judged = cmf("eval", "pay.json", "--subject", "ann")
    assert "deny  pay/bound  policy/cmf/rules/pay/bound/bound.rego:12" in judged
    assert "(mode observe)" in judged
    told = cmf("why", "pay.json", "--subject", "ann", "--rule", "pay/bound")
    assert "hit   pay/bound" in told
    Path("chief.yaml").write_text("subject: {id: ann, roles: [chief]}\n", encoding="utf-8")
    missed = cmf("why", "pay.json", "--context", "chief.yaml", "--rule", "pay/bound")
    assert "line 17: not _is_within" in missed
    assert "_is_within = true" in missed

    # Cases, and what no case reaches.
    assert "1 of 2 rules hit" in cmf("test", "--threshold", "100", code=1)
    Path("cases/pay.yaml").write_text(CASES, encoding="utf-8")
    assert "6 passed, 0 failed, 0 skipped; 2 of 2 rules hit in some case" in cmf("test", "--threshold", "100")
    assert cmf("check") == "0 errors, 0 warnings\n"

    # What it would do to what was judged so far: data alone turn it on.
    for amount in (5, 50, 500):
        cmf("eval", "-", "--context", "chief.yaml", "--record", "seen.jsonl", text=traffic(amount))
        cmf("eval", "-", "--subject", "joe", "--record", "seen.jsonl", text=traffic(amount))
    modes = Path("enforced/cmf/modes/data.yaml")
    modes.parent.mkdir(parents=True)
    base = cmf("bundle", "build", "base.tar.gz")
    modes.write_text("pay/*: enforce\n", encoding="utf-8")
    cmf("bundle", "build", "head.tar.gz", "-p", "policy", "-p", "enforced")
    impact = ("impact", "--base", "base.tar.gz", "--head", "head.tar.gz", "--records", "seen.jsonl", "--jobs", "1")
    found = json.loads(cmf(*impact, "--format", "json"))
    assert (found["newly_denied"]["count"], found["unchanged"]["count"]) == (3, 3)
    cmf(*impact, "--max-newly-denied", "2", code=1)
    assert base.split()[2] == found["base"]

    # One of those becomes a case, and the bundle that was looked at is signed.
    record = found["newly_denied"]["ids"][0]
    Path("cases/joe.yaml").write_text(cmf("case", "from-record", record, "--records", "seen.jsonl"), encoding="utf-8")
    assert "7 passed" in cmf("test")
    Path("secret").write_text("a shared secret", encoding="utf-8")
    cmf("bundle", "sign", "head.tar.gz", "--signing-key", "secret", "--algorithm", "HS256")
    cmf("bundle", "verify", "head.tar.gz", "--public-key", "secret", "--algorithm", "HS256")
    assert "pay/bound  high  enforce" in cmf("bundle", "inspect", "head.tar.gz")
    cmf("doc")
    assert "Payments have a bound" in Path("docs/rules/pay/bound.md").read_text(encoding="utf-8")

    assert time.monotonic() - begin < 60
