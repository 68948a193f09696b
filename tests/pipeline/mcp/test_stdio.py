"""`cmf mcp-proxy` as a client meets it: the real command, the real SDK, and servers that misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, ElicitResult, TextContent
from tests.pipeline.conftest import write_rules
from typer.testing import CliRunner

from pipeline.cli.app import app
from pipeline.cli.approvals import decide

HERE = Path(__file__).parent
CMF = [sys.executable, "-c", "from pipeline.cli import main; main()", "mcp-proxy"]
EVERYTHING = [sys.executable, str(HERE / "everything.py")]
KEY = "AKIAIOSFODNN7EXAMPLE"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
RULES = {
    "names": 'deny contains {"code": "no.remove", "reason": "Not this tool."} if {\n'
    '    input.kind == "tool_call"\n    input.uri == "tool://all/remove"\n}',
    "away": 'strip_tool contains {"code": "no.hidden", "reason": "Not offered."} if {\n'
    '    input.kind == "tool_definition"\n    input.name == "hidden"\n}',
}
SMALL: list[str] = []
pytestmark = pytest.mark.slow


def hostile(how: str, *more: str) -> list[str]:
    return ["--", sys.executable, str(HERE / "hostile.py"), how, *more]


@pytest.fixture(scope="module", autouse=True)
def small(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Policies that take no time to compile, for what is not about policy."""
    SMALL.append(str(write_rules(tmp_path_factory.mktemp("small"), RULES)))


def quick(*arguments: str) -> list[str]:
    return [*([] if "--policies" in arguments else ["--policies", SMALL[0]]), *arguments]


def raw(*arguments: str, sends: bytes = b"", **more: Any) -> subprocess.CompletedProcess[bytes]:
    """What becomes of a proxy whose client says this and ends."""
    return subprocess.run([*CMF, *quick(*arguments)], input=sends, capture_output=True, timeout=60, check=False, **more)


def line(*bodies: Any) -> bytes:
    return b"".join(json.dumps(body).encode() + b"\n" for body in bodies)


def said(done: subprocess.CompletedProcess[bytes]) -> list[Any]:
    return [json.loads(one) for one in done.stdout.splitlines()]


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so: on a busy machine a command takes its time to begin."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()


def connected(*arguments: str, mode: Any = "legacy", **more: Any) -> Client:
    server = StdioServerParameters(command=CMF[0], args=[*CMF[1:], *arguments], env=dict(os.environ))
    return Client(stdio_client(server), mode=mode, **more)


# -- hostile servers ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-19")
@pytest.mark.parametrize(("how", "answers"), [("cut", {1}), ("dies", {0, 1})])
def test_a_server_that_ended_is_an_error_for_each_call(how: str, answers: set[int]) -> None:
    done = raw(*hostile(how), sends=line(PING))

    codes = [body["error"]["data"]["code"] for body in said(done) if body["id"] == 1]
    assert len(codes) in answers  # one that ends at once may be gone before the call was read
    assert set(codes) <= {"mcp.server-disconnected"}
    assert done.returncode == 1
    assert b"the server ended first" in done.stderr


@pytest.mark.spec("MCPX-18")
def test_a_server_that_hangs_is_not_waited_for() -> None:
    with subprocess.Popen(
        [*CMF, *quick("--answer-seconds", "0.3", *hostile("hangs"))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        proxy.stdin.write(line(PING))
        proxy.stdin.flush()
        body = json.loads(proxy.stdout.readline())
        proxy.stdin.close()
        assert proxy.wait(30) == 0

    assert (body["id"], body["error"]["data"]["code"]) == (1, "mcp.timeout")


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that is full, and that nobody reads."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writes, bytes(4096))
    os.set_blocking(writes, True)
    yield writes
    os.close(reads)
    os.close(writes)


@pytest.mark.spec("GW-173", "MCPX-50")
@pytest.mark.parametrize(("how", "code"), [("fine", 0), ("cut", 1)])
def test_a_client_that_does_not_read_the_log_is_answered_all_the_same(how: str, code: int, unread: int) -> None:
    sends = b"hello\n" * 3_000 + line(PING)

    with subprocess.Popen(
        [*CMF, *quick(*hostile(how))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=unread
    ) as proxy:
        try:
            answers = proxy.communicate(sends, timeout=60)[0].splitlines()
        finally:
            proxy.kill()

    assert len(answers) == 3_001
    assert json.loads(answers[-1])["id"] == 1
    assert proxy.returncode == code


@pytest.mark.spec("MCPX-4")
@pytest.mark.parametrize("how", ["huge", "not-utf8", "twice", "deep"])
def test_a_server_that_says_what_is_no_message_is_not_listened_to_any_more(how: str) -> None:
    done = raw(*hostile(how), sends=line(PING))

    assert [body["error"]["data"]["code"] for body in said(done)] == ["mcp.server-disconnected"]
    assert done.returncode == 1
    assert len(done.stdout) < 1000


@pytest.mark.spec("MCPX-4")
@pytest.mark.parametrize("how", ["stray", "unsolicited"])
def test_what_is_no_message_for_the_client_is_left_out(how: str) -> None:
    done = raw(*hostile(how), sends=line(PING))

    assert said(done) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert b"mcp.stray-line" in done.stderr or b"mcp.unsolicited-answer" in done.stderr
    assert done.returncode == 0


@pytest.mark.spec("MCPX-11")
def test_a_server_s_question_is_judged_before_the_client_hears_it() -> None:
    done = raw("--policies", "shipped", *hostile("early"), sends=line(PING))

    assert KEY.encode() not in done.stdout
    assert any(body.get("method") == "elicitation/create" and "[MASKED]" in str(body) for body in said(done))


# -- hostile clients ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-1")
def test_an_invalid_message_is_answered_with_an_error_and_the_next_one_read() -> None:
    invalid = [
        (b"hello\n", -32700),
        (b"\xff\n", -32700),
        (b'{"jsonrpc":"2.0","id":2,"id":3,"method":"ping"}\n', -32700),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}\n', -32600),
        (line({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"Name": "x"}}), -32600),
        (line([PING]), -32600),
    ]
    sends = b"".join(one + line({**PING, "id": 10 + at}) for at, (one, _) in enumerate(invalid))

    done = raw(*hostile("fine"), sends=sends)

    assert [body["error"]["code"] for body in said(done) if "error" in body] == [number for _, number in invalid]
    assert [body["id"] for body in said(done) if "result" in body] == [10, 11, 12, 13, 14, 15]
    assert done.returncode == 0


@pytest.mark.spec("MCPX-2")
def test_a_line_without_end_ends_the_client() -> None:
    done = raw(*hostile("fine"), sends=line(PING) + b"[" * (17 * 1024 * 1024))

    [error] = [body["error"] for body in said(done) if "error" in body]
    assert error["data"]["code"] == "mcp.too-large"
    assert done.returncode == 1


@pytest.mark.spec("MCPX-2")
def test_a_last_line_without_its_end_is_a_line() -> None:
    assert said(raw(*hostile("fine"), sends=line(PING)[:-1])) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


# -- processes ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-51")
@pytest.mark.parametrize("how", ["parent", "pid"])
def test_no_process_is_left_when_the_client_ends(tmp_path: Path, how: str) -> None:
    file = tmp_path / "pid"
    done = raw(*hostile(how, str(file)), sends=line(PING))

    assert done.returncode == 0
    until(lambda: not is_there(int(file.read_text())))


@pytest.mark.spec("MCPX-51")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_when_the_proxy_is_ended(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "pid"
    with subprocess.Popen(
        [*CMF, *quick(*hostile("pid", str(file)))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as proxy:
        until(lambda: file.is_file() and file.read_text())
        proxy.send_signal(number)
        assert proxy.wait(20) == (0 if number is not signal.SIGKILL else -signal.SIGKILL)
        until(lambda: not is_there(int(file.read_text())))


@pytest.mark.spec("MCPX-51")
def test_a_server_that_will_not_end_is_ended() -> None:
    begin = time.monotonic()
    done = raw(*hostile("deaf"), sends=line(PING))

    assert done.returncode == 0
    assert time.monotonic() - begin < 30


@pytest.mark.spec("MCPX-50")
def test_what_the_server_writes_to_standard_error_passes_and_nothing_else_is_on_standard_output() -> None:
    done = raw("--", *EVERYTHING, sends=line(PING))

    assert b"everything is here\n" in done.stderr
    assert said(done) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("MCPX-52")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--role", "agent", "--", "x"], "--role needs --subject"),
        (["--subject", "", "--", "x"], "--subject is empty"),
        (["--url", "http://h:99999/mcp"], "its host or its port is not valid"),
        (["--pins", "/no/such/pins.json", "--", "x"], "the pins cannot be written at /no/such/pins.json"),
        ([], "the server's command"),
        (["--url", "http://h/mcp", "--", "x"], "give either"),
        (["--url", "ftp://h"], "http://"),
        (["--url", "http://u:p@h"], "a URL holds no key"),
        (["--name", "a b", "--", "x"], "letters"),
        (["--key-env", "K", "--", "x"], "--key-env"),
        (["--key-env", "NOT_SET_AT_ALL", "--url", "http://h/mcp"], "config.no-secret"),
    ],
)
def test_useless_options_are_refused_in_one_line_before_the_server_starts(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["mcp-proxy", *arguments])

    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


@pytest.mark.spec("MCPX-52")
def test_a_server_that_cannot_be_started_is_one_line() -> None:
    done = raw("--", "/no/such/command")

    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert b"mcp.no-command" in done.stderr


# -- the real SDK ------------------------------------------------------------------------------------------------------


async def sampled(context: object, params: Any) -> CreateMessageResult:
    assert KEY not in str(params)
    content = TextContent(type="text", text=f"It is {KEY}.")
    return CreateMessageResult(role="assistant", content=content, model="m")


async def elicited(context: object, params: Any) -> ElicitResult:
    return ElicitResult(action="accept", content={"name": "ann"})


@pytest.mark.spec("MCPX-13")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_sdk_works_through_the_proxy_as_with_the_server_and_sees_what_policy_leaves(
    tmp_path: Path, mode: str
) -> None:
    policies = write_rules(tmp_path / "policy", RULES)
    logged: list[Any] = []

    async def log(params: Any) -> None:
        logged.append(params.data)

    own = ["--name", "all", "--policies", "shipped", "--policies", str(policies), "--", *EVERYTHING]
    async with connected(
        *own, mode=mode, sampling_callback=sampled, elicitation_callback=elicited, logging_callback=log
    ) as client:
        assert client.instructions == "Never say [MASKED]."
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"read", "steps", "ask"} <= names
        assert "hidden" not in names
        read = await client.call_tool("read", {"path": "a"})
        assert read.content[0].text == "a: [MASKED]"
        assert read.structured_content == {"result": "a: [MASKED]"}
        removed = await client.call_tool("remove", {"path": "a"})
        assert removed.is_error
        assert removed.meta["cmf/code"] == "no.remove"
        hidden = await client.call_tool("hidden")
        assert hidden.meta["cmf/code"] == "mcp.tool-stripped"
        shown = await client.read_resource("file:///notes")
        assert shown.contents[0].text == "note: [MASKED]"
        assert (await client.read_resource("file:///notes/a")).contents[0].text == "a: [MASKED]"
        assert len((await client.list_resources()).resources) == 1
        assert len((await client.list_resource_templates()).resource_templates) == 1
        assert [one.name for one in (await client.list_prompts()).prompts] == ["greet"]
        prompt = await client.get_prompt("greet", {"name": "bob"})
        assert prompt.messages[0].content.text == "Say hello to bob, who has [MASKED]."
        with pytest.raises(MCPError) as refused:
            await client.get_prompt("greet", {"name": KEY})
        assert refused.value.error.data["code"] == "data.secret"
        if mode == "legacy":
            heard: list[Any] = []

            async def progressed(progress: float, total: float | None, message: str | None) -> None:
                heard.append((progress, message))

            assert (await client.call_tool("steps", progress_callback=progressed)).content[0].text == "done"
            assert heard == [(at, f"step {at} [MASKED]") for at in range(3)]
            assert "ann" in (await client.call_tool("ask")).content[0].text
            assert (await client.call_tool("think")).content[0].text == "It is [MASKED]."
            assert (await client.call_tool("loud")).content[0].text == "logged"
            assert logged == ["the key is [MASKED]"]
            await client.send_ping()


@pytest.mark.spec("MCPX-22")
async def test_tools_stay_pinned_from_one_run_to_the_next(tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    own = quick("--name", "all", "--pins", str(pins), "--", *EVERYTHING)
    async with connected(*own) as client:
        before = {tool.name for tool in (await client.list_tools()).tools}
    kept = json.loads(pins.read_bytes())
    kept["all"]["read"] = "sha256:" + "0" * 64
    pins.write_text(json.dumps(kept), encoding="utf-8")

    async with connected(*own) as client:
        after = {tool.name for tool in (await client.list_tools()).tools}
        called = await client.call_tool("read", {"path": "a"})

    assert before - after == {"read"}
    assert called.is_error
    assert called.meta["cmf/code"] == "mcp.definition-changed"


@pytest.mark.spec("MCPX-31")
async def test_a_call_goes_through_once_a_person_has_approved_it(tmp_path: Path) -> None:
    look = {
        "look": 'require_approval contains {"code": "ask.first", "reason": "A person must look."} if {\n'
        '    input.kind == "tool_call"\n    input.name == "steps"\n}'
    }
    policies, store = write_rules(tmp_path / "policy", look), tmp_path / "cmf.db"
    own = ["--policies", str(policies), "--store", str(store), "--subject", "ann", "--session", "s", "--", *EVERYTHING]
    async with connected(*own) as client:
        waits = await client.call_tool("steps")
        [approval] = waits.meta["cmf/approval-ids"]
        decide(approval, f"sqlite:///{store}", person="bob", approve=True)
        goes = await client.call_tool("steps")
        again = await client.call_tool("steps")

    assert waits.is_error
    assert approval in waits.content[0].text
    assert goes.content[0].text == "done"
    assert again.is_error


@pytest.mark.spec("CLI-62")
def test_the_example_runs() -> None:
    example = Path(__file__).parents[3] / "examples" / "mcp_proxy.py"
    done = subprocess.run([sys.executable, str(example)], capture_output=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert b"tools: ['read_note']" in done.stdout
    assert b"read_note: today: the key is [MASKED]" in done.stdout
    assert b"refused: True data.secret" in done.stdout
