"""The review site, where people read, review and sign off decisions. Spec: docs/spec/review.md."""
