"""Approvals: what waits for a person, and what was decided. Spec: docs/spec/approvals.md."""
