"""`cmf check`: everything that is wrong with the policies of a project, at once. Spec: docs/spec/cli.md [CLI-32]."""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import typer

from pipeline.authoring.check import Job, check, is_error
from pipeline.authoring.schemas import schema_of
from pipeline.cli.binaries import found, run_program
from pipeline.cli.findings import (
    Finding,
    JUnitCase,
    as_json,
    write_github,
    write_json,
    write_junit,
    write_sarif,
    write_text,
)
from pipeline.cli.options import FindingsAs, PolicyOption
from pipeline.cli.policy_places import file_of, policy_directory
from pipeline.cli.reading import Exit, fail
from pipeline.cli.test import case_files
from pipeline.decisions.display import counted
from pipeline.policy import policy_set
from pipeline.policy.loading import below
from pipeline.policy.shipped import PACKAGE


class BuiltinErrors(StrEnum):
    """What a failing builtin does."""

    STRICT = "strict"
    UNDEFINED = "undefined"


Project = Annotated[Path, typer.Argument(metavar="DIR", help="A project, or a policy directory.")]


def command(
    directory: Project = Path(),
    policies: PolicyOption = None,
    output: Annotated[FindingsAs, typer.Option("--format", help="The output format.")] = FindingsAs.TEXT,
    entrypoint: Annotated[
        str | None, typer.Option("--entrypoint", help="data.<package>.<rule> of your own Rego.")
    ] = None,
    builtin_errors: Annotated[
        BuiltinErrors, typer.Option("--builtin-errors", help="How failing builtins are handled when the set is loaded.")
    ] = BuiltinErrors.STRICT,
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
    places = [*(policies or [policy_directory(directory)])]
    own = [place for place in places if place != policy_set.shipped()]
    for folder in own:
        if not folder.is_dir():
            fail(f"{folder}: no such directory; give another one", Exit.USAGE)
    if not any(path.suffix == ".rego" for folder in places for path in below(folder)):
        places = [policy_set.shipped(), *places]
    job = Job(
        places=places,
        own=own,
        cases=case_files(directory),
        today=datetime.now(UTC).date(),  # noqa: TID251 - a command may read the clock
        entrypoint=entrypoint,
        builtin_errors=cast("Literal['strict', 'undefined']", builtin_errors),
    )
    report = check(job)
    listed = [
        Finding(
            file=file_of(one.place.module, job.places),
            message=one.message,
            code=one.code,
            severity="error" if is_error(one) else "warning",
            line=one.place.line,
            column=one.place.column,
            hint=one.hint,
        )
        for one in report.findings
    ]
    if report.compiles:
        others = [one for folder in own if _wanted(with_opa, "opa", folder) for one in _opa(folder)]
        # OPA reports an unknown field as a type error too, at the same place: drop the duplicate.
        reported = {(one.file, one.line) for one in listed if one.code == "policy.unknown-field"}
        listed += [one for one in others if one.code != _TYPE_ERROR or (one.file, one.line) not in reported]
        regal = [one for folder in own if _wanted(with_regal, "regal", folder) for one in _regal(folder)]
        listed += regal if with_regal else [dataclasses.replace(one, severity="warning") for one in regal]
    shown = [one for one in listed if one.code not in (ignore or ())]
    _write(shown, output, fails_on_warnings=fail_on_warn)
    if not report.compiles:
        raise typer.Exit(int(Exit.POLICY))
    failed = any(one.severity == "error" or fail_on_warn for one in shown)
    raise typer.Exit(int(Exit.REFUSED if failed else Exit.OK))


def _write(findings: Sequence[Finding], output: FindingsAs, *, fails_on_warnings: bool) -> None:
    match output:
        case FindingsAs.TEXT:
            write_text(findings)
            errors = sum(one.severity == "error" for one in findings)
            typer.echo(f"{counted(errors, 'error')}, {counted(len(findings) - errors, 'warning')}")
        case FindingsAs.JSON:
            write_json({"findings": as_json(findings)})
        case FindingsAs.JUNIT:
            cases = [_junit_case(one, fails=one.severity == "error" or fails_on_warnings) for one in findings]
            write_junit("cmf check", cases or [JUnitCase(suite="cmf check", name="clean")])
        case FindingsAs.GITHUB:
            write_github(findings)
        case _:
            write_sarif(findings)


def _junit_case(finding: Finding, *, fails: bool) -> JUnitCase:
    text = f"{finding.place}: {finding.text}"
    return JUnitCase(
        suite=finding.file,
        name=finding.code,
        failure=text if fails else None,
        skipped=None if fails else text,
    )


_TYPE_ERROR: Final = "opa.rego-type-error"


# -- third-party programs ----------------------------------------------------------------------------------------------


def _opa(folder: Path) -> list[Finding]:
    """The findings of OPA's compiler in strict mode, with the schema of our input."""
    opa = _needed("opa", folder)
    with tempfile.TemporaryDirectory(prefix="cmf-") as scratch:
        schema = Path(scratch) / "schema.json"
        schema.write_text(json.dumps(schema_of("view")), encoding="utf-8")
        looked_at = _with_library(folder, Path(scratch) / "policy")
        done = run_program(opa, ["check", "--strict", "--bundle", "--format", "json", "--schema", schema, looked_at])
    errors = _document(done.stdout or done.stderr, "opa").get("errors", []) if done.returncode else []
    return [
        Finding(
            file=_here(str(folder / Path(place["file"]).relative_to(looked_at))) if "file" in place else str(folder),
            message=one.get("message", "opa check failed"),
            code=f"opa.{one.get('code', 'error').replace('_', '-')}",
            line=place.get("row", 0),
            column=place.get("col", 0),
        )
        for one, place in ((one, one.get("location", {})) for one in errors)
    ]


def _with_library(folder: Path, scratch: Path) -> Path:
    """The policies together with the library modules they import, which OPA needs; a copy if there are any."""
    modules = (path for path in below(folder) if path.suffix == ".rego")
    if not any(PACKAGE in path.read_text(encoding="utf-8", errors="replace") for path in modules):
        return folder
    library = Path("cmf") / "lib"
    shutil.copytree(policy_set.shipped() / library, scratch / library)
    shutil.copytree(folder, scratch, dirs_exist_ok=True)
    return scratch


def _regal(folder: Path) -> list[Finding]:
    """Regal's findings, with the project's configuration or, if it has none, that of a new project."""
    regal = _needed("regal", folder)
    arguments: list[str | Path] = ["lint", "--format", "json"]
    with importlib.resources.as_file(_DEFAULT_REGAL_CONFIG) as config:
        if not any((above / name).exists() for above in _with_parents(folder) for name in (".regal", ".regal.yaml")):
            arguments += ["--config-file", config]
        document = _document(run_program(regal, [*arguments, folder]).stdout, "regal")
    return [
        Finding(
            file=_here(one["location"]["file"]),
            message=one["description"],
            code=f"regal.{one['title']}",
            severity="error" if one["level"] == "error" else "warning",
            line=one["location"].get("row", 0),
            column=one["location"].get("col", 0),
        )
        for one in document.get("violations", [])
    ]


_DEFAULT_REGAL_CONFIG: Final = (
    importlib.resources.files("pipeline") / "templates" / "common" / "dot-regal" / "config.yaml"
)


def _with_parents(folder: Path) -> list[Path]:
    return [folder.resolve(), *folder.resolve().parents]


def _wanted(requested: bool | None, name: str, folder: Path) -> bool:
    return found(name, folder) is not None if requested is None else requested


def _needed(name: str, folder: Path) -> str:
    program = found(name, folder)
    if program is None:
        fail(
            f"--with-{name} needs the `{name}` binary, which is not on PATH; install it or leave the option out",
            Exit.USAGE,
        )
    return program


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError:
        fail(f"{name} printed no report; run it by hand to see why", Exit.EVALUATION)
    return document


def _here(file: str) -> str:
    return file_of(file, ())
