"""What all commands have in common: version, completion, formats, no colours, no mess."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic_core import SchemaError
from typer.main import get_command
from typer.testing import CliRunner

from pipeline.cli import main
from pipeline.cli.app import SECTIONS, app
from pipeline.cli.groups import COMMANDS

EXAMPLES = COMMANDS["examples"]
RUN = CliRunner()
CMF = [sys.executable, "-c", "from pipeline.cli import main; main()"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    RUN.invoke(app, ["init", str(tmp_path / "p"), "--template", "tools"])
    return tmp_path / "p"


# -- help --------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-77")
def test_help_lists_every_command_once_by_what_it_is_for_and_cuts_none_off() -> None:
    shown = RUN.invoke(app, ["--help"]).stdout
    lines = [line.split() for line in shown[shown.index("Write policies") :].splitlines() if line.startswith("  ")]

    root: Any = get_command(app)
    assert [line[0] for line in lines] == root.list_commands(typer.Context(root))
    assert "..." not in shown.partition("Write policies")[2]
    assert all(text for section in SECTIONS.values() for text in section.values())


@pytest.mark.spec("CLI-77")
@pytest.mark.parametrize("group", ["approvals", "audit", "bundle", "case", "config", "ledger"])
def test_the_help_of_a_group_cuts_nothing_off(group: str) -> None:
    shown = RUN.invoke(app, [group, "--help"]).stdout

    commands = shown.partition("Commands:")[2].partition("Example")[0]
    assert "..." not in commands
    assert commands.rstrip().endswith(".")


def _every_command() -> dict[str, Any]:
    """Commands and groups by the words that one types for them."""
    root: Any = get_command(app)
    commands = {name: root.get_command(typer.Context(root), name) for name in root.commands}
    groups = {name: command.commands for name, command in commands.items() if hasattr(command, "commands")}
    return commands | {f"{group} {name}": command for group in groups for name, command in groups[group].items()}


@pytest.mark.spec("CLI-93")
def test_every_help_ends_with_examples_that_are_understood() -> None:
    known = _every_command()
    root: Any = get_command(app)

    assert set(EXAMPLES) == set(known)
    for lines in EXAMPLES.values():
        assert lines
        assert max(map(len, lines)) <= 76  # with its indentation within 80 columns
        for line in "\n".join(lines).replace("\\\n", " ").splitlines():
            typed = re.split(r" >+ | && |[()]", line.removeprefix("source <("))[0]
            context, group, words = typer.Context(root, info_name="cmf"), root, shlex.split(typed)[1:]
            while hasattr(group, "commands"):
                name, group, words = group.resolve_command(context, words)
                context = typer.Context(group, info_name=name, parent=context)
            assert group.make_context(name, words, parent=context.parent).params is not None
    shown = RUN.invoke(app, ["audit", "erase", "--help"]).stdout
    assert f"\n  Examples:\n    {EXAMPLES['audit erase'][0]}\n    {EXAMPLES['audit erase'][1]}\n" in shown
    assert EXAMPLES["audit"][0] in RUN.invoke(app, ["audit", "--help"]).stdout


@pytest.mark.spec("CLI-94")
def test_one_word_names_who_acts_and_stores_come_first_wherever_they_are_what_it_is_about() -> None:
    options = {
        name: {word for one in command.params for word in one.opts} for name, command in _every_command().items()
    }

    assert [name for name, words in options.items() if words & {"--by", "--who", "--person"}] == []
    assert {name for name, words in options.items() if "--store" in words} == {"eval", "mcp-proxy"}
    assert {"approvals approve", "audit erase", "case from-record", "declassify", "review"} <= {
        name for name, words in options.items() if "--as" in words
    }
    for name in ("approvals list", "approvals deny", "audit verify", "declassify", "ledger cost", "review"):
        assert f"{name} [OPTIONS] {{STORE" in RUN.invoke(app, [*name.split(), "--help"]).stdout.splitlines()[0]


@pytest.mark.spec("CLI-96")
def test_a_key_that_signs_and_one_that_checks_have_names_of_their_own_everywhere() -> None:
    options = {
        name: {word for one in command.params for word in one.opts} for name, command in _every_command().items()
    }

    assert [name for name, words in options.items() if "--key" in words] == []
    assert {"audit verify", "bundle verify", "review"} == {name for name, w in options.items() if "--public-key" in w}
    assert {"approvals approve", "audit export", "audit hold", "bundle sign", "declassify", "impact", "review"} <= {
        name for name, words in options.items() if "--signing-key" in words
    }


@pytest.mark.spec("CLI-94")
@pytest.mark.parametrize(("words", "option"), [("eval - --by bob", "--by"), ("approvals list --store", "--store")])
def test_an_unknown_option_is_quoted_as_it_was_written(words: str, option: str) -> None:
    said = RUN.invoke(app, words.split())

    assert (said.exit_code, option in said.stderr) == (2, True)


@pytest.mark.spec("CLI-77")
@pytest.mark.parametrize("words", [[], ["--help"], ["chek"]])
def test_the_list_of_commands_imports_none_of_them(words: list[str]) -> None:
    script = (
        f"import sys; from typer.testing import CliRunner; from pipeline.cli.app import SECTIONS, app\n"
        f"print(CliRunner().invoke(app, {words}).output)\n"
        f"print({{f'pipeline.cli.{{name}}' for section in SECTIONS.values() for name in section}} & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert shown.splitlines()[-1] == "set()"
    assert ("Did you mean 'check'" if words == ["chek"] else "Decide and prove") in shown


@pytest.mark.spec("CLI-77")
def test_the_options_of_every_command_are_known_without_what_it_works_with() -> None:
    script = (
        "import sys; from importlib import import_module; from pipeline.cli.app import SECTIONS\n"
        "for name in [name for section in SECTIONS.values() for name in section]:\n"
        "    import_module('pipeline.cli.' + name.replace('-', '_'))\n"
        "heavy = {'aiohttp', 'cryptography', 'sqlalchemy', 'starlette', 'uvicorn', 'yaml'}\n"
        "heavy |= {'cmf.message', 'pipeline.engines', 'pipeline.policy', 'pipeline.run', 'pipeline.store'}\n"
        "print(heavy & sys.modules.keys())"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert shown == "set()\n"


@pytest.mark.spec("CLI-77")
@pytest.mark.parametrize(
    "command", ["eval", "why", "test", "bench", "bundle build", "playground", "review", "mcp-proxy"]
)
def test_policies_are_given_alike_everywhere(command: str) -> None:
    assert "-p, --policies DIR" in RUN.invoke(app, [*command.split(), "--help"]).stdout


# -- completion --------------------------------------------------------------------------------------------------------


def _completed(words: str, folder: Path) -> list[str]:
    """What bash offers for the last of `words`, as its user has it: the script sourced, `cmf` on PATH."""
    command = folder / "bin" / "cmf"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f"#!{sys.executable}\nfrom pipeline.cli import main\nmain()\n", "utf-8")
    command.chmod(0o755)
    script = f"""
        source <(cmf completion bash)
        COMP_WORDS=({words}) COMP_CWORD=$(({len(words.split())} - 1))
        _cmf_completion cmf
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    environment = os.environ | {"PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, cwd=folder, env=environment
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.spec("CLI-72")
def test_bash_completes_commands_options_and_words(tmp_path: Path) -> None:
    assert _completed("cmf che", tmp_path) == ["check"]
    assert _completed("cmf bundle i", tmp_path) == ["inspect"]
    assert _completed("cmf check --fo", tmp_path) == ["--format"]
    assert _completed("cmf check --format s", tmp_path) == ["sarif"]
    assert _completed("cmf eval --from anth", tmp_path) == ["anthropic_messages"]


@pytest.mark.spec("CLI-72")
@pytest.mark.parametrize(("shell", "begins"), [("zsh", "#compdef cmf"), ("fish", "complete --command cmf")])
def test_zsh_and_fish_get_scripts_of_their_own(shell: str, begins: str) -> None:
    result = RUN.invoke(app, ["completion", shell])

    assert result.stdout.startswith(begins)
    if (program := shutil.which(shell)) is not None:
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True)


@pytest.mark.spec("CLI-72")
def test_another_shell_is_a_matter_of_usage() -> None:
    assert RUN.invoke(app, ["completion", "tcsh"]).exit_code == 2


@pytest.mark.spec("CLI-72")
def test_the_version_is_that_of_the_distribution() -> None:
    result = RUN.invoke(app, ["--version"])

    assert (result.exit_code, result.stdout.split()[0]) == (0, "cmf")
    assert result.stdout.split()[1][0].isdigit()


# -- formats -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-9")
def test_what_fails_in_a_test_is_sarif_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project / "cases" / "wrong.yaml").write_text(
        "cases: [{name: wrong, conversation: [{role: user, text: hi}], expect: deny}]", encoding="utf-8"
    )

    result = RUN.invoke(app, ["test", "--format", "sarif"])

    (run,) = json.loads(result.stdout)["runs"]
    (found,) = run["results"]
    assert (result.exit_code, found["ruleId"], found["level"]) == (1, "case.failed", "error")
    assert found["message"]["text"] == "wrong: verdict: expected deny, got allow"
    assert found["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "cases/wrong.yaml"


# -- a terminal --------------------------------------------------------------------------------------------------------


def _on_terminal(arguments: list[str], folder: Path, **environment: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    told = {name: word for name, word in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "CI", "TERM")}
    process = subprocess.Popen(
        [*CMF, *arguments],
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=told | {"TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    written = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        written += piece
    os.close(ours)
    process.wait(timeout=60)
    return written.decode()


@pytest.mark.spec("CLI-4")
@pytest.mark.parametrize("arguments", [["test"], ["why", "cases/mail.json", "--from", "openai_chat"]])
def test_a_terminal_gets_colours_and_none_with_no_color(project: Path, arguments: list[str]) -> None:
    arguments = [*arguments, "--policies", "policy"]
    plain, coloured = _on_terminal(arguments, project, NO_COLOR="1"), _on_terminal(arguments, project)

    assert "\x1b[3" in coloured
    assert "\x1b[3" not in plain
    assert "\x1b[9" not in plain


# -- Ctrl-C ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-53")
@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "-", "--from", "openai_chat"],
        ["convert", "-", "--from", "openai_chat", "--to", "gemini"],
        ["test", "--watch", "--policies", "policy"],
        ["bundle", "build", "out.tar.gz"],
        ["doc"],
        ["check"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_an_interrupt_leaves_nothing_behind(project: Path, arguments: list[str]) -> None:
    before = sorted(project.rglob("*"))
    process = subprocess.Popen(
        [*CMF, *arguments],
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Who measures coverage would be interrupted too, while it saves what it saw.
        env={name: text for name, text in os.environ.items() if not name.startswith("COVERAGE_")},
    )
    time.sleep(1.0)

    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)

    assert "Traceback" not in said
    waits = arguments[1:2] == ["-"] or "--watch" in arguments
    # On a busy machine the interpreter may not have begun with it yet.
    assert process.returncode in ((130, -signal.SIGINT) if waits else (0, 130, -signal.SIGINT))
    if process.returncode == 130:
        left = [path for path in project.rglob("*") if path not in before and path.is_file()]
        if (bundle := project / "out.tar.gz") in left:  # it was finished when the interrupt came
            left.remove(bundle)
            with tarfile.open(bundle) as archive:
                assert archive.getnames()
        assert [path for path in left if not path.is_relative_to(project / "docs")] == []
        assert all(path.read_text(encoding="utf-8").endswith("\n") for path in left)


def raising_where_nothing_can_be(error: type[BaseException]) -> None:
    """Raise it in the callback of a reference, as the interpreter has some for its imports."""

    def callback(_: object) -> None:
        raise error

    watched = {1}
    reference = weakref.ref(watched, callback)
    del watched
    assert reference() is None


@pytest.mark.spec("CLI-53")
def test_an_interrupt_that_cannot_be_raised_comes_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def busy() -> None:
        raising_where_nothing_can_be(KeyboardInterrupt)
        time.sleep(10)
        pytest.fail("nobody was interrupted")

    monkeypatch.setattr("pipeline.cli.app.app", busy)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SystemExit) as left:
            main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert left.value.code == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.spec("CLI-53")
def test_another_unraisable_error_reaches_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(sys, "__unraisablehook__", lambda what: told.append(what.exc_type))
    monkeypatch.setattr("pipeline.cli.app.app", lambda: raising_where_nothing_can_be(ValueError))
    main()
    assert told == [ValueError]


@pytest.mark.spec("CLI-53")
@pytest.mark.parametrize(("said", "code"), [("Error building x: KeyboardInterrupt: ", 130), ("Error building x", None)])
def test_an_interrupt_is_one_while_a_validator_is_built(
    monkeypatch: pytest.MonkeyPatch, said: str, code: int | None
) -> None:
    def build() -> None:
        raise SchemaError(said)

    monkeypatch.setattr("pipeline.cli.app.app", build)

    with pytest.raises((SystemExit, SchemaError)) as left:
        main()

    assert getattr(left.value, "code", None) == code


# -- lines -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-9")
def test_lines_that_no_case_reaches_are_named_by_file(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    file = "policy/cmf/rules/tools/by_role/by_role.rego"

    some = RUN.invoke(app, ["test", "--coverage", "--run", "mail is sent"]).stdout.splitlines()
    document = json.loads(RUN.invoke(app, ["test", "--coverage", "--run", "mail is sent", "--format", "json"]).stdout)
    whole = RUN.invoke(app, ["test", "--coverage"]).stdout

    assert some[-2:] == ["    never hit: tools/by_role", f"    {file}: 4 of 8 lines reached, not 11-14"]
    (told,) = [one for one in document["coverage"]["files"] if one["file"] == file]
    assert told["missed"] == [11, 12, 13, 14]
    assert "not 1" not in whole
    assert "lines reached" not in RUN.invoke(app, ["test"]).stdout


@pytest.mark.spec("GRD-17")
@pytest.mark.parametrize(
    ("package", "arguments", "extra"),
    [
        ("typer", ["eval", "x"], "cli"),
        ("uvicorn", ["serve"], "gateway"),
        ("sqlalchemy", ["review", "x.db"], "review"),
        ("sqlalchemy", ["audit", "verify", "x.db"], "sql"),
        ("starlette", ["playground"], "review"),
    ],
)
def test_a_command_whose_extra_is_missing_says_what_to_install(package: str, arguments: list[str], extra: str) -> None:
    script = f"import sys; sys.modules[{package!r}] = None\nfrom pipeline.cli import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f'cmf: the package {package} is not installed; run: pip install "cmf-pipeline[{extra}]" [extra.missing]\n'
    )
