"""The state of the playground's page: policy files, conversation, context. Spec: docs/spec/playground.md [PLAY-2].

It is a test case (docs/spec/cases.md) as text that may still have errors; this module parses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from cmf import adapters
from cmf.errors import CmfError, ShapeError
from cmf.json.codec import loads
from cmf.json.value import Str, Value, value
from pipeline.authoring.case import Case, case_of
from pipeline.decisions.errors import CaseError, PolicyError
from pipeline.policy.loading import DATA_FILES
from pipeline.policy.metadata import load_yaml, yaml_problem

CASE_FORMAT: Final = "case"
"""The conversation as in a case: a list of messages, or `{conversation, reply, model, tools}`."""

FORMATS: Final = (CASE_FORMAT, "canonical", *adapters.FORMATS)
MAX_FILES: Final = 200
MAX_TEXT: Final = 256 * 1024  # characters of the conversation, and of the context
_CONVERSATION_KEYS: Final = frozenset({"conversation", "reply", "model", "tools"})
_CONTEXT: Final = frozenset({"subject", "context", "session", "history"})


@value
class PolicyFile(Value):
    """One file of the policy set: its path and its text."""

    path: Str
    text: Str


@value
class State(Value):
    """The page's state. `format` is one of `FORMATS`; `kind`, for a wire format, is request or response."""

    files: tuple[PolicyFile, ...] = ()
    format: Str = CASE_FORMAT
    kind: Str = "request"
    conversation: Str = ""
    context: Str = ""

    def to_json(self) -> dict[str, Any]:
        """The state as `state_of` reads it."""
        texts = {name: getattr(self, name) for name in ("format", "kind", "conversation", "context")}
        return {"files": [{"path": file.path, "text": file.text} for file in self.files], **texts}

    def contents(self) -> dict[str, bytes]:
        """The policy files by path. PolicyError: too many files, a duplicate, or an invalid path."""
        if len(self.files) > MAX_FILES:
            raise PolicyError(f"more than {MAX_FILES} files", hint="try fewer", code="policy.too-many")
        texts: dict[str, bytes] = {}
        for file in self.files:
            path = PurePosixPath(file.path)
            is_policy = (path.suffix == ".rego" or path.name in DATA_FILES) and file.path == str(path)
            if file.path in texts or not is_policy or any(part[0] in "./" for part in path.parts):
                hint = "as in cmf/rules/<category>/<rule>/<rule>.rego or cmf/defaults/data.json, each once"
                raise PolicyError("not the path of a policy file", path=file.path, hint=hint, code="policy.bad-path")
            texts[file.path] = file.text.encode()
        return texts


class PaneError(Exception):
    """An error in the text of one pane; `line` and `column` count from 1, 0 is unknown."""

    def __init__(self, pane: str, problem: str, *, line: int = 0, column: int = 0, hint: str = "") -> None:
        super().__init__(problem)
        self.pane, self.problem, self.line, self.column, self.hint = pane, problem, line, column, hint


def spelled_case(state: State) -> dict[str, Any]:
    """The case, as keys, made of the page's conversation and context; it may not name files.

    Raises:
        PaneError: a text is not YAML or JSON, or has unsupported keys.
    """
    context = _mapping("context", _parsed("context", state.context) or {}, _CONTEXT)
    if state.format not in FORMATS or state.kind not in ("request", "response"):
        raise PaneError("conversation", "unknown format", hint=f"one of {', '.join(FORMATS)}")
    if state.format != CASE_FORMAT:
        _bounded("conversation", state.conversation)
        try:
            body = loads(state.conversation.encode())
        except CmfError as error:
            problem = f"{error.message} {error.path}".strip()
            raise PaneError("conversation", problem, hint=error.hint) from None
        return {"conversation": {"from": state.format, "body": body, "kind": state.kind}, **context}
    parsed = _parsed("conversation", state.conversation)
    if isinstance(parsed, dict):
        parsed = _mapping("conversation", parsed, _CONVERSATION_KEYS)
        conversation = parsed.get("conversation")
    else:
        conversation, parsed = parsed, {}
    if not isinstance(conversation, list):
        hint = "write a list of messages, as in `- {role: user, text: hello}`, or choose the wire format"
        raise PaneError("conversation", "not a list of messages", hint=hint)
    return {**parsed, "conversation": conversation, **context}


def read_case(state: State) -> Case:
    """The case made of the page's state, without expectations.

    Raises:
        PaneError: as `spelled_case`; or an invalid context or conversation.
    """
    spelled = spelled_case(state)
    context = {key: spelled[key] for key in _CONTEXT & spelled.keys()}
    # First with a valid conversation, to find out which pane is invalid.
    _fitted("context", {**context, "conversation": [{"role": "user", "text": ""}]})
    return _fitted("conversation", spelled)


def _fitted(pane: str, spelled: Mapping[str, Any]) -> Case:
    try:
        return case_of(Path(pane), "", pane, {**spelled, "expect": "allow"})
    except CaseError as error:
        where = error.path.partition(f" ({pane})")[2].strip()
        raise PaneError(pane, f"{error.message} at {where}" if where else error.message, hint=error.hint) from None


def _parsed(pane: str, text: str) -> Any:
    _bounded(pane, text)
    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        line, column, problem = yaml_problem(error)
        raise PaneError(pane, f"not YAML: {problem}", line=line, column=column, hint="correct the text there") from None


def _bounded(pane: str, text: str) -> None:
    if len(text) > MAX_TEXT:
        raise PaneError(pane, f"more than {MAX_TEXT} characters", hint="try it with `cmf eval`")


def _mapping(pane: str, body: Any, keys: frozenset[str]) -> dict[str, Any]:
    listed = ", ".join(sorted(keys))
    if not isinstance(body, dict):
        raise PaneError(pane, "not an object", hint=f"write {listed}")
    unknown = next((str(key) for key in body if key not in keys), None)
    if unknown is not None:
        raise PaneError(pane, f"unknown key {unknown!r}", hint=f"one of {listed}")
    return body


def state_of(body: bytes) -> State:
    """The state in a JSON document. CmfError: it is not a state."""
    document = loads(body)
    if not isinstance(document, dict):
        raise ShapeError("not an object", path="$", hint="send the state as a JSON object")
    return State.model_validate(document)
