"""A body judged for a caller and sent nowhere: `POST /v1/check`, and Envoy's `ext_authz`.

Spec: gateway.md [GW-230] ff., [GW-240] ff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from cmf import adapters
from cmf.json.codec import dumps
from cmf.json.frozen import frozen_mapping
from cmf.json.value import replace
from cmf.message.digests import canonical_bytes
from cmf.message.ids import TOOL_PREFIX
from cmf.message.model_ids import FORMAT_PROVIDERS
from cmf.message.request import Request, Response
from pipeline.decisions.decision import Decision, Hit, Mode, stage_hits
from pipeline.decisions.errors import DecisionError, PolicyUnavailable
from pipeline.decisions.ids import new_ulid
from pipeline.gateway.checks.check_request import placed, read_as, would_change, wrong
from pipeline.gateway.checks.guardrail_api import guarded
from pipeline.gateway.config.settings import CHECK_ROUTE, Check, LitellmCheck
from pipeline.gateway.config.settings_base import Name, Section
from pipeline.gateway.http.client_response import Answer, decision_headers, json_answer
from pipeline.gateway.http.dialects import JSON
from pipeline.gateway.http.endpoints import Operation
from pipeline.gateway.http.refusal import FINAL, Refusal, of_decision
from pipeline.gateway.proxy.admission import Admission
from pipeline.gateway.proxy.proxy import IncomingRequest, read_request, refusing_unemittable, request_in
from pipeline.guard import Guard
from pipeline.mcp.frames import FrameError, frame_of
from pipeline.mcp.reading import FORMAT as _MCP
from pipeline.mcp.reading import Repeated, repeat, request_of, response_of, unrepeated
from pipeline.run.emit import emit, with_provider
from pipeline.run.offload import apart
from pipeline.run.outcome import Outcome, raised

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
        also = {Operation.ENVOY: settings.envoy, Operation.LITELLM: settings.litellm}
        self.operations = frozenset(
            {Operation.CHECK, *(operation for operation, wanted in also.items() if wanted is not None)}
        )
        self._litellm = settings.litellm or LitellmCheck()
        self._claimed = settings.answers != "trusted"

    async def answer(self, incoming: IncomingRequest) -> Answer:
        """The verdict, on record by then: always 200, with the body as it may go on, if it may.

        Raises:
            Refusal: 400 for an invalid check, or a body that is not of its format; 503 if policy was unavailable.
        """
        if incoming.endpoint.operation is Operation.ENVOY:
            return await authorized(self, incoming)
        if incoming.endpoint.operation is Operation.LITELLM:
            return await guarded(self, incoming, edit_answers=self._litellm.edit_answers)
        question = await apart(question_of, incoming.body)
        read = await apart(_read, question, incoming.headers)
        outcome = await self.judged(incoming, read.value, history=read.history, call_id=read.call_id)
        body = await apart(_written, outcome, read, question.format)
        return Answer(status=200, media_type=JSON, body=body, headers=decision_headers(outcome.decision))

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


def question_of(body: Any) -> Question:
    """The check in a request body. Refusal 400, with the JSON path, if it is not valid."""
    question = read_as(Question, body)
    if question.request is not None and question.kind == "request":
        raise wrong("$.request", "only a response answers a request", "leave it out")
    if question.server is not None and question.format != _MCP:
        raise wrong("$.server", "only mcp has servers", "leave it out")
    has_request = question.kind == "request" or question.request is not None
    if question.model is not None and (question.format == _MCP or not has_request):
        raise wrong("$.model", "there is no request that could be for a model", "leave it out")
    return question


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

    def written(self, body: Any) -> Any:
        if self.call_id is not None:
            body = {**body, "id": self.id}
        return body if self.again is None else repeat(body, self.again)


def _read(question: Question, headers: Mapping[str, str]) -> _Read:
    if question.format == _MCP:
        return _mcp(question)
    provider = FORMAT_PROVIDERS.get(question.format)

    def request(place: str, body: Any) -> Request:
        with placed(place):
            return with_provider(request_in(question.format, body, headers, model=question.model), provider)

    if question.kind == "request":
        return _Read(value=request("$.body", question.body))
    answered = None if question.request is None else request("$.request", question.request)
    with placed("$.body"):
        response = adapters.get(question.format).from_wire_response(question.body, answered)
    return _Read(value=with_provider(response, provider), history=answered)


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
            answer["body"] = read.written(emit(outcome, format_name))
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
    return answer | {"rules": list(_rules(decision)), "coverage": decision.coverage.to_json()}


def _rules(decision: Decision) -> Iterator[dict[str, Any]]:
    """Each rule that hit, and where; without what is meant for its author only."""
    yield from (_rule(hit, None) for hit in stage_hits(decision.stages))
    for view in decision.hit_views:
        yield from (_rule(hit, view.path) for hit in view.hits)


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


async def authorized(checks: Checks, incoming: IncomingRequest) -> Answer:
    """200 if the request may go on exactly as it is, since Envoy sends what it holds.

    Raises:
        Refusal: policy refuses it, or allows it only with changes; it cannot be read; policy was unavailable.
    """
    name = incoming.endpoint.dialect.name
    request = with_provider(await apart(read_request, incoming), FORMAT_PROVIDERS[name])
    outcome, left = await checks.left_of(incoming, request, name)
    if await apart(canonical_bytes, left) != await apart(canonical_bytes, incoming.body):
        raise would_change(outcome, "Policy allows this request only with changes, which Envoy cannot make.")
    return json_answer(200, {}, decision_headers(outcome.decision))
