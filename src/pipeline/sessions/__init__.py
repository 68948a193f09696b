"""Sessions: what a conversation is known by, what is kept of it, and the stores. Spec: docs/spec/sessions.md."""
