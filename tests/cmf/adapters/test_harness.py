"""The harness finds each defect that it is there for: an adapter is broken on purpose, one way at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cmf.adapters import get
from cmf.json.value import replace
from cmf.message.request import Request, Response
from tests.cmf.adapters import harness, hostile, mediation, streams, tally
from tests.cmf.adapters.wiredata import CANARY, Record, records, spots

REAL = get("openai_chat")


class Broken:
    """The real adapter but for the methods given."""

    def __init__(self, **instead: Callable[..., Any]) -> None:
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(REAL, name)


@pytest.fixture
def few() -> list[Record]:
    """The smallest records of each kind."""
    by_size = sorted(records("openai_chat"), key=lambda record: len(str(record)))
    streamed = [record for record in by_size if record.events and len(record.events) > 4]
    whole = [record for record in by_size if record.request and record.response and record.status == 200]
    return streamed[:3] + whole[:4]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broken], None]:
    """A function that puts a broken adapter in the place of the real one, for the harness alone."""

    def put(adapter: Broken) -> None:
        for module in (harness, hostile, mediation, streams, tally):
            if hasattr(module, "get"):
                monkeypatch.setattr(module, "get", lambda _: adapter)

    return put


def _without_model(body: Any, **options: Any) -> Request:
    return replace(REAL.from_wire_request(body, **options), model=None)


def _hasty_fold(events: Any) -> Any:
    body = REAL.fold_events(events)
    body.pop("cmf_partial", None)
    return body


def _deaf_fold(events: Any) -> Any:
    return REAL.fold_events([*events[:2], *events[3:]])


def _chatty(value: Any) -> Any:
    return {**REAL.to_wire(value), "note": "nobody judged this"}


def _chatty_reply(value: Response) -> Any:
    return {**REAL.to_wire_response(value), "note": "nobody judged this"}


def _crashing(body: Any, **options: Any) -> Request:
    return REAL.from_wire_request({**body, "messages": [{**one} for one in body["messages"]]}, **options)


def test_a_lost_field_is_found(few: list[Record], install: Callable[[Broken], None]) -> None:
    install(Broken(from_wire_request=_without_model))

    assert harness.check_lossless("openai_chat", few, "request").share < 1
    missed = harness.check_mediated("openai_chat", few).failed
    assert {where.rsplit("] ", 1)[1] for where, _ in missed} == {"model (leaf)"}


def test_a_cut_stream_that_passes_for_whole_is_found(few: list[Record], install: Callable[[Broken], None]) -> None:
    install(Broken(fold_events=_hasty_fold))

    assert harness.check_truncation("openai_chat", few).share < 0.1


def test_a_chunk_that_is_not_reported_is_found(few: list[Record], install: Callable[[Broken], None]) -> None:
    install(Broken(fold_events=_deaf_fold))

    assert harness.check_folded("openai_chat", few).share < 1
    assert harness.check_mediated("openai_chat", few).share < 1


@pytest.mark.parametrize("broken", [Broken(to_wire=_chatty), Broken(to_wire_response=_chatty_reply)])
def test_a_string_that_was_not_judged_is_found(
    few: list[Record], install: Callable[[Broken], None], broken: Broken
) -> None:
    install(broken)

    assert harness.check_emitted("openai_chat", few).share < 1


def test_a_refusal_of_recorded_traffic_is_found(few: list[Record], install: Callable[[Broken], None]) -> None:
    install(Broken(fold_events=lambda events: REAL.from_wire_request({})))

    assert harness.check_accepted("openai_chat", few).share < 1


def test_an_exception_of_another_kind_is_found(install: Callable[[Broken], None]) -> None:
    install(Broken(from_wire_request=_crashing))

    with pytest.raises((TypeError, KeyError)):
        harness.check_hostile("openai_chat", "request", {"model": "m", "messages": None})


def test_a_string_that_hostile_json_hides_is_found(install: Callable[[Broken], None]) -> None:
    install(Broken(from_wire_request=_without_model))

    with pytest.raises(AssertionError, match="accepted, but not shown"):
        harness.check_hostile("openai_chat", "request", {"model": "hidden model", "messages": []})


class _Judge:
    """Hits the views of one kind alone."""

    token = CANARY

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def __call__(self, inputs: list[dict[str, Any]]) -> set[str]:
        return {each["input"]["path"] for each in inputs if each["input"]["kind"] in self._kinds}


def test_a_judge_has_to_hit_the_view_that_shows_the_token(few: list[Record]) -> None:
    everywhere = {"request", "response", "text", "tool_call", "tool_result", "tool_definition", "opaque", "thinking"}

    blind = harness.check_mediated("openai_chat", few, judge=_Judge("video"))
    seeing = harness.check_mediated("openai_chat", few, judge=_Judge(*everywhere, "image", "document", "audio"))

    assert blind.counts["missed"] == blind.checked - blind.counts["refused"]
    assert seeing.share == 1


def test_every_place_of_a_body_is_tried() -> None:
    body = {"a": ["x", {"b": '{"c":"y"}'}], "d": "data:image/png;base64,AAAA", "e": 1}

    assert sorted(map(str, spots(body))) == [
        "a (key)",
        "a[0] (leaf)",
        "a[1].b (key)",
        "a[1].b (leaf)",
        "a[1].b.c (embedded)",
        "d (key)",
        "d (leaf)",
        "d (payload)",
        "e (key)",
    ]
