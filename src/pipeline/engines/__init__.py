"""Engines: what evaluates a policy set. Spec: docs/spec/engines.md."""
