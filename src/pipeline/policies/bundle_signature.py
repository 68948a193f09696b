"""Signed OPA bundles: `.signatures.json`, as `opa sign` writes it. Spec: docs/spec/policies.md [POL-46].

One JSON Web Token names every file with its digest. Which algorithm counts is said by whoever gives the key, never by
the token.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from cmf.codec import loads
from cmf.errors import DecodeError
from pipeline import base64url
from pipeline.errors import ConfigError, PolicyError
from pipeline.policies.metadata import load_yaml

_DEFAULT: Final = "_default"  # what `opa build` writes for its own way of signing
_STRUCTURED: Final = frozenset({"data.json", "data.yaml", "data.yml", ".manifest"})
_DIGESTS: Final = {"SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
HASHES: Final[dict[str, hashes.HashAlgorithm]] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
CURVES: Final = {"256": ("secp256r1", 32), "384": ("secp384r1", 48), "512": ("secp521r1", 66)}
ALGORITHMS: Final = tuple(f"{family}{bits}" for family in ("ES", "HS", "PS", "RS") for bits in HASHES)


@dataclass(frozen=True, slots=True)
class Key:
    """A key that may have signed a bundle.

    Attributes:
        text: the public key or certificate in PEM, or the secret of an `HS…` algorithm.
        algorithm: one of `ALGORITHMS`.
        scope: what the token must be for; by default none.
    """

    text: str = field(repr=False)
    algorithm: str = "RS256"
    scope: str = ""

    @classmethod
    def at(cls, file: Path, *, algorithm: str = "RS256", scope: str = "") -> Key:
        """The key in a file; ConfigError where it cannot be read."""
        return cls(key_text(file), algorithm=algorithm, scope=scope)


def key_text(file: Path) -> str:
    """What stands in the file of a key; ConfigError where it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError):
        raise ConfigError("the key cannot be read", path=str(file), hint="name a file with it") from None


@dataclass(frozen=True, slots=True)
class Verification:
    """By which keys bundles are verified: key id → key, and the id to use whatever the token says."""

    keys: Mapping[str, Key]
    key_id: str | None = None


def verify(files: Mapping[str, bytes], signatures: bytes | None, verification: Verification) -> None:
    """Return if the signature holds for exactly these files.

    Raises:
        PolicyError: no signature, another key or scope, a file that is not named, named and not there, or changed
            (code policy.bad-signature).
    """
    token = _token(signatures)
    header, payload, signed, mark = _parts(token)
    key = _key(header, payload, verification)
    if not _holds(key, signed, mark):
        _refuse("the signature is not that of the key")
    if payload.get("scope", "") != key.scope:
        _refuse("the signature is for another scope")
    _check_files(files, payload.get("files"))


def _token(signatures: bytes | None) -> str:
    if signatures is None:
        _refuse("the bundle is not signed")
    try:
        document = loads(signatures)
    except DecodeError:
        document = None
    tokens = document.get("signatures") if isinstance(document, dict) else None
    if not isinstance(tokens, list) or len(tokens) != 1 or not isinstance(tokens[0], str):
        _refuse("the signatures are not one JSON Web Token")
    if document.get("plugin", _DEFAULT) != _DEFAULT:
        _refuse("a plugin of its own signed the bundle")
    return tokens[0]


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    pieces = token.split(".")
    if len(pieces) != 3:
        _refuse("the signatures are not one JSON Web Token")
    try:
        header, payload = (loads(base64url.decode(piece)) for piece in pieces[:2])
        mark = base64url.decode(pieces[2])
    except (DecodeError, ValueError):
        _refuse("the signatures are not one JSON Web Token")
    if not isinstance(header, dict) or not isinstance(payload, dict):
        _refuse("the signatures are not one JSON Web Token")
    return header, payload, f"{pieces[0]}.{pieces[1]}".encode(), mark


def claims(signatures: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a signature says of itself, header and payload, believed by nobody: for people who look.

    Raises:
        PolicyError: it is none (`policy.bad-signature`).
    """
    header, payload, _, _ = _parts(_token(signatures))
    return header, payload


def _key(header: Mapping[str, Any], payload: Mapping[str, Any], verification: Verification) -> Key:
    name = verification.key_id or header.get("kid") or payload.get("keyid")
    if name is None and len(verification.keys) == 1:
        (key,) = verification.keys.values()  # one key was given, and the token names none
        return key
    key_or_none = verification.keys.get(name) if isinstance(name, str) else None
    if key_or_none is None:
        _refuse("the signature names no key that was given")
    return key_or_none


# -- one token ---------------------------------------------------------------------------------------------------------


def _holds(key: Key, signed: bytes, mark: bytes) -> bool:
    if key.algorithm not in ALGORITHMS:
        raise PolicyError(
            f"algorithm {key.algorithm!r} is not known", hint=f"one of {', '.join(ALGORITHMS)}", code="policy.bad-key"
        )
    family, bits = key.algorithm[:2], key.algorithm[2:]
    if family == "HS":
        return hmac.compare_digest(hmac.digest(key.text.encode(), signed, f"sha{bits}"), mark)
    public, chosen = _public(key), HASHES[bits]
    try:
        if family == "ES":
            return _holds_curve(public, signed, mark, bits)
        if not isinstance(public, rsa.RSAPublicKey):
            _bad_key("the key is not one of RSA")
        public.verify(mark, signed, padding_of(family, chosen), chosen)
    except InvalidSignature:
        return False
    return True


def _holds_curve(public: object, signed: bytes, mark: bytes, bits: str) -> bool:
    curve, size = CURVES[bits]
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != curve:
        _bad_key(f"the key is not one of {curve}")
    if len(mark) != 2 * size:
        return False
    pair = utils.encode_dss_signature(int.from_bytes(mark[:size]), int.from_bytes(mark[size:]))
    public.verify(pair, signed, ec.ECDSA(HASHES[bits]))
    return True


def padding_of(family: str, chosen: hashes.HashAlgorithm) -> padding.AsymmetricPadding:
    """The padding of a signature by RSA: of `RS…`, else of `PS…`."""
    return padding.PKCS1v15() if family == "RS" else padding.PSS(padding.MGF1(chosen), chosen.digest_size)


def _public(key: Key) -> object:
    try:
        if "CERTIFICATE" in key.text:
            from cryptography.x509 import load_pem_x509_certificate  # 2 MB, for the one who signs with a certificate

            return load_pem_x509_certificate(key.text.encode()).public_key()
        return load_pem_public_key(key.text.encode())
    except (ValueError, UnsupportedAlgorithm):
        _bad_key("the key is no public key or certificate in PEM")


def _bad_key(message: str) -> NoReturn:
    raise PolicyError(message, hint="give the public key of whoever signs", code="policy.bad-key")


# -- its files ---------------------------------------------------------------------------------------------------------


def _check_files(files: Mapping[str, bytes], named: object) -> None:
    if not isinstance(named, list) or not all(isinstance(entry, dict) for entry in named):
        _refuse("the signature names no files")
    expected = {str(entry.get("name")).removeprefix("/"): entry for entry in named}
    if files.keys() != expected.keys() or len(expected) != len(named):
        odd = sorted(files.keys() ^ expected.keys())
        _refuse(f"{odd[0] if odd else 'a file'} is not in both, the bundle and its signature, once")
    for name, content in files.items():
        algorithm = _DIGESTS.get(str(expected[name].get("algorithm")))
        if algorithm is None or not hmac.compare_digest(
            hashlib.new(algorithm, signed_form(name, content)).hexdigest(), str(expected[name].get("hash"))
        ):
            _refuse(f"{name} is not as it was signed")


def signed_form(name: str, content: bytes) -> bytes:
    """The bytes that are digested: of a structured file its values with sorted keys, as Go spells them."""
    if PurePosixPath(name).name not in _STRUCTURED:
        return content
    try:
        if name.endswith((".yaml", ".yml")):
            value = load_yaml(content.decode())
        else:
            # Numbers as they are written: Go keeps their text.
            value = json.loads(content, parse_int=_Number, parse_float=_Number)
    except ValueError:
        _refuse(f"{name} is not as it was signed")
    return _spelled(value).encode()


class _Number(str):
    """The text of a number."""

    __slots__ = ()


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        # Go sorts keys by their UTF-8.
        keys = sorted(value, key=lambda key: str(key).encode())
        return "{" + ",".join(f"{_spelled(key)}:{_spelled(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    if isinstance(value, _Number):
        return str.__str__(value)
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _refuse(message: str) -> NoReturn:
    raise PolicyError(message, hint="take the bundle from where it was signed", code="policy.bad-signature")
