"""Where the values in a tool call came from, and what was asked for. Spec: docs/spec/provenance.md."""
