"""The proof that exactly this value was judged in full: minted by the runner alone, good for one emission [C6].

Spec: docs/spec/pipeline.md [PIPE-6], [PIPE-7].
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from cmf.json.codec import dumps
from cmf.json.value import fields_of, trusted
from cmf.message.message import Message
from cmf.message.request import Request, Response
from pipeline.decisions.policy_input import json_bytes
from pipeline.decisions.traffic import identical_start

_KEY: Final = secrets.token_bytes(32)  # of this process: a certificate is never valid outside it, nor read from a wire
MAX_UNSPENT: Final = 65_536  # certificates that wait to be used; past it the oldest is forgotten, and so refused
MAX_AGE_SECONDS: Final = 600.0  # what was judged longer ago has to be judged again: policy and session went on
_unspent: dict[str, float] = {}  # run → when its certificate was made, on the monotonic clock
if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_unspent.clear)  # else both processes would let the same value out


class Bound(NamedTuple):
    """By which run something was judged, for which target, by what, and in which session at which version."""

    run: str
    target: str
    revision: str
    mode: str
    session: str
    session_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was judged (`digest`), under what, and whether every view was evaluated."""

    bound: Bound
    digest: str
    complete: bool
    seal: str = field(repr=False)


def digest_of(value: Message | Request | Response) -> str:
    """SHA-256, in hex, of the whole value's JSON form."""
    return hashlib.sha256(json_bytes(value)).hexdigest()


class _Hash(Protocol):
    """A hash as far as it has read; `hashlib` names no type for it."""

    def update(self, data: bytes, /) -> None: ...

    def copy(self) -> _Hash: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Written:
    """How far into the JSON form of a request a hash has read: what comes before its messages, and these messages."""

    head: bytes
    messages: tuple[Message, ...]
    state: _Hash


class Digests:
    """Gives `digest_of` requests that begin with the same messages, and reads each message once.

    `written` is how far it has read: of the same objects, which cannot change, it is not written again.
    """

    def __init__(self, written: Written | None = None) -> None:
        self.written = written

    def of(self, value: Message | Request | Response) -> str:
        """The same as `digest_of(value)`."""
        if not isinstance(value, Request) or not value.messages:
            return digest_of(value)
        fields = list(fields_of(value).items())
        at = next(place for place, (name, _) in enumerate(fields) if name == "messages")
        head = json_bytes(dict(fields[:at]))[:-1] + (b',"messages":[' if at else b'"messages":[')
        tail = json_bytes(dict(fields[at + 1 :]))
        self.written = self._read(head, tuple(value.messages))
        state = self.written.state.copy()
        state.update(b"]," + tail[1:] if len(tail) > len(b"{}") else b"]}")
        return state.hexdigest()

    def _read(self, head: bytes, messages: tuple[Message, ...]) -> Written:
        known = self.written
        if known is None or known.head != head or identical_start(known.messages, messages) < len(known.messages):
            known = Written(head, (), hashlib.sha256(head))
        new = messages[len(known.messages) :]
        state = known.state.copy()
        if new:
            joined = json_bytes(new)[1:-1]
            state.update(b"," + joined if known.messages else joined)
        return Written(head, messages, state)


def mint(
    value: Message | Request | Response, bound: Bound, *, complete: bool, digests: Digests | None = None
) -> Certificate:
    """A certificate for `value`. For `pipeline.run.runner` only; the import floors see to that."""
    digest = digest_of(value) if digests is None else digests.of(value)
    _unspent[bound.run] = time.monotonic()
    while len(_unspent) > MAX_UNSPENT:
        _unspent.pop(next(iter(_unspent)), None)
    seal = _seal(bound, digest, complete)
    return trusted(Certificate, bound=bound, digest=digest, complete=complete, seal=seal)


def problem_with(certificate: Certificate | None, bound: Bound, value: Message | Request | Response) -> str:
    """Why `value` may not be emitted under `certificate` as what came of `bound`: a code, or "" where it may."""
    if certificate is None:
        return "emit.no-certificate"
    if not hmac.compare_digest(_seal(certificate.bound, certificate.digest, certificate.complete), certificate.seal):
        return "emit.forged-certificate"
    if certificate.bound != bound:
        return "emit.other-run"
    if not certificate.complete:
        return "emit.incomplete-coverage"
    if certificate.digest != digest_of(value):
        return "emit.other-value"
    minted = _unspent.get(bound.run)
    if minted is None:
        return "emit.spent-certificate"
    return "" if time.monotonic() - minted <= MAX_AGE_SECONDS else "emit.stale-certificate"


def spend(certificate: Certificate) -> bool:
    """Use the certificate up; False where somebody else was faster, and then nothing may go out."""
    return _unspent.pop(certificate.bound.run, None) is not None


def _seal(bound: Bound, digest: str, complete: bool) -> str:
    return hashlib.blake2b(dumps([*bound, digest, complete]), key=_KEY, digest_size=32).hexdigest()
