"""LiteLLM's generic guardrail API. Spec: gateway.md [GW-245] ff.

LiteLLM extracts texts, images, tools and calls from a request or an answer and sends these; for a chat request it sends
the messages too. All of it is judged as one chat request or answer, and changed texts are sent back.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from cmf import adapters
from cmf.json.codec import dumps, loads
from cmf.message.digests import canonical_bytes
from cmf.message.model_ids import FORMAT_PROVIDERS
from cmf.message.request import Request, Response
from pipeline.gateway.checks.check_request import placed, read_as, would_change, wrong
from pipeline.gateway.config.settings_base import Section
from pipeline.gateway.http.client_response import Answer, decision_headers, json_answer
from pipeline.gateway.http.incoming import SESSION_HEADER
from pipeline.gateway.http.refusal import Refusal
from pipeline.gateway.proxy.proxy import IncomingRequest, request_in
from pipeline.run.emit import with_provider
from pipeline.run.offload import apart
from pipeline.run.outcome import Outcome

if TYPE_CHECKING:
    from pipeline.gateway.checks.check import Checks

_FORMAT: Final = "openai_chat"
_SESSION: Final = re.compile(r"[A-Za-z0-9._:@/=+-]{1,64}")
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
    sent, body, places, value = await apart(_asked, incoming.body)
    incoming = replace(incoming, session=incoming.session or _session(sent))
    outcome, left = await checks.left_of(incoming, value, _FORMAT)
    return await apart(_answer_for, sent, body, places, outcome, left, edit_answers)


def _asked(asked: Any) -> tuple[GuardrailRequest, _Object, list[int], Request | Response]:
    """What LiteLLM sent, also as a chat body, which texts of that are LiteLLM's, and what is judged."""
    sent = read_as(GuardrailRequest, asked)
    _refuse_unjudged(sent)
    body = _body(sent)
    return sent, body, _places_of(sent, list(_texts(body))), _value(sent, body)


def _answer_for(
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


def _value(sent: GuardrailRequest, body: _Object) -> Request | Response:
    provider = FORMAT_PROVIDERS[_FORMAT]
    with placed("$"):
        if sent.input_type == "request":
            return with_provider(request_in(_FORMAT, body, {}), provider)
        return with_provider(adapters.get(_FORMAT).from_wire_response(body, None), provider)


def _session(sent: GuardrailRequest) -> str | None:
    """The session named by LiteLLM's client, kept apart by LiteLLM's keys: all its clients are one subject here."""
    session = {name.lower(): text for name, text in (sent.request_headers or {}).items()}.get(SESSION_HEADER)
    if session is None:
        return None
    if not _SESSION.fullmatch(session):
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
    images = {canonical_bytes(part) for part in map(_url_of, _parts(body)) if part is not None}
    for number, image in enumerate(sent.images or ()):
        if canonical_bytes(image) not in images:
            raise _unknown(f"$.images[{number}]")
    lists = [calls for message in _messages(body) if isinstance(calls := message.get("tool_calls"), list)]
    calls_made = {canonical_bytes(_unnumbered(call)) for calls in lists for call in calls if isinstance(call, dict)}
    for number, call in enumerate(sent.tool_calls or ()):
        if canonical_bytes(_unnumbered(call)) not in calls_made:
            raise _unknown(f"$.tool_calls[{number}]")


def _url_of(part: Any) -> Any:
    image = part.get("image_url") if isinstance(part, dict) else None
    return image.get("url") if isinstance(image, dict) else image


def _unknown(path: str) -> Refusal:
    return wrong(
        path, "this is in none of the messages", "LiteLLM left part of the request out, so it cannot be judged"
    )


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
