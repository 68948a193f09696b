"""Model ids: `<provider>:<model>`, the model part verbatim, whatever it contains. Spec: docs/spec/message.md; seed 004.

They are split at the first colon only: `ollama:minimax-m3:cloud` is provider `ollama`, model `minimax-m3:cloud`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from cmf.errors import ModelIdError

_PROVIDER: Final = re.compile(r"[a-z][a-z0-9_-]*\Z")


FORMAT_PROVIDERS: Final = {
    "openai_chat": "openai",
    "openai_responses": "openai",
    "anthropic_messages": "anthropic",
    "gemini": "google",
    "ollama": "ollama",
    "openrouter": "openrouter",
}
"""The provider whose models a wire format asks for, unless the host names another; other formats have none."""

PROVIDER_FORMATS: Final = {key: name for name, key in reversed(FORMAT_PROVIDERS.items())} | {"gemini": "gemini"}
"""The reverse: the wire format by which a provider's models are asked, unless the host names another."""

PROVIDERS: Final = frozenset(FORMAT_PROVIDERS.values()) | {
    "azure", "bedrock", "cerebras", "cohere", "fireworks", "gemini", "groq", "huggingface", "nvidia", "perplexity",
    "together", "vertex", "vllm", "xai",
}  # fmt: skip
"""The keys that name a provider. No name that a provider gives its models begins with one and a colon, as `llama3:8b`,
`ft:gpt-4o:acme::x` and `mistral:7b` begin with something else."""


class ModelId(NamedTuple):
    """A model of a provider."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def parse_model_id(text: str) -> ModelId:
    """The provider and the verbatim model of a model id.

    Raises:
        ModelIdError: no colon, no model, or a provider that is not lower-case letters, digits, `_` and `-`.
    """
    provider, colon, model = text.partition(":")
    if not colon or not model:
        raise ModelIdError("not a model id", hint="write <provider>:<model>")
    if not _PROVIDER.match(provider):
        raise ModelIdError("the provider of a model id is not lower-case", hint="write <provider>:<model>")
    return ModelId(provider, model)


def provider_and_name(text: str) -> tuple[str | None, str]:
    """`provider_of` and `wire_name` of a model's name."""
    key, colon, name = text.partition(":")
    return (key, name) if colon and key in PROVIDERS else (None, text)


def provider_of(text: str) -> str | None:
    """The provider that a model's name brings: the key before its first colon, if it is one of `PROVIDERS`."""
    return provider_and_name(text)[0]


def wire_name(text: str) -> str:
    """What a model is called on the wire: without the provider's key, verbatim."""
    return provider_and_name(text)[1]


def model_matches(model: str, pattern: str) -> bool:
    """Whether a model's name fits a pattern with `*`, `?` and `[…]`. Case counts; `*` takes `/` and `:` too."""
    return _compiled(pattern).match(model) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str]:
    from wcmatch import fnmatch  # many programs match no model at all

    (regex,), _ = fnmatch.translate(pattern, flags=fnmatch.CASE | fnmatch.DOTMATCH | fnmatch.FORCEUNIX)
    return re.compile(regex.removesuffix("$") + r"\Z")  # its `$` allows a newline behind the name
