"""Guarding Python functions as tools and models. Spec: docs/spec/guard.md."""
