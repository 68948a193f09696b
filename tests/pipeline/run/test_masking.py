"""Secrets taken out of what is put on file."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from tests.pipeline.replaying import KEY, all_off, asks, judged, replay

from cmf import Message, SubjectExtension, TextPart, ToolResultPart
from cmf.json.codec import dumps
from cmf.message.message import Part
from cmf.message.request import Request
from pipeline import Config, Guard
from pipeline.decisions.errors import ReplayError
from pipeline.replay.replay import agrees
from pipeline.run.masking import Masking
from pipeline.run.recorded_input import Entry
from pipeline.store.database import Store
from pipeline.store.four_eyes import REVEAL
from pipeline.store.tables import RECORDS

RANDOM = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0"
HEX = "0123456789abcdef" * 4
SECRETS = {
    "anthropic": KEY,
    "aws": "AKIA" + "Q7R8" * 4,
    "github": f"ghp_{RANDOM[:36]}",
    "private key": f"-----BEGIN RSA PRIVATE KEY-----\n{RANDOM * 4}\n-----END RSA PRIVATE KEY-----",
    "jwt": f"eyJ{RANDOM}.eyJ{RANDOM}.{RANDOM}",
    "slack webhook": f"https://hooks.slack.com/services/T01234567/B01234567/{RANDOM[:24]}",
    "digitalocean": f"dop_v1_{HEX}",
    "url password": "postgres://ann:hunter22pass99@db.example.com/x",
    "card": "4242 4242 4242 4242",
    "amex": "371449635398431",
    "diners": "38520000023237",
    "ssn": "123-45-6789",
    "iban": "DE89 3704 0044 0532 0130 00",
}


@cache
def masking() -> Masking:
    return Masking()


def text_of(entry: Entry) -> str:
    return dumps(entry.to_json()).decode()


def request(**arguments: Any) -> Request:
    call = {"content_type": "tool_call", "tool_call_id": "t", "name": "store", "arguments": arguments}
    return Request.model_validate({"messages": [{"role": "assistant", "content": [call]}]})


@pytest.mark.spec("RPL-4")
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
def test_a_secret_goes_and_what_stands_for_it_is_found_as_the_same(secret: str) -> None:
    entry = judged(asks(f"this is it: {secret} and more"))
    assert entry.decision["views"][1]["hits"], "a secret that no rule finds proves nothing"

    masked = masking().masked(entry)

    shown = json.dumps(masked.traffic.model_dump(), ensure_ascii=False)
    parts = [run for run in secret.replace(" ", "").split("\n") if "-----" not in run]
    assert not any(run in shown.replace(" ", "") for run in parts)
    assert masked.masked
    assert "and more" in shown
    if "[MASKED]" not in shown:
        assert agrees(entry, replay().judged(masked))


@pytest.mark.spec("RPL-4")
def test_secrets_go_wherever_they_stand() -> None:
    known = {
        "subject": {"id": "ann", "claims": {"token": KEY}},
        "session": "s",
        "headers": {"x-api": KEY},
        "history": {"messages": [{"role": "user", "content": [{"content_type": "text", "text": KEY}]}]},
    }
    traffic = request(deep=[{"a": KEY}], **{KEY: 1}, card=4242424242424242, password=RANDOM)

    masked = masking().masked(judged(traffic, context=known))

    assert KEY not in text_of(masked)
    assert RANDOM not in text_of(masked)
    assert "4242424242424242" not in text_of(masked)
    arguments = masked.traffic.model_dump()["messages"][0]["content"][0]["arguments"]
    assert arguments["card"] == 4111111111111111
    assert {arguments["deep"][0]["a"]} == {key for key in arguments if key.startswith("sk-")}


def wide(text: str) -> str:
    return "".join(chr(ord(character) + 0xFEE0) if character.isalnum() else character for character in text)


@pytest.mark.spec("RPL-4")
@pytest.mark.parametrize("kind", ["text", "thinking"])
@pytest.mark.parametrize(
    "texts",
    [
        ["it is " + KEY[:9], KEY[9:] + " and more"],
        [KEY[:9], KEY[9:12], KEY[12:] + " or " + KEY[:20], KEY[20:]],
        [KEY[:9] + "\u200b", wide(KEY[9:])],
        ["it is " + wide(KEY) + " and more"],
        ["it is " + "\u2060".join(KEY) + " and more", "hi"],
    ],
    ids=["two texts", "three, twice", "wide over two", "wide", "unseen"],
)
def test_a_secret_goes_that_is_only_seen_as_policy_reads_it(texts: list[str], kind: str) -> None:
    parts = [{"content_type": kind, "text": text} for text in texts]
    entry = judged(Request.model_validate({"messages": [{"role": "assistant", "content": parts}]}))
    result = {"content_type": "tool_result", "content": parts, "tool_call_id": "t", "tool_name": "t"}
    inner = judged(Request.model_validate({"messages": [{"role": "tool", "content": [result]}]}))

    for masked in map(masking().masked, (entry, inner)):
        shown = text_of(masked)
        assert masked.masked
        assert not [text for text in texts if any(text[at : at + 8] in shown for at in (6, 7)) and len(text) > 16]
        assert "[MASKED]" in shown
        assert ("and more" in shown) == any("and more" in text for text in texts)


@pytest.mark.spec("AUD-72", "RPL-4")
@pytest.mark.parametrize(
    ("parts", "secret"),
    [
        ([TextPart(text="my passwo"), TextPart(text=f"rd={RANDOM} and more")], RANDOM),
        ([TextPart(text='{"api_key": '), TextPart(text=f'"{RANDOM}"}}')], RANDOM),
        ([ToolResultPart(tool_name="find", content={"ssn": 219099999})], "219099999"),
        ([ToolResultPart(tool_name="find", content=[{"kind": "ssn", "value": [219099999]}])], "219099999"),
        ([ToolResultPart(tool_name="find", content={"ssn": {"value": "219099999", "said": 'a "name"'}})], "219099999"),
    ],
    ids=["password", "key", "number", "number beside its name", "text below its name"],
)
def test_kept_content_has_no_secret_that_its_run_found(parts: list[Part], secret: str, database: Store) -> None:
    with Guard(store=database, config=Config(content="masked")) as guard:
        decision = guard.decide(Message(role="tool", content=parts))
    assert {hit.rule for hit in decision.hits} & {"data/secrets", "data/pii"}

    line = database.contents().reveal(decision.id, actor=SubjectExtension(id="a", permissions={REVEAL}), reason="why")

    assert json.loads(line)["masked"] is True
    assert secret.encode() not in line


@pytest.mark.spec("AUD-72", "PIPE-19")
def test_content_with_very_many_secrets_is_left_out(database: Store) -> None:
    keys = " ".join(f"AKIA{number:016b}".replace("0", "Q").replace("1", "R") for number in range(501))
    with Guard(store=database, config=Config(content="masked")) as guard:
        decision = guard.decide(Message(role="user", content=[TextPart(text=keys)]))

    assert not database.contents().has(decision.id)
    with database.engine.connect() as connection:
        body = connection.execute(select(RECORDS.c.body).where(RECORDS.c.id == decision.id)).scalar_one()
    assert json.loads(body)["content"] == {"left_out": "replay.unmaskable"}


@pytest.mark.spec("RPL-4")
def test_texts_that_hold_a_whole_secret_each_keep_stand_ins_of_its_shape() -> None:
    parts = [{"content_type": "text", "text": f"{KEY} "}, {"content_type": "text", "text": f"{KEY} é"}]
    entry = judged(Request.model_validate({"messages": [{"role": "user", "content": parts}]}))

    first, second = (part.text for part in masking().masked(entry).traffic.messages[0].content)

    assert first.strip() == second.removesuffix(" é") != KEY
    assert first.startswith("sk-")


@pytest.mark.spec("RPL-4")
def test_two_secrets_stay_two_and_a_longer_one_is_not_cut_by_a_shorter() -> None:
    longer, other = f"{KEY}ABCDEFGH12345678", KEY.replace("a1", "z9")

    masked = masking().masked(judged(request(a=KEY, b=longer, c=other, d=KEY)))

    values = masked.traffic.model_dump()["messages"][0]["content"][0]["arguments"]
    assert values["a"] == values["d"]
    assert len({values["a"], values["b"], values["c"]}) == 3
    assert not {KEY, longer, other} & set(values.values())
    assert longer.removeprefix(KEY) not in values["b"]


@pytest.mark.spec("RPL-4")
@settings(max_examples=30)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_what_holds_no_secret_stays_as_it_is(text: str) -> None:
    entry = judged(asks(text), all_off())

    masked = masking().masked(entry)

    if not masking()._placeholders({"x": text}):
        assert masked.traffic == entry.traffic


@pytest.mark.spec("RPL-4")
def test_what_cannot_be_read_without_its_secrets_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = judged(asks("hello"))
    monkeypatch.setattr(masking(), "_placeholders", lambda _: {"user": "CONTENT"})

    with pytest.raises(ReplayError) as caught:
        masking().masked(entry)

    assert caught.value.code == "replay.unmaskable"
    assert "CONTENT" not in str(caught.value)
