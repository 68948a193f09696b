"""A marker at any place of recorded traffic, masked where it is text and refused elsewhere: no format writes it."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.cmf.adapters.tally import Tally, context_of, decoded
from tests.cmf.adapters.wiredata import Record, Side, every, planted, records, spots
from tests.pipeline.conftest import write_rules

from cmf import Request, Response
from cmf.adapters import FORMATS, get
from cmf.errors import CmfError
from cmf.json.codec import dumps
from cmf.message.model_ids import FORMAT_PROVIDERS
from pipeline import Context, Guard
from pipeline.run.emit import emit, emit_events, with_provider, with_wire_model
from pipeline.run.outcome import Outcome

PLACES = 2_000  # of each format
PER_BODY = 20
MARKER = "mark!Q7z~kk"  # neither base64 nor a number: nothing that holds it stands in a view by digest alone
WRITTEN = tuple(
    mark.encode() for mark in (MARKER, quote(MARKER), base64.b64encode(MARKER.encode()).decode().rstrip("="))
)
RULES = {
    "mask": 'redact contains {"code": "own.mask", "reason": "Masked.", "spans": spans} if {\n'
    '    input.kind in {"text", "thinking"}\n    is_string(input.content)\n'
    f'    spans := [[at, at + {len(MARKER)}] | some at in indexof_n(input.content, "{MARKER}")]\n'
    "    count(spans) > 0\n}",
    "refuse": 'texts if input.kind in {"text", "thinking"}\n'
    f'deny contains {{"code": "own.refuse", "reason": "x"}} if {{\n    not texts\n'
    f'    contains(json.marshal(input), "{MARKER}")\n}}\n'
    f'deny contains {{"code": "own.refuse", "reason": "x"}} if {{\n    texts\n'
    f'    contains(json.marshal(object.remove(input, ["content"])), "{MARKER}")\n}}',
}


@pytest.fixture(scope="module")
def masking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    with Guard(write_rules(tmp_path_factory.mktemp("policy"), RULES)) as guard:
        yield guard


def _marked(format_name: str, at_most: int, seed: int) -> Iterator[tuple[str, Request | Response, Context]]:
    """Values of recorded bodies with the marker at some place; those that are refused on reading are left out."""
    dice, tried = random.Random(seed), 0
    chosen = list(records(format_name))
    dice.shuffle(chosen)
    for record in chosen:
        for side, body in record.sides:
            asked = _asked(format_name, record, side)
            places = [
                spot for spot in spots(body) if not (side == "stream" and spot.what == "key" and len(spot.path) == 2)
            ]
            for spot in every(places, PER_BODY, dice.randrange(1 << 30)):
                if tried >= at_most:
                    return
                tried += 1
                try:
                    value = _read(format_name, side, planted(body, spot, MARKER), asked)
                except CmfError:
                    continue
                yield f"{record.source} [{side}] {spot}", value, Context(history=asked)


def _read(format_name: str, side: Side, body: Any, asked: Request | None) -> Request | Response:
    value, provider = decoded(get(format_name), side, body, asked), FORMAT_PROVIDERS.get(format_name)
    return with_provider(value, provider)  # type: ignore[type-var]  # it is one of the two


def _asked(format_name: str, record: Record, side: Side) -> Request | None:
    try:
        return context_of(get(format_name), record) if side != "request" else None
    except CmfError:
        return None


def _wire(outcome: Outcome, target: str, whole: bool) -> bytes:
    """All that goes out: the body, or the events of a stream, with the path and the headers of the call."""
    if not whole:
        return dumps(emit_events(outcome, target))
    body: bytes = dumps(emit(outcome, target))
    if outcome.request is None:
        return body
    try:
        call = get(target).to_http(with_wire_model(outcome.request))
    except CmfError:
        return body
    return body + repr((call.path, dict(call.headers))).encode()


def _check(guard: Guard, tally: Tally, where: str, value: Request | Response, context: Context) -> None:
    """The value, judged for each format and each way of writing it, and the marker looked for in what is written."""
    for target in FORMATS:
        for whole in (True, False) if isinstance(value, Response) else (True,):
            try:
                outcome = guard.run(value, context=context)
                if outcome.value is None:
                    tally.count("refused")
                    return
                wire = _wire(outcome, target, whole)
            except CmfError:
                tally.count("not said")
                continue
            tally.count("masked" if outcome.decision.hits else "written")
            found = any(mark in wire for mark in WRITTEN)
            tally.case(f"{where} -> {target}", "the marker is written" if found else "")


@pytest.mark.proof
@pytest.mark.spec("PIPE-6", "ADP-6", "ADP-8")
@pytest.mark.parametrize("format_name", FORMATS)
def test_no_format_writes_what_policy_masked_or_was_not_shown(
    masking: Guard, format_name: str, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    tally = Tally("masked, then written")
    places = int(PLACES * proof_scale)

    for where, value, context in _marked(format_name, places, proof_seed):
        _check(masking, tally, where, value, context)

    proof_row(f"{format_name}: masked, then written", seed=proof_seed, n=tally.checked, **tally.counts)
    tally.require()
    assert tally.checked + tally.counts["refused"] > places / 2


@pytest.mark.spec("PIPE-6")
def test_the_proof_notices_what_is_written_unmasked(lenient: Path) -> None:
    tally = Tally("masked, then written")
    said = get("openai_chat").from_wire_request({"model": "m", "messages": [{"role": "user", "content": MARKER}]})

    with Guard([lenient]) as blind:
        _check(blind, tally, "x", said, Context())

    assert len(tally.failed) == len(FORMATS)
