"""Judges recorded traffic from Parquet or JSON lines, on all cores of this machine. Spec: docs/spec/batch.md.

The same work as a stage of a Ray dataset: `pipeline.replay.batch_ray`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from cmf.errors import CmfError
from cmf.json.codec import dumps, loads
from cmf.message.digests import content_digest
from pipeline.decisions.context import Context
from pipeline.decisions.errors import ConfigError, ReplayError, needs
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.timestamps import micros
from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.profiles import Profiles
from pipeline.replay.impact import Compared
from pipeline.replay.replay import Replay, spread
from pipeline.run import recorded_input as replay_file
from pipeline.run.assembly import Policies, load_policies
from pipeline.run.recorded_input import Entry, read_entry
from pipeline.sessions.base import wall_clock

if TYPE_CHECKING:
    import pyarrow.parquet

COLUMN: Final = "line"
"""The column of a Parquet file that holds the lines, if no other is named."""

Holds: TypeAlias = Literal["entry", "message", "request", "response"]

_PARQUET: Final = b"PAR1"
_SAMPLED_LINES: Final = 20
_PACKED: Final = 8  # how much larger what was compressed is, about
_UNREADABLE: Final = "replay.unreadable"
_WHOLE: Final = {"complete": True}  # what has no decision on file was not left half judged either


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What came of one line; its id is that of the entry, of bare traffic the content digest, or empty.

    Verdict and action are as in `Decision`, and empty where nothing can be said: `reason` is why not, with a code,
    never content. The rules that were hit, and the codes of their hits, are sorted, each once.
    """

    id: str = ""
    verdict: str = ""
    action: str = ""
    rules: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    views: int = 0
    reason: str = ""


class Judging:
    """The work of judging lines under one set.

    A line `holds` an entry as in `replay.md`, or the canonical JSON of bare traffic. For bare traffic, the context is
    what is known of it, and it is judged as of `moment`, with a zone, by default now; an entry brings its own [BAT-3].

    Raises:
        PolicyError, ConfigError: the set or the profiles cannot be used.
    """

    def __init__(
        self,
        policies: PolicySet,
        profiles: Path | None = None,
        holds: Holds = "entry",
        context: Context | None = None,
        moment: datetime | None = None,
    ) -> None:
        if holds not in get_args(Holds):
            hint = f"use {', '.join(get_args(Holds))}"
            raise ConfigError("lines hold no such thing", path="holds", hint=hint, code="config.word")
        if not isinstance(context, Context | None):
            raise ConfigError("this is no Context", path="context", hint="write Context(…)", code="config.word")
        self._replay = Replay(policies, profiles=Profiles.load(profiles) if profiles is not None else None)
        self._holds = holds
        self._context = context or Context()
        self._session = SessionFacts(moment=micros(as_of(moment)))

    def __call__(self, lines: list[bytes]) -> list[Judged]:
        """What came of each line; never raises because of one."""
        return list(map(self._judged, lines))

    def _judged(self, line: bytes) -> Judged:
        entry = None
        try:
            entry = read_entry(line) if self._holds == "entry" else self._bare(line)
            decision = self._replay.judged(entry)
        except ReplayError as error:
            return Judged(id=entry.id if entry is not None else "", reason=str(error))
        return Judged(
            id=entry.id,
            verdict=decision.verdict.value,
            action=decision.action.value,
            rules=tuple(sorted({hit.rule for hit in decision.hits})),
            codes=tuple(sorted({hit.code for hit in decision.hits})),
            views=len(decision.views),
        )

    def _bare(self, line: bytes) -> Entry:
        try:
            traffic = replay_file.KINDS[self._holds].model_validate(loads(line))
        except CmfError as error:
            raise ReplayError(error.message, path=error.path) from None
        return Entry(
            id=content_digest(traffic),
            traffic=traffic,
            context=self._context,
            session=self._session,
            seen=frozenset(),
            mode="enforce",
            history="claimed",
            decision=_WHOLE,
        )


def judge(
    files: Iterable[Path | str] | Path | str,
    policies: Policies = None,
    *,
    profiles: Path | None = None,
    holds: Holds = "entry",
    context: Context | None = None,
    moment: datetime | None = None,
    column: str = COLUMN,
    jobs: int | None = None,
) -> Generator[Judged, None, None]:
    """What came of each line of the files, in order [BAT-1].

    Files are Parquet, with the lines as text or bytes in `column`; or JSON lines, plain or compressed with gzip. How
    they begin tells them apart. Policies are as for `Guard`; `profiles`, `holds`, `context` and `moment`, which is the
    same in all processes, as for `Judging`. There are `jobs` processes, by default one per available core.

    Raises:
        PolicyError, ConfigError: the set or the profiles cannot be used, or pyarrow is needed and not installed.
        ReplayError: a file cannot be read, or a process was lost.
    """
    places = [Path(file) for file in ([files] if isinstance(files, Path | str) else files)]
    expected = sum(map(_about, places))
    recipe = partial(Judging, load_policies(policies), profiles, holds, context, as_of(moment))
    found = chain.from_iterable(lines(place, column) for place in places)
    with closing(spread(found, recipe, expected=expected, jobs=jobs)) as judged:
        for chunk in judged:
            yield from chunk


def as_of(moment: datetime | None) -> datetime:
    """The moment as of which a batch is judged: by default the present one.

    Raises:
        ConfigError: it has no zone, or is no moment.
    """
    if moment is None:
        return wall_clock()
    if getattr(moment, "tzinfo", None) is None:
        hint = "write datetime(…, tzinfo=UTC)"
        raise ConfigError("this is no moment with a zone", path="moment", hint=hint, code="config.word")
    return moment


def lines(path: Path, column: str = COLUMN) -> Iterator[bytes]:
    """The lines of a file: those of `column` of a Parquet file, or of JSON lines as `replay_file.lines`.

    Raises:
        ReplayError: the file cannot be read, or has no such column (`replay.unreadable`).
        MissingExtraError: it is Parquet, and pyarrow is not installed.
    """
    if not is_parquet(path):
        yield from replay_file.lines(path)
        return
    with _opened(path) as file:
        if column not in file.schema_arrow.names:
            raise ReplayError("no such column", path=column, hint="name the one with the lines", code=_UNREADABLE)
        for batch in file.iter_batches(batch_size=1_000, columns=[column]):
            yield from as_lines(batch.column(0))


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet does; one that cannot be read does not."""
    try:
        with path.open("rb") as file:
            return file.read(len(_PARQUET)) == _PARQUET
    except OSError:
        return False


def as_lines(values: pyarrow.Array) -> Iterator[bytes]:
    """Text or bytes as bytes; what is neither is a line that does not read."""
    for value in values.to_pylist():
        yield value if isinstance(value, bytes) else value.encode(errors="replace") if isinstance(value, str) else b""


def table(rows: Iterable[Judged]) -> pyarrow.Table:
    """The rows as an Arrow table, which `pyarrow.parquet.write_table` writes."""
    return table_of(Judged, rows)


def table_of(kind: type[Judged | Compared], rows: Iterable[Judged | Compared]) -> pyarrow.Table:
    """An Arrow table of rows with the fields of `kind`: texts, lists of texts, and one count."""
    with needs("batch"):
        import pyarrow

    types = {"tuple[str, ...]": pyarrow.list_(pyarrow.string()), "int": pyarrow.int64()}
    schema = pyarrow.schema([(one.name, types.get(str(one.type), pyarrow.string())) for one in fields(kind)])
    return pyarrow.Table.from_pylist([*map(asdict, rows)], schema=schema)


def write_lines(path: Path, rows: Iterable[Judged]) -> None:
    """Write the rows as JSON lines, one each. OSError: the file cannot be written."""
    with path.open("wb") as stream:
        stream.writelines(dumps(to_json(row)) + b"\n" for row in rows)


def to_json(row: Judged) -> dict[str, Any]:
    """The row as JSON: all fields, also the empty ones."""
    return asdict(row) | {"rules": list(row.rules), "codes": list(row.codes)}


def _about(path: Path) -> int:
    """How many lines a file has, about: for the number of processes alone."""
    if is_parquet(path):
        with _opened(path) as file:
            return int(file.metadata.num_rows)
    sample = list(islice(replay_file.lines(path), _SAMPLED_LINES))
    size = path.stat().st_size * (_PACKED if path.suffix == ".gz" else 1)
    return size * len(sample) // max(1, sum(map(len, sample)))


@contextmanager
def _opened(path: Path) -> Iterator[pyarrow.parquet.ParquetFile]:
    with needs("batch"):
        import pyarrow.parquet
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (OSError, pyarrow.ArrowException):
        raise ReplayError("not a whole Parquet file", path=str(path), hint="check the file", code=_UNREADABLE) from None
