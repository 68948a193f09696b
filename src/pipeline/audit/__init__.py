"""Records of runs, and their proof: a Merkle log, signed heads, verification, evidence. Spec: docs/spec/audit.md."""
