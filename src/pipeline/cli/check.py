"""`cmf check`: everything that is wrong with the policies of a project, at once. Spec: docs/spec/cli.md [CLI-32]."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from pipeline.cli.findings import Finding, JUnitCase, write_report
from pipeline.cli.fmt import find_program, run_program
from pipeline.cli.options import SHIPPED, Entrypoint, FindingsAs, PolicyOption, Project, policy_place
from pipeline.cli.policy_places import file_of, policy_directory
from pipeline.cli.reading import Exit, fail
from pipeline.cli.rendering import write_json
from pipeline.cli.test import case_files
from pipeline.decisions.display import counted, visible

BuiltinErrors = Literal["strict", "undefined"]


def command(
    directory: Project = Path(),
    policies: PolicyOption = None,
    output: Annotated[FindingsAs, typer.Option("--format", help="The output format.")] = "text",
    entrypoint: Entrypoint = None,
    builtin_errors: Annotated[
        BuiltinErrors, typer.Option("--builtin-errors", help="How failing builtins are handled when the set is loaded.")
    ] = "strict",
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="CODE", help="Ignore findings with this code (repeatable).")
    ] = None,
    fail_on_warn: Annotated[bool, typer.Option("--fail-on-warn", help="Exit with 1 for warnings too.")] = False,
    with_opa: Annotated[
        bool | None,
        typer.Option(
            "--with-opa/--without-opa", help="Run `opa check --strict` with types; by default if opa is installed."
        ),
    ] = None,
    with_regal: Annotated[
        bool | None,
        typer.Option(
            "--with-regal/--without-regal", help="Run Regal; by default if it is installed, with findings as warnings."
        ),
    ] = None,
) -> None:
    """Report everything that is wrong with the policies of DIR.

    Exit codes: 0 clean, 1 errors, 2 usage, 3 policy does not compile.
    """
    from pipeline.authoring.check import Job, check, is_error
    from pipeline.policy.loading import below

    shipped = policy_place(SHIPPED)
    places = [*(policies or [policy_directory(directory)])]
    own = [place for place in places if place != shipped]
    for folder in own:
        if not folder.is_dir():
            fail(f"{folder}: no such directory; give another one", Exit.USAGE)
    if not any(path.suffix == ".rego" for folder in places for path in below(folder)):
        places = [shipped, *places]
    job = Job(
        places=places,
        own=own,
        cases=case_files(directory),
        today=datetime.now(UTC).date(),  # noqa: TID251 - a command may read the clock
        entrypoint=entrypoint,
        builtin_errors=builtin_errors,
    )
    report = check(job)
    listed = [
        Finding(
            file=file_of(finding.place.module, job.places),
            message=finding.message,
            code=finding.code,
            severity="error" if is_error(finding) else "warning",
            line=finding.place.line,
            column=finding.place.column,
            hint=finding.hint,
        )
        for finding in report.findings
    ]
    if report.compiles:
        others = [finding for folder in own if _wanted(with_opa, "opa", folder) for finding in _opa(folder)]
        # OPA reports an unknown field as a type error too, at the same place: drop the duplicate.
        reported = {(finding.file, finding.line) for finding in listed if finding.code == "policy.unknown-field"}
        listed += [one for one in others if one.code != _TYPE_ERROR or (one.file, one.line) not in reported]
        regal = [finding for folder in own if _wanted(with_regal, "regal", folder) for finding in _regal(folder)]
        listed += regal if with_regal else [dataclasses.replace(finding, severity="warning") for finding in regal]
    shown = [finding for finding in listed if finding.code not in (ignore or ())]
    _write(shown, output, fails_on_warnings=fail_on_warn)
    if not report.compiles:
        raise typer.Exit(int(Exit.POLICY))
    failed = any(finding.severity == "error" or fail_on_warn for finding in shown)
    raise typer.Exit(int(Exit.REFUSED if failed else Exit.OK))


def _write(findings: Sequence[Finding], output: FindingsAs, *, fails_on_warnings: bool) -> None:
    if output == "text":
        for finding in findings:
            mark = "" if finding.severity == "error" else "warning: "
            typer.echo(visible(f"{finding.place}: {mark}{finding.text} [{finding.code}]"))
        errors = sum(finding.severity == "error" for finding in findings)
        typer.echo(f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}")
    elif output == "json":
        write_json({"findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        cases = []
        for finding in findings:
            text = f"{finding.place}: {finding.text}"
            fails = finding.severity == "error" or fails_on_warnings
            failure, skipped = (text, None) if fails else (None, text)
            cases.append(JUnitCase(suite=finding.file, name=finding.code, failure=failure, skipped=skipped))
        write_report(output, "cmf check", findings, cases or [JUnitCase(suite="cmf check", name="clean")])


_TYPE_ERROR: Final = "opa.rego-type-error"


# -- third-party programs ----------------------------------------------------------------------------------------------


def _opa(folder: Path) -> list[Finding]:
    """The findings of OPA's compiler in strict mode, with the schema of our input."""
    from pipeline.cli.schema import schema_of

    opa = _needed("opa", folder)
    with tempfile.TemporaryDirectory(prefix="cmf-") as scratch:
        schema = Path(scratch) / "schema.json"
        schema.write_text(json.dumps(schema_of("view")), encoding="utf-8")
        looked_at = _with_library(folder, Path(scratch) / "policy")
        done = run_program(opa, ["check", "--strict", "--bundle", "--format", "json", "--schema", schema, looked_at])
    errors = _document(done.stdout or done.stderr, "opa").get("errors", []) if done.returncode else []
    return [
        Finding(
            file=file_of(str(folder / Path(place.get("file", looked_at)).relative_to(looked_at)), ()),
            message=error.get("message", "opa check failed"),
            code=f"opa.{error.get('code', 'error').replace('_', '-')}",
            line=place.get("row", 0),
            column=place.get("col", 0),
        )
        for error, place in ((error, error.get("location", {})) for error in errors)
    ]


def _with_library(folder: Path, scratch: Path) -> Path:
    """The policies together with the library modules they import, which OPA needs; a copy if there are any."""
    from pipeline.policy.loading import below
    from pipeline.policy.shipped import PACKAGE

    modules = (path for path in below(folder) if path.suffix == ".rego")
    if not any(PACKAGE in path.read_text(encoding="utf-8", errors="replace") for path in modules):
        return folder
    library = Path("cmf") / "lib"
    shutil.copytree(policy_place(SHIPPED) / library, scratch / library)
    shutil.copytree(folder, scratch, dirs_exist_ok=True)
    return scratch


def _regal(folder: Path) -> list[Finding]:
    """Regal's findings, with the project's configuration or, if it has none, that of a new project."""
    regal = _needed("regal", folder)
    arguments: list[str | Path] = ["lint", "--format", "json"]
    with importlib.resources.as_file(_DEFAULT_REGAL_CONFIG) as config:
        places = (folder.resolve(), *folder.resolve().parents)
        if not any((place / name).exists() for place in places for name in (".regal", ".regal.yaml")):
            arguments += ["--config-file", config]
        document = _document(run_program(regal, [*arguments, folder]).stdout, "regal")
    return [
        Finding(
            file=file_of(violation["location"]["file"], ()),
            message=violation["description"],
            code=f"regal.{violation['title']}",
            severity="error" if violation["level"] == "error" else "warning",
            line=violation["location"].get("row", 0),
            column=violation["location"].get("col", 0),
        )
        for violation in document.get("violations", [])
    ]


_DEFAULT_REGAL_CONFIG: Final = (
    importlib.resources.files("pipeline") / "templates" / "common" / "dot-regal" / "config.yaml"
)


def _wanted(requested: bool | None, name: str, folder: Path) -> bool:
    return find_program(name, folder) is not None if requested is None else requested


def _needed(name: str, folder: Path) -> str:
    program = find_program(name, folder)
    if program is None:
        why = f"--with-{name} needs the `{name}` binary, which is not on PATH"
        fail(f"{why}; install it or leave the option out", Exit.USAGE)
    return program


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError:
        fail(f"{name} printed no report; run it by hand to see why", Exit.EVALUATION)
    return document
