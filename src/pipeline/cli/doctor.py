"""`cmf doctor`: checks that everything a gateway or library user needs is present and works.

Each check reuses the code responsible: `cmf config check` for settings, `/readyz` for sessions, vetting for policies.
Imports are local to a check, so a missing package is a problem of that check and the others still run.
Spec: docs/spec/cli.md [CLI-78].
"""

from __future__ import annotations

import asyncio
import json
import platform
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from cmf.errors import CmfError
from pipeline.cli.options import OutputAs
from pipeline.decisions.display import counted, visible
from pipeline.decisions.errors import PipelineError, PolicyError, StoreError

if TYPE_CHECKING:
    from pipeline.audit.heads import Head, Signer
    from pipeline.gateway.config.settings import Settings
    from pipeline.policy.bundle_signature import Verification
    from pipeline.store.database import StoreCondition

DISTRIBUTION: Final = "cmf-pipeline"
LOW_SPACE: Final = 1024**3  # bytes free on the store's disk: below this, warn
OTLP_GRPC: Final = 4317
NO_SPACE: Final = 64 * 1024**2  # below this, writing records will soon fail, and every request is then refused
KEYS_SECONDS: Final = 5.0  # timeout of a connection to an issuer's keys
LONG_JOURNAL: Final = 256 * 1024**2
_SKEW_SECONDS: Final = 1.0
_ISO: Final = "%Y-%m-%dT%H:%M:%SZ"
_REINSTALL: Final = f"install it again: pip install --force-reinstall {DISTRIBUTION}"
DEFAULT = Path("cmf.yaml")


class Status(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line: what was checked, what was found, and what to do about a problem."""

    check: str
    status: Status = Status.OK
    message: str
    hint: str = ""
    code: str = ""


def _ok(check: str, message: str) -> CheckResult:
    return CheckResult(check=check, message=message)


def _warning(check: str, message: str, hint: str) -> CheckResult:
    return CheckResult(check=check, status=Status.WARNING, message=message, hint=hint)


def _problem(check: str, message: str, hint: str, code: str = "") -> CheckResult:
    return CheckResult(check=check, status=Status.PROBLEM, message=message, hint=hint, code=code)


def command(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The settings file; by default cmf.yaml, if it exists.")
    ] = None,
    upstreams: Annotated[
        bool, typer.Option("--upstreams", help="Connect to upstreams, MCP servers and issuers; nothing is sent.")
    ] = False,
    output: OutputAs = "text",
) -> None:
    """Check that everything needed is present and works, and say what to do if not.

    Changes nothing and does not run the policies' tests. The output is safe to paste: no secrets, no content.

    Exit codes: 0 no problem (there may be warnings), 1 a problem.
    """
    file = config if config is not None or not DEFAULT.exists() else DEFAULT
    results = [pasteable(result) for result in examined(file, upstreams=upstreams)]
    counts = {status: sum(result.status is status for result in results) for status in Status}
    if output == "json":
        checks = [asdict(result) for result in results]
        typer.echo(json.dumps({"ok": not counts[Status.PROBLEM], "checks": checks}, indent=1))
    else:
        for result in results:
            hint = f"; {result.hint}" if result.hint else ""
            code = f" [{result.code}]" if result.code else ""
            typer.echo(f"{result.check:<10} {result.status:<8} {result.message}{hint}{code}")
        problems, warnings = (counted(counts[status], status) for status in (Status.PROBLEM, Status.WARNING))
        typer.echo(f"{problems}, {warnings}")
    raise typer.Exit(int(counts[Status.PROBLEM] > 0))


_HOMES: Final = re.compile(r"/(?:home|Users)/[^/\s]+")
_ADDRESS: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:[^/@\s]*@)?(?P<place>[^?\s]*)(?:\?\S*)?")


def pasteable(result: CheckResult) -> CheckResult:
    """The same without what should not be pasted into an issue: home directories, and credentials in URLs."""

    def shown(text: str) -> str:
        home = str(Path.home())
        text = text.replace(home, "~") if len(home) > 1 else text
        return visible(_ADDRESS.sub(r"\g<scheme>\g<place>", _HOMES.sub("~", text)))

    return replace(result, message=shown(result.message), hint=shown(result.hint))


def examined(config: Path | None, *, upstreams: bool) -> Iterator[CheckResult]:
    """The result of each check, in order; `config` is the settings file, None if there is none."""
    yield from _safe("python", _python)
    yield from _safe("engine", _engine)
    yield from _safe("clock", _clock)
    if config is None:
        message = "no cmf.yaml here, so store, audit log and upstreams are not checked; give a file with -c"
        yield _ok("settings", message)
        own = (Path("policy"),) if Path("policy").is_dir() else None
        yield from _safe("policies", partial(_sets, own, "policy" if own else "shipped"))
        return
    known = _Known()
    yield from _safe("settings", lambda: _settings(config, known))
    if (settings := known.settings) is None:
        message = "not checked, and neither are policies, audit log and upstreams"
        yield _warning("store", message, "correct the settings first: they say where these are")
        return
    yield from _safe("policies", lambda: _policies(settings, known))
    yield from _safe("tools", lambda: _tools(settings))
    yield from storage_checks(settings)
    yield from remote_checks(settings, connects=upstreams)


def _safe(check: str, look: Callable[[], Iterable[CheckResult]]) -> Iterator[CheckResult]:
    """The results of a check; an exception becomes its problem."""
    try:
        yield from look()
    except (PipelineError, CmfError) as error:
        yield _refusal(check, error)
    except ImportError as error:
        yield _problem(check, f"an import failed: {error}", _REINSTALL)
    except OSError as error:
        why = f"the system reported: {error.strerror or type(error).__name__}"
        yield _problem(check, why, "check the file's permissions and its disk")


def _refusal(check: str, error: PipelineError | CmfError) -> CheckResult:
    place = getattr(error, "place", "") or error.path
    message = error.message.removesuffix(".") + (f" at {place}" if place else "")
    return _problem(check, message, error.hint, error.code)


# -- the program -------------------------------------------------------------------------------------------------------


def _python() -> Iterator[CheckResult]:
    """The interpreter, the machine, and whether the required distributions are installed."""
    try:
        own, needed = version(DISTRIBUTION), requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        own, needed = "not an installed distribution", []
    names = [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needed if "extra ==" not in line]
    if missing := [name for name in names if not _is_installed(name)]:
        yield _problem("python", f"not installed: {', '.join(missing)}", _REINSTALL)
        return
    machine = f"{platform.system()} {platform.machine()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield _ok("python", f"cmf {own}, {python}, {machine}, SQLite {sqlite3.sqlite_version}")


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


_PROBE: Final = 'package doctor\n\nimport rego.v1\n\nanswer := input.word in {"yes"}\n'


def _engine() -> Iterator[CheckResult]:
    """Whether the embedded engine decides correctly, compiled and interpreted."""
    from cmf import _native  # noqa: TID251 - only for its version
    from pipeline.decisions.engine import Decided
    from pipeline.engines.embedded import EmbeddedEngine

    name = "data.doctor.answer"
    engine = EmbeddedEngine([("doctor.rego", _PROBE)], {}, [name], check_every=1)
    views = [b'{"word":"yes"}', b'{"word":"no"}']
    answers = engine.evaluate([name, name], b"{}", views, timeout_seconds=1.0)
    if answers == [Decided(True), Decided(False)]:
        yield _ok("engine", f"embedded, {_native.ENGINE}: two probes decided, in both forms")
    else:
        yield _problem("engine", "the embedded engine decides wrongly", _REINSTALL, "engine.wrong")


def _clock() -> Iterator[CheckResult]:
    """Whether the clock is later than this program's own files."""
    now = _now()
    made = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    if (behind := (made - now).total_seconds()) > _SKEW_SECONDS:
        message = f"it is {now:{_ISO}}, {behind:.0f} seconds before this program was installed"
        yield _problem("clock", message, "set the clock: tokens and records depend on it")
        return
    yield _ok("clock", f"{now:{_ISO}}")


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - this checks the clock itself


# -- settings and policies ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Known:
    """Results that later checks use: the settings, why the gateway could not start, the state of its store."""

    settings: Settings | None = None
    refused: PolicyError | None = None
    store: StoreCondition | None = None


def _settings(file: Path, known: _Known) -> Iterator[CheckResult]:
    """Whether the gateway could start with them; a problem of its policies is reported there."""
    from pipeline.cli.config import check_begins, served
    from pipeline.gateway.config.config_file import load
    from pipeline.gateway.http.server import allow_files

    known.settings = settings = load(file).settings
    allow_files(settings.limits)
    try:
        check_begins(settings)
    except PolicyError as error:
        known.refused = error
    yield _ok("settings", f"{file.absolute()}: {served(settings)}")


def _policies(settings: Settings, known: _Known) -> Iterator[CheckResult]:
    """Each policy set in use, loaded and probed; its tests are not run."""
    from pipeline.gateway.service import judged_by, signers

    signed_by, results = signers(settings), list[CheckResult]()
    for named, judged in judged_by(settings, "policies").items():
        results += _safe("policies", partial(_sets, named, ", ".join(judged), signed_by))
    yield from results
    if known.refused is not None and all(result.status is Status.OK for result in results):
        yield _refusal("policies", known.refused)  # the sets that the review site compares with


def _tools(settings: Settings) -> Iterator[CheckResult]:
    """What is known of tools: how many have a profile, and what becomes of the others."""
    from pipeline.gateway.service import judged_by
    from pipeline.provenance.profiles import Profiles

    modes = judged_by(settings, "inference")
    shown = "; ".join(f"{mode} for {', '.join(judged)}" for mode, judged in modes.items())
    described = counted(len(Profiles.load(*settings.profiles)), "profile")
    message = f"{described}; what they leave out is inferred from definitions: {shown}"
    if "off" in modes and not settings.profiles:
        hint = "set `inference: enforce`, or describe the tools in `profiles`"
        yield _warning("tools", f"nothing is known of the tools of {', '.join(modes['off'])}", hint)
    else:
        yield _ok("tools", message)


def _sets(named: tuple[Path, ...] | None, what: str, signed_by: Verification | None = None) -> Iterator[CheckResult]:
    from pipeline.run.assembly import load_policies
    from pipeline.run.vetting import probe

    policies = load_policies(None if named is None else list(named), verification=signed_by)
    probes = probe(policies)
    message = f"{what}: {counted(len(policies.rules), 'rule')}, revision {policies.revision[:12]}"
    yield _ok("policies", f"{message}, {probes} synthetic views decided; tests not run (cmf test)")


# -- storage -----------------------------------------------------------------------------------------------------------


def storage_checks(settings: Settings) -> Iterator[CheckResult]:
    """The checks of the store, of a separate session store, and of the audit log."""
    known = _Known()
    yield from _safe("store", lambda: _store(settings.store, "store", known))
    if (shared := settings.sessions.store) is not None:
        yield from _safe("sessions", lambda: _sessions(shared))
    yield from _safe("audit", lambda: _audit(settings, known))


def _store(place: str | Path, setting: str, known: _Known) -> Iterator[CheckResult]:
    """Whether the store can be read and written, has this version's schema, and has disk space."""
    from pipeline.cli.config import check_store
    from pipeline.store.database import condition_of, disk_space_of
    from pipeline.store.engine import SCHEMA, check_can_write, file_of

    check_store(place, setting)
    file, room = file_of(place), disk_space_of(place)
    database = "a PostgreSQL server" if file is None else str(file)
    if file is not None and not file.exists():
        yield _ok(setting, f"{database}: does not exist yet; the gateway creates it when it starts")
    else:
        try:
            known.store = condition = condition_of(place)
        except StoreError as error:
            if file is not None or error.code != "store.none":
                raise
            message = f"{database}: has no tables of ours yet; the gateway creates them when it starts"
            yield _ok(setting, message)
            return
        if not condition.is_current:
            message = f"the store has schema {condition.schema}, this version knows {SCHEMA}"
            hint = "install the version that wrote it, or begin a new store"
            yield _problem(setting, message, hint, "store.other-schema")
            return
        check_can_write(place)  # last: unlike reading alone, it leaves none of SQLite's files behind
        sizes = "" if room is None else f", {_size(room.file)} and a journal of {_size(room.journal)}"
        free = "" if room is None else f", {_size(room.free)} free"
        yield _ok(setting, f"{database}: can be written, schema {condition.schema}{sizes}{free}")
    if room is not None and room.free < LOW_SPACE:
        hint = "free disk space: on a full disk nothing is recorded, and every request is refused"
        report = _problem if room.free < NO_SPACE else _warning
        yield report(setting, f"its disk has {_size(room.free)} free", hint)
    if room is not None and room.journal > LONG_JOURNAL:
        message = f"its journal ({file}-wal) has {_size(room.journal)}"
        hint = "a reader never finishes: look for a process that has had the store open for long"
        yield _warning(setting, message, hint)


def _size(count: int) -> str:
    """Bytes in a readable unit."""
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count} {unit}"
        count //= 1_000
    return f"{count} GB"


def _sessions(place: str) -> Iterator[CheckResult]:
    """Whether a separate session store can be read."""
    from pipeline.gateway.operations.operational_records import Readiness
    from pipeline.run.assembly import REDIS, open_sessions

    if not place.startswith(REDIS):
        yield from _store(place, "sessions", _Known())
        return
    with open_sessions(place, made=False) as sessions:
        Readiness(sessions, None).check()
    yield _ok("sessions", "the Redis server answers")


def _audit(settings: Settings, known: _Known) -> Iterator[CheckResult]:
    """Whether records can be signed, which key signed the newest, and whether the clock is behind it."""
    from pipeline.audit.heads import Signer
    from pipeline.cli.config import check_audit
    from pipeline.store.database import key_beside
    from pipeline.store.engine import file_of

    check_audit(settings.audit)
    place = settings.audit.key_file or key_beside(str(file_of(settings.store)))
    signer = Signer.at(place) if place.exists() else None
    if signer is not None and place.stat().st_mode & 0o077:
        yield _warning("audit", f"the key at {place} can be read by others than its owner", f"chmod 600 {place}")
    if known.store is not None and known.store.newest is not None:
        yield from _newest(known.store.newest, known.store.head, signer)
        return
    key = f"key {signer.public_key.id}" if signer is not None else "no key yet; it is created with the first record"
    yield _ok("audit", f"{key}; no record was read")


def _newest(newest: int, head: Head | None, signer: Signer | None) -> Iterator[CheckResult]:
    from pipeline.decisions.timestamps import iso, micros

    verify = "`cmf audit verify STORE` reports what is wrong"
    key = "no key" if signer is None else f"key {signer.public_key.id}"
    if head is None:
        message = f"{key}; the newest record, of {iso(newest)}, is not covered by a head"
        yield _warning("audit", message, verify)
    elif signer is None or head.key != signer.public_key.id:
        message = f"{key}; the newest head, of {iso(head.at)}, is signed with key {head.key}"
        yield _warning("audit", message, "restore that key, or keep its public key: verifying takes both")
    elif not signer.public_key.signed(head):
        message = f"the newest head, of {iso(head.at)}, has no valid signature of {key}"
        yield _problem("audit", message, verify)
    else:
        records = counted(head.size, "record")
        message = f"{key}; newest head of {iso(head.at)}, over {records}, is signed by it (all: cmf audit verify)"
        yield _ok("audit", message)
    if (behind := (newest - micros(_now())) / 1_000_000) > _SKEW_SECONDS:
        message = f"the clock is {behind:.0f} seconds behind the newest record"
        yield _problem("clock", message, "set the clock: records out of order prove less")


# -- remote services ---------------------------------------------------------------------------------------------------


def remote_checks(settings: Settings, *, connects: bool) -> Iterator[CheckResult]:
    """Whether each upstream, MCP server and issuer can be connected to, if requested; nothing is sent."""
    remote = {name: upstream for name, upstream in settings.upstreams.items() if upstream.base_url}
    addresses = {name: (str(upstream.base_url), upstream.connect_seconds) for name, upstream in remote.items()}
    addresses |= {f"mcp {name}": (server.url, server.connect_seconds) for name, server in settings.mcp.items()}
    yield from _exposures(settings, {name: url for name, (url, _) in addresses.items()})
    issuers = {f"keys of issuer {issuer.name}": issuer.keys.url for issuer in settings.issuers}
    addresses |= {name: (url, KEYS_SECONDS) for name, url in issuers.items() if url}
    if not addresses:
        yield _ok("upstreams", "none configured")
    elif not connects:
        message = f"{', '.join(addresses)}: connections not tested; --upstreams tests them without sending anything"
        yield _ok("upstreams", message)
    else:
        yield from asyncio.run(_connected(addresses))


def _exposures(settings: Settings, urls: Mapping[str, str]) -> Iterator[CheckResult]:
    """Warnings of addresses to which content would be sent unencrypted, and telemetry in the wrong protocol."""
    from pipeline.gateway.upstreams.upstream import is_plain_over_networks

    for name in (name for name, url in urls.items() if is_plain_over_networks(url)):
        message = f"{name}: http sends keys and content unencrypted"
        yield _warning("upstreams", message, "write https:// in its address")
    endpoint = settings.telemetry.endpoint if settings.telemetry else None
    if endpoint is not None and urlsplit(endpoint).port == OTLP_GRPC:
        message = f"it is sent over HTTP, and {OTLP_GRPC} is the usual port for gRPC"
        yield _warning("telemetry", message, "HTTP is usually at 4318")


async def _connected(addresses: dict[str, tuple[str, float]]) -> list[CheckResult]:
    from pipeline.gateway.upstreams.upstream import check_connection

    connections = await asyncio.gather(*(check_connection(url, seconds=seconds) for url, seconds in addresses.values()))
    found = ((f"{name}: {one.message}", one.hint) for name, one in zip(addresses, connections, strict=True))
    return [_problem("upstreams", message, hint) if hint else _ok("upstreams", message) for message, hint in found]
