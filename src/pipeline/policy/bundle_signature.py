"""Signing OPA bundles as `opa sign` does, and verifying them. Spec: docs/spec/policies.md [POL-46], [POL-54].

One JSON Web Token lists every file with its digest. The algorithm is configured with the key; the token's own `alg` is
never trusted.
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
from pathlib import Path, PurePosixPath
from typing import Any, Final, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from cmf.errors import DecodeError
from cmf.json.codec import loads
from pipeline.decisions import base64url
from pipeline.decisions.errors import ConfigError, PolicyError
from pipeline.policy.metadata import load_yaml

_DEFAULT: Final = "_default"  # the plugin name `opa build` writes for its built-in signer
_STRUCTURED_FILES: Final = frozenset({"data.json", "data.yaml", "data.yml", ".manifest"})
_DIGESTS: Final = {"SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
HASHES: Final[dict[str, hashes.HashAlgorithm]] = {
    str(each.digest_size * 8): each for each in (hashes.SHA256(), hashes.SHA384(), hashes.SHA512())
}
CURVES: Final = {"256": ("secp256r1", 32), "384": ("secp384r1", 48), "512": ("secp521r1", 66)}
ALGORITHMS: Final = tuple(f"{family}{bits}" for family in ("ES", "HS", "PS", "RS") for bits in HASHES)


@dataclass(frozen=True, slots=True)
class Key:
    """A key that bundles may be signed with: a public key or certificate in PEM, or the secret of an `HS…` algorithm.

    The token must carry the scope, if there is one.
    """

    text: str = field(repr=False)
    algorithm: str = "RS256"
    scope: str = ""

    @classmethod
    def at(cls, file: Path, *, algorithm: str = "RS256", scope: str = "") -> Key:
        """The key in a file; ConfigError if it cannot be read."""
        return cls(key_text(file), algorithm=algorithm, scope=scope)


def key_text(file: Path) -> str:
    """The text of a key file; ConfigError if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError):
        raise ConfigError(
            "the key file cannot be read", path=str(file), hint="give the path of a readable PEM or secret file"
        ) from None


@dataclass(frozen=True, slots=True)
class Verification:
    """The keys that bundles are verified with: key id → key, and the id to use whatever the token says."""

    keys: Mapping[str, Key]
    key_id: str | None = None


def verify(files: Mapping[str, bytes], signatures: bytes | None, verification: Verification) -> None:
    """Check that the signature is valid and covers exactly these files.

    Raises:
        PolicyError: no signature, a different key or scope, or a file that is unsigned, missing or changed (code
            policy.bad-signature).
    """
    token = _token(signatures)
    header, payload, signed, signature = _decode(token)
    key = _key(header, payload, verification)
    if not _is_valid(key, signed, signature):
        _refuse("the signature does not verify with this key")
    if payload.get("scope", "") != key.scope:
        _refuse("the signature has a different scope")
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
        _refuse(".signatures.json does not hold exactly one JSON Web Token")
    if document.get("plugin", _DEFAULT) != _DEFAULT:
        _refuse("the bundle was signed by a custom plugin, which cannot be verified here")
    return tokens[0]


def _decode(token: str) -> tuple[dict[str, Any], dict[str, Any], bytes, bytes]:
    segments = token.split(".")
    if len(segments) != 3:
        _refuse(".signatures.json does not hold exactly one JSON Web Token")
    try:
        header, payload = (loads(base64url.decode(piece)) for piece in segments[:2])
        signature = base64url.decode(segments[2])
    except (DecodeError, ValueError):
        _refuse(".signatures.json does not hold exactly one JSON Web Token")
    if not isinstance(header, dict) or not isinstance(payload, dict):
        _refuse(".signatures.json does not hold exactly one JSON Web Token")
    return header, payload, f"{segments[0]}.{segments[1]}".encode(), signature


def claims(signatures: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header and payload of a signature, unverified: for display only.

    Raises:
        PolicyError: not a signature (`policy.bad-signature`).
    """
    header, payload, _, _ = _decode(_token(signatures))
    return header, payload


def _key(header: Mapping[str, Any], payload: Mapping[str, Any], verification: Verification) -> Key:
    name = verification.key_id or header.get("kid") or payload.get("keyid")
    if name is None and len(verification.keys) == 1:
        (key,) = verification.keys.values()  # only one key was given, and the token names none
        return key
    known_key = verification.keys.get(name) if isinstance(name, str) else None
    if known_key is None:
        _refuse("the signature was made with a key that was not given")
    return known_key


# -- the token ---------------------------------------------------------------------------------------------------------


def _is_valid(key: Key, signed: bytes, signature: bytes) -> bool:
    if key.algorithm not in ALGORITHMS:
        _bad_key(f"unknown signing algorithm {key.algorithm!r}", f"use one of {', '.join(ALGORITHMS)}")
    family, bits = key.algorithm[:2], key.algorithm[2:]
    if family == "HS":
        return hmac.compare_digest(hmac.digest(key.text.encode(), signed, f"sha{bits}"), signature)
    public, chosen = _public_key(key), HASHES[bits]
    try:
        if family == "ES":
            curve, size = CURVES[bits]
            if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != curve:
                _bad_key(f"not a key on the curve {curve}")
            if len(signature) != 2 * size:
                return False
            pair = utils.encode_dss_signature(int.from_bytes(signature[:size]), int.from_bytes(signature[size:]))
            public.verify(pair, signed, ec.ECDSA(HASHES[bits]))
            return True
        if not isinstance(public, rsa.RSAPublicKey):
            _bad_key("not an RSA key")
        public.verify(signature, signed, padding_of(family, chosen), chosen)
    except InvalidSignature:
        return False
    return True


def padding_of(family: str, chosen: hashes.HashAlgorithm) -> padding.AsymmetricPadding:
    """The padding of an RSA signature: PKCS #1 v1.5 for `RS…`, PSS for `PS…`."""
    return padding.PKCS1v15() if family == "RS" else padding.PSS(padding.MGF1(chosen), chosen.digest_size)


def _public_key(key: Key) -> object:
    try:
        if "CERTIFICATE" in key.text:
            from cryptography import x509  # costs 2 MB: imported only when a certificate is used

            return x509.load_pem_x509_certificate(key.text.encode()).public_key()
        return load_pem_public_key(key.text.encode())
    except (ValueError, UnsupportedAlgorithm):
        _bad_key("not a public key or certificate in PEM")


def _bad_key(message: str, hint: str = "give the signer's public key") -> NoReturn:
    raise PolicyError(message, hint=hint, code="policy.bad-key")


# -- the files ---------------------------------------------------------------------------------------------------------


def _check_files(files: Mapping[str, bytes], named: object) -> None:
    if not isinstance(named, list) or not all(isinstance(entry, dict) for entry in named):
        _refuse("the signature lists no files")
    expected = {str(entry.get("name")).removeprefix("/"): entry for entry in named}
    if files.keys() != expected.keys() or len(expected) != len(named):
        odd = sorted(files.keys() ^ expected.keys())
        _refuse(f"{odd[0] if odd else 'a file'} must be in the bundle and in its signature exactly once")
    for name, content in files.items():
        algorithm = _DIGESTS.get(str(expected[name].get("algorithm")))
        if algorithm is None or not hmac.compare_digest(
            hashlib.new(algorithm, signed_form(name, content)).hexdigest(), str(expected[name].get("hash"))
        ):
            _refuse(f"{name} was changed after signing")


def signed_form(name: str, content: bytes) -> bytes:
    """The bytes that are digested: a structured file is rewritten with sorted keys, as Go's JSON encoder does."""
    if PurePosixPath(name).name not in _STRUCTURED_FILES:
        return content
    try:
        if name.endswith((".yaml", ".yml")):
            value = load_yaml(content.decode())
        else:
            # Keep numbers as written: Go keeps their text.
            value = json.loads(content, parse_int=_Number, parse_float=_Number)
    except ValueError:
        _refuse(f"{name} was changed after signing")
    return _go_json(value).encode()


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def _go_json(value: Any) -> str:
    if isinstance(value, dict):
        # Go sorts keys by their UTF-8 bytes.
        keys = sorted(value, key=lambda key: str(key).encode())
        return "{" + ",".join(f"{_go_json(key)}:{_go_json(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_go_json, value)) + "]"
    if isinstance(value, _Number):
        return str.__str__(value)
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _refuse(message: str) -> NoReturn:
    raise PolicyError(message, hint="get the bundle again from whoever signed it", code="policy.bad-signature")


_DIGEST: Final = "SHA-256"
_FITTING: Final = "give a private key that fits --algorithm"


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
        _bad_key(f"unknown signing algorithm {key.algorithm!r}; known: {', '.join(ALGORITHMS)}", _FITTING)
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
            _bad_key(f"not a key on the curve {curve}, which {key.algorithm} requires", _FITTING)
        pair = utils.decode_dss_signature(private.sign(signed, ec.ECDSA(chosen)))
        return b"".join(number.to_bytes(size) for number in pair)
    if not isinstance(private, rsa.RSAPrivateKey):
        _bad_key(f"not an RSA key, which {key.algorithm} requires", _FITTING)
    return private.sign(signed, padding_of(family, chosen), chosen)


def _private_key(text: str) -> object:
    try:
        return load_pem_private_key(text.encode(), password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        _bad_key("not an unencrypted private key in PEM", _FITTING)


def _segment(value: Mapping[str, Any]) -> str:
    return base64url.encode(json.dumps(value, separators=(",", ":")).encode())
