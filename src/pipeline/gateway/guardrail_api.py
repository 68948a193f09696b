"""What may go on of what LiteLLM hands over, by its generic guardrail API. Spec: gateway.md [GW-245] ff.

LiteLLM takes texts, images, tools and calls out of a request or an answer and asks about these; of a chat request it
brings the messages along. All of it is judged as one chat request or answer, and what is changed goes back as texts.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from cmf import adapters
from cmf.codec import dumps, loads
from cmf.digests import canonical_bytes
from cmf.models import FORMAT_PROVIDERS
from cmf.request import Request, Response
from pipeline.emission import with_provider
from pipeline.gateway.dialects import JSON
from pipeline.gateway.exchange import Asked, request_in
from pipeline.gateway.intake import SESSION_HEADER
from pipeline.gateway.questions import placed, read_as, would_change, wrong
from pipeline.gateway.refusal import Refusal
from pipeline.gateway.reply import Answer, decision_headers
from pipeline.gateway.sections import Section

if TYPE_CHECKING:
    from pipeline.gateway.check import Checks

_FORMAT: Final = "openai_chat"
_SESSION: Final = re.compile(r"[A-Za-z0-9._:@/=+-]{1,64}")
_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_Object = dict[str, Any]


class Handed(Section):
    """What LiteLLM hands over. Only what is about the call itself, and goes nowhere, is not judged."""

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
    """Where a text stands: in which object, under which key."""

    holder: _Object
    key: str

    @property
    def said(self) -> str:
        return str(self.holder[self.key])


async def guarded(checks: Checks, asked: Asked, *, edit_answers: bool) -> Answer:
    """What LiteLLM may send: all of it, or other texts in its place; on record by then.

    Raises:
        Refusal: none of it; to LiteLLM it is `BLOCKED`, unless policy cannot be asked.
    """
    handed = read_as(Handed, asked.body)
    _refuse_unjudged(handed)
    body = _body(handed)
    places = _handed_over(handed, list(_texts(body)))
    asked = replace(asked, session=asked.session or _session(handed))
    outcome, left = await checks.left_of(asked, _value(handed, body), _FORMAT)
    headers = decision_headers(outcome.decision)
    if canonical_bytes(left) == canonical_bytes(body):
        return Answer(status=200, media_type=JSON, body=dumps({"action": "NONE"}), headers=headers)
    texts = _edited(body, left, places) if edit_answers or handed.input_type == "request" else None
    if texts is None:
        raise would_change(outcome, "Policy lets this go on only with changes that LiteLLM would not make.")
    said = {"action": "GUARDRAIL_INTERVENED", "texts": texts}
    return Answer(status=200, media_type=JSON, body=dumps(said), headers=headers)


# -- what is handed over, as a chat request or answer ------------------------------------------------------------------


def _refuse_unjudged(handed: Handed) -> None:
    """Refusal for what nobody here could judge, or would pass over."""
    if handed.additional_provider_specific_params:
        raise wrong("$.additional_provider_specific_params", "nothing is known of these here", "leave them out")
    if handed.input_type == "response" and (handed.structured_messages or handed.tools):
        raise wrong("$", "an answer has neither messages nor tools", "leave them out")
    if not (handed.texts or handed.images or handed.tools or handed.tool_calls or handed.structured_messages):
        raise wrong("$", "nothing is handed over", "what LiteLLM does not extract is not judged here")


def _body(handed: Handed) -> _Object:
    named: _Object = {} if handed.model is None else {"model": handed.model}
    if handed.input_type == "response":
        said = enumerate(_loose(handed, "assistant"))
        choices = [{"index": at, "message": message, "finish_reason": "stop"} for at, message in said]
        return {**named, "choices": choices}
    messages = handed.structured_messages or list(_loose(handed, "user"))
    return {**named, "messages": messages, **({"tools": handed.tools} if handed.tools else {})}


def _loose(handed: Handed, role: str) -> Iterator[_Object]:
    """What comes without messages, each text as one: nobody says which of them belong together.

    Calls are the first of it: what stands in them was asked for by nobody, whatever texts are there.
    """
    calls = [_unnumbered(call) for call in handed.tool_calls or ()]
    if calls:
        yield {"role": "assistant", "content": None, "tool_calls": calls}
    yield from ({"role": role, "content": text} for text in handed.texts or ())
    images = [{"type": "image_url", "image_url": {"url": url}} for url in handed.images or ()]
    if images:
        yield {"role": role, "content": images}


def _unnumbered(call: _Object) -> _Object:
    """Without its place in a stream, which LiteLLM adds."""
    return {key: item for key, item in call.items() if key != "index" or type(item) is not int}


def _value(handed: Handed, body: _Object) -> Request | Response:
    provider = FORMAT_PROVIDERS[_FORMAT]
    with placed("$"):
        if handed.input_type == "request":
            return with_provider(request_in(_FORMAT, body, {}), provider)
        return with_provider(adapters.get(_FORMAT).from_wire_response(body, None), provider)


def _session(handed: Handed) -> str | None:
    """The session that LiteLLM's client names: per key of LiteLLM, for all of them are one subject here."""
    said = {name.lower(): text for name, text in (handed.request_headers or {}).items()}.get(SESSION_HEADER)
    if said is None:
        return None
    if not _SESSION.fullmatch(said):
        hint = f"up to 64 letters, digits and ._:@/=+-; `extra_headers: [{SESSION_HEADER}]` has LiteLLM hand it over"
        raise wrong("$.request_headers", "this is no session's id", hint)
    key = str((handed.request_data or {}).get("user_api_key_hash") or "")
    if not _KEY.fullmatch(key):
        raise wrong("$.request_data", "nothing says whose session it is", "LiteLLM has to ask for keys of its own")
    return f"{said}/{key[:32]}"


# -- what was extracted, and where it stands ---------------------------------------------------------------------------


def _messages(body: _Object) -> list[_Object]:
    return [choice["message"] for choice in body["choices"]] if "choices" in body else body["messages"]


def _parts(body: _Object) -> Iterator[Any]:
    for message in _messages(body):
        content = message.get("content")
        yield from content if isinstance(content, list) else ()


def _texts(body: _Object) -> Iterator[_Text]:
    """Each text, as LiteLLM extracts them: contents that are texts, and `text` of the parts of those that are lists."""
    for message in _messages(body):
        content = message.get("content")
        if isinstance(content, str):
            yield _Text(message, "content")
        elif isinstance(content, list):
            for part in content:
                if isinstance(part, dict) and isinstance(part.get("text"), str):
                    yield _Text(part, "text")


def _handed_over(handed: Handed, texts: Sequence[_Text]) -> list[int]:
    """Which of the body's texts each text of LiteLLM's is. Refusal for a text, image or call that is none of it."""
    standing: defaultdict[str, deque[int]] = defaultdict(deque)
    for at, text in enumerate(texts):
        standing[text.said].append(at)
    found: list[int] = []
    for number, said in enumerate(handed.texts or ()):
        if not standing[said]:
            raise _unknown(f"$.texts[{number}]")
        found.append(standing[said].popleft())
    if handed.structured_messages:
        _check_standing(handed)
    return found


def _check_standing(handed: Handed) -> None:
    body: _Object = {"messages": handed.structured_messages}
    images = {canonical_bytes(part) for part in map(_url_of, _parts(body)) if part is not None}
    for number, image in enumerate(handed.images or ()):
        if canonical_bytes(image) not in images:
            raise _unknown(f"$.images[{number}]")
    lists = [calls for message in _messages(body) if isinstance(calls := message.get("tool_calls"), list)]
    made = {canonical_bytes(_unnumbered(call)) for calls in lists for call in calls if isinstance(call, dict)}
    for number, call in enumerate(handed.tool_calls or ()):
        if canonical_bytes(_unnumbered(call)) not in made:
            raise _unknown(f"$.tool_calls[{number}]")


def _url_of(part: Any) -> Any:
    image = part.get("image_url") if isinstance(part, dict) else None
    return image.get("url") if isinstance(image, dict) else image


def _unknown(path: str) -> Refusal:
    return wrong(path, "this is in none of the messages", "LiteLLM dropped some of the request: nobody could judge it")


def _edited(body: _Object, left: Any, places: Sequence[int]) -> list[str] | None:
    """LiteLLM's texts as policy left them; None where something else was changed, or it could not be told where."""
    now = loads(dumps(left))
    before, after = list(_texts(body)), list(_texts(now))
    if len(before) != len(after):
        return None
    texts = [after[at].said for at in places]
    became: defaultdict[str, set[str]] = defaultdict(set)
    for old, new in zip(before, after, strict=True):
        became[old.said].add(new.said)
        new.holder[new.key] = old.said
    # Which of two texts that are the same LiteLLM means is known where it names all of them in order.
    unsure = any(len(one) > 1 for one in became.values()) and list(places) != list(range(len(before)))
    changed = {at for at, one in enumerate(before) if became[one.said] != {one.said}}
    if unsure or not changed <= set(places) or canonical_bytes(now) != canonical_bytes(body):
        return None
    return texts


__all__ = ["Handed", "guarded"]
