"""What a bundle says of itself, under the signature of who made it. Spec: docs/spec/audit.md [AUD-55].

The manifest has the digest of every part, so one signature over it vouches for what nothing in the log can: what was
asked for, how many records that came to, and that no part, policy or review was left out since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cmf.codec import dumps
from pipeline.audit.heads import PublicKey, Signer
from pipeline.moments import iso

_CONTEXT: Final = b"cmf evidence manifest 1\n"  # no head begins so
_LAST: Final = 253_402_300_800_000_000  # microseconds: the end of the year 9999


class Manifest(NamedTuple):
    """What a manifest says, as far as it is for a reader.

    Attributes:
        selection: what was asked for; None is everything. records: how many lines that came to.
        made_at: microseconds since the epoch, by the clock of who made it.
        signed_by: the id of the key that signed it as it stands; None where none did.
    """

    selection: str | None
    records: int
    made_at: int
    signed_by: str | None

    def to_json(self) -> dict[str, Any]:
        """It as JSON objects."""
        return self._asdict() | {"made_at": iso(self.made_at)}


def sealed(said: Mapping[str, Any], signer: Signer | None) -> dict[str, Any]:
    """The manifest as it is written: signed where there is somebody who signs."""
    if signer is None:
        return dict(said)
    named = {**said, "key": signer.public_key.id}
    return {**named, "signature": signer.signature(_bytes(named))}


def check_shape(found: Mapping[str, Any]) -> None:
    """Return where it has what every manifest has; ValueError, KeyError or TypeError where it has not."""
    whole = type(found["records"]) is int and type(found["made_at"]) is int and isinstance(found["files"], dict)
    if not whole or not isinstance(found["selection"], str | None) or not 0 <= found["made_at"] < _LAST:
        raise ValueError("not a manifest")


def read(found: Mapping[str, Any], keys: Iterable[PublicKey]) -> tuple[Manifest, str | None]:
    """What the manifest says; and what is wrong with its signature, if it has one and none of `keys` made it."""
    said = {name: item for name, item in found.items() if name != "signature"}
    by, wrong = None, None
    if "signature" in found or "key" in found:
        key = next((key for key in keys if key.id == found.get("key")), None)
        if key is None:
            wrong = "the manifest is signed by no key that counts"
        elif not key.verifies(_bytes(said), found.get("signature")):
            wrong = "the manifest is not signed as it stands"
        else:
            by = key.id
    return Manifest(found["selection"], found["records"], found["made_at"], by), wrong


def _bytes(said: Mapping[str, Any]) -> bytes:
    return _CONTEXT + dumps(said)


__all__ = ["Manifest", "check_shape", "read", "sealed"]
