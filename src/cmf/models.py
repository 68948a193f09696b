"""Model ids: `<provider>:<model>`, the model part verbatim, whatever it contains. Spec: docs/spec/models.md; seed 004.

They are split at the first colon only: `ollama:minimax-m3:cloud` is provider `ollama`, model `minimax-m3:cloud`.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cmf.errors import ModelIdError

_PROVIDER: Final = re.compile(r"[a-z][a-z0-9_-]*\Z")


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
