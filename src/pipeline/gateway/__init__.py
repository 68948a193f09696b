"""The gateway: HTTP in the providers' own dialects, every request and reply judged. Spec: docs/spec/gateway.md."""
