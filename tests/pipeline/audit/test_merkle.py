"""Merkle trees against the RFC's own definition, written as it stands there, and against published vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.audit.heads import EMPTY_ROOT, Proofs, Tree, consistent, included, leaf_hash, node_hash

# The leaves and roots that implementations of Certificate Transparency are tested with.
_LEAVES = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]
_SIZES = st.integers(min_value=1, max_value=70)


def leaves(size: int) -> list[bytes]:
    return [leaf_hash(bytes([number])) for number in range(size)]


def defined_root(hashes: Sequence[bytes]) -> bytes:
    """RFC 9162 §2.1.1, word by word."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    split = 1
    while split * 2 < len(hashes):
        split *= 2
    return node_hash(defined_root(hashes[:split]), defined_root(hashes[split:]))


@pytest.mark.spec("AUD-1")
def test_the_roots_are_those_of_the_published_vectors() -> None:
    tree = Tree()
    assert tree.root() == EMPTY_ROOT
    for leaf, root in zip(_LEAVES, _ROOTS, strict=True):
        tree.append(leaf_hash(bytes.fromhex(leaf)))
        assert tree.root().hex() == root


@pytest.mark.spec("AUD-1")
@given(_SIZES)
def test_a_tree_that_grows_has_the_root_of_the_definition(size: int) -> None:
    before = Tree(leaves(size))
    after = before.copy()
    after.append(leaf_hash(b"more"))
    assert before.root() == defined_root(leaves(size))
    assert after.root() == defined_root([*leaves(size), leaf_hash(b"more")])


@pytest.mark.spec("AUD-2")
def test_a_proof_of_inclusion_holds_for_its_leaf_at_its_place_only() -> None:
    for size in range(1, 34):
        every = leaves(size)
        proofs, root = Proofs(every), defined_root(every)
        for place in range(size):
            proof = proofs.inclusion(place)
            assert included(every[place], place, size, proof, root)
            assert not included(leaf_hash(b"other"), place, size, proof, root)
            assert not any(included(every[place], other, size, proof, root) for other in range(size) if other != place)
            assert not included(every[place], place, size, [*proof, EMPTY_ROOT], root)
            assert not (proof and included(every[place], place, size, proof[:-1], root))
            assert not included(every[place], place, size, proof, EMPTY_ROOT)
        assert not included(every[0], size, size, [], root)
        assert not included(every[0], -1, size, [], root)


@pytest.mark.spec("AUD-2")
def test_a_proof_of_consistency_holds_for_the_beginning_only() -> None:
    for size in range(1, 34):
        every = leaves(size)
        proofs, root = Proofs(every), defined_root(every)
        for earlier in range(1, size + 1):
            proof, before = proofs.consistency(earlier), defined_root(every[:earlier])
            assert consistent(earlier, before, size, root, proof)
            assert not consistent(earlier, EMPTY_ROOT, size, root, proof)
            assert not consistent(earlier, before, size, EMPTY_ROOT, proof)
            assert not consistent(earlier, before, size, root, [*proof, EMPTY_ROOT])
            assert not (proof and consistent(earlier, before, size, root, proof[:-1]))
        assert not consistent(0, EMPTY_ROOT, size, root, [])
        assert not consistent(size + 1, root, size, root, [])
    assert Proofs(leaves(3)).consistency(0) == []
    assert not consistent(3, defined_root(leaves(3)), 5, defined_root(leaves(5)), [])
