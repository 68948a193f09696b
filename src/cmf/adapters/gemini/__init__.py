"""The wire format of Gemini's `generateContent`. Spec: docs/spec/adapters/gemini.md."""

from cmf.adapters.gemini.response import ADAPTER as ADAPTER
