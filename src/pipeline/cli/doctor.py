"""`cmf doctor`: whether all that a gateway or a library needs is there and works. Spec: docs/spec/cli.md [CLI-78].

Each check asks whoever knows: what `cmf config check` asks of settings, `/readyz` of sessions, the vetting of policies.
What a check needs is imported within it: what is missing is then that check's problem, and the others are still made.
"""

from __future__ import annotations

import asyncio
import json
import platform
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from cmf.errors import CmfError
from pipeline.display import counted, visible
from pipeline.errors import PipelineError, PolicyError

if TYPE_CHECKING:
    from pipeline.audit.heads import Head, Signer
    from pipeline.gateway.settings import Settings
    from pipeline.policies.bundle_signature import Verification
    from pipeline.store.condition import Condition

DISTRIBUTION: Final = "cmf-pipeline"
LITTLE_ROOM: Final = 1024**3  # bytes left on the store's disk: below, whoever runs it wants to know
NO_ROOM: Final = 64 * 1024**2  # below, records soon cannot be kept, and every request is refused
KEYS_SECONDS: Final = 5.0  # until a connection to an issuer's keys is there
LONG_JOURNAL: Final = 256 * 1024**2
_SKEW_SECONDS: Final = 1.0
_AGAIN: Final = f"install it again: pip install --force-reinstall {DISTRIBUTION}"


class Status(StrEnum):
    """What a check came to."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One line: what was looked at, what was found, and what to do about it where something is."""

    check: str
    status: Status = Status.OK
    said: str
    hint: str = ""
    code: str = ""


def run(config: Path | None, *, upstreams: bool, as_json: bool) -> None:
    """Make all checks, print what they came to, and leave with 1 if one of them found a problem."""
    found = [pasteable(one) for one in examined(config, upstreams=upstreams)]
    counts = {status: sum(one.status is status for one in found) for status in Status}
    if as_json:
        typer.echo(json.dumps({"ok": not counts[Status.PROBLEM], "checks": [asdict(one) for one in found]}, indent=1))
    else:
        for one in found:
            typer.echo(_line(one))
        problems, warnings = (counted(counts[status], status) for status in (Status.PROBLEM, Status.WARNING))
        typer.echo(f"{problems}, {warnings}")
    raise typer.Exit(int(counts[Status.PROBLEM] > 0))


def _line(one: Checked) -> str:
    hint = f"; {one.hint}" if one.hint else ""
    code = f" [{one.code}]" if one.code else ""
    return f"{one.check:<10} {one.status:<8} {one.said}{hint}{code}"


_HOMES: Final = re.compile(r"/(?:home|Users)/[^/\s]+")
_ADDRESS: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?:[^/@\s]*@)?(?P<place>[^?\s]*)(?:\?\S*)?")


def pasteable(one: Checked) -> Checked:
    """The same without what should not stand in an issue: homes, and what addresses say of who logs in, and how."""

    def shown(text: str) -> str:
        home = str(Path.home())
        text = text.replace(home, "~") if len(home) > 1 else text
        return visible(_ADDRESS.sub(r"\g<scheme>\g<place>", _HOMES.sub("~", text)))

    return Checked(check=one.check, status=one.status, said=shown(one.said), hint=shown(one.hint), code=one.code)


def examined(config: Path | None, *, upstreams: bool) -> Iterator[Checked]:
    """What each check came to, in order; `config` is the settings' file, None where there is none."""
    yield from _safe("python", _python)
    yield from _safe("engine", _engine)
    yield from _safe("clock", _clock)
    if config is None:
        said = "there is no cmf.yaml here, so no store, audit log or upstreams; -c names another file"
        yield Checked(check="settings", said=said)
        yield from _safe("policies", _own_policies)
        return
    told = _Told()
    yield from _safe("settings", lambda: _settings(config, told))
    if (settings := told.settings) is None:
        said = "not looked at, and neither are policies, audit log and upstreams"
        yield Checked(
            check="store", status=Status.WARNING, said=said, hint="settings that can be used say where they are"
        )
        return
    yield from _safe("policies", lambda: _policies(settings, told))
    yield from kept(settings)
    yield from asked(settings, connects=upstreams)


def _safe(check: str, look: Callable[[], Iterable[Checked]]) -> Iterator[Checked]:
    """What a check found; what it raised is its problem."""
    try:
        yield from look()
    except (PipelineError, CmfError) as error:
        yield _problem(check, error)
    except ImportError as error:
        yield Checked(check=check, status=Status.PROBLEM, said=f"an import failed: {error}", hint=_AGAIN)
    except OSError as error:
        hint = "look at the file system, and at whose it is"
        why = f"the system reported: {error.strerror or type(error).__name__}"
        yield Checked(check=check, status=Status.PROBLEM, said=why, hint=hint)


def _problem(check: str, error: PipelineError | CmfError) -> Checked:
    place = getattr(error, "place", "") or error.path
    said = error.message.removesuffix(".") + (f" at {place}" if place else "")
    return Checked(check=check, status=Status.PROBLEM, said=said, hint=error.hint, code=error.code)


# -- the program -------------------------------------------------------------------------------------------------------


def _python() -> Iterator[Checked]:
    """The interpreter, the machine, and whether the distributions that are needed are there."""
    try:
        own, needed = version(DISTRIBUTION), requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        own, needed = "of no distribution", []
    names = [re.split(r"[^A-Za-z0-9._-]", one, maxsplit=1)[0] for one in needed if "extra ==" not in one]
    missing = [name for name in names if not _is_there(name)]
    if missing:
        said = f"not installed: {', '.join(missing)}"
        yield Checked(check="python", status=Status.PROBLEM, said=said, hint=_AGAIN)
        return
    machine = f"{platform.system()} {platform.machine()}"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Checked(check="python", said=f"cmf {own}, {python}, {machine}, SQLite {sqlite3.sqlite_version}")


def _is_there(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


_PROBE: Final = 'package doctor\n\nimport rego.v1\n\nanswer := input.word in {"yes"}\n'


def _engine() -> Iterator[Checked]:
    """Whether the engine in this process decides as it should, in both of its forms."""
    from cmf import _native  # noqa: TID251 - its own version is all that is asked
    from pipeline.engines.base import Decided
    from pipeline.engines.embedded import EmbeddedEngine

    name = "data.doctor.answer"
    engine = EmbeddedEngine([("doctor.rego", _PROBE)], {}, [name], check_every=1)
    views = [b'{"word":"yes"}', b'{"word":"no"}']
    answers = engine.evaluate([name, name], b"{}", views, timeout_seconds=1.0)
    if answers != [Decided(True), Decided(False)]:
        said = "the embedded engine does not decide as it should"
        yield Checked(check="engine", status=Status.PROBLEM, said=said, hint=_AGAIN, code="engine.wrong")
        return
    yield Checked(check="engine", said=f"embedded, {_native.ENGINE}: two probes decided, in both forms")


def _clock() -> Iterator[Checked]:
    """Whether the clock is later than what was there before: this program's own files."""
    now = _now()
    made = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    if (behind := (made - now).total_seconds()) > _SKEW_SECONDS:
        said = f"it is {_iso(now)}, {behind:.0f} seconds before this program was installed"
        yield Checked(check="clock", status=Status.PROBLEM, said=said, hint="set the clock: tokens and records need it")
        return
    yield Checked(check="clock", said=_iso(now))


def _now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - it is the clock itself that is looked at


def _iso(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# -- what is told to it ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Told:
    """What later checks know from earlier ones: settings, why the gateway could not begin, how its store does."""

    settings: Settings | None = None
    refused: PolicyError | None = None
    store: Condition | None = None


def _settings(file: Path, told: _Told) -> Iterator[Checked]:
    """Whether the gateway could begin with them; what is wrong with its policies is said of those."""
    from pipeline.cli.serve import check_begins, served
    from pipeline.gateway.config_file import load
    from pipeline.gateway.server import allow_files

    told.settings = settings = load(file).settings
    allow_files(settings.limits)
    try:
        check_begins(settings)
    except PolicyError as error:
        told.refused = error
    yield Checked(check="settings", said=f"{file.absolute()}: {served(settings)}")


def _policies(settings: Settings, told: _Told) -> Iterator[Checked]:
    """Each set that judges here, loaded and asked; its own tests are not run."""
    from pipeline.gateway.service import policy_sets, signers

    signed_by, found = signers(settings), list[Checked]()
    for named, judged in policy_sets(settings).items():
        found += _safe("policies", partial(_sets, named, ", ".join(judged), signed_by))
    yield from found
    if told.refused is not None and all(one.status is Status.OK for one in found):
        yield _problem("policies", told.refused)  # of those that the review site compares with


def _own_policies() -> Iterator[Checked]:
    """Those of the project that is here, or the shipped ones."""
    here = Path("policy")
    yield from _sets((here,), "policy") if here.is_dir() else _sets(None, "shipped")


def _sets(named: tuple[Path, ...] | None, what: str, signed_by: Verification | None = None) -> Iterator[Checked]:
    from pipeline.assembly import load_policies
    from pipeline.checks.vetting import probe

    policies = load_policies(None if named is None else list(named), verification=signed_by)
    probes = probe(policies)
    said = f"{what}: {counted(len(policies.rules), 'rule')}, revision {policies.revision[:12]}"
    yield Checked(check="policies", said=f"{said}, {probes} made-up views decided; tests not run (cmf test)")


# -- what it keeps -----------------------------------------------------------------------------------------------------


def kept(settings: Settings) -> Iterator[Checked]:
    """What was found of the store, of sessions that have their own, and of the audit log."""
    told = _Told()
    yield from _safe("store", lambda: _store(settings.store, "store", told))
    if (shared := settings.sessions.store) is not None:
        yield from _safe("sessions", lambda: _sessions(shared))
    yield from _safe("audit", lambda: _audit(settings, told))


def _store(place: str | Path, setting: str, told: _Told) -> Iterator[Checked]:
    """Whether the store can be read and written, is of this version, and has room."""
    from pipeline.cli.serve import check_store
    from pipeline.store.condition import condition_of, disk_space_of
    from pipeline.store.engine import SCHEMA, check_can_write, file_of

    check_store(place, setting)
    file, room = file_of(place), disk_space_of(place)
    kept = "a PostgreSQL server" if file is None else str(file)
    if file is not None and not file.exists():
        yield Checked(check=setting, said=f"{kept}: none yet, it is made when the gateway starts")
    else:
        told.store = found = condition_of(place)
        if not found.is_current:
            yield _other_schema(setting, found, SCHEMA)
            return
        check_can_write(place)  # last: it leaves no file of SQLite's behind, as who only reads does
        sizes = "" if room is None else f", {_size(room.file)} and a journal of {_size(room.journal)}"
        free = "" if room is None else f", {_size(room.free)} free"
        yield Checked(check=setting, said=f"{kept}: can be written, schema {found.schema}{sizes}{free}")
    if room is not None and room.free < LITTLE_ROOM:
        status = Status.PROBLEM if room.free < NO_ROOM else Status.WARNING
        hint = "make room: on a full disk nothing is recorded, and every request is refused"
        yield Checked(check=setting, status=status, said=f"its disk has {_size(room.free)} left", hint=hint)
    if room is not None and room.journal > LONG_JOURNAL:
        said = f"its journal ({file}-wal) has {_size(room.journal)}"
        hint = "somebody reads without end: look for a process that has had the store open for long"
        yield Checked(check=setting, status=Status.WARNING, said=said, hint=hint)


def _other_schema(setting: str, found: Condition, known: str) -> Checked:
    both = f"the store has schema {found.schema}, this version knows {known}"
    if found.schema > known:
        hint = "install the version that wrote it, or go back to a copy from before"
        return Checked(check=setting, status=Status.PROBLEM, said=both, hint=hint, code="store.newer-schema")
    hint = "the gateway brings it up to date when it starts; copy it first"
    return Checked(check=setting, status=Status.WARNING, said=both, hint=hint, code="store.other-schema")


def _size(count: int) -> str:
    """Bytes as people say them."""
    for unit in ("B", "kB", "MB"):
        if count < 1_000:
            return f"{count} {unit}"
        count //= 1_000
    return f"{count} GB"


def _sessions(place: str) -> Iterator[Checked]:
    """Whether the sessions that have a store of their own can be read."""
    from pipeline.assembly import REDIS, open_sessions
    from pipeline.gateway.readiness import Readiness

    if not place.startswith(REDIS):
        yield from _store(place, "sessions", _Told())
        return
    with open_sessions(place, made=False) as sessions:
        Readiness(sessions, None).check()
    yield Checked(check="sessions", said="the Redis server answers")


def _audit(settings: Settings, told: _Told) -> Iterator[Checked]:
    """Whether records can be signed, who signed the newest, and whether the clock is behind it."""
    from pipeline.audit.heads import Signer
    from pipeline.cli.serve import check_audit
    from pipeline.store.database import key_beside
    from pipeline.store.engine import file_of

    check_audit(settings.audit)
    place = settings.audit.key_file or key_beside(str(file_of(settings.store)))
    signer = Signer.at(place) if place.exists() else None
    if signer is not None and place.stat().st_mode & 0o077:
        said = f"others than its owner may read the key at {place}"
        yield Checked(check="audit", status=Status.WARNING, said=said, hint=f"chmod 600 {place}")
    if told.store is not None and told.store.newest is not None:
        yield from _newest(told.store.newest, told.store.head, signer)
        return
    key = f"key {signer.public_key.id}" if signer is not None else "no key yet, it is made with the first record"
    yield Checked(check="audit", said=f"{key}; no record was read")


def _newest(newest: int, head: Head | None, signer: Signer | None) -> Iterator[Checked]:
    from pipeline.moments import iso, micros

    verify = "cmf audit verify STORE says what is wrong"
    key = "no key" if signer is None else f"key {signer.public_key.id}"
    if head is None:
        said = f"{key}; the newest record is of {iso(newest)}, and no head vouches for it"
        yield Checked(check="audit", status=Status.WARNING, said=said, hint=verify)
    elif signer is None or head.key != signer.public_key.id:
        said = f"{key}; the newest head, of {iso(head.at)}, is under key {head.key}"
        hint = "put that key back, or keep its public half: verifying takes both"
        yield Checked(check="audit", status=Status.WARNING, said=said, hint=hint)
    elif not signer.public_key.signed(head):
        said = f"the newest head, of {iso(head.at)}, does not have the signature of {key}"
        yield Checked(check="audit", status=Status.PROBLEM, said=said, hint=verify)
    else:
        records = counted(head.size, "record")
        said = f"{key}; newest head of {iso(head.at)}, over {records}, is signed by it (all: cmf audit verify)"
        yield Checked(check="audit", said=said)
    if (behind := (newest - micros(_now())) / 1_000_000) > _SKEW_SECONDS:
        said = f"the clock is {behind:.0f} seconds behind the newest record"
        hint = "set the clock: records in another order than they came prove less"
        yield Checked(check="clock", status=Status.PROBLEM, said=said, hint=hint)


# -- whom it asks ------------------------------------------------------------------------------------------------------


def asked(settings: Settings, *, connects: bool) -> Iterator[Checked]:
    """Whether each upstream, MCP server and issuer can be connected to, if that is wanted; nothing is sent to any."""
    told = {name: (str(one.base_url), one.connect_seconds) for name, one in settings.upstreams.items() if one.base_url}
    told |= {f"mcp {name}": (one.url, one.connect_seconds) for name, one in settings.mcp.items()}
    told |= {f"keys of issuer {one.name}": (one.keys.url, KEYS_SECONDS) for one in settings.issuers if one.keys.url}
    if not told:
        yield Checked(check="upstreams", said="none that is elsewhere")
    elif not connects:
        said = f"{', '.join(told)}: not connected to; --upstreams does, and sends nothing"
        yield Checked(check="upstreams", said=said)
    else:
        yield from asyncio.run(_connected(told))


async def _connected(told: dict[str, tuple[str, float]]) -> list[Checked]:
    from pipeline.gateway.reaching import reached

    found = await asyncio.gather(*(reached(url, seconds=seconds) for url, seconds in told.values()))
    return [
        Checked(
            check="upstreams",
            status=Status.PROBLEM if one.hint else Status.OK,
            said=f"{name}: {one.said}",
            hint=one.hint,
        )
        for name, one in zip(told, found, strict=True)
    ]


__all__ = ["Checked", "Status", "asked", "examined", "kept", "pasteable", "run"]
