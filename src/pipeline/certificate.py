"""The proof that exactly this value was judged in full: minted by the runner alone, good for one emission [C6].

Spec: docs/spec/pipeline.md [PIPE-6], [PIPE-7].
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final

from cmf.message import Message
from cmf.request import Request, Response

_KEY: Final = secrets.token_bytes(32)  # of this process: a certificate is never valid outside it, nor read from a wire
MAX_UNSPENT: Final = 65_536  # certificates that wait to be used; past it the oldest is forgotten, and so refused
_unspent: dict[str, None] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was judged (`digest`), by which run, revision and mode, and whether every view was evaluated."""

    run: str
    digest: str
    revision: str
    mode: str
    complete: bool
    seal: str = field(repr=False)

    def facts(self) -> bytes:
        """What the seal covers."""
        return "\n".join((self.run, self.digest, self.revision, self.mode, str(self.complete))).encode()


def digest_of(value: Message | Request | Response) -> str:
    """SHA-256, in hex, of the whole value's JSON form."""
    return hashlib.sha256(value.model_dump_json()).hexdigest()


def mint(value: Message | Request | Response, *, run: str, revision: str, mode: str, complete: bool) -> Certificate:
    """A certificate for `value`. For `pipeline.runner` only; the import floors see to that."""
    unsealed = Certificate(run=run, digest=digest_of(value), revision=revision, mode=mode, complete=complete, seal="")
    seal = hmac.new(_KEY, unsealed.facts(), hashlib.sha256).hexdigest()
    _unspent[run] = None
    while len(_unspent) > MAX_UNSPENT:
        _unspent.pop(next(iter(_unspent)), None)
    return Certificate(run=run, digest=unsealed.digest, revision=revision, mode=mode, complete=complete, seal=seal)


def problem_with(certificate: Certificate | None, value: Message | Request | Response) -> str:
    """Why `value` may not be emitted under `certificate`: a code, or "" where it may."""
    if certificate is None:
        return "emit.no-certificate"
    seal = hmac.new(_KEY, certificate.facts(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(seal, certificate.seal):
        return "emit.forged-certificate"
    if not certificate.complete:
        return "emit.incomplete-coverage"
    if certificate.digest != digest_of(value):
        return "emit.other-value"
    return "" if certificate.run in _unspent else "emit.spent-certificate"


def spend(certificate: Certificate) -> bool:
    """Use the certificate up; False where somebody else was faster, and then nothing may go out."""
    return _unspent.pop(certificate.run, _GONE) is None


_GONE: Final = object()
