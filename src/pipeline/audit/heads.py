"""Tree heads: the state of a log at a moment, signed with Ed25519 [E3]. Spec: docs/spec/audit.md [AUD-10] ff."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
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

EMPTY_ROOT: Final = sha256(b"").digest()
_LEAF: Final = b"\x00"
_NODE: Final = b"\x01"


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf that holds `data`."""
    return sha256(_LEAF + data).digest()


def leaf_hashes(data: Iterable[bytes]) -> list[bytes]:
    """The hashes of the leaves that hold these."""
    return [sha256(_LEAF + one).digest() for one in data]


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of a node with two children."""
    return sha256(_NODE + left + right).digest()


class Tree:
    """An append-only tree that keeps only what its root needs: at most one hash per bit of its size."""

    __slots__ = ("_peaks", "size")

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self.size = 0
        self._peaks: list[bytes] = []  # roots of its full subtrees, largest first
        self.extend(leaves)

    def append(self, leaf: bytes) -> None:
        """Append a leaf, given as its hash."""
        self.extend((leaf,))

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaves, given as their hashes."""
        peaks, count = self._peaks, self.size
        for grown in leaves:
            size = count
            while size & 1:
                grown = sha256(
                    _NODE + peaks.pop() + grown
                ).digest()  # `node_hash`, inlined because it runs once per leaf
                size >>= 1
            peaks.append(grown)
            count += 1
        self.size = count

    def root(self) -> bytes:
        """The root over all leaves so far."""
        if not self._peaks:
            return EMPTY_ROOT
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = node_hash(peak, root)
        return root

    def copy(self) -> Tree:
        """An independent copy."""
        other = Tree()
        other.size, other._peaks = self.size, self._peaks.copy()
        return other


class Proofs:
    """Proofs about a tree whose leaves are all known. Uses 64 bytes per leaf."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.size = len(leaves)
        self._levels: list[list[bytes]] = [list(leaves)]
        while len(below := self._levels[-1]) > 1:
            pairs = zip(below[::2], below[1::2], strict=False)
            self._levels.append([node_hash(left, right) for left, right in pairs])

    def inclusion(self, place: int) -> list[bytes]:
        """The inclusion proof of the leaf at `place`: the siblings on its path to the root, lowest first."""
        proof: list[bytes] = []
        first, size = 0, self.size
        while size > 1:
            split = _split(size)
            if place - first < split:
                proof.append(self._root(first + split, size - split))
                size = split
            else:
                proof.append(self._root(first, split))
                first, size = first + split, size - split
        return proof[::-1]

    def consistency(self, earlier: int) -> list[bytes]:
        """The consistency proof that the tree of the first `earlier` leaves is a prefix of this one."""
        if not 0 < earlier < self.size:
            return []
        proof: list[bytes] = []
        first, size, whole = 0, self.size, True
        while earlier < size:
            split = _split(size)
            if earlier <= split:
                proof.append(self._root(first + split, size - split))
                size = split
            else:
                proof.append(self._root(first, split))
                first, size, earlier, whole = first + split, size - split, earlier - split, False
        if not whole:
            proof.append(self._root(first, size))
        return proof[::-1]

    def _root(self, first: int, size: int) -> bytes:
        """The root of the `size` leaves from `first` on, where a subtree starts."""
        level = size.bit_length() - 1
        if size == 1 << level:
            return self._levels[level][first >> level]
        split = _split(size)
        return node_hash(self._root(first, split), self._root(first + split, size - split))


def included(leaf: bytes, place: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether `proof` shows that `leaf` (its hash) is at `place` in the tree of `size` leaves with that root."""
    if not 0 <= place < size:
        return False
    index, last, found = place, size - 1, leaf
    for step in proof:
        if not last:
            return False
        if index & 1 or index == last:
            found = node_hash(step, found)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            found = node_hash(found, step)
        index, last = index >> 1, last >> 1
    return not last and found == root


def consistent(earlier: int, earlier_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether `proof` shows that the tree of `earlier` leaves is a prefix of the one of `size` leaves."""
    if not 0 < earlier <= size:
        return False
    if earlier == size:
        return not proof and earlier_root == root
    steps = [earlier_root, *proof] if earlier & (earlier - 1) == 0 else list(proof)
    if not steps:
        return False
    index, last = earlier - 1, size - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    before = now = steps[0]
    for step in steps[1:]:
        if not last:
            return False
        if index & 1 or index == last:
            before, now = node_hash(step, before), node_hash(step, now)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            now = node_hash(now, step)
        index, last = index >> 1, last >> 1
    return not last and before == earlier_root and now == root


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


_CONTEXT: Final = b"cmf tree head 1\n"  # domain separation: nothing else signed with this key begins with it
KEY_ID: Final = 16  # hexadecimal digits of a key's SHA-256 that form its id


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The state of a log after one commit, which added the leaves from `first` up to `size`. Hashes are hex.

    `root` is over all leaves, and `batch` the SHA-256 of the added leaf hashes. `at` is in microseconds since the
    epoch, by the writer's clock; the signature, as base64, is over all other fields.
    """

    log: str
    size: int
    root: str
    first: int
    batch: str
    at: int
    key: str
    signature: str = ""

    def to_json(self) -> dict[str, Any]:
        """The head as in a line of an exported file."""
        return dict(zip(_TYPES, _FIELDS(self), strict=True))

    @classmethod
    def from_json(cls, found: Any) -> Self:
        """The head that a line of an exported file describes. Raises ValueError: it is not a head."""
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
        """The key of a PEM text. Raises ValueError: it is not an Ed25519 public key."""
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
            return self.verifies(_to_sign(head.to_json()), head.signature)
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
