"""What was decided, as a Merkle log: its tree, its signed heads, and what checks them. Spec: docs/spec/audit.md."""
