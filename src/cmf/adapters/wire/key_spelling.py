"""Refuses keys that only a lenient reader takes for the format's own: `Model` beside `model`, `Method` for `method`.

Readers of JSON in Go, C# and other languages match the names of fields in any letter case, and some ignore control
characters in them. To them such a key is the field itself, and often the last one counts; to policy it would be an
unknown field. Spec: docs/spec/adapters.md [ADP-17].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cmf.errors import ShapeError
from cmf.message.message import Message, OpaquePart, Part, PromptResultPart, ToolResultPart
from cmf.message.request import Request, Response
from cmf.message.transform import message_paths, messages_of

NAMES: Final = frozenset(
    {
        "_meta", "action", "annotations", "args", "argument", "arguments", "audio", "background", "blob",
        "blockReason", "cache_control", "cachedContent", "call_id", "caller", "candidateCount", "candidates",
        "capabilities", "choices", "citations", "clientInfo", "code", "codeExecutionResult", "completion", "container",
        "content", "contents", "context", "context_management", "conversation", "created", "cursor", "custom", "data",
        "delta", "description", "displayName", "document_url", "done", "done_reason", "effort", "elicitationId",
        "error", "errorText", "eval_count", "executableCode", "execution", "fallbacks", "file", "file_data", "file_id",
        "file_url", "fileData", "filename", "fileUri", "finish_reason", "finishReason", "format", "frequency_penalty",
        "frequencyPenalty", "function", "function_call", "functionCall", "functionCallingConfig",
        "functionDeclarations", "functionResponse", "functions", "generationConfig", "guardrail_config", "icons", "id",
        "image_url", "images", "include", "include_reasoning", "index", "inlineData", "input", "input_audio",
        "input_schema", "inputRequests", "inputResponses", "inputSchema", "instructions", "is_error", "isError",
        "item_reference", "json_schema", "jsonrpc", "keep_alive", "level", "logger", "logit_bias", "logprobs",
        "max_completion_tokens", "max_output_tokens", "max_tokens", "max_tool_calls", "maxOutputTokens", "maxTokens",
        "mcp_server_name", "mcp_servers", "mediaType", "message", "messages", "metadata", "method", "mimeType",
        "modalities", "mode", "model", "model_name", "modelName", "modelPreferences", "models", "modelVersion",
        "moderation", "n", "name", "namespace", "nextCursor", "notifications", "num_ctx", "num_predict", "object",
        "options", "outcome", "output", "output_config", "output_format", "output_text", "outputSchema",
        "parallel_tool_calls", "parameters", "parametersJsonSchema", "params", "parts", "plugins", "prediction",
        "preliminary", "presence_penalty", "presencePenalty", "preset", "previous_response_id", "progress",
        "progressToken", "prompt", "prompt_cache_key", "prompt_eval_count", "promptFeedback", "prompts",
        "protocolVersion", "provider", "providerExecuted", "raw", "rawInput", "reasoning", "reasoning_content",
        "reasoning_details", "reasoning_effort", "reasoning_text", "ref", "refusal", "requestedSchema", "requestId",
        "requestState", "resource", "resources", "resourceTemplates", "response", "response_format",
        "responseJsonSchema", "responseMimeType", "responseSchema", "result", "resultType", "role", "roots", "route",
        "routing_config", "routingConfig", "safety_identifier", "safetySettings", "schema", "seed", "server_label",
        "server_name", "serverInfo", "service_tier", "session_id", "signature", "size", "source", "speed", "state",
        "status", "stop", "stop_details", "stop_reason", "stop_sequence", "stop_sequences", "stopReason",
        "stopSequences", "store", "stream", "stream_options", "structuredContent", "suffix", "summary", "system",
        "system_fingerprint", "systemInstruction", "systemPrompt", "task", "temperature", "template", "text", "think",
        "thinking", "thinkingConfig", "thought", "thoughtSignature", "title", "tool_call_id", "tool_calls",
        "tool_choice", "tool_config", "tool_name", "tool_use_id", "toolCall", "toolCallId", "toolChoice", "toolConfig",
        "toolName", "toolResponse", "tools", "toolUseId", "top_k", "top_logprobs", "top_p", "topK", "topP", "total",
        "transforms", "truncation", "type", "uri", "uriTemplate", "url", "usage", "usageMetadata", "user", "verbosity",
        "video_url", "web_search_options",
    }
)  # fmt: skip
"""The names, of whatever format, that adapters read or that rules look for in what adapters keep."""

_HOLDING: Final = frozenset(
    {
        "allowed_tools", "argument", "audio", "choices", "clientInfo", "conversation", "custom", "envelope", "error",
        "execution", "fallbacks", "file", "fileData", "format", "function", "functionCall", "functionResponse",
        "function_call", "generationConfig", "image_url", "inlineData", "input_audio", "item", "json_schema",
        "message", "messages", "modelPreferences", "options", "output_config", "params", "plugins", "prompt",
        "prompts", "provider", "reasoning", "ref", "resource", "response_format", "result", "roots", "routingConfig",
        "routing_config", "serverInfo", "source", "task", "text", "thinking", "thinkingConfig", "toolCall",
        "toolChoice", "toolConfig", "toolResponse", "tool_choice", "tool_config", "tools", "video_url",
    }
)  # fmt: skip
"""What holds objects whose keys are the format's, too; the keys of all other kept objects are free."""

_FOLDED: Final = {name.casefold(): name for name in NAMES}
_OF_ERRORS: Final = frozenset({"code", "error", "message", "status", "title", "type"})
"""Names that gateways spell as they like in their errors; a reply without an answer in it may be one."""

_HOLDERS: Final = frozenset({OpaquePart, PromptResultPart, ToolResultPart})


def refuse_other_spellings(value: Request | Response) -> None:
    """Refuse a value that was read from a body with a name of its format in another spelling.

    Raises:
        ShapeError: `shape.ambiguous-key`, with the path of the part, message, tool or choice.
    """
    for name, path in _misspelt_in(value):
        raise ShapeError(
            f"a key is another spelling of `{name}`, which some readers take for it",
            path=path,
            code="shape.ambiguous-key",
            hint=f"write `{name}`, or leave the key out",
        )


def _misspelt_in(value: Request | Response) -> Iterator[tuple[str, str]]:
    """The names that a value keeps in another spelling, each with the path of what keeps it."""
    if value.extra:
        says_something = isinstance(value, Request) or bool(value.choices)
        yield from ((name, "") for name in _misspelt(value.extra) if says_something or name not in _OF_ERRORS)
    for at, tool in enumerate(value.tools):
        if tool.extra:
            yield from ((name, f"tools[{at}]") for name in _misspelt(tool.extra))
    for at, choice in enumerate(value.choices if isinstance(value, Response) else ()):
        if choice.extra:
            yield from ((name, f"choices[{at}]") for name in _misspelt(choice.extra))
    if not _keep_nothing(messages_of(value)):
        yield from _in_messages(message_paths(value))


def _in_messages(messages: Iterable[tuple[str, Message]]) -> Iterator[tuple[str, str]]:
    for path, message in messages:
        if message.extra:
            yield from ((name, path) for name in _misspelt(message.extra))
        for index, part in enumerate(message.content):
            if part.extra or type(part) in _HOLDERS:
                yield from _in_part(part, f"{path}.content[{index}]")


def _keep_nothing(messages: Sequence[Message]) -> bool:
    """Whether no key of these messages can be a name: so it is of nearly all, and told in a third of the time."""
    for message in messages:
        if message.extra:
            return False
        for part in message.content:
            # Its type is asked for first: to find that a value is of no such class takes five times as long.
            if part.extra or (type(part) in _HOLDERS and type(getattr(part, "content", None)) is not str):
                return False
    return True


def _in_part(part: Part, path: str) -> Iterator[tuple[str, str]]:
    if part.extra:
        yield from ((name, path) for name in _misspelt(part.extra))
    if isinstance(part, OpaquePart):
        yield from ((name, path) for name in _in_object(part.value))
    elif isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        for at, inner in enumerate(part.content):
            yield from _in_part(inner, f"{path}.content[{at}]")
    elif isinstance(part, PromptResultPart):
        yield from _in_messages((f"{path}.messages[{at}]", message) for at, message in enumerate(part.messages))


def _misspelt(extra: Mapping[str, Any]) -> Iterator[str]:
    for own in extra.values():  # by the name of the format
        if isinstance(own, dict):
            yield from _in_object(own)


def _in_object(own: Mapping[str, Any]) -> Iterator[str]:
    for key, item in own.items():
        if key not in NAMES and (name := _FOLDED.get(_folded(key))) is not None:
            yield name
        if key in _HOLDING:
            for inner in item if isinstance(item, list) else (item,):
                if isinstance(inner, dict):
                    yield from _in_object(inner)


def _folded(key: str) -> str:
    """The key as the most lenient readers match it: in no letter case, without what cannot be printed."""
    return key.casefold() if key.isprintable() else "".join(filter(str.isprintable, key)).casefold()
