"""The bytes of policy inputs: whoever writes them, they are those of `cmf.json.value.to_bytes`."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from bench import documents
from hypothesis import given
from hypothesis import strategies as st
from tests.cmf.strategies import extensions, json_value, values

from cmf import (
    CompletionExtension,
    DataPolicy,
    Message,
    Request,
    RetentionPolicy,
    Sampling,
    TextPart,
    iter_views,
)
from cmf._native import ValueWriter
from cmf.enums import Capability, Hook, Role
from cmf.json.frozen import FrozenDict, FrozenList
from cmf.json.value import encoded, to_bytes
from cmf.message.request import NO_SAMPLING
from pipeline.decisions.policy_input import SessionFacts, form_of, json_bytes, shared_bytes, view_bytes

pytestmark = [pytest.mark.native, pytest.mark.spec("INP-6")]

WRITER = ValueWriter(form_of)
some_capabilities = st.none() | st.sets(st.sampled_from(sorted(Capability)))
ORIGINS = [{"path": "/n", "sources": [{"kind": "user", "labels": ["pii"], "at": None}]}]


class Pair(NamedTuple):
    left: int
    right: int


class Loud(str):
    __slots__ = ()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


ODD = [
    "\ud800",
    {"a": ["\udfff"]},
    {"\ud800": 1},
    {1: 2},
    {None: 1},
    {Loud("key"): 1},
    {Role.USER: 1},
    2**64,
    -(2**63) - 1,
    1e16,
    1e-6,
    5e-324,
    1.7976931348623157e308,
    math.nan,
    -math.inf,
    nested(129),
    nested(300),
    endless(),
    object(),
    Pair(1, 2),
    {1, 2},
    frozenset({1}),
    frozenset({"a", Loud("b")}),
    frozenset({"\ud800"}),
    datetime.date(2026, 1, 1),
    bytearray(b"x"),
    1j,
    range(3),
    Loud("subclass of text"),
    str,
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_what_is_not_plainly_in_order_is_left_to_python(odd: Any) -> None:
    assert WRITER.write(odd) is None
    assert WRITER.write({"inside": [odd, 1]}) is None


@pytest.mark.parametrize("item", [[1, "a"], [2**70], {"value": TextPart(text="x")}], ids=repr)
def test_json_that_policy_reads_is_written_alike(item: Any) -> None:
    assert json_bytes(item) == to_bytes(item)


def test_after_giving_up_the_next_value_is_written_from_its_own_beginning() -> None:
    assert WRITER.write(["written", "\ud800"]) is None
    assert WRITER.write(["next"]) == b'["next"]'


@pytest.mark.parametrize(
    "plain",
    [
        *(
            "",
            "a",
            '"',
            "\\",
            "\x00\x1f\x7f\x80",
            "\u2028é😀",
            "\b\t\n\f\r\x0b",
            'seven77"',
            '12345678"x',
            "x" * 31 + "\n",
        ),
        *(0, -1, 9, 10, 2**63 - 1, -(2**63), True, False, None, 0.0, -0.0, 1.0, 0.1, 1e-5, 9999999999999998.0),
        *([], {}, (), frozenset(), [[], {}, ()], {"a": {}, "b": [None]}, nested(126)),
        *(Role.USER, FrozenDict({"b": [1, {"a": 2}]}), FrozenList([1.5]), frozenset({"b", "a", "é", "😀"})),
        *(datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC), Decimal("1.10"), b"\x00blob"),
        *([Decimal(1), Decimal(2), b"a", b"b"], CompletionExtension(cost_usd=Decimal("0.25"), latency_ms=0)),
        *(DataPolicy(), DataPolicy(allowed_actions=()), DataPolicy(retention=RetentionPolicy(policy="none"))),
    ],
    ids=lambda plain: "set" if isinstance(plain, frozenset) else repr(plain),  # whose order is another in each process
)
def test_what_is_in_order_is_written_natively_and_alike(plain: Any) -> None:
    assert WRITER.write(plain) == to_bytes(plain)
    assert WRITER.write([plain, {"k": plain}]) == to_bytes([plain, {"k": plain}])


def test_a_value_that_brings_too_many_questions_is_left_to_python() -> None:
    assert WRITER.write([Decimal(number) for number in range(100)]) is None


def test_a_form_that_is_none_is_left_to_python() -> None:
    forms: list[Any] = ["number", 7, (("role", None),), (("nothing", None, "same"),), (("role", None, "sometimes"),)]
    for form in forms:
        assert ValueWriter(lambda _, form=form: form).write(Message(role="user", content=())) is None


def test_each_type_is_asked_for_once() -> None:
    asked = []
    writer = ValueWriter(lambda cls: asked.append(cls) or form_of(cls))
    message = Message(role="user", content=[TextPart(text="a"), TextPart(text="b")])

    assert writer.write([message, message]) == to_bytes([message, message])
    assert len(asked) == len(set(asked)) > 1


def test_a_request_is_written_here_whatever_its_defaults_are() -> None:
    user = Message(role="user", content=[TextPart(text="a")])
    for drawn in (Sampling(), NO_SAMPLING, Sampling(temperature=0), Sampling(stop=[]), Sampling(temperature=0.5)):
        for request in (Request(sampling=drawn), Request(model="m", sampling=drawn, messages=[user])):
            assert WRITER.write(request) == to_bytes(request)
            assert form_of(Request) is not encoded  # no question is asked


@given(st.text() | st.binary(max_size=300).map(lambda raw: raw.decode("latin-1")) | st.text('\x1f"\\ab', max_size=80))
def test_text_is_written_alike(text: str) -> None:
    assert WRITER.write(text) == to_bytes(text)


@given(st.lists(st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.floats(-1e4, 1e4), max_size=4))
def test_numbers_are_written_alike_or_not_at_all(numbers: list[float]) -> None:
    assert WRITER.write(numbers) in (None, to_bytes(numbers))


@given(st.floats(1e-5, 1e16, exclude_max=True) | st.floats(-1e16, -1e-5, exclude_min=True))
def test_fractions_without_exponents_are_written_alike(number: float) -> None:
    assert WRITER.write(number) == to_bytes(number)


@given(json_value | values | extensions)
def test_every_value_is_written_alike_or_not_at_all(value: Any) -> None:
    assert WRITER.write(value) in (None, to_bytes(value))


@given(values, some_capabilities, st.none() | st.sampled_from(sorted(Hook)))
def test_the_inputs_of_every_value_are_written_alike(value: Any, granted: Any, hook: Hook | None) -> None:
    session = SessionFacts(labels=frozenset({"x"}), counters={"n": 1}, events=[{"type": "label"}])
    blocks: dict[tuple[bool, bool], bytes] = {}
    for view in iter_views(value, hook=hook, capabilities=granted):
        shared = {"extensions": view.scope.shared(), "session": session.shown(view)}
        assert shared_bytes(view, session) == shared_bytes(view, session, blocks) == to_bytes(shared)
        assert view_bytes(view) == view.to_bytes()
        if granted is None:
            assert view_bytes(view, ORIGINS) == view.to_bytes(origins=ORIGINS)


def test_a_context_that_is_not_plainly_in_order_is_written_by_python() -> None:
    message = Message(role="user", content=[TextPart(text="x")], extensions={"custom": {"n": 2**70}})
    (view,) = iter_views(message)

    assert WRITER.write(view.scope.shared()) is None
    assert shared_bytes(view, None) == to_bytes({"extensions": view.scope.shared()})
    written = to_bytes({"extensions": view.scope.shared(), "session": SessionFacts().shown(view)})
    assert shared_bytes(view, SessionFacts(), {}) == written


def test_an_ordinary_context_needs_no_python() -> None:
    view = next(iter(iter_views(Message.model_validate_json(documents.message_bytes(0)))))

    assert WRITER.write(view.scope.shared()) == to_bytes(view.scope.shared())
