"""Test cases on file: what went in, and what is to be decided. Spec: docs/spec/cases.md."""
