"""Tree heads: the state of a log at a moment, signed with Ed25519 [E3]. Spec: docs/spec/audit.md [AUD-10] ff."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from cmf.json.codec import dumps
from cmf.json.value import trusted
from pipeline.decisions.errors import ConfigError

_CONTEXT: Final = b"cmf tree head 1\n"  # domain separation: nothing else signed with this key begins with it
KEY_ID: Final = 16  # hexadecimal digits of a key's SHA-256 that form its id


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The state of a log after one commit.

    Attributes:
        log: the log's id. size: its number of leaves.
        root: the root over all leaves, as hex.
        first: the place of the first leaf of this commit, which added the leaves from there to `size`.
        batch: SHA-256 of their concatenated leaf hashes, as hex.
        at: when, in microseconds since the epoch, by the writer's clock.
        key: the id of the signing key. signature: over all other fields, as base64.
    """

    log: str
    size: int
    root: str
    first: int
    batch: str
    at: int
    key: str
    signature: str = ""

    def signed_bytes(self) -> bytes:
        """The signed bytes."""
        return _to_sign(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The head as in a line of an exported file."""
        return dict(zip(_TYPES, _FIELDS(self), strict=True))

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """The head that a line of an exported file describes.

        Raises:
            ValueError: it is not a head.
        """
        if not isinstance(found, dict) or set(found) != set(_TYPES):
            raise ValueError("not a tree head")
        if any(type(found[name]) is not kind for name, kind in _TYPES.items()):
            raise ValueError("not a tree head")
        return cls(**found)


_TYPES: Final = {"log": str, "size": int, "root": str, "first": int, "batch": str, "at": int, "key": str} | {
    "signature": str
}
_FIELDS: Final = attrgetter(*_TYPES)


def _to_sign(fields: dict[str, Any]) -> bytes:
    """The signed bytes: all fields of a head except the signature."""
    del fields["signature"]
    return _CONTEXT + dumps(fields)


def batch_digest(leaves: bytes | bytearray) -> str:
    """The `batch` of a head with these concatenated leaf hashes."""
    return hashlib.sha256(leaves).hexdigest()


class Signer:
    """A private key that signs heads and evidence manifests."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_key: Final = PublicKey(private.public_key())

    @classmethod
    def at(cls, file: Path) -> Signer:
        """The key in a PEM file; if the file is missing, a new key, readable by its owner only.

        Raises:
            ConfigError: the file cannot be read or created, or does not hold an Ed25519 key.
        """
        try:
            if not file.exists():  # read an existing key even if the directory is not writable
                with contextlib.suppress(FileExistsError):
                    _create(file)
            private = load_pem_private_key(file.read_bytes(), password=None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise _unusable(file, error) from None
        if not isinstance(private, Ed25519PrivateKey):
            raise _unusable(file, None)
        return cls(private)

    def sign(self, head: Head) -> Head:
        """The head with its signature, under this key's id."""
        fields = head.to_json() | {"key": self.public_key.id}
        fields["signature"] = self.signature(_to_sign(fields))
        return trusted(Head, **fields)

    def signature(self, message: bytes) -> str:
        """The signature, as base64, over bytes that start with their own context."""
        return base64.b64encode(self._private.sign(message)).decode("ascii")


class PublicKey:
    """A public key that verifies signatures of a `Signer`."""

    def __init__(self, public: Ed25519PublicKey) -> None:
        self._public = public
        raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id: Final = hashlib.sha256(raw).hexdigest()[:KEY_ID]
        self.pem: Final = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")

    @classmethod
    def of(cls, pem: str) -> PublicKey:
        """The key of a PEM text.

        Raises:
            ValueError: it is not an Ed25519 public key.
        """
        with contextlib.suppress(UnsupportedAlgorithm, ValueError):
            public = load_pem_public_key(pem.encode())
            if isinstance(public, Ed25519PublicKey):
                return cls(public)
        raise ValueError("not an Ed25519 public key")

    @classmethod
    def at(cls, file: Path) -> PublicKey:
        """The key of a PEM file; ConfigError if it cannot be read or is not a public key."""
        try:
            return cls.of(file.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            hint = "`cmf audit key FILE` prints the public key of a private one"
            why = (
                f"it cannot be read: {error.strerror}"
                if isinstance(error, OSError)
                else "it is not an Ed25519 public key"
            )
            raise ConfigError(why, path=str(file), code="config.public-key", hint=hint) from None

    def signed(self, head: Head) -> bool:
        """Whether this key signed exactly this head."""
        if head.key != self.id:
            return False
        try:
            return self.verifies(head.signed_bytes(), head.signature)
        except (ValueError, TypeError):  # a database may hold anything, such as bytes instead of text
            return False

    def verifies(self, message: bytes, signed: object) -> bool:
        """Whether `signed` is this key's signature over these bytes."""
        if not isinstance(signed, str):
            return False
        try:
            signature = base64.b64decode(signed, validate=True)
            self._public.verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return base64.b64encode(signature).decode("ascii") == signed  # accept only the canonical base64 of a signature


def _create(file: Path) -> None:
    made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # Written to a temporary file and linked: the file is complete as soon as it exists, and of two writers one wins.
    beside = file.with_name(f"{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
    with open(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as opened:
        opened.write(made)
        opened.flush()
        os.fsync(opened.fileno())
    try:
        os.link(beside, file)
    finally:
        beside.unlink()


def _unusable(file: Path, error: Exception | None) -> ConfigError:
    if isinstance(error, OSError):
        why = f"it cannot be read or created: {error.strerror}"
    else:
        why = "it is not an Ed25519 key" if error is None else "it is not an unencrypted private key in PEM"
    return ConfigError(
        f"the audit key cannot be used: {why}", path=str(file), hint="`cmf audit key FILE` creates one (Ed25519, PEM)"
    )
