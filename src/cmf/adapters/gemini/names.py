"""The two spellings of Gemini's JSON: camelCase as it answers, snake_case as it also accepts. Spec: [GEM-2], [GEM-3].

The adapter reads one normal form. How a body was spelled is a `Spelling` tree that holds no free text: which of the
names listed here stood in snake_case, where one item stood for a list of one, and where text stood for a content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from cmf.errors import ShapeError

Spelling: TypeAlias = dict[str, Any]
"""`{"snake": [camelCase names], "one": true, "text": true, "at": {name or index: Spelling}}`; empty if normal."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The names of an object that are read, with the shapes of their values. `item` makes it a list of that shape.

    `text` says that bare text may stand for it; it is read as the object where `keys` say what that has.
    """

    keys: Mapping[str, Shape | None] = field(default_factory=dict)
    snake: Mapping[str, str] = field(default_factory=dict)
    item: Shape | None = None
    text: Literal["content", "part"] | None = None


_SNAKE_NAMES: Final = (
    "allowed_function_names", "block_reason", "cached_content", "cached_content_token_count",
    "candidates_token_count", "code_execution", "code_execution_result", "computer_use", "display_name",
    "enterprise_web_search", "executable_code", "file_data", "file_search", "file_uri", "finish_reason",
    "frequency_penalty", "function_call", "function_calling_config", "function_declarations", "function_response",
    "generation_config", "google_maps", "google_search", "google_search_retrieval", "inline_data",
    "max_output_tokens", "mcp_servers", "mime_type", "model_version", "parameters_json_schema", "partial_args",
    "presence_penalty", "prompt_feedback", "prompt_token_count", "response_id", "response_json_schema",
    "response_mime_type", "response_schema", "safety_settings", "stop_sequences", "system_instruction",
    "thinking_config", "thinking_level", "thought_signature", "thoughts_token_count", "tool_call", "tool_config",
    "tool_response", "tool_type", "tool_use_prompt_token_count", "top_k", "top_p", "total_token_count",
    "url_context", "usage_metadata", "will_continue",
)  # fmt: skip
_SNAKE: Final = {re.sub("_(.)", lambda match: match[1].upper(), name): name for name in _SNAKE_NAMES}


def _shape(*names: str, text: Literal["content", "part"] | None = None, **nested: Shape) -> Shape:
    keys: dict[str, Shape | None] = {**dict.fromkeys(names), **nested}
    return Shape(keys=keys, snake={_SNAKE[name]: name for name in keys if name in _SNAKE}, text=text)


PROVIDER_TOOLS: Final = (
    "codeExecution", "computerUse", "enterpriseWebSearch", "fileSearch", "googleMaps", "googleSearch",
    "googleSearchRetrieval", "mcpServers", "retrieval", "urlContext",
)  # fmt: skip
"""The names under which a tool object offers what Google runs, or defines."""
CLIENT_RUN: Final = frozenset({"computerUse"})
"""Those that the client runs: the calls are calls of functions."""

_BLOB: Final = _shape("mimeType", "data", "displayName")
_FILE: Final = _shape("mimeType", "fileUri", "displayName")
_SERVER: Final = _shape("toolType")
_RESULT_PART: Final = _shape("thoughtSignature", inlineData=_BLOB, fileData=_FILE, text="part")
_PART: Final = _shape(
    "thoughtSignature",
    "executableCode",
    "codeExecutionResult",
    text="part",
    inlineData=_BLOB,
    fileData=_FILE,
    functionCall=_shape("partialArgs", "willContinue"),
    functionResponse=_shape("willContinue", parts=Shape(item=_RESULT_PART)),
    toolCall=_SERVER,
    toolResponse=_SERVER,
)
CONTENT: Final = _shape(text="content", parts=Shape(item=_PART))
REQUEST: Final = _shape(
    "cachedContent",
    "safetySettings",
    "systemInstruction",  # read as a content of its own, and so is each of `contents`
    contents=Shape(item=_shape(text="content")),
    tools=Shape(item=_shape(*PROVIDER_TOOLS, functionDeclarations=Shape(item=_shape("parametersJsonSchema")))),
    toolConfig=_shape(functionCallingConfig=_shape("allowedFunctionNames")),
    generationConfig=_shape(
        "topP", "topK", "maxOutputTokens", "stopSequences", "frequencyPenalty", "presencePenalty",
        "responseMimeType", "responseSchema", "responseJsonSchema", thinkingConfig=_shape("thinkingLevel"),
    ),
)  # fmt: skip
RESPONSE: Final = _shape(
    "modelVersion",
    "responseId",
    candidates=Shape(item=_shape("finishReason", content=CONTENT)),
    promptFeedback=_shape("blockReason"),
    usageMetadata=_shape(
        "promptTokenCount", "cachedContentTokenCount", "candidatesTokenCount", "thoughtsTokenCount",
        "toolUsePromptTokenCount", "totalTokenCount",
    ),
)  # fmt: skip


def normal(raw: Any, shape: Shape, path: str = "$") -> tuple[Any, Spelling]:
    """`raw` in camelCase with lists as lists, and how it was spelled; what fits no shape is left as it is."""
    spelling: Spelling = {}
    inner: dict[str, Spelling] = {}
    if (item := shape.item) is not None:
        alone = isinstance(raw, dict) or (isinstance(raw, str) and item.text is not None)
        if not alone and not isinstance(raw, list):
            return raw, {}
        items = [normal(each, item, f"{path}[{index}]") for index, each in enumerate([raw] if alone else raw)]
        inner = {str(index): own for index, (_, own) in enumerate(items) if own}
        if alone:
            spelling["one"] = True
        return [each for each, _ in items], spelling | ({"at": inner} if inner else {})
    if isinstance(raw, str) and shape.text is not None and shape.keys:
        part = {"text": raw}
        return (part if shape.text == "part" else {"parts": [part]}), {"text": True}
    if not isinstance(raw, dict):
        return raw, {}
    body: dict[str, Any] = {}
    for key, value in raw.items():
        name = shape.snake.get(key, key)
        if name != key:
            if name in raw:
                raise ShapeError(
                    "a name is given in both spellings",
                    path=f"{path}.{key}",
                    code="shape.ambiguous-key",
                    hint=f"write only `{name}`",
                )
            spelling.setdefault("snake", []).append(name)
        nested = shape.keys.get(name)
        if nested is None:
            body[name] = value
            continue
        body[name], own = normal(value, nested, f"{path}.{name}")
        if own:
            inner[name] = own
    return body, spelling | ({"at": inner} if inner else {})


def spelt(value: Any, spelling: Mapping[str, Any], shape: Shape) -> Any:
    """`value`, which is in normal form, spelled so; wherever that would not read back as `value`, it stays normal."""
    if not spelling:
        return value
    body = _spelt(value, spelling, shape)
    return body if normal(body, shape)[0] == value else value


def _spelt(value: Any, spelling: Mapping[str, Any], shape: Shape) -> Any:
    inner = spelling.get("at") or {}
    if (item := shape.item) is not None:
        if not isinstance(value, list):
            return value
        items = [_spelt(each, inner.get(str(index)) or {}, item) for index, each in enumerate(value)]
        return items[0] if spelling.get("one") and len(items) == 1 else items
    if not isinstance(value, dict) or not spelling:
        return value
    if spelling.get("text"):
        parts = value.get("parts")
        part = value if shape.text == "part" else parts[0] if isinstance(parts, list) and len(parts) == 1 else None
        whole = len(value) == 1 and isinstance(part, dict) and part.keys() == {"text"}
        return part["text"] if whole and part is not None else value
    snake = spelling.get("snake") or ()
    body: dict[str, Any] = {}
    for key, each in value.items():
        nested = shape.keys.get(key)
        is_snake = key in snake and key in shape.keys and key in _SNAKE
        name = _SNAKE[key] if is_snake and _SNAKE[key] not in value else key
        body[name] = _spelt(each, inner[key], nested) if nested is not None and key in inner else each
    return body
