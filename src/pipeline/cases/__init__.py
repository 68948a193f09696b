"""Test cases: inputs and expected decisions. Spec: docs/spec/cases.md."""
