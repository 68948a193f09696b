"""Conversations kept for good: sessions, runs, messages, tool calls. Spec: docs/spec/ledger.md."""
