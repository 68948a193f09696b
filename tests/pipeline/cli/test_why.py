"""`cmf why`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipeline.cli.app import app

RUN = CliRunner()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    RUN.invoke(app, ["init", str(tmp_path / "p"), "--template", "tools"])
    return tmp_path / "p"


def why(project: Path, *options: str, file: str = "cases/mail.json", text: str | None = None) -> Result:
    where = file if file == "-" else str(project / file)
    command = ["why", where, "--from", "openai_chat", "--policies", str(project / "policy"), *options]
    return RUN.invoke(app, command, input=text)


@pytest.mark.spec("CLI-33")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--view", "9"), 2),
        (("--view", "messages[9]"), 2),
        (("--rule", "tools/by_rol"), 2),
        (("--context", "none.yaml"), 4),
    ],
)
def test_what_is_not_there_is_one_line(project: Path, options: tuple[str, ...], code: int) -> None:
    result = why(project, *options)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)


@pytest.mark.spec("CLI-33")
def test_bad_policies_and_bad_input_are_one_line(project: Path) -> None:
    unread = why(project, file="-", text="{")
    (project / "policy" / "a.rego").write_text("package a\nx :=", encoding="utf-8")
    uncompiled = why(project)

    assert (unread.exit_code, uncompiled.exit_code) == (4, 3)
    assert all(one.stderr.count("\n") == 1 and not one.stdout for one in (unread, uncompiled))


@pytest.mark.spec("CLI-33")
def test_a_test_case_is_explained_with_its_own_context_and_session(project: Path) -> None:
    cases = project / "cases" / "mine.yaml"
    cases.write_text(
        "name: mine\ncases:\n"
        "  - {name: nobody deletes, conversation: [{role: user, text: x}], expect: allow,\n"
        "     reply: {tool_call: {name: delete_draft, args: {}}}}\n"
        "  - {name: an editor deletes, conversation: [{role: user, text: x}], expect: allow,\n"
        "     subject: {roles: [editor]}, reply: {tool_call: {name: delete_draft, args: {}}}}\n",
        encoding="utf-8",
    )

    def explained(*options: str) -> Result:
        return RUN.invoke(app, ["why", str(cases), "--policies", str(project / "policy"), *options])

    for options, said in (
        ((), "several cases; give one to --case: 'nobody deletes', 'an editor deletes'"),
        (("--case", "delete"), "several cases"),
        (("--case", "writes"), "no such case"),
        (("--case", "nobody", "--subject", "ann"), "--subject cannot be used with a test case"),
        (("--case", "nobody", "--from", "canonical"), "--from cannot be used with a test case"),
    ):
        refused = explained(*options)
        assert (refused.exit_code, refused.stdout, said in refused.stderr) == (2, "", True)
    assert "  hit   tools/by_role" in explained("--case", "nobody").stdout
    assert "  hit   tools/by_role" not in explained("--case", "an editor deletes").stdout


@pytest.mark.spec("CLI-33", "POL-51")
def test_a_rule_with_two_values_is_shown_with_the_bodies_that_give_them(project: Path) -> None:
    metadata = (
        "title: A\n# description: B.\n# custom: {code: test.two, severity: high, kinds: [text], capabilities: []}"
    )
    body = (
        '\ndeny contains {"code": "test.two", "reason": "Two."} if _amount > 1\n'
        "\n_amount := 1 if input.content\n\n_amount := 2 if input.content\n"
    )
    rule = project / "policy/cmf/rules/test/two/two.rego"
    rule.parent.mkdir(parents=True)
    rule.write_text(f"# METADATA\n# {metadata}\npackage cmf.rules.test.two\n{body}", encoding="utf-8")

    shown = why(project).stdout

    assert "cannot be evaluated with these values" in shown
    assert ["_amount, line 9, holds" in shown, "_amount, line 11, holds" in shown] == [True, True]


@pytest.mark.spec("CLI-33")
def test_hits_come_with_their_values_and_misses_with_where_they_stopped(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)

    lines = why(project).stdout.splitlines()

    sent = lines.index("messages[2].content[0]  tool_call  tool://_/send_mail  allow")
    deleted = lines.index("messages[2].content[1]  tool_call  tool://_/delete_draft  deny")
    assert lines[sent + 1 : deleted] == [
        "  near  tools/ask_first  policy/cmf/rules/tools/ask_first/ask_first.rego:10  require_approval  1 of 3 hold",
        "        line 15: startswith(input.name, beginning)",
        '          input.name = "send_mail"',
        '          beginning = "delete_" or "remove_" or "drop_"',
        "  1 rule stopped at the first expression: tools/by_role",
    ]
    assert '        beginning = "delete_"' in lines[deleted:]
    assert "  hit   tools/by_role  policy/cmf/rules/tools/by_role/by_role.rego:11  deny" in lines[deleted:]
    assert (
        '        gives {"code": "tools.ask-first", "reason": "A person has to approve this first."}' in lines[deleted:]
    )


@pytest.mark.spec("CLI-33")
def test_one_view_and_one_rule_are_shown_in_full(project: Path) -> None:
    one = why(project, "--view", "3", "--rule", "tools/by_role").stdout
    other = why(project, "--view", "messages[0].content[0]", "--rule", "tools/by_role").stdout

    assert one.startswith("messages[2].content[0]  tool_call")
    assert "no    tools/by_role" in one
    assert "data.cmf.defaults.tools.by_role[input.name] = undefined" in one
    assert other.splitlines()[1:] == ["  tools/by_role is not asked about it"]


@pytest.mark.spec("CLI-33")
def test_who_asks_is_what_the_host_says(project: Path) -> None:
    (project / "ann.yaml").write_text("subject: {id: ann, roles: [editor]}", encoding="utf-8")

    def verdicts(*options: str) -> list[str]:
        shown = why(project, "--format", "json", *options).stdout
        return [view["verdict"] for view in json.loads(shown)["views"]]

    assert verdicts("--subject", "ann")[-1] == "deny"
    assert verdicts("--context", str(project / "ann.yaml"))[-1] == "require_approval"


@pytest.mark.spec("CLI-33")
def test_json_has_all_of_it_and_standard_input_is_read(project: Path) -> None:
    text = (project / "cases" / "mail.json").read_text(encoding="utf-8")

    document = json.loads(why(project, "--format", "json", file="-", text=text).stdout)

    (hit,) = [one for one in document["views"][-1]["rules"] if one["rule"] == "tools/by_role"]
    assert (document["verdict"], document["action"], hit["hit"]) == ("deny", "refuse", True)
    assert hit["file"].endswith("by_role.rego")
    (body,) = [one for one in hit["bodies"] if one["ways"]]
    assert (body["effect"], body["ways"]) == ("deny", [{"needed": ["editor"]}])
    assert body["values"][0]["code"] == "tools.by-role"
    (missed,) = [one for one in document["views"][-2]["rules"] if one["rule"] == "tools/ask_first"]
    assert missed["bodies"][0]["failing"][0]["operands"][0] == {
        "text": "input.name",
        "known": True,
        "value": "send_mail",
    }


@pytest.mark.spec("CLI-33")
def test_what_came_from_the_traffic_is_shown_as_text_only_and_cut(project: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "x\u202e" + "y" * 500, "arguments": "{}"}}
    body = {"model": "m", "messages": [{"role": "assistant", "content": None, "tool_calls": [call]}]}

    shown = why(project, "--view", "1", file="-", text=json.dumps(body)).stdout

    assert "\u202e" not in shown
    assert max(map(len, shown.splitlines()[1:])) < 250


@pytest.mark.spec("CLI-33")
def test_the_helpers_that_an_expression_asks_are_followed(project: Path) -> None:
    command = ["why", str(project / "cases" / "mail.json"), "--from", "openai_chat", "--view", "3"]

    lines = RUN.invoke(app, [*command, "--rule", "provenance/asked_for"]).stdout.splitlines()

    asked = next(
        number
        for number, line in enumerate(lines)
        if line.endswith("cmf.lib.origins.acts_after_untrusted, line 19, does not hold")
    )
    assert lines[asked + 1].strip() == 'line 22: entry.type == "before"'
    assert lines[asked + 2].strip() == 'entry.type = "call" or "string"'


# -- policies that are not made of rules -------------------------------------------------------------------------------

OWN = """\
package app

default allow := false

allow if input.kind in {"request", "text"}

allow if {
	input.kind == "tool_call"
	input.name == "search"
}

decision := {"allow": allow, "reasons": reasons}

reasons contains "unknown tool" if not input.name == "search"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "app.rego").write_text(OWN, encoding="utf-8")
    return tmp_path / "own"


def why_own(project: Path, own: Path, *options: str) -> Result:
    command = ["why", str(project / "cases" / "mail.json"), "--from", "openai_chat", "--policies", str(own), *options]
    return RUN.invoke(app, command)


@pytest.mark.spec("CLI-71")
def test_an_entrypoint_of_one_s_own_is_explained_by_its_bodies(project: Path, own: Path) -> None:
    shown = why_own(project, own, "--entrypoint", "data.app.allow", "--view", "3").stdout.splitlines()

    assert shown == [
        "messages[2].content[0]  tool_call  tool://_/send_mail  deny",
        f"  near  app.allow  {own / 'app.rego'}:7  1 of 2 hold",
        '        line 9: input.name == "search"',
        '          input.name = "send_mail"',
        "  1 definition stopped at the first expression",
    ]


@pytest.mark.spec("CLI-71")
def test_where_it_gives_an_object_what_is_in_there_is_explained_too(project: Path, own: Path) -> None:
    document = json.loads(
        why_own(project, own, "--entrypoint", "data.app.decision", "--view", "3", "--format", "json").stdout
    )

    (view,) = document["views"]
    named = [(body["name"], body["of"] == body["held"]) for body in view["bodies"]]
    assert named == [("app.decision", True), ("app.allow", False), ("app.allow", False), ("app.reasons", True)]
    assert view["bodies"][0]["values"] == [{"allow": False, "reasons": ["unknown tool"]}]
    assert view["bodies"][0]["file"].endswith("app.rego")


@pytest.mark.spec("CLI-71")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((), 3),
        (("--entrypoint", "data.app.alow"), 3),
        (("--entrypoint", "data.app.allow", "--rule", "tools/by_role"), 2),
    ],
)
def test_own_policies_need_an_entrypoint_that_is_there_and_have_no_rules(
    project: Path, own: Path, options: tuple[str, ...], code: int
) -> None:
    result = why_own(project, own, *options)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1)


@pytest.mark.spec("CLI-33")
def test_a_recorded_input_is_explained_with_its_own_context_and_session(project: Path, tmp_path: Path) -> None:
    policies = ("--policies", str(project / "policy"))
    context, record = tmp_path / "chief.yaml", tmp_path / "seen.jsonl"
    context.write_text("subject: {id: chief, roles: [editor]}", encoding="utf-8")
    mail = str(project / "cases/mail.json")
    judged = RUN.invoke(app, ["eval", mail, *policies, "--context", str(context), "--record", str(record)])
    asked = why(project, "--context", str(context), "--format", "json")

    again = RUN.invoke(app, ["eval", str(record), *policies, "--to", "openai_chat", "--format", "json"])
    explained = RUN.invoke(app, ["why", str(record), *policies, "--format", "json"])
    named = [RUN.invoke(app, [one, str(record), *policies, "--subject", "joe"]) for one in ("eval", "why")]

    assert again.exit_code == judged.exit_code
    assert json.loads(again.stdout)["verdict"] in judged.stdout
    assert json.loads(explained.stdout)["views"] == json.loads(asked.stdout)["views"]
    assert why(project, "--format", "json").stdout != explained.stdout  # without the role, policy says something else
    assert [(one.exit_code, one.stderr.count("--subject cannot be used")) for one in named] == [(2, 1)] * 2
    assert "read as the recorded input of dec_" in explained.stderr


@pytest.mark.spec("CLI-33")
def test_a_recorded_input_that_is_not_valid_is_one_line(project: Path, tmp_path: Path) -> None:
    record = tmp_path / "seen.jsonl"
    record.write_text('{"schema": 1, "traffic": {}, "decision": {}}', encoding="utf-8")

    done = RUN.invoke(app, ["why", str(record), "--policies", str(project / "policy")])

    assert (done.exit_code, done.stdout) == (4, "")
    assert "docs/spec/replay.md describes the lines" in done.stderr
