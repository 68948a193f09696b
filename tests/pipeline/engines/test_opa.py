"""The OPA server engine against a real server, and against one that lies."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.opa_server import ScriptedServer, free_port, reply, serving, write_bundle

from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut, Undefined
from pipeline.decisions.errors import ConfigError
from pipeline.engines.circuit_breaker import Breaker
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.engines.opa import MAX_RESPONSE_BYTES, OpaServerEngine
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet

REVISION = "r1"
TEXT = "data.cmf.main.text.decision"
VIEW = json.dumps({"kind": "text", "role": "user", "path": "p", "content": "hello", "properties": {}}).encode()
SHARED = json.dumps({"extensions": {"security": {"labels": []}}}).encode()
SECONDS = 5.0

# A rule whose builtin fails on one kind of input, and one that never ends in time on another.
TROUBLE = """\
# METADATA
# title: Trouble
# custom: {code: test.trouble, severity: high, kinds: [text]}
package cmf.rules.test.trouble

deny contains {"code": "test.trouble", "reason": "Called it trouble."} if to_number(input.content) > 3

deny contains {"code": "test.slow", "reason": "Counted for long."} if {
	input.role == "slow"
	some a in numbers.range(1, 3000)
	some b in numbers.range(1, 3000)
	a * b == -1
}
"""


@pytest.fixture(scope="module")
def shipped() -> PolicySet:
    return policy_set.load(policy_set.shipped())


@pytest.fixture(scope="module")
def engine(shipped: PolicySet, opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpaServerEngine]:
    with serving(opa_binary, write_bundle(shipped, tmp_path_factory.mktemp("bundle"))) as url:
        engine = OpaServerEngine(url, revision=shipped.revision)
        yield engine
        engine.close()


@pytest.fixture(scope="module")
def troubled(opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpaServerEngine]:
    home = tmp_path_factory.mktemp("policies") / "cmf/rules/test/trouble"
    home.mkdir(parents=True)
    (home / "trouble.rego").write_text(TROUBLE, encoding="utf-8")
    policies = policy_set.load(home.parents[3])
    with serving(opa_binary, write_bundle(policies, tmp_path_factory.mktemp("bundle"))) as url:
        engine = OpaServerEngine(url, revision=policies.revision)
        yield engine
        engine.close()


def ask(url: str, views: int = 1, seconds: float = SECONDS) -> list[EngineResult]:
    engine = OpaServerEngine(url, revision=REVISION)
    try:
        return engine.evaluate([TEXT] * views, SHARED, [VIEW] * views, timeout_seconds=seconds)
    finally:
        engine.close()


def answer(*results: object, revision: object = REVISION) -> bytes:
    return json.dumps({"result": {"revision": revision, "results": list(results)}}).encode()


GOOD = {"value": {"deny": []}}

# What a server, a proxy in front of it or somebody in its place may say; none of it is a decision.
HOSTILE: dict[str, tuple[bytes, str]] = {
    "an empty body": (b"", "engine.not-json"),
    "null": (b"null", "engine.bad-result"),
    "a bare true": (b"true", "engine.bad-result"),
    "a list": (b"[]", "engine.bad-result"),
    "html": (b"<html>ok</html>", "engine.not-json"),
    "half of a body": (answer(GOOD)[:-4], "engine.not-json"),
    "two bodies": (answer(GOOD) * 2, "engine.not-json"),
    "a key said twice": (b'{"result": {}, "result": {}}', "engine.not-json"),
    "not a number": (b'{"result": {"revision": "r1", "results": [{"value": NaN}]}}', "engine.not-json"),
    "broken utf-8": (b'{"result": "\xff"}', "engine.not-json"),
    "a byte order mark": (b"\xef\xbb\xbf" + answer(GOOD), "engine.not-json"),
    "nesting without end": (b'{"result":' * 5000 + b"1" + b"}" * 5000, "engine.not-json"),
    "a result that is null": (b'{"result": null}', "engine.bad-result"),
    "a result that is true": (b'{"result": true}', "engine.bad-result"),
    "a decision where results belong": (b'{"result": {"deny": []}}', "engine.bad-result"),
    "results that are no list": (b'{"result": {"revision": "r1", "results": {"0": {}}}}', "engine.bad-result"),
    "too few results": (answer(), "engine.bad-result"),
    "too many results": (answer(GOOD, GOOD), "engine.bad-result"),
    "no revision": (b'{"result": {"results": [{"value": {}}]}}', "engine.bad-result"),
    "something more": (b'{"result": {"revision": "r1", "results": [{"value": {}}], "a": 1}}', "engine.bad-result"),
    "a result that is a word": (answer("allow"), "engine.bad-result"),
    "a result with an error": (answer({"value": {}, "error": "x"}), "engine.bad-result"),
    "a result with another key": (answer({"allow": True}), "engine.bad-result"),
    "another revision": (answer(GOOD, revision="r0"), "engine.other-revision"),
    "a revision that is null": (answer(GOOD, revision=None), "engine.other-revision"),
    "a compressed body": (gzip.compress(answer(GOOD)), "engine.not-json"),
}


@pytest.mark.spec("POL-32")
@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_answer_is_a_failure_for_each_view(case: str) -> None:
    body, code = HOSTILE[case]

    with ScriptedServer(reply(body)) as server:
        results = ask(server.url)

    assert results == [Failed(code)]


@pytest.mark.spec("POL-32")
def test_a_good_answer_from_the_same_scripted_server_is_a_decision() -> None:
    """Without this, the cases above could all fail for another reason."""
    with ScriptedServer(reply(answer(GOOD))) as server:
        results = ask(server.url)

    assert results == [Decided({"deny": []})]


@pytest.mark.spec("POL-32")
def test_no_result_at_all_is_undefined() -> None:
    with ScriptedServer(reply(b"{}")) as server:
        assert ask(server.url, views=2) == [Undefined(), Undefined()]


@pytest.mark.spec("POL-32")
@pytest.mark.parametrize("status", [201, 204, 400, 401, 404, 429, 500, 503])
def test_any_status_but_200_is_a_failure(status: int) -> None:
    body = b"" if status == 204 else answer(GOOD)
    with ScriptedServer(reply(body, status)) as server:
        results = ask(server.url)

    assert results == [Failed("engine.http-status", str(status))]


@pytest.mark.spec("POL-32")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    with ScriptedServer(reply(answer(GOOD))) as elsewhere:
        head = f"HTTP/1.1 {status} X\r\nlocation: {elsewhere.url}/v1/data\r\ncontent-length: 0\r\n\r\n"
        with ScriptedServer(head.encode()) as server:
            results = ask(server.url)

        assert results == [Failed("engine.redirect", str(status))]
        assert elsewhere.requests == []


@pytest.mark.spec("POL-32")
def test_a_server_that_is_down_is_unavailable_at_once() -> None:
    (result,) = ask(f"http://127.0.0.1:{free_port()}")

    assert isinstance(result, Failed)
    assert result.code == "engine.unavailable"


@pytest.mark.spec("POL-32")
@pytest.mark.parametrize("said", [ScriptedServer.CLOSE, b"gibberish\r\n\r\n", b"HTTP/1.1 200 X\r\n: \r\n\r\n"])
def test_what_is_not_http_is_unavailable(said: bytes) -> None:
    with ScriptedServer(said) as server:
        (result,) = ask(server.url)

    assert isinstance(result, Failed)
    assert result.code == "engine.unavailable"


@pytest.mark.spec("POL-32")
def test_a_body_that_breaks_off_is_unavailable() -> None:
    with ScriptedServer(reply(answer(GOOD))[:-9], closing=True) as server:
        (result,) = ask(server.url)

    assert isinstance(result, Failed)
    assert result.code == "engine.unavailable"


@pytest.mark.spec("POL-32")
def test_a_server_that_never_answers_is_a_timeout() -> None:
    with ScriptedServer(ScriptedServer.HANG) as server:
        assert ask(server.url, views=2, seconds=0.2) == [TimedOut(), TimedOut()]


@pytest.mark.spec("POL-32")
def test_a_body_that_comes_for_ever_is_too_large() -> None:
    chunk = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    endless = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n" + chunk * (MAX_RESPONSE_BYTES // (1 << 20) + 2)
    with ScriptedServer(endless) as server:
        assert ask(server.url) == [Failed("engine.result-too-large")]


def asks(engine: OpaServerEngine, times: int, seconds: float = SECONDS) -> list[str]:
    """What becomes of a view each time that it is asked for: a code, or the kind of result."""
    results = [engine.evaluate([TEXT], SHARED, [VIEW], timeout_seconds=seconds)[0] for _ in range(times)]
    return [getattr(result, "code", type(result).__name__) for result in results]


@pytest.mark.spec("POL-33")
@pytest.mark.parametrize(
    ("said", "code"),
    [
        (ScriptedServer.CLOSE, "engine.unavailable"),
        (reply(b"busy", 503), "engine.http-status"),
        (ScriptedServer.HANG, "TimedOut"),
    ],
)
def test_a_server_that_does_not_answer_is_not_asked_for_a_while(said: bytes, code: str) -> None:
    with ScriptedServer(said) as server:
        engine = OpaServerEngine(server.url, revision=REVISION, breaker=Breaker(faults=3, first_seconds=60))
        codes = asks(engine, 6, seconds=0.2)
        engine.close()

        assert codes == [code] * 3 + ["engine.circuit-open"] * 3
        assert len(server.requests) == 3


class Later(Breaker):
    """A breaker whose clock a test moves on."""

    later_seconds = 0.0

    def allows(self, now: float) -> bool:
        return super().allows(now + self.later_seconds)

    def note(self, now: float, *, fault: bool) -> None:
        super().note(now + self.later_seconds, fault=fault)


@pytest.mark.spec("POL-33")
def test_a_server_that_comes_back_is_asked_again() -> None:
    faults = [ScriptedServer.CLOSE] * 3
    with ScriptedServer(*faults, reply(answer(GOOD))) as server:
        breaker = Later(faults=2, first_seconds=60)
        engine = OpaServerEngine(server.url, revision=REVISION, breaker=breaker)
        assert asks(engine, 3) == ["engine.unavailable"] * 2 + ["engine.circuit-open"]
        breaker.later_seconds = 61
        assert asks(engine, 2) == ["engine.unavailable", "engine.circuit-open"]  # one try, and it failed
        breaker.later_seconds = 61 + 121
        assert asks(engine, 3) == ["Decided"] * 3
        engine.close()


@pytest.mark.spec("POL-33")
@pytest.mark.parametrize("said", [reply(b"no", 500), reply(b"[]"), reply(b"{}"), reply(answer(GOOD, revision="r0"))])
def test_a_server_that_answers_whatever_it_says_is_asked_again(said: bytes) -> None:
    with ScriptedServer(said) as server:
        engine = OpaServerEngine(server.url, revision=REVISION, breaker=Breaker(faults=2, first_seconds=60))
        assert "engine.circuit-open" not in asks(engine, 5)
        engine.close()


@pytest.mark.spec("POL-32")
def test_each_fault_has_a_code_of_its_own() -> None:
    """The table of the ways in which a server can fail: none lets anything through, and each can be told."""
    large = b" " * (MAX_RESPONSE_BYTES + 2 * 1024 * 1024)
    table = {
        "slow": ScriptedServer.HANG,
        "broken off": ScriptedServer.CLOSE,
        "500": reply(b"oops", 500),
        "garbage": reply(b"<html>"),
        "{}": reply(b"{}"),
        "wrong types": reply(b'{"result": {"revision": "r1", "results": [7]}}'),
        "10 MB": reply(large),
        "redirect": b"HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        "another revision": reply(answer(GOOD, revision="r0")),
    }
    codes = {}
    for fault, said in table.items():
        with ScriptedServer(said) as server:
            (result,) = ask(server.url, seconds=0.3 if fault == "slow" else SECONDS)
            codes[fault] = getattr(result, "code", type(result).__name__)

    assert codes == {
        "slow": "TimedOut",
        "broken off": "engine.unavailable",
        "500": "engine.http-status",
        "garbage": "engine.not-json",
        "{}": "Undefined",
        "wrong types": "engine.bad-result",
        "10 MB": "engine.result-too-large",
        "redirect": "engine.redirect",
        "another revision": "engine.other-revision",
    }


@pytest.mark.spec("POL-31")
def test_nothing_is_asked_twice_when_it_fails() -> None:
    with ScriptedServer(reply(b"oops", 503)) as server:
        ask(server.url)

        assert len(server.requests) == 1


@pytest.mark.spec("POL-31")
def test_a_batch_is_one_query_that_asks_for_strict_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    with ScriptedServer(reply(answer(GOOD, GOOD, GOOD))) as server:
        results = ask(server.url, views=3)

    assert results == [Decided({"deny": []})] * 3
    (request,) = server.requests
    assert request.startswith(b"POST /v1/data/cmf/main/batch/answer?strict-builtin-errors=true HTTP/1.1\r\n")
    assert b"accept-encoding" not in request.lower()


@pytest.mark.spec("POL-31")
def test_a_view_that_is_not_strict_json_does_not_fail_others() -> None:
    views = [VIEW, b'{"a": 1, "a": 2}', b"[]", b"{"]
    with ScriptedServer(reply(answer(GOOD))) as server:
        engine = OpaServerEngine(server.url, revision=REVISION)
        results = engine.evaluate([TEXT] * 4, SHARED, views, timeout_seconds=SECONDS)
        engine.close()

    assert [getattr(result, "code", None) for result in results] == [
        None,
        "input.duplicate-key",
        "input.not-object",
        "input.syntax",
    ]


@pytest.mark.spec("POL-31")
@pytest.mark.parametrize("shared", [b"{", b"null", b'{"a": NaN}'])
def test_a_context_that_is_not_an_object_fails_every_view_unasked(shared: bytes) -> None:
    with ScriptedServer(reply(answer(GOOD))) as server:
        engine = OpaServerEngine(server.url, revision=REVISION)
        (result,) = engine.evaluate([TEXT], shared, [VIEW], timeout_seconds=SECONDS)
        engine.close()

        assert isinstance(result, Failed)
        assert server.requests == []


@pytest.mark.spec("POL-30")
@pytest.mark.parametrize(
    "url", ["", "localhost:8181", "ftp://h", "http://", "http://h/v1", "http://h?x=1", "http://user:pw@h:1"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        OpaServerEngine(url, revision=REVISION)

    assert "pw" not in str(error.value)


@pytest.mark.opa
@pytest.mark.spec("POL-31")
def test_a_server_with_another_revision_decides_nothing(engine: OpaServerEngine, shipped: PolicySet) -> None:
    other = OpaServerEngine(_url(engine), revision="0" * 64)

    results = other.evaluate([TEXT], SHARED, [VIEW], timeout_seconds=SECONDS)
    other.close()

    assert results == [Failed("engine.other-revision")]


@pytest.mark.opa
@pytest.mark.spec("POL-31")
def test_an_entrypoint_that_is_not_there_is_undefined(engine: OpaServerEngine) -> None:
    results = engine.evaluate(["data.cmf.main.txt.decision", TEXT], SHARED, [VIEW, VIEW], timeout_seconds=SECONDS)

    assert results[0] == Undefined()
    assert isinstance(results[1], Decided)


@pytest.mark.opa
@pytest.mark.spec("POL-31")
def test_one_view_that_breaks_a_builtin_does_not_take_the_others_with_it(troubled: OpaServerEngine) -> None:
    contents = ["5", "no number", "1"]
    views = [json.dumps({"kind": "text", "content": content}).encode() for content in contents]

    results = troubled.evaluate([TEXT] * 3, b"{}", views, timeout_seconds=SECONDS)

    assert isinstance(results[0], Decided)
    assert [hit["code"] for hit in results[0].value["deny"]] == ["test.trouble"]
    assert results[1] == Failed("engine.http-status", "500")
    assert isinstance(results[2], Decided)
    assert results[2].value["deny"] == []


@pytest.mark.opa
@pytest.mark.spec("POL-31")
def test_a_policy_that_takes_too_long_is_a_timeout(troubled: OpaServerEngine) -> None:
    view = json.dumps({"kind": "text", "content": "1", "role": "slow"}).encode()

    assert troubled.evaluate([TEXT], b"{}", [view], timeout_seconds=0.3) == [TimedOut()]


@pytest.mark.opa
@pytest.mark.spec("POL-30")
def test_it_answers_as_the_embedded_engine_does(engine: OpaServerEngine, shipped: PolicySet) -> None:
    modules = [(module.path, module.text) for module in shipped.modules]
    embedded = EmbeddedEngine(modules, shipped.data, shipped.entrypoints)
    text = {"kind": "text", "content": "é AKIAIOSFODNN7EXAMPLE", "properties": {}, "extensions": {"meta": {"a": 1}}}
    view = json.dumps(text).encode()

    ours = engine.evaluate([TEXT], SHARED, [view], timeout_seconds=SECONDS)

    assert ours == embedded.evaluate([TEXT], SHARED, [view], timeout_seconds=SECONDS)
    assert isinstance(ours[0], Decided)
    assert ours[0].value["redact"]


@pytest.mark.opa
@pytest.mark.spec("POL-30")
async def test_many_loops_and_threads_share_one_engine(engine: OpaServerEngine) -> None:
    async def ask_async() -> list[EngineResult]:
        return await engine.aevaluate([TEXT] * 2, SHARED, [VIEW] * 2, timeout_seconds=SECONDS)

    with ThreadPoolExecutor(4) as pool:
        elsewhere = [pool.submit(lambda: asyncio.run(ask_async())) for _ in range(4)]
        threads = [pool.submit(engine.evaluate, [TEXT], SHARED, [VIEW], timeout_seconds=SECONDS) for _ in range(16)]
        here = await asyncio.gather(*(ask_async() for _ in range(16)))

    answers = [*here, *(future.result() for future in [*elsewhere, *threads])]
    assert all(isinstance(result, Decided) for results in answers for result in results)


@pytest.mark.opa
@pytest.mark.spec("POL-30")
def test_closing_ends_the_thread_and_asking_again_starts_anew(engine: OpaServerEngine) -> None:
    own = OpaServerEngine(_url(engine), revision=engine.revision)
    first = own.evaluate([TEXT], SHARED, [VIEW], timeout_seconds=SECONDS)
    thread = next(thread for thread in threading.enumerate() if thread.name == "cmf-opa")

    own.close()
    own.close()
    again = own.evaluate([TEXT], SHARED, [VIEW], timeout_seconds=SECONDS)
    own.close()

    assert first == again
    assert thread is not None


def test_no_views_are_no_results(engine: OpaServerEngine) -> None:
    assert engine.evaluate([], SHARED, [], timeout_seconds=SECONDS) == []


def _url(engine: OpaServerEngine) -> str:
    client = engine._new_client()
    return f"http://{client.host}:{client.port}"
