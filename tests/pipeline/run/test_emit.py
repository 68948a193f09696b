"""The only door outward."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.pipeline.conftest import Rules

from cmf import Choice, Message, Request, Response, SubjectExtension, TextPart, adapters
from cmf.errors import UnsupportedError
from cmf.json.codec import dumps
from pipeline import EmissionError, Guard, emit
from pipeline.decisions import certificate
from pipeline.decisions.certificate import Bound, mint
from pipeline.run import emit as emission
from pipeline.run.emit import with_provider, with_wire_model
from pipeline.run.outcome import Outcome, bound

DENY = 'deny contains {"code": "d", "reason": "No."} if input.content == "no"'


@pytest.fixture
def guard(guarded: Rules) -> Guard:
    return guarded({"deny": DENY})


def request(text: str = "hi", model: str | None = "openai:gpt-x") -> Request:
    return Request(model=model, messages=[Message(role="user", content=[TextPart(text=text)])])


def refused(outcome: Outcome, **changes: object) -> str:
    with pytest.raises(EmissionError) as caught:
        emit(dataclasses.replace(outcome, **changes), "canonical")  # type: ignore[arg-type]
    return caught.value.code


@pytest.mark.spec("PIPE-6")
def test_a_refused_value_is_not_sent(guard: Guard) -> None:
    assert refused(guard.run(request("no"))) == "emit.refused"


@pytest.mark.spec("PIPE-6")
def test_without_a_certificate_nothing_is_sent(guard: Guard) -> None:
    assert refused(guard.run(request()), certificate=None) == "emit.no-certificate"


@pytest.mark.spec("PIPE-6")
def test_another_value_than_the_judged_one_is_not_sent(guard: Guard) -> None:
    assert refused(guard.run(request()), value=request("other")) == "emit.other-value"


@pytest.mark.spec("PIPE-6")
def test_a_certificate_is_good_for_one_emission(guard: Guard) -> None:
    outcome = guard.run(request())
    emit(outcome, "canonical")

    assert refused(outcome) == "emit.spent-certificate"
    with pytest.raises(EmissionError, match="went out already; run it through the pipeline again"):
        emit(outcome, "canonical")


@pytest.mark.spec("PIPE-6")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_lets_nothing_out_that_its_parent_may(guard: Guard) -> None:
    outcome = guard.run(request())

    child = os.fork()
    if child == 0:
        try:
            emit(outcome, "canonical")
        except EmissionError:
            os._exit(7)
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert emit(outcome, "canonical")


@pytest.mark.spec("PIPE-6")
@pytest.mark.parametrize("out", [emit, emission.emit_events])
def test_what_is_no_outcome_is_not_sent(guard: Guard, out: Any) -> None:
    for other in (request(), guard.decide(request()), None):
        with pytest.raises(EmissionError) as caught:
            out(other, "openai_chat")
        assert caught.value.code == "emit.no-outcome"


@pytest.mark.spec("PIPE-6")
def test_of_many_emissions_at_once_one_goes_out(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = guard.run(request())
    # All are past the first look before any of them is through.
    together = threading.Barrier(8)
    encode = emission._encode
    monkeypatch.setattr(emission, "_encode", lambda *given: (together.wait(5), encode(*given))[1])

    def attempt(_: int) -> str:
        try:
            emit(outcome, "canonical")
        except EmissionError as error:
            return error.code
        return "sent"

    with ThreadPoolExecutor(8) as pool:
        results = sorted(pool.map(attempt, range(8)))

    assert results == ["emit.spent-certificate"] * 7 + ["sent"]


@pytest.mark.spec("PIPE-6")
def test_the_oldest_unused_certificates_are_dropped_and_then_refused(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate, "MAX_UNSPENT", 2)
    first, *_, last = [guard.run(request()) for _ in range(3)]

    assert refused(first) == "emit.spent-certificate"
    assert emit(last, "canonical")["model"] == "openai:gpt-x"
    assert last.certificate is not None
    assert last.certificate.seal not in repr(last)


@pytest.mark.spec("PIPE-6")
def test_incomplete_coverage_is_not_sent(guard: Guard) -> None:
    outcome = guard.run(request())
    unfinished = mint(request(), bound(outcome), complete=False)

    assert refused(outcome, value=request(), certificate=unfinished) == "emit.incomplete-coverage"


@pytest.mark.spec("PIPE-6")
def test_what_was_judged_long_ago_is_not_sent(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, now = guard.run(request()), time.monotonic()
    monkeypatch.setattr(certificate.time, "monotonic", lambda: now + certificate.MAX_AGE_SECONDS + 1)

    assert refused(outcome) == "emit.stale-certificate"


@pytest.mark.spec("PIPE-6")
@pytest.mark.parametrize("same", ["subject", "session", "model"])
def test_the_certificate_of_one_run_is_none_for_another_though_it_says_the_same(guard: Guard, same: str) -> None:
    """Another run of the same words can have had another session, target, mode or policy."""
    model = "openai:gpt-x" if same != "model" else "openai:gpt-y"
    session = "s" if same != "session" else "t"
    one = guard.run(request(), subject=SubjectExtension(id="ann"), session="s")
    other = guard.run(request(model=model), subject=SubjectExtension(id="ann"), session=session)

    assert refused(one, certificate=other.certificate) == "emit.other-run"
    assert refused(other, session="u") == "emit.other-run"
    assert refused(other, session_version=7) == "emit.other-run"
    assert refused(other, decision=one.decision) == "emit.other-run"


@pytest.mark.spec("PIPE-7")
def test_a_certificate_says_what_it_is_for(guard: Guard) -> None:
    outcome = guard.run(request(), session="s")
    assert outcome.certificate is not None

    bound_to = outcome.certificate.bound
    assert bound_to.target == "llm://openai/gpt-x"
    assert (bound_to.run, bound_to.revision, bound_to.mode) == (
        outcome.decision.id,
        outcome.decision.revision,
        "enforce",
    )
    assert (bound_to.session, bound_to.session_version) == ("s", 0)


@pytest.mark.spec("PIPE-7")
@pytest.mark.parametrize("field", Bound._fields)
def test_a_certificate_bound_to_something_else_is_forged(guard: Guard, field: str) -> None:
    outcome = guard.run(request())
    assert outcome.certificate is not None
    changed = outcome.certificate.bound._replace(**{field: 7 if field == "session_version" else "x"})

    assert refused(outcome, certificate=dataclasses.replace(outcome.certificate, bound=changed)) == (
        "emit.forged-certificate"
    )


@pytest.mark.spec("PIPE-7")
@pytest.mark.parametrize("change", [{"digest": "0" * 64}, {"complete": False}, {"seal": ""}])
def test_a_certificate_with_any_field_changed_is_forged(guard: Guard, change: dict[str, Any]) -> None:
    outcome = guard.run(request())
    assert outcome.certificate is not None

    assert refused(outcome, certificate=dataclasses.replace(outcome.certificate, **change)) == "emit.forged-certificate"


@pytest.mark.spec("PIPE-7")
def test_a_seal_made_without_the_key_of_this_process_is_forged(guard: Guard) -> None:
    outcome = guard.run(request())
    own = outcome.certificate
    assert own is not None
    keyless = hashlib.blake2b(dumps([*own.bound, own.digest, own.complete]), digest_size=32).hexdigest()

    assert refused(outcome, certificate=dataclasses.replace(own, seal=keyless)) == "emit.forged-certificate"


@pytest.mark.spec("PIPE-7")
def test_a_field_cannot_be_moved_into_its_neighbour(guard: Guard) -> None:
    """What is sealed is the fields, not their concatenation."""
    outcome = guard.run(request())
    assert outcome.certificate is not None
    own = outcome.certificate.bound
    for joint in ("", "\n", '","'):
        moved = own._replace(run=f"{own.run}{joint}{own.target}", target=own.revision, revision=own.mode, mode="")
        shifted = dataclasses.replace(outcome.certificate, bound=moved)
        assert refused(outcome, certificate=shifted) == "emit.forged-certificate"


@pytest.mark.spec("PIPE-8")
@pytest.mark.parametrize(
    ("model", "wire"),
    [
        ("llama3:8b", "llama3:8b"),
        ("mistral:7b", "mistral:7b"),
        ("ft:gpt-4o:acme::x", "ft:gpt-4o:acme::x"),
        ("deepseek/deepseek-r1:free", "deepseek/deepseek-r1:free"),
        ("ollama:minimax-m3:cloud", "minimax-m3:cloud"),
        ("openai:ft:gpt-4o:acme::x", "ft:gpt-4o:acme::x"),
        ("gpt-5", "gpt-5"),
        (None, None),
        ("anthropic:c", "c"),
    ],
)
def test_the_wire_knows_no_provider_key_and_no_name_loses_a_piece(model: str | None, wire: str | None) -> None:
    assert with_wire_model(request(model=model)).model == wire
    assert with_wire_model(Response(model=model)).model == wire


def test_a_model_gets_its_provider_s_key_only_if_both_are_known() -> None:
    assert with_provider(Response(), "anthropic").model is None
    assert with_provider(Response(model="c"), None).model == "c"
    assert with_provider(Response(model="c"), "anthropic").model == "anthropic:c"


def test_each_kind_of_value_goes_out_in_a_wire_format(guard: Guard) -> None:
    message = Message(role="assistant", content=[TextPart(text="hi")])
    response = Response(choices=[Choice(message=message)], model="gpt-x")

    assert emit(guard.run(request()), "openai_chat")["model"] == "gpt-x"
    assert emit(guard.run(message), "openai_chat")["messages"] == [{"role": "assistant", "content": "hi"}]
    assert emit(guard.run(response), "openai_chat")["choices"][0]["message"]["content"] == "hi"
    assert emit(guard.run(message), "canonical")["content"] == [{"content_type": "text", "text": "hi"}]


@pytest.mark.spec("ADP-19", "PIPE-6")
@pytest.mark.parametrize(
    ("target", "send"), [("openai_chat", emit), ("ollama", emit), ("gemini", emission.emit_events)]
)
def test_texts_that_were_judged_apart_are_not_sent_as_one(guard: Guard, target: str, send: Any) -> None:
    texts = [TextPart(text="h"), TextPart(text="i")]
    response = Response(choices=[Choice(message=Message(role="assistant", content=texts))], model="m")
    outcome = guard.run(response)

    with pytest.raises(UnsupportedError, match="judged one by one") as caught:
        send(outcome, target)

    assert caught.value.code == "emit.joined-texts"
    assert len(emit(outcome, "anthropic_messages")["content"]) == 2


@pytest.mark.spec("ADP-19")
def test_texts_that_only_a_stream_joins_stay_apart_in_a_whole_response(guard: Guard) -> None:
    texts = [TextPart(text="a"), TextPart(text="b")]
    response = Response(choices=[Choice(message=Message(role="assistant", content=texts))], model="m")

    (candidate,) = emit(guard.run(response), "gemini")["candidates"]

    assert candidate["content"]["parts"] == [{"text": "a"}, {"text": "b"}]


@pytest.mark.spec("ADP-19")
def test_what_a_format_has_as_one_text_is_judged_as_one(guard: Guard) -> None:
    def said(*texts: str) -> Response:
        parts = [TextPart(text=text) for text in texts]
        apart = Response(choices=[Choice(message=Message(role="assistant", content=parts))], model="m")
        return adapters.get("openai_chat").in_one_text(apart)

    assert refused(guard.run(said("n", "o"))) == "emit.refused"
    assert emit(guard.run(said("ye", "s")), "openai_chat")["choices"][0]["message"]["content"] == "yes"
