"""Functions and models with judgement around them. Spec: docs/spec/guard.md."""
