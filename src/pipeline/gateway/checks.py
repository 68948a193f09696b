"""Bodies judged for callers and sent nowhere: `POST /v1/check`, Envoy's `ext_authz`, LiteLLM's guardrail API.

LiteLLM extracts texts, images, tools and calls from a request or an answer and sends these; for a chat request it sends
the messages too. All of it is judged as one chat request or answer, and changed texts are sent back.
Spec: gateway.md [GW-230] ff., [GW-240] ff.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import replace as replaced
from difflib import get_close_matches
from typing import Any, Final, Literal, NamedTuple, TypeVar

import pydantic
from pydantic import Field

from cmf import adapters
from cmf.errors import CmfError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import frozen_mapping
from cmf.json.value import replace
from cmf.message.digests import canonical_bytes
from cmf.message.ids import TOOL_PREFIX
from cmf.message.model_ids import FORMAT_PROVIDERS
from cmf.message.request import Request, Response
from pipeline.decisions.decision import Hit, Mode, stage_hits
from pipeline.decisions.errors import DecisionError, PolicyUnavailable
from pipeline.decisions.timestamps import new_ulid
from pipeline.gateway.config.settings import CHECK_ROUTE, Check, LitellmCheck
from pipeline.gateway.config.settings_base import Name, Section, first_of, said_of
from pipeline.gateway.http.client_response import Answer, decision_headers, json_answer
from pipeline.gateway.http.dialects import JSON
from pipeline.gateway.http.endpoints import Operation
from pipeline.gateway.http.incoming import SESSION_HEADER
from pipeline.gateway.http.refusal import FINAL, Refusal, of_decision, of_unreadable
from pipeline.gateway.proxy.admission import Admission
from pipeline.gateway.proxy.proxy import IncomingRequest, read_request, refusing_unemittable, request_in
from pipeline.guard import Guard
from pipeline.mcp.frames import FrameError, frame_of
from pipeline.mcp.judging import FORMAT as _MCP
from pipeline.mcp.judging import Repeated, repeat, request_of, response_of, unrepeated
from pipeline.run.emit import emit, with_provider
from pipeline.run.offload import apart
from pipeline.run.outcome import Outcome, raised

_Q = TypeVar("_Q", bound=Section)


def read_as(model: type[_Q], body: Any) -> _Q:
    """The body as `model`. Refusal 400, with the JSON path, if it does not fit."""
    try:
        return model.model_validate(body)
    except pydantic.ValidationError as error:
        findings = error.errors(include_url=False, include_input=False)
    finding = next((other for other in findings if other["type"] == "extra_forbidden"), None) or first_of(findings)
    steps = finding["loc"]
    name = str(steps[0]) if steps else ""
    path = f"$.{name}" if name.isidentifier() and len(name) <= 64 else "$"
    if finding["type"] != "extra_forbidden":
        raise wrong(path, *said_of(finding, steps, body.get(name) if isinstance(body, dict) else body))
    near = get_close_matches(name, model.model_fields, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(model.model_fields)}"
    raise wrong(path, "this key is not known", f"the header {SESSION_HEADER} names it" if name == "session" else hint)


def wrong(path: str, why: str, hint: str) -> Refusal:
    """The refusal for an error at a JSON path of the body."""
    return Refusal(400, "check.invalid", f"{why[:1].upper()}{why[1:]} at {path}: {hint}", headers=FINAL)


def would_change(outcome: Outcome, why: str) -> Refusal:
    """The refusal where policy allows a value only with changes that the caller would not make; `why` says so."""
    headers = decision_headers(outcome.decision) | FINAL
    return Refusal(403, "check.would-change", f"{why} (decision {outcome.decision.id})", headers=headers)


@contextmanager
def placed(place: str) -> Iterator[None]:
    """A block that reads what is at a JSON path; what cannot be read becomes a Refusal that names the path."""
    try:
        yield
    except CmfError as error:
        raise of_unreadable(error.at(place)) from None


_FORMAT: Final = "openai_chat"
_LITELLM_SESSION: Final = re.compile(r"[A-Za-z0-9._:@/=+-]{1,64}")
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_Object = dict[str, Any]


class GuardrailRequest(Section):
    """What LiteLLM sends. Only the fields about the call itself, which go nowhere, are not judged."""

    input_type: Literal["request", "response"]
    texts: list[str] | None = None
    images: list[str] | None = None
    tools: list[_Object] | None = None
    tool_calls: list[_Object] | None = None
    structured_messages: list[_Object] | None = None
    model: str | None = None
    request_data: _Object | None = None
    request_headers: dict[str, str] | None = None
    additional_provider_specific_params: _Object | None = None
    litellm_call_id: str | None = None
    litellm_trace_id: str | None = None
    litellm_version: str | None = None


class _Text(NamedTuple):
    """Where a text is: in which object, under which key."""

    holder: _Object
    key: str

    @property
    def text(self) -> str:
        return str(self.holder[self.key])


async def guarded(checks: Checks, incoming: IncomingRequest, *, edit_answers: bool) -> Answer:
    """What LiteLLM may send: all of it, or with other texts. The decision is on record by then.

    Raises:
        Refusal: nothing of it; LiteLLM is told `BLOCKED`, unless policy was unavailable.
    """

    def read() -> tuple[GuardrailRequest, _Object, list[int], Request | Response]:
        """What LiteLLM sent, also as a chat body, which texts of that are LiteLLM's, and what is judged."""
        sent = read_as(GuardrailRequest, incoming.body)
        _refuse_unjudged(sent)
        body, provider = _body(sent), FORMAT_PROVIDERS[_FORMAT]
        places = _places_of(sent, list(_texts(body)))
        with placed("$"):
            if sent.input_type == "request":
                return sent, body, places, with_provider(request_in(_FORMAT, body, {}), provider)
            return sent, body, places, with_provider(adapters.get(_FORMAT).from_wire_response(body, None), provider)

    sent, body, places, value = await apart(read)
    incoming = replaced(incoming, session=incoming.session or _session(sent))
    outcome, left = await checks.left_of(incoming, value, _FORMAT)
    return await apart(_litellm_answer, sent, body, places, outcome, left, edit_answers)


def _litellm_answer(
    sent: GuardrailRequest, body: _Object, places: list[int], outcome: Outcome, left: Any, edit_answers: bool
) -> Answer:
    headers = decision_headers(outcome.decision)
    if canonical_bytes(left) == canonical_bytes(body):
        return json_answer(200, {"action": "NONE"}, headers)
    may_edit = edit_answers or sent.input_type == "request"
    texts = _edited(body, left, places, joined=_is_joined(sent)) if may_edit else None
    if texts is None:
        raise would_change(outcome, "Policy allows this only with changes that LiteLLM would not make.")
    return json_answer(200, {"action": "GUARDRAIL_INTERVENED", "texts": texts}, headers)


# -- what was sent, as a chat request or answer -----------------------------------------------------------------------


def _refuse_unjudged(sent: GuardrailRequest) -> None:
    """Refusal for what could not be judged here, or would be ignored."""
    if sent.additional_provider_specific_params:
        raise wrong("$.additional_provider_specific_params", "these are unknown here", "leave them out")
    if sent.input_type == "response" and (sent.structured_messages or sent.tools):
        raise wrong("$", "an answer has neither messages nor tools", "leave them out")
    if not (sent.texts or sent.images or sent.tools or sent.tool_calls or sent.structured_messages):
        raise wrong("$", "this holds nothing to judge", "LiteLLM did not extract any text, image, tool or call")


def _body(sent: GuardrailRequest) -> _Object:
    named: _Object = {} if sent.model is None else {"model": sent.model}
    if sent.input_type == "response":
        answers = enumerate(_loose(sent, "assistant"))
        choices = [{"index": at, "message": message, "finish_reason": "stop"} for at, message in answers]
        return {**named, "choices": choices}
    messages = sent.structured_messages or list(_loose(sent, "user"))
    return {**named, "messages": messages, **({"tools": sent.tools} if sent.tools else {})}


def _loose(sent: GuardrailRequest, role: str) -> Iterator[_Object]:
    """Messages for what was sent without any: one for each text and one for all, as none tells which belong together.

    Calls come first: then no text counts as a request for what is in them.
    """
    calls = [_unnumbered(call) for call in sent.tool_calls or ()]
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}
    yield from ({"role": role, "content": text} for text in sent.texts or ())
    if _is_joined(sent):
        yield {"role": role, "content": "".join(sent.texts or ())}
    images = [{"type": "image_url", "image_url": {"url": url}} for url in sent.images or ()]
    if images:
        yield {"role": role, "content": images}


def _is_joined(sent: GuardrailRequest) -> bool:
    """Whether the last text of the body joins those before it, as readers may: they may be blocks of one answer."""
    return not sent.structured_messages and len(sent.texts or ()) > 1


def _unnumbered(call: _Object) -> _Object:
    """The call without its index in a stream, which LiteLLM adds."""
    return {key: item for key, item in call.items() if key != "index" or type(item) is not int}


def _session(sent: GuardrailRequest) -> str | None:
    """The session named by LiteLLM's client, kept apart by LiteLLM's keys: all its clients are one subject here."""
    session = {name.lower(): text for name, text in (sent.request_headers or {}).items()}.get(SESSION_HEADER)
    if session is None:
        return None
    if not _LITELLM_SESSION.fullmatch(session):
        hint = f"up to 64 letters, digits and ._:@/=+-; `extra_headers: [{SESSION_HEADER}]` has LiteLLM hand it over"
        raise wrong("$.request_headers", "this is not a session id", hint)
    key = str((sent.request_data or {}).get("user_api_key_hash") or "")
    if not _KEY.fullmatch(key):
        raise wrong("$.request_data", "it does not say whose session this is", "have LiteLLM require keys of its own")
    return f"{session}/{key[:32]}"


# -- what was extracted, and where it is -------------------------------------------------------------------------------


def _messages(body: _Object) -> list[_Object]:
    return [choice["message"] for choice in body["choices"]] if "choices" in body else body["messages"]


def _parts(body: _Object) -> Iterator[Any]:
    for message in _messages(body):
        content = message.get("content")
        yield from content if isinstance(content, list) else ()


def _texts(body: _Object) -> Iterator[_Text]:
    """Each text, as LiteLLM extracts them: string contents, and `text` of the parts of list contents."""
    for message in _messages(body):
        content = message.get("content")
        if isinstance(content, str):
            yield _Text(message, "content")
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    yield _Text(part, "text")


def _places_of(sent: GuardrailRequest, texts: Sequence[_Text]) -> list[int]:
    """Which text of the body each of LiteLLM's texts is. Refusal for a text, image or call that is not in it."""
    remaining: defaultdict[str, deque[int]] = defaultdict(deque)
    for at, text_in_body in enumerate(texts):
        remaining[text_in_body.text].append(at)
    places: list[int] = []
    for number, text in enumerate(sent.texts or ()):
        if not remaining[text]:
            raise _unknown(f"$.texts[{number}]")
        places.append(remaining[text].popleft())
    if sent.structured_messages:
        _check_in_messages(sent)
    return places


def _check_in_messages(sent: GuardrailRequest) -> None:
    body: _Object = {"messages": sent.structured_messages}
    parts = (part.get("image_url") for part in _parts(body) if isinstance(part, dict))
    urls = (image.get("url") if isinstance(image, dict) else image for image in parts)
    images = {canonical_bytes(url) for url in urls if url is not None}
    for number, image in enumerate(sent.images or ()):
        if canonical_bytes(image) not in images:
            raise _unknown(f"$.images[{number}]")
    lists = [calls for message in _messages(body) if isinstance(calls := message.get("tool_calls"), list)]
    calls_made = {canonical_bytes(_unnumbered(call)) for calls in lists for call in calls if isinstance(call, dict)}
    for number, call in enumerate(sent.tool_calls or ()):
        if canonical_bytes(_unnumbered(call)) not in calls_made:
            raise _unknown(f"$.tool_calls[{number}]")


def _unknown(path: str) -> Refusal:
    hint = "LiteLLM left part of the request out, so it cannot be judged"
    return wrong(path, "this is in none of the messages", hint)


def _edited(body: _Object, left: Any, places: Sequence[int], *, joined: bool) -> list[str] | None:
    """LiteLLM's texts as policy left them; None if anything else was changed, or the place is ambiguous.

    `joined`: the last text joins the others. What was found across them is in none of them.
    """
    now = loads(dumps(left))
    before, after = list(_texts(body)), list(_texts(now))
    if len(before) != len(after):
        return None
    if joined:
        *before, old = before
        *after, new = after
        if new.text not in (old.text, "".join(each.text for each in after)):
            return None
        new.holder[new.key] = old.text
    texts = [after[at].text for at in places]
    became: defaultdict[str, set[str]] = defaultdict(set)
    for old, new in zip(before, after, strict=True):
        became[old.text].add(new.text)
        new.holder[new.key] = old.text
    # Which of two equal texts LiteLLM means is only known if it sends all of them in order.
    unsure = any(len(one) > 1 for one in became.values()) and list(places) != list(range(len(before)))
    changed = {at for at, one in enumerate(before) if became[one.text] != {one.text}}
    if unsure or not changed <= set(places) or canonical_bytes(now) != canonical_bytes(body):
        return None
    return texts


Format = Literal[
    "aisdk", "anthropic_messages", "gemini", "mcp", "ollama", "openai_chat", "openai_responses", "openrouter"
]  # fmt: skip


class Question(Section):
    """A body to judge, and how to read it.

    Attributes:
        format: the wire format of the body. kind: its direction.
        model: the model of a request whose body does not name it.
        request: for a response, the request that it answers, in the same format.
        server: for MCP, the name of the server that owns the tools and prompts.
    """

    format: Format
    kind: Literal["request", "response"]
    body: dict[str, Any]
    model: str | None = Field(default=None, min_length=1, max_length=256)
    request: dict[str, Any] | None = None
    server: Name | None = None


class Checks:
    """Answers checks.

    Args:
        guard: judges the bodies.
        settings: limits, and whether callers are trusted.
    """

    def __init__(self, guard: Guard, settings: Check) -> None:
        self.admission = Admission(settings.limits)
        self._guard = guard
        wanted = {Operation.CHECK: settings, Operation.ENVOY: settings.envoy, Operation.LITELLM: settings.litellm}
        self.operations = frozenset(operation for operation, own in wanted.items() if own is not None)
        self._litellm = settings.litellm or LitellmCheck()
        self._claimed = settings.answers != "trusted"

    async def answer(self, incoming: IncomingRequest) -> Answer:
        """The verdict, on record by then: always 200, with the body as it may go on, if it may.

        Raises:
            Refusal: 400 for an invalid check, or a body that is not of its format; 503 if policy was unavailable.
        """
        if incoming.endpoint.operation is Operation.ENVOY:
            return await self._authorized(incoming)
        if incoming.endpoint.operation is Operation.LITELLM:
            return await guarded(self, incoming, edit_answers=self._litellm.edit_answers)
        question, read = await apart(_read, incoming)
        outcome = await self.judged(incoming, read.value, history=read.history, call_id=read.call_id)
        body = await apart(_written, outcome, read, question.format)
        return Answer(status=200, media_type=JSON, body=body, headers=decision_headers(outcome.decision))

    async def _authorized(self, incoming: IncomingRequest) -> Answer:
        """200 if the request may go on exactly as it is, since Envoy sends what it holds.

        Raises:
            Refusal: policy refuses it, or allows it only with changes; it cannot be read; policy was unavailable.
        """
        name = incoming.endpoint.dialect.name
        request = with_provider(await apart(read_request, incoming), FORMAT_PROVIDERS[name])
        outcome, left = await self.left_of(incoming, request, name)
        if await apart(canonical_bytes, left) != await apart(canonical_bytes, incoming.body):
            raise would_change(outcome, "Policy allows this request only with changes, which Envoy cannot make.")
        return json_answer(200, {}, decision_headers(outcome.decision))

    async def left_of(
        self, incoming: IncomingRequest, value: Request | Response, format_name: str
    ) -> tuple[Outcome, Any]:
        """What policy leaves of a value that others will send, in a format; the decision is on record by then.

        Raises:
            Refusal: policy refuses it or was unavailable, or the format cannot express what is left.
        """
        try:
            outcome = raised(await self.judged(incoming, value))
        except DecisionError as error:
            raise of_decision(error) from None
        with refusing_unemittable(outcome, 400):
            return outcome, await apart(emit, outcome, format_name)

    async def judged(
        self,
        incoming: IncomingRequest,
        value: Request | Response,
        *,
        history: Request | None = None,
        call_id: str | None = None,
    ) -> Outcome:
        """The outcome for a value, recorded as a check."""
        context = incoming.context(CHECK_ROUTE)
        context = replace(
            context,
            recorded=frozen_mapping({**context.recorded, "asked": incoming.endpoint.operation.value}),
            history=history,
            call_id=call_id,
            claimed=self._claimed,
        )
        return await self._guard.arun(value, context=context)


# -- reading it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What to judge, what is known about it, and how to write back what is left of it.

    `call_id` replaces the `id` of an MCP call; `again` is set if a text was repeated (`unrepeated`).
    """

    value: Request | Response
    history: Request | None = None
    call_id: str | None = None
    id: Any = None
    again: Repeated | None = None


def _read(incoming: IncomingRequest) -> tuple[Question, _Read]:
    """The check in a request. Refusal 400, with the JSON path, if it is not valid."""
    question = read_as(Question, incoming.body)
    is_request, is_mcp = question.kind == "request", question.format == _MCP
    if question.request is not None and is_request:
        raise wrong("$.request", "only a response answers a request", "leave it out")
    if question.server is not None and not is_mcp:
        raise wrong("$.server", "only mcp has servers", "leave it out")
    if question.model is not None and (is_mcp or not (is_request or question.request is not None)):
        raise wrong("$.model", "there is no request that could be for a model", "leave it out")
    if is_mcp:
        return question, _mcp(question)
    provider = FORMAT_PROVIDERS.get(question.format)

    def request(place: str, body: Any) -> Request:
        with placed(place):
            return with_provider(request_in(question.format, body, incoming.headers, model=question.model), provider)

    if is_request:
        return question, _Read(value=request("$.body", question.body))
    answered = None if question.request is None else request("$.request", question.request)
    with placed("$.body"):
        response = adapters.get(question.format).from_wire_response(question.body, answered)
    return question, _Read(value=with_provider(response, provider), history=answered)


def _mcp(question: Question) -> _Read:
    if question.kind == "request":
        body = _message("$.body", question.body, is_answer=False)
        own = body.get("id")
        # Two calls are distinct, whatever ids their callers chose [MCPX-16].
        call_id = None if own is None else f"{TOOL_PREFIX}{new_ulid()}"
        with placed("$.body"):
            request = request_of(body if own is None else {**body, "id": call_id}, question.server)
        return _Read(value=request, call_id=call_id, id=own)
    answered = None
    if question.request is not None:
        with placed("$.request"):
            answered = request_of(_message("$.request", question.request, is_answer=False), question.server)
    body, again = unrepeated(_message("$.body", question.body, is_answer=True))
    with placed("$.body"):
        response = response_of(body, answered, question.server)
    return _Read(value=response, history=answered, again=again)


def _message(place: str, body: dict[str, Any], *, is_answer: bool) -> Mapping[str, Any]:
    """The body, if it is a message of that kind; else Refusal 400."""
    try:
        frame_of(body)
    except FrameError as error:
        raise Refusal(400, error.code, f"{error.message} This is {place}.", headers=FINAL) from None
    if ("method" in body) == is_answer:
        raise wrong(place, "this is a message of the other kind", "a method makes it a request")
    return body


# -- writing the answer ------------------------------------------------------------------------------------------------


def _written(outcome: Outcome, read: _Read, format_name: str) -> bytes:
    """The answer, with the body as it may go on. Refusal as for `Checks.answer`."""
    answer = _answer_for(outcome)
    if outcome.value is not None:
        with refusing_unemittable(outcome, 400):
            body = emit(outcome, format_name)
        body = body if read.call_id is None else {**body, "id": read.id}
        answer["body"] = body if read.again is None else repeat(body, read.again)
    return dumps(answer)


def _answer_for(outcome: Outcome) -> dict[str, Any]:
    """The answer without the body. Refusal 503 if policy was unavailable."""
    decision = outcome.decision
    answer: dict[str, Any] = {
        "decision_id": decision.id,
        "verdict": decision.verdict.value,
        "action": decision.action.value,
        "mode": decision.mode.value,
        "revision": decision.revision,
    }
    try:
        raised(outcome)
    except PolicyUnavailable as error:
        raise of_decision(error) from None
    except DecisionError as error:
        answer |= {"code": error.code, "message": error.user_message}
    if decision.approval_ids:
        answer["approvals"] = list(decision.approval_ids)
    # Each rule that hit, and where; without what is meant for its author only.
    rules = [_rule(hit, None) for hit in stage_hits(decision.stages)]
    rules += [_rule(hit, view.path) for view in decision.hit_views for hit in view.hits]
    return answer | {"rules": rules, "coverage": decision.coverage.to_json()}


def _rule(hit: Hit, path: str | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "rule": hit.rule,
        "code": hit.code,
        "effect": hit.effect.value,
        "reason": hit.reason,
        "severity": hit.severity,
        "path": path,
    }
    if hit.mode is not Mode.ENFORCE:
        fields["mode"] = hit.mode.value
    return fields if hit.excused is None else fields | {"excused": True}
