"""The bytes of policy inputs: whoever writes them, they are those of `cmf.json.value.to_bytes`."""

from __future__ import annotations

import dataclasses
import datetime
import math
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from bench import documents
from hypothesis import given
from hypothesis import strategies as st
from tests.cmf.adapters.tally import decoded
from tests.cmf.adapters.wiredata import records, sampled
from tests.cmf.strategies import extensions, json_object, json_value, values

from cmf import (
    CompletionExtension,
    DataPolicy,
    Message,
    MessageView,
    Request,
    RetentionPolicy,
    Sampling,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    iter_views,
)
from cmf._native import ValueWriter
from cmf.adapters import FORMATS, get
from cmf.enums import Capability, Hook, Role
from cmf.errors import CmfError
from cmf.json.frozen import FrozenDict, FrozenList
from cmf.json.value import encoded, to_bytes
from cmf.message.request import NO_SAMPLING
from cmf.views.render import OUTLINES
from pipeline.decisions import policy_input
from pipeline.decisions.policy_input import SessionFacts, form_of, shared_bytes, view_bytes

pytestmark = [pytest.mark.native, pytest.mark.spec("INP-6")]

WRITER = ValueWriter(form_of)
some_capabilities = st.none() | st.sets(st.sampled_from(sorted(Capability)))
ORIGINS = [{"path": "/n", "sources": [{"kind": "user", "labels": ["pii"], "at": None}]}]


def filled(view: MessageView, origins: Any = None) -> bytes | None:
    """What the native module makes of a view by its outline."""
    return policy_input._INPUTS.view(view, origins)


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
    assert policy_input.json_bytes(item) == to_bytes(item)


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


@given(json_object)
def test_the_arguments_of_calls_are_written_alike(arguments: dict[str, Any]) -> None:
    (view,) = iter_views(Message(role="assistant", content=[ToolCallPart(name="t", arguments=arguments)]))

    assert view_bytes(view) == view.to_bytes()


@pytest.mark.parametrize("wire", FORMATS)
def test_the_inputs_of_recorded_traffic_are_written_alike(wire: str, proof_scale: float, proof_seed: int) -> None:
    adapter, compared = get(wire), 0
    for record in sampled(records(wire), proof_scale, proof_seed):
        for side, body in record.sides:
            try:
                views = list(iter_views(decoded(adapter, side, body)))
            except CmfError:
                continue
            for view in views:
                assert view_bytes(view) == view.to_bytes()
                compared += 1

    assert compared


def test_a_context_that_is_not_plainly_in_order_is_written_by_python() -> None:
    message = Message(role="user", content=[TextPart(text="x")], extensions={"custom": {"n": 2**70}})
    (view,) = iter_views(message)

    assert policy_input._INPUTS.shared(view.scope) is None
    assert shared_bytes(view, None) == to_bytes({"extensions": view.scope.shared()})
    written = to_bytes({"extensions": view.scope.shared(), "session": SessionFacts().shown(view)})
    assert shared_bytes(view, SessionFacts(), {}) == written


def test_ordinary_inputs_need_no_python() -> None:
    views = list(iter_views(Message.model_validate_json(documents.message_bytes(0))))

    assert [filled(view) for view in views] == [view.to_bytes() for view in views]
    assert filled(views[2], ORIGINS) == views[2].to_bytes(origins=ORIGINS)
    assert policy_input._INPUTS.shared(views[0].scope) == to_bytes({"extensions": views[0].scope.shared()})


@given(extensions, some_capabilities)
def test_the_context_of_every_message_is_written_alike(context: Any, granted: Any) -> None:
    message = Message(role="user", content=[TextPart(text="x")], extensions=context)
    (view,) = iter_views(message, capabilities=granted)

    written = policy_input._INPUTS.shared(view.scope)
    assert written in (None, to_bytes({"extensions": view.scope.shared()}))
    assert (written is None) == (WRITER.write(view.scope.shared()) is None)


names = st.text("ab/%é. _-~\x00", max_size=6)
keys = st.sampled_from(["t", "n/t", "tool://n/t", "tool://_/t", "other/t", "/t", "tool_result://t", "tool_result://_"])
registries = st.fixed_dictionaries(
    {"objects": st.dictionaries(keys, st.just({"managed_by": "tool"})), "data": st.dictionaries(keys, st.just({}))}
)


@given(names, names | st.none(), registries, some_capabilities)
def test_where_an_entity_is_and_what_is_registered_of_it_is_written_alike(
    name: str, namespace: str | None, security: Any, granted: Any
) -> None:
    for own, given_namespace in ((name or "t", namespace), ("t", "n"), ("t", None)):
        message = Message(
            role="assistant",
            content=[ToolCallPart(name=own, namespace=given_namespace, arguments={})],
            extensions={"security": security},
        )
        (view,) = iter_views(message, capabilities=granted)
        assert filled(view) == view.to_bytes()
    for tool_name in ("t", name, None):
        content = [ToolResultPart(content="r", tool_name=tool_name)]
        (view,) = iter_views(Message(role="tool", content=content, extensions={"security": security}))
        assert filled(view) == view.to_bytes()


@pytest.mark.parametrize("odd", [None, 7, TextPart(text="x"), object()], ids=["none", "number", "part", "object"])
def test_what_is_no_view_is_left_to_python(odd: Any) -> None:
    assert policy_input._INPUTS.view(odd) is None
    assert policy_input._INPUTS.shared(odd) is None


def test_a_reader_whose_grants_differ_is_asked_for_anew() -> None:
    message = Message.model_validate_json(documents.message_bytes(0))
    for granted in ([], ["read_labels"], [], sorted(Capability), None, ["read_roles"], ["write_headers"]):
        view = next(iter_views(message, capabilities=granted))
        assert policy_input._INPUTS.shared(view.scope) == to_bytes({"extensions": view.scope.shared()})


def test_more_header_names_than_are_remembered_are_shown_alike() -> None:
    for start in range(0, 2400, 300):
        headers = {f"{'x-token' if n % 3 else 'x'}-{n}": "v" for n in range(start, start + 300)}
        (view,) = iter_views(
            Message(role="user", content=[TextPart(text="x")], extensions={"http": {"headers": headers}})
        )
        assert policy_input._INPUTS.shared(view.scope) == to_bytes({"extensions": view.scope.shared()})


PLAIN = [
    TextPart(text='é"\n'),
    ThinkingPart(text=""),
    ToolCallPart(name="t", arguments={"a": [1.5, None, True], "b": {"c": "é"}}),
    ToolCallPart(name="t" * 200, namespace="n/s", tool_call_id="c", executed_by="provider", arguments={}),
    ToolResultPart(content="r"),
    ToolResultPart(content="", tool_name="t", tool_call_id="c", is_error=True, executed_by="provider"),
]


@pytest.mark.parametrize("part", PLAIN, ids=repr)
@pytest.mark.parametrize("message", [{}, {"id": "m", "channel": "final"}, {"extra": {"w": {"a": 2**70}}}], ids=repr)
def test_an_outline_gives_what_the_shower_gives(part: Any, message: dict[str, Any]) -> None:
    role = "tool" if isinstance(part, ToolResultPart) else "assistant"
    for view in iter_views(Message(role=role, content=[part, part], **message)):
        written = (None, view.to_bytes()) if "extra" in message or view.pieces else (view.to_bytes(),)
        assert filled(view) in written


@pytest.mark.parametrize(
    "part",
    [
        TextPart(text="x", extra={"w": {"a": 1}}),
        ThinkingPart(text="x", signature="c2ln"),
        ToolCallPart(name="t", arguments_raw="{"),
        ToolCallPart(name="t"),
        ToolCallPart(name="t", arguments={"n": 2**53}),
        ToolCallPart(name="t", arguments={"n": 2.0**53}),
        ToolResultPart(content={"a": 1}),
        ToolResultPart(content=[TextPart(text="inner")]),
        ToolResultPart(),
    ],
    ids=repr,
)
def test_what_has_no_hole_is_left_to_the_shower(part: Any) -> None:
    views = list(iter_views(Message(role="tool" if isinstance(part, ToolResultPart) else "assistant", content=[part])))

    assert [filled(view) for view in views] == [None] * len(views)
    assert [view_bytes(view) for view in views] == [view.to_bytes() for view in views]


@pytest.mark.parametrize("part_type", OUTLINES, ids=lambda cls: cls.__name__)
def test_an_outline_names_every_field_of_its_part(part_type: type) -> None:
    outline = OUTLINES[part_type]
    named = {hole.of for hole in (*outline.entries, *outline.properties)} | set(outline.none) | {"content_type"}

    assert {field.name for field in dataclasses.fields(part_type)} <= named
