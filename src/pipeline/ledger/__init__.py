"""Stored conversations: sessions, runs, messages, tool calls. Spec: docs/spec/ledger.md."""
