"""The Vercel AI SDK: UI messages, and the stream of chunks that builds one. Spec: docs/spec/adapters/aisdk.md."""

from cmf.adapters.aisdk.stream import ADAPTER as ADAPTER
