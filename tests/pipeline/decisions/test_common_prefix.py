from __future__ import annotations

from itertools import pairwise

import pytest

from cmf import _native
from cmf.enums import Role
from cmf.message.message import Message
from pipeline.decisions.traffic import equal_start, identical_start


@pytest.mark.spec("PIPE-16")
def test_the_same_objects_are_counted_up_to_the_first_other() -> None:
    items = [object() for _ in range(70)]

    for length in range(len(items)):
        other = [*items[:length], object(), *items[length + 1 :]]
        assert identical_start(tuple(items), tuple(other)) == identical_start(items, other) == length
        assert (
            identical_start(tuple(items[:length]), tuple(items))
            == identical_start(tuple(items), items[:length])
            == length
        )


@pytest.mark.spec("PIPE-16")
def test_whatever_differs_has_another_fingerprint() -> None:
    parts = ['{"a":1}', '{"a":1.0}', '{"a":"1"}', '{"a":true}', '{"a":null}', '{"a":[1]}', '{"a":{}}', '{"b":1}', "{}"]
    parts += ['{"a":1,"b":2}', '{"b":2,"a":1}', '{"a":-1}', '{"a":18446744073709551615}', '{"a":""}', '{"a":"é"}']
    call = '{"role":"assistant","content":[{"content_type":"tool_call","tool_call_id":"c","name":"n","arguments":%s}]}'
    texts = [
        *(call % part for part in parts),
        (call % "{}").replace('"c"', '"n"'),
        (call % "{}").replace("assistant", "user"),
    ]
    made = [Message.model_validate_json(text.encode()) for text in texts]

    prints = [equal_start((), b"", (Message.model_validate_json(text.encode()),))[1] for text in texts]

    assert len(set(prints)) == len(prints)
    assert equal_start((), b"".join(prints), tuple(made)) == (len(made), b"".join(prints))
    assert all(equal_start((), one, (other,))[0] == 0 for one, (_, other) in zip(prints, pairwise(made), strict=False))


@pytest.mark.spec("PIPE-16")
def test_a_role_of_the_same_name_that_is_no_member_is_another() -> None:
    forged = str.__new__(Role, "user")
    message = Message.model_validate({"role": "user", "content": []})
    other = Message.model_validate({"role": "user", "content": []})
    object.__setattr__(other, "role", forged)

    assert equal_start((), equal_start((), b"", (message,))[1], (other,))[0] == 0


@pytest.mark.spec("POL-29")
def test_members_are_picked_as_they_are_spelled() -> None:
    object_ = rb'{"a":{"b":[1,{"c":"}\",\\"}]},"b":"x","c":1e5,"d":[]}'

    assert _native.picked(object_, ["a"]) == rb'{"a":{"b":[1,{"c":"}\",\\"}]}}'
    assert _native.picked(object_, ["d", "b"]) == b'{"b":"x","d":[]}'
    assert _native.picked(object_, ["x"]) == _native.picked(b"{}", ["x"]) == b"{}"


@pytest.mark.spec("POL-29")
@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'{"a":1,}', b'{"a"}', b'{"a":}', b'{"a":1,"a":2}', rb'{"\u0061":1}', b'{"a":[}', b'{"a":"x}'],
)
def test_of_what_is_not_plainly_in_order_nothing_is_picked(data: bytes) -> None:
    assert _native.picked(data, ["a"]) is None
