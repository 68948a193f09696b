"""The commands and their options."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cmf.adapters import FORMATS
from pipeline.cli import auditing, bundling, keeping, replaying, serving
from pipeline.cli.bundling import Algorithm, AlgorithmOption
from pipeline.cli.replaying import FindingsAs, PolicyOption, WrittenAs
from pipeline.cli.sections import FullHelpGroup, SectionedGroup

app = typer.Typer(
    name="cmf",
    cls=SectionedGroup,
    help="Judge LLM, tool and MCP traffic by policy.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Wire = StrEnum("Wire", {"canonical": "canonical", **{name: name for name in FORMATS}})  # type: ignore[misc]  # known at run time


class ViewFormat(StrEnum):
    """The output formats of `cmf view`."""

    TREE = "tree"
    JSON = "json"
    PATHS = "paths"


class Kind(StrEnum):
    """Which side of an exchange a file holds."""

    REQUEST = "request"
    RESPONSE = "response"


class ConvertKind(StrEnum):
    """What a file to convert holds."""

    REQUEST = "request"
    RESPONSE = "response"
    STREAM = "stream"


class EngineChoice(StrEnum):
    """Where policy is evaluated."""

    EMBEDDED = "embedded"
    OPA = "opa"


class Trace(StrEnum):
    """How much `cmf eval` explains; the levels are OPA's."""

    NOTES = "notes"
    FAILS = "fails"
    FULL = "full"


class Template(StrEnum):
    """The templates of `cmf init`."""

    TOOLS = "tools"
    PII = "pii"
    MCP = "mcp"
    EMPTY = "empty"


class SchemaName(StrEnum):
    """The schemas of `cmf schema`."""

    VIEW = "view"
    MESSAGE = "message"
    DECISION = "decision"
    PROFILES = "profiles"
    CASE = "case"
    CONFIG = "config"


File = Annotated[str, typer.Argument(metavar="FILE", help="A JSON file, or - for standard input.")]
From = Annotated[Wire, typer.Option("--from", help="The format of FILE.")]
FromOrSeen = Annotated[
    Wire | None, typer.Option("--from", help="The format of FILE; by default detected from its shape.")
]
KindOrSeen = Annotated[Kind | None, typer.Option("--kind", help="What FILE holds; by default detected from its shape.")]
SealKey = Annotated[Path | None, typer.Option("--seal-key", help="A file with the seal key, 64 hexadecimal digits.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cmf {version('cmf-pipeline')}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Judge LLM, tool and MCP traffic by policy."""


@app.command("eval")
def evaluate(
    file: File,
    source: FromOrSeen = None,
    to: Annotated[Wire | None, typer.Option("--to", help="The format to emit; by default that of FILE.")] = None,
    kind: KindOrSeen = None,
    policies: PolicyOption = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="The context, with subject and session: JSON or YAML.")
    ] = None,
    output: Annotated[WrittenAs, typer.Option("--format", help="The output format.")] = WrittenAs.TEXT,
    engine: Annotated[
        EngineChoice, typer.Option("--engine", help="Where policy is evaluated.")
    ] = EngineChoice.EMBEDDED,
    opa_url: Annotated[str | None, typer.Option("--opa-url", help="The OPA server, for --engine opa.")] = None,
    entrypoint: Annotated[
        str | None, typer.Option("--entrypoint", help="data.<package>.<rule> of your own Rego.")
    ] = None,
    bundle_key: Annotated[
        Path | None,
        typer.Option("--bundle-key", metavar="FILE", help="The public key that the policies must be signed with."),
    ] = None,
    algorithm: AlgorithmOption = Algorithm.RS256,
    store: Annotated[
        str | None,
        typer.Option("--store", help="The session store: a SQLite file, sqlite:////…, postgresql://… or redis://…"),
    ] = None,
    session: Annotated[str | None, typer.Option("--session", help="The session's id.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="The subject's id.")] = None,
    seal_key: SealKey = None,
    diff: Annotated[bool, typer.Option("--diff", help="Show what policy changed instead of the output.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Append the judged input to this file, including its content.")
    ] = None,
    without_secrets: Annotated[
        bool, typer.Option("--without-secrets", help="With --record: replace secrets by placeholders.")
    ] = False,
    trace: Annotated[
        Trace | None,
        typer.Option("--trace", help="Explain what policies print, where rules stopped, or both."),
    ] = None,
    trace_lines: Annotated[int, typer.Option("--trace-lines", min=1, help="Print at most this many lines.")] = 200,
    trace_out: Annotated[
        Path | None, typer.Option("--trace-out", metavar="FILE", help="Write all of it to this file.")
    ] = None,
) -> None:
    """Judge one request or response: print a line per view, the verdict, and the output.

    --trace explains on standard error, view by view: `notes` shows what policies print; `fails`, for each rule that did
    not hit, the expression at which it stopped, with its values; `full` both, for all rules and definitions. It
    evaluates the policies again rather than tracing the engine. Content is shown only where the output has it too,
    otherwise its length is given. `cmf why` shows all values.

    Exit codes: 0 forwarded, 1 refused, 2 usage, 3 policy does not compile, 4 input not readable, 5 evaluation failed,
    6 suspended for approval.
    """
    from pipeline.cli.evaluate import run, traced

    run(
        file,
        source=None if source is None else source.value,
        target=None if to is None else to.value,
        kind=None if kind is None else kind.value,
        policies=policies,
        context=context,
        as_json=output is WrittenAs.JSON,
        engine=engine.value,
        opa_url=opa_url,
        entrypoint=entrypoint,
        bundle_key=bundle_key,
        algorithm=algorithm.value,
        store=store,
        session=session,
        subject=subject,
        seal_key=seal_key,
        shows_diff=diff,
        record=record,
        without_secrets=without_secrets,
        tracing=traced(None if trace is None else trace.value, lines=trace_lines, out=trace_out),
    )


@app.command("view")
def view(
    file: File,
    source: FromOrSeen = None,
    kind: KindOrSeen = None,
    output: Annotated[ViewFormat, typer.Option("--format", help="The output format.")] = ViewFormat.TREE,
) -> None:
    """Show what a policy sees of FILE: every value with its Rego path."""
    from pipeline.cli.view import run

    run(
        file,
        source=None if source is None else source.value,
        kind=None if kind is None else kind.value,
        output=output.value,
    )


@app.command("pins")
def pins(
    file: File,
    source: From,
    namespace: Annotated[str | None, typer.Option("--namespace", help="The server that the tools belong to.")] = None,
) -> None:
    """Print the tool definitions of a request or an MCP `tools/list` result as data that pins them."""
    from pipeline.cli.pins import run

    run(file, source=source.value, namespace=namespace)


@app.command("schema")
def schema(
    name: Annotated[SchemaName, typer.Argument(metavar="NAME", help="The schema to print.")] = SchemaName.VIEW,
) -> None:
    """Print a JSON Schema: of the policy input, a message, a decision, tool profiles, test cases, or cmf.yaml."""
    from pipeline.cli.schema import run

    run(name.value)


@app.command("convert")
def convert(
    file: File,
    source: From,
    target: Annotated[Wire, typer.Option("--to", help="The format to write.")],
    kind: Annotated[ConvertKind, typer.Option("--kind", help="What FILE holds.")] = ConvertKind.REQUEST,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if anything would be lost.")] = False,
) -> None:
    """Translate between wire formats. What the target cannot express is dropped and listed on standard error.

    No policy is evaluated: this converts files, and is not meant for traffic.
    """
    from pipeline.cli.convert import run

    run(file, source=source.value, target=target.value, kind=kind.value, strict=strict)


@app.command("init")
def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory.")] = Path(),
    template: Annotated[Template, typer.Option("--template", help="What the first rule is about.")] = Template.TOOLS,
) -> None:
    """Start a policy project: rules with tests, test cases, settings for editors and CI. All tests pass."""
    from pipeline.cli.init import run

    run(directory, template=template.value)


@app.command("test")
def run_cases(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="A project: policies in DIR/policy, cases in DIR/cases.")
    ] = Path(),
    policies: PolicyOption = None,
    output: Annotated[FindingsAs, typer.Option("--format", help="The output format.")] = FindingsAs.TEXT,
    select: Annotated[str | None, typer.Option("--run", help="Only cases and tests whose name contains this.")] = None,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Report rules that hit in no case, and lines not reached.")
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", min=0, max=100, help="Fail if a smaller percentage of the rules hit in some case."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Run again whenever a file changes, until Ctrl-C.")] = False,
) -> None:
    """Run the test cases of DIR, conversations with the expected decisions, and the Rego tests of its policies.

    Exit codes: 0 all passed, 1 something failed, 2 no cases and no tests, 3 policy does not compile.
    """
    from pipeline.cli.test import run

    run(
        directory,
        policies=policies,
        output=output,
        select=select,
        shows_coverage=coverage,
        threshold=threshold,
        watches=watch,
    )


@app.command("playground")
def playground(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8787,
    policies: Annotated[
        Path | None,
        typer.Option("--policies", "-p", metavar="DIR", help="A project or its policies; by default the current one."),
    ] = None,
    readonly: Annotated[bool, typer.Option("--readonly", help="Never write: cases cannot be saved.")] = False,
) -> None:
    """Try out policies as you type, on a local web page; nothing leaves this machine."""
    from pipeline.cli.playground import run

    run(port=port, policies=policies, readonly=readonly)


class Shell(StrEnum):
    """The shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@app.command("completion")
def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script of a shell: `source <(cmf completion bash)`.

    zsh works the same way; for fish: `cmf completion fish | source`.
    """
    from pipeline.cli.completion import run

    run(shell.value)


replaying.add_to(app)
serving.add_to(app)
bundling.add_to(app)

approvals = typer.Typer(cls=FullHelpGroup, help="Approvals of people.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(approvals, name="approvals")
app.add_typer(auditing.audit, name="audit")
app.add_typer(keeping.ledger, name="ledger")
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval's id, from the decision.")]


@approvals.command("list")
def list_approvals(
    store: auditing.SessionStore,
    output: Annotated[WrittenAs, typer.Option("--format", help="The output format.")] = WrittenAs.TEXT,
) -> None:
    """List pending approvals, oldest first."""
    from pipeline.cli import people

    people.list_approvals(store, as_json=output is WrittenAs.JSON)


@approvals.command("show")
def show_approval(
    store: auditing.SessionStore,
    id: ApprovalId,
    seal_key: SealKey = None,
    output: Annotated[WrittenAs, typer.Option("--format", help="The output format.")] = WrittenAs.TEXT,
) -> None:
    """Show one approval; with the seal key, also its content."""
    from pipeline.cli import people

    people.show(id, store, seal_key=seal_key, as_json=output is WrittenAs.JSON)


@approvals.command("approve")
def approve(
    store: auditing.SessionStore, id: ApprovalId, person: auditing.Person, key: auditing.SigningKey = None
) -> None:
    """Approve exactly this, once. Nobody can approve their own request; the approver is recorded."""
    from pipeline.cli import people

    people.decide(id, store, person=person, approve=True, key=key)


@approvals.command("deny")
def deny(
    store: auditing.SessionStore, id: ApprovalId, person: auditing.Person, key: auditing.SigningKey = None
) -> None:
    """Refuse this until the approval expires. The decision is recorded."""
    from pipeline.cli import people

    people.decide(id, store, person=person, approve=False, key=key)


@app.command("declassify")
def declassify(
    store: auditing.SessionStore,
    label: Annotated[str, typer.Argument(metavar="LABEL", help="The label to lift.")],
    session: Annotated[str, typer.Option("--session", help="The session's id.")],
    person: auditing.Person,
    reason: Annotated[str, typer.Option("--reason", help="The reason; it is recorded.")],
    lasting: Annotated[str, typer.Option("--for", help="For how long: 30m, 8h; at most a day.")],
    subject: Annotated[
        str | None, typer.Option("--subject", help="Whose session; without it, an anonymous one.")
    ] = None,
    second: Annotated[str | None, typer.Option("--second", help="A second person, who agrees.")] = None,
    scope: Annotated[str, typer.Option("--scope", help="The purpose; it is recorded.")] = "session",
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="EVENT", help="An event that set it (repeatable); by default all."),
    ] = None,
    key: auditing.SigningKey = None,
) -> None:
    """Lift a label from a session for a time. Events that set the label later still count.

    Who lifted it, why and until when is recorded first.
    """
    from pipeline.cli import people

    people.lift(
        label,
        store,
        subject=subject,
        session=session,
        person=person,
        second=second,
        reason=reason,
        scope=scope,
        lasting=lasting,
        sources=source or (),
        key=key,
    )
