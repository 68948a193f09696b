"""The audit log of decisions: a Merkle tree, signed heads, verification, evidence. Spec: docs/spec/audit.md."""
