"""Findings of a command in the formats that people and CI systems read. Spec: docs/spec/cli.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import PurePath
from typing import Any, Final, Literal
from xml.sax.saxutils import escape, quoteattr

import typer

from pipeline.cli.rendering import write_json
from pipeline.decisions.display import visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem in a file: lines and columns count from 1; 0 is the whole file."""

    file: str
    message: str
    code: str
    severity: Literal["error", "warning"] = "error"
    line: int = 0
    column: int = 0
    hint: str = ""

    @property
    def place(self) -> str:
        """`file:line:column`, as far as known."""
        shown = [self.file, *(str(number) for number in (self.line, self.column) if number)]
        return ":".join(shown)

    @property
    def text(self) -> str:
        """The message and the hint."""
        return self.message + (f"; {self.hint}" if self.hint else "")


def write_report(
    output: Literal["junit", "github", "sarif"], name: str, findings: Sequence[Finding], cases: Sequence[JUnitCase]
) -> None:
    """Write what a CI system reads: the findings, or the test cases that stand for them."""
    match output:
        case "junit":
            _write_junit(name, cases)
        case "github":
            for finding in findings:
                where = f"file={_property(finding.file)}"
                if finding.line:
                    where += f",line={finding.line}" + (f",col={finding.column}" if finding.column else "")
                typer.echo(f"::{finding.severity} {where},title={_property(finding.code)}::{_data(finding.text)}")
        case "sarif":  # 2.1.0, which code hosts show beside the lines
            codes = sorted({finding.code for finding in findings})
            driver = {"name": "cmf", "version": version("cmf-pipeline"), "rules": [{"id": code} for code in codes]}
            run = {"tool": {"driver": driver}, "results": [_result(finding) for finding in findings]}
            write_json({"$schema": _SARIF, "version": "2.1.0", "runs": [run]})


def _data(text: str) -> str:
    return visible_lines(text).replace("%", "%25").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


@dataclass(frozen=True, slots=True, kw_only=True)
class JUnitCase:
    """One test case of a JUnit report."""

    suite: str
    name: str
    failure: str | None = None
    skipped: str | None = None
    seconds: float = 0.0


def _write_junit(name: str, cases: Sequence[JUnitCase]) -> None:
    """Write a JUnit report, which most CI systems read."""
    failures = sum(case.failure is not None for case in cases)
    skipped = sum(case.skipped is not None for case in cases)
    head = f"name={_attribute(name)} tests={_attribute(len(cases))} failures={_attribute(failures)}"
    typer.echo('<?xml version="1.0" encoding="UTF-8"?>')
    typer.echo(f"<testsuites {head}>")
    typer.echo(f'<testsuite {head} skipped={_attribute(skipped)} errors="0">')
    for case in cases:
        spelled = f"classname={_attribute(case.suite)} name={_attribute(case.name)}"
        outcome = "" if case.skipped is None else f"<skipped message={_attribute(case.skipped)}/>"
        if case.failure is not None:
            first = _attribute(case.failure.partition("\n")[0])
            outcome = f"<failure message={first}>{escape(visible_lines(case.failure))}</failure>"
        typer.echo(f'<testcase {spelled} time="{case.seconds:.3f}">{outcome}</testcase>')
    typer.echo("</testsuite>\n</testsuites>")


def _attribute(item: object) -> str:
    return quoteattr(visible(str(item)))


def visible_lines(text: str) -> str:
    """`visible` applied line by line."""
    return "\n".join(visible(line) for line in text.split("\n"))


_SARIF: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def _result(finding: Finding) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": PurePath(finding.file).as_posix()}}
    if finding.line:
        place["region"] = {"startLine": finding.line} | ({"startColumn": finding.column} if finding.column else {})
    return {
        "ruleId": finding.code,
        "level": finding.severity,
        "message": {"text": finding.text},
        "locations": [{"physicalLocation": place}],
    }
