"""The OpenAI Responses format (`/v1/responses`). Spec: docs/spec/adapters/openai_responses.md.

Each item of `input` is one message; the items of an answer are the parts of one. `decode`, `encode` and `stream` are
its directions, `items` and `places` what they share; `adapter` is where they meet.
"""

from cmf.adapters.openai_responses.adapter import ADAPTER

__all__ = ["ADAPTER"]
