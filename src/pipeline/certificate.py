"""The proof that exactly this value was judged in full: minted by the runner alone, good for one emission [C6].

Spec: docs/spec/pipeline.md [PIPE-6], [PIPE-7].
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from cmf.message import Message
from cmf.request import Request, Response

_KEY: Final = secrets.token_bytes(32)  # of this process: a certificate is never valid outside it, nor read from a wire
_spent: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was judged (`digest`), by which run, revision and mode, and whether every view was evaluated."""

    run: str
    digest: str
    revision: str
    mode: str
    complete: bool
    seal: str

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
    return "emit.spent-certificate" if certificate.run in _spent else ""


def spend(certificate: Certificate) -> None:
    """Mark the certificate as used: a second emission under it fails."""
    _spent.add(certificate.run)
