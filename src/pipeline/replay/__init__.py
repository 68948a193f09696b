"""Recorded inputs: replaying them, comparing two policy sets, measuring. Spec: docs/spec/replay.md."""
