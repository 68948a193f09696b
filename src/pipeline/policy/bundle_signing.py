"""Signing OPA bundles as `opa sign` does, and writing them. Spec: docs/spec/policies.md [POL-54].

`pipeline.policy.bundle_signature` and OPA verify these signatures; what is digested is described there.
"""

from __future__ import annotations

import gzip
import hashlib
import hmac
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa, utils
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from pipeline.decisions import base64url
from pipeline.decisions.errors import PolicyError
from pipeline.policy.bundle_signature import ALGORITHMS, CURVES, HASHES, padding_of, signed_form

_DIGEST: Final = "SHA-256"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key to sign bundles with: a private key in PEM without a passphrase, or the secret of an `HS…` algorithm.

    `key_id` tells the verifier which key to use; `scope` goes into the token as it is.
    """

    text: str = field(repr=False)
    algorithm: str = "RS256"
    key_id: str = ""
    scope: str = ""


def sign(files: Mapping[str, bytes], key: SigningKey) -> bytes:
    """The content of `.signatures.json` for exactly these files.

    Raises:
        PolicyError: the key does not fit the algorithm (`policy.bad-key`), or a data file cannot be parsed
            (`policy.bad-signature`).
    """
    if key.algorithm not in ALGORITHMS:
        _bad_key(f"unknown signing algorithm {key.algorithm!r}; known: {', '.join(ALGORITHMS)}")
    header = {"alg": key.algorithm} | ({"kid": key.key_id} if key.key_id else {})
    payload: dict[str, Any] = {
        "files": [
            {"name": name, "hash": hashlib.sha256(signed_form(name, content)).hexdigest(), "algorithm": _DIGEST}
            for name, content in sorted(files.items())
        ]
    }
    payload |= {name: held for name, held in (("keyid", key.key_id), ("scope", key.scope)) if held}
    signed = f"{_segment(header)}.{_segment(payload)}"
    signature = base64url.encode(_signature(key, signed.encode()))
    return json.dumps({"signatures": [f"{signed}.{signature}"]}).encode()


def packed(files: Mapping[str, bytes]) -> bytes:
    """The files as a reproducible `.tar.gz`: the same files give the same bytes."""
    raw = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=raw, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return raw.getvalue()


def _signature(key: SigningKey, signed: bytes) -> bytes:
    family, bits = key.algorithm[:2], key.algorithm[2:]
    if family == "HS":
        return hmac.digest(key.text.encode(), signed, f"sha{bits}")
    private, chosen = _private_key(key.text), HASHES[bits]
    if family == "ES":
        curve, size = CURVES[bits]
        if not isinstance(private, ec.EllipticCurvePrivateKey) or private.curve.name != curve:
            _bad_key(f"not a key on the curve {curve}, which {key.algorithm} requires")
        pair = utils.decode_dss_signature(private.sign(signed, ec.ECDSA(chosen)))
        return b"".join(number.to_bytes(size) for number in pair)
    if not isinstance(private, rsa.RSAPrivateKey):
        _bad_key(f"not an RSA key, which {key.algorithm} requires")
    return private.sign(signed, padding_of(family, chosen), chosen)


def _private_key(text: str) -> object:
    try:
        return load_pem_private_key(text.encode(), password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        _bad_key("not an unencrypted private key in PEM")


def _bad_key(message: str) -> NoReturn:
    raise PolicyError(message, hint="give a private key that fits --algorithm", code="policy.bad-key")


def _segment(value: Mapping[str, Any]) -> str:
    return base64url.encode(json.dumps(value, separators=(",", ":")).encode())


__all__ = ["SigningKey", "packed", "sign"]
