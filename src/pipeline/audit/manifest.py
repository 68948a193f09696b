"""The signed manifest of a bundle. Spec: docs/spec/audit.md [AUD-55].

It has the digest of every part, so one signature covers what the logs cannot prove: the selection, the number of
records, and that no part, policy or review was removed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from cmf.json.codec import dumps
from pipeline.audit.heads import PublicKey, Signer
from pipeline.decisions.timestamps import iso

_CONTEXT: Final = b"cmf evidence manifest 1\n"  # domain separation from heads
_LAST: Final = 253_402_300_800_000_000  # microseconds: the end of the year 9999


class Manifest(NamedTuple):
    """The fields of a manifest that are shown to people.

    Attributes:
        selection: the query; None is everything. records: the number of lines.
        made_at: microseconds since the epoch, by the exporter's clock.
        signed_by: the id of the key with a valid signature; None if there is none.
    """

    selection: str | None
    records: int
    made_at: int
    signed_by: str | None

    def to_json(self) -> dict[str, Any]:
        """The manifest as JSON objects."""
        return self._asdict() | {"made_at": iso(self.made_at)}


def sealed(fields: Mapping[str, Any], signer: Signer | None) -> dict[str, Any]:
    """The manifest to write, signed if there is a signer."""
    if signer is None:
        return dict(fields)
    named = {**fields, "key": signer.public_key.id}
    return {**named, "signature": signer.signature(_bytes(named))}


def check_shape(found: Mapping[str, Any]) -> None:
    """Check the required fields; ValueError, KeyError or TypeError if they are missing or malformed."""
    whole = type(found["records"]) is int and type(found["made_at"]) is int and isinstance(found["files"], dict)
    if not whole or not isinstance(found["selection"], str | None) or not 0 <= found["made_at"] < _LAST:
        raise ValueError("not a manifest")


def read(found: Mapping[str, Any], keys: Iterable[PublicKey]) -> tuple[Manifest, str | None]:
    """The manifest, and what is wrong with its signature unless it is missing or valid under one of `keys`."""
    fields = {name: item for name, item in found.items() if name != "signature"}
    by, wrong = None, None
    if "signature" in found or "key" in found:
        key = next((key for key in keys if key.id == found.get("key")), None)
        if key is None:
            wrong = "the manifest is not signed by a trusted key"
        elif not key.verifies(_bytes(fields), found.get("signature")):
            wrong = "the signature of the manifest is not valid"
        else:
            by = key.id
    return Manifest(found["selection"], found["records"], found["made_at"], by), wrong


def _bytes(fields: Mapping[str, Any]) -> bytes:
    return _CONTEXT + dumps(fields)


__all__ = ["Manifest", "check_shape", "read", "sealed"]
