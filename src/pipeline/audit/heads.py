"""Signed tree heads: what a log held at a moment, under an Ed25519 key [E3]. Spec: docs/spec/audit.md [AUD-10] ff."""

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

from cmf.codec import dumps
from cmf.value import trusted
from pipeline.errors import ConfigError

_CONTEXT: Final = b"cmf tree head 1\n"  # no other thing that this key may ever sign begins so
KEY_ID: Final = 16  # hexadecimal digits of a key's SHA-256 that name it


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a log held after one commit.

    Attributes:
        log: which log. size: how many leaves it had.
        root: the root over all of them, as hex.
        first: the place of the first leaf of this commit; those from there to `size` came with it.
        batch: SHA-256 of their leaf hashes one after the other, as hex.
        at: when, in microseconds since the epoch, by the writer's clock.
        key: the id of the key that signed. signature: over everything else, as base64.
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
        """What the signature is over."""
        return _to_sign(self.to_json())

    def to_json(self) -> dict[str, Any]:
        """The head as a line of an exported file has it."""
        return dict(zip(_TYPES, _FIELDS(self), strict=True))

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """The head that a line of an exported file describes.

        Raises:
            ValueError: it describes none.
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


def _to_sign(said: dict[str, Any]) -> bytes:
    """What a signature is over: all that a head says but that."""
    del said["signature"]
    return _CONTEXT + dumps(said)


def batch_digest(leaves: bytes | bytearray) -> str:
    """The `batch` of a head whose leaf hashes are these, one after the other."""
    return hashlib.sha256(leaves).hexdigest()


class Signer:
    """The private half of a key: it signs heads, and manifests of evidence."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public_key: Final = PublicKey(private.public_key())

    @classmethod
    def at(cls, file: Path) -> Signer:
        """The key in a PEM file; a new one, for its owner alone, where there is no such file.

        Raises:
            ConfigError: the file cannot be read or made, or holds no Ed25519 key.
        """
        try:
            if not file.exists():  # one that is there is read where nothing can be written, too
                with contextlib.suppress(FileExistsError):
                    _make(file)
            private = load_pem_private_key(file.read_bytes(), password=None)
        except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise _unusable(file, error) from None
        if not isinstance(private, Ed25519PrivateKey):
            raise _unusable(file, None)
        return cls(private)

    def sign(self, head: Head) -> Head:
        """The head with its signature, under this key's id."""
        said = head.to_json() | {"key": self.public_key.id}
        said["signature"] = self.signature(_to_sign(said))
        return trusted(Head, **said)

    def signature(self, said: bytes) -> str:
        """The signature over bytes that begin with a context of their own, as base64."""
        return base64.b64encode(self._private.sign(said)).decode("ascii")


class PublicKey:
    """The public half: it verifies what the private one signed."""

    def __init__(self, public: Ed25519PublicKey) -> None:
        self._public = public
        raw = public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.id: Final = hashlib.sha256(raw).hexdigest()[:KEY_ID]
        self.pem: Final = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode("ascii")

    @classmethod
    def of(cls, pem: str) -> PublicKey:
        """The key of a PEM text.

        Raises:
            ValueError: it holds no Ed25519 public key.
        """
        with contextlib.suppress(UnsupportedAlgorithm, ValueError):
            public = load_pem_public_key(pem.encode())
            if isinstance(public, Ed25519PublicKey):
                return cls(public)
        raise ValueError("not an Ed25519 public key")

    @classmethod
    def at(cls, file: Path) -> PublicKey:
        """The key of a PEM file; ConfigError where it cannot be read or holds none."""
        try:
            return cls.of(file.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            hint = "`cmf audit key FILE` prints that of a private one"
            why = f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else "this is no public key"
            raise ConfigError(why, path=str(file), code="config.public-key", hint=hint) from None

    def signed(self, head: Head) -> bool:
        """Whether this key signed exactly this head."""
        if head.key != self.id:
            return False
        try:
            return self.verifies(head.signed_bytes(), head.signature)
        except (ValueError, TypeError):  # a database may hold anything, bytes for text too
            return False

    def verifies(self, said: bytes, signed: object) -> bool:
        """Whether `signed` is this key's signature over these bytes."""
        if not isinstance(signed, str):
            return False
        try:
            signature = base64.b64decode(signed, validate=True)
            self._public.verify(signature, said)
        except (InvalidSignature, ValueError):
            return False
        return base64.b64encode(signature).decode("ascii") == signed  # one signature has one spelling


def _make(file: Path) -> None:
    made = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # Written beside and linked: whoever finds the file finds all of it, and of two that make one, one wins.
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
        why = f"it cannot be read or made: {error.strerror}"
    else:
        why = "it is no Ed25519 key" if error is None else "it is no private key in PEM without a password"
    return ConfigError(
        f"the audit key cannot be used: {why}", path=str(file), hint="`cmf audit key FILE` makes one; PEM, Ed25519"
    )


__all__ = ["Head", "PublicKey", "Signer", "batch_digest"]
