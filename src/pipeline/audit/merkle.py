"""Merkle trees as in RFC 9162 §2.1: roots, inclusion proofs and consistency proofs.

Hashes are SHA-256. Leaves and nodes are hashed with different prefixes, so neither can pass for the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

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
