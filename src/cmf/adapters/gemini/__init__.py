"""The wire format of Gemini's `generateContent`. Spec: docs/spec/adapters/gemini.md.

One file a direction: `request`, `response`, `stream`; `parts` and `write` read and write parts; `names` knows the two
spellings of the provider's names.
"""

from cmf.adapters.gemini.adapter import ADAPTER

__all__ = ["ADAPTER"]
