"""The review site: what was decided, read, judged by people and signed off. Spec: docs/spec/review.md."""
