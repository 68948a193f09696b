"""Judged inputs on file: judged again, compared under two sets of policies, measured. Spec: docs/spec/replay.md."""
