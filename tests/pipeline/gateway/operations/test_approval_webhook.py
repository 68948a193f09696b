"""People are told at once what waits, by a signed message without content; and their signed answers count."""

from __future__ import annotations

import base64
import hmac
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import ANN, KEY, script, serving, until
from tests.pipeline.gateway.test_crossing import post

from pipeline.approvals.queue import Approvals
from pipeline.decisions.approval import Approval, ApprovalRequest
from pipeline.decisions.context import SessionKey
from pipeline.decisions.errors import ConfigError
from pipeline.gateway.operations.approval_webhook import facts_of, signature
from pipeline.run.assembly import open_sessions

pytestmark = pytest.mark.native

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes, ok").decode()
ENVIRONMENT = {"HOOK": SECRET}
CALL = 'require_approval contains {"code": "ask", "reason": "Somebody must look."} if input.kind == "tool_call"'
TOOL = {"tool_calls": [{"name": "pay", "arguments": {"iban": "CANARY", "my CANARY name": 1}}]}
CHAT = "/v1/chat/completions"
HELD = {"authorization": f"Bearer {KEY}", "x-cmf-session-id": "s"}
GO = {"model": "m", "messages": [{"role": "user", "content": "go CANARY"}]}


@dataclass
class Receiver:
    """What a webhook receives, and the statuses that it answers with, the last one for ever."""

    statuses: list[int] = field(default_factory=lambda: [200])
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def bodies(self) -> list[Any]:
        return [json.loads(body) for _, body in self.got]


@contextmanager
def receiving(*statuses: int) -> Iterator[Receiver]:
    receiver = Receiver(list(statuses) or [200])

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
            status = receiver.statuses.pop(0) if len(receiver.statuses) > 1 else receiver.statuses[0]
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:1/")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()


def settings(
    home: Path, url: Any, *, wait_seconds: float = 0, site: str | None = None, **webhook: Any
) -> dict[str, Any]:
    known = {"url": url, "secret": {"env": "HOOK"}, "networks": ["127.0.0.0/8"], "retry_seconds": 0.05, **webhook}
    link = {} if site is None else {"site": site}
    return {
        "upstreams": {"up": script(home, TOOL)},
        "keys": [ANN],
        "policies": [str(write_rules(home / "policy", {"call": CALL}, kinds="tool_call"))],
        "approvals": {"wait_seconds": wait_seconds, "webhook": known, **link},
    }


def counted(url: str, outcome: str) -> int:
    with urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    line = next(
        one for one in text.splitlines() if one.startswith(f'cmf_approval_notices_total{{outcome="{outcome}"}}')
    )
    return int(line.split()[-1])


def signed(body: bytes, *, name: str = "msg_1", at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    timestamp = str(int(time.time() if at is None else at))
    return {
        "webhook-id": name,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature(secret, name, timestamp, body),
    }


def answer(url: str, body: Any, headers: dict[str, str] | None = None) -> tuple[int, str | None]:
    status, heads, _ = post(
        url, "/approvals/answer", body, signed(json.dumps(body).encode()) if headers is None else headers
    )
    return status, heads.get("x-cmf-code")


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-214")
@pytest.mark.parametrize(
    ("webhook", "statuses", "tries"),
    [
        ({"networks": []}, [200], 0),
        ({"tries": 3}, [503], 3),
        ({"tries": 3}, [404], 1),
        ({"tries": 3}, [307], 1),
    ],
    ids=["an address of this machine that is not listed", "down", "gone", "elsewhere"],
)
def test_a_message_that_cannot_be_delivered_is_counted_and_lets_nothing_through(
    tmp_path: Path, webhook: dict[str, Any], statuses: list[int], tries: int
) -> None:
    with (
        receiving(*statuses) as receiver,
        serving(tmp_path, settings(tmp_path, receiver.url, **webhook), ENVIRONMENT) as url,
    ):
        assert post(url, CHAT, GO, HELD)[0] == 403
        until(lambda: counted(url, "failed") == 1)
        assert (len(receiver.got), counted(url, "delivered")) == (tries, 0)
        with open_sessions(f"sqlite:///{tmp_path / 'cmf.db'}", made=False) as sessions:
            assert len(Approvals(sessions).pending()) == 1


@pytest.mark.spec("GW-214")
@pytest.mark.parametrize("url", ["http://example.org/hook", "https://me@example.org/hook", "https://example.org", "x"])
def test_a_receiver_that_may_not_be_told_is_refused_when_settings_are_read(tmp_path: Path, url: str) -> None:
    with pytest.raises(ConfigError), serving(tmp_path, settings(tmp_path, url), ENVIRONMENT):
        pass


@pytest.mark.spec("GW-214")
def test_without_its_secret_nothing_is_served(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"approvals\.webhook\.secret"),
        serving(tmp_path, settings(tmp_path, "http://127.0.0.1/x")),
    ):
        pass


@pytest.mark.spec("GW-214", "GW-215")
def test_a_message_is_signed_tried_again_and_holds_no_content(tmp_path: Path) -> None:
    with (
        receiving(503, 200) as receiver,
        serving(
            tmp_path,
            settings(tmp_path, {"env": "URL"}, site="https://review.example/review"),
            ENVIRONMENT | {"URL": receiver.url},
        ) as url,
    ):
        _, headers, _ = post(url, CHAT, GO, HELD)
        name = headers["x-cmf-approval-id"]
        until(lambda: counted(url, "delivered") == 1)

    (_, first), (heads, body) = receiver.got
    assert first == body
    known = f"{name}.{heads['webhook-timestamp']}.".encode() + body
    mac = hmac.digest(b"a secret of thirty-two bytes, ok", known, "sha256")
    assert heads["webhook-signature"] == "v1," + base64.b64encode(mac).decode()
    assert (heads["webhook-id"], abs(int(heads["webhook-timestamp"]) - time.time()) < 60) == (name, True)
    assert b"CANARY" not in body
    data = json.loads(body)["data"]
    assert data.pop("expires")
    assert data == {
        "approval": name,
        "target": "tool://_/pay",
        "arguments": ["iban"],
        "reasons": ["Somebody must look."],
        "rules": ["test/call"],
        "subject": "ann",
        "session": "s",
        "scopes": ["once", "session", "value"],
        "link": f"https://review.example/review/approvals/{name}",
    }


@pytest.mark.spec("GW-215")
@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("tool://_/pay", "tool://_/pay"),
        ("text:user", "text:user"),
        ("https://host.example/a?token=canary", "https://…"),
        ("file:///home/canary", "file://…"),
        ("tool://_/tell%20bob%20canary", "tool://…"),
        (f"tool://_/{'canary' * 40}", "tool://…"),
    ],
)
def test_of_a_target_only_what_is_a_name_is_told(target: str, told: str) -> None:
    asked = ApprovalRequest(id="apr_1", digest="d", target=target, rules=("r",), revision="v", expires_at=1)

    facts = facts_of(Approval(asked=asked, key=SessionKey("ann", "s"), requested_at=0))

    assert facts["target"] == told


@pytest.mark.spec("GW-215")
def test_a_message_for_slack_formats_and_notifies_nothing_that_a_name_says(tmp_path: Path) -> None:
    with receiving() as receiver:
        body = settings(tmp_path, receiver.url, form="slack", site="https://review.example/review")
        body["upstreams"] = {"up": script(tmp_path, {"tool_calls": [{"name": "<!channel>`*x*", "arguments": {}}]})}
        with serving(tmp_path, body, ENVIRONMENT) as url:
            post(url, CHAT, GO, HELD)
            until(lambda: receiver.got)

    (message,) = receiver.bodies()
    assert set(message) == {"text", "blocks"}
    assert "<" not in message["text"]
    kinds = [block["type"] for block in message["blocks"]]
    assert kinds == ["section", "context", "actions"]
    assert "mrkdwn" not in json.dumps(message)
    assert message["blocks"][2]["elements"][0]["url"].startswith("https://review.example/review/approvals/apr_")


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-216")
def test_an_answer_that_is_not_signed_now_and_whole_decides_nothing(tmp_path: Path) -> None:
    with receiving() as receiver, serving(tmp_path, settings(tmp_path, receiver.url, answers=True), ENVIRONMENT) as url:
        name = post(url, CHAT, GO, HELD)[1]["x-cmf-approval-id"]
        yes = {"approval": name, "answer": "approve", "by": "carol"}
        raw = json.dumps(yes).encode()
        unsigned = [
            {},
            signed(raw, secret="another"),
            signed(raw, at=time.time() - 301),
            signed(raw, at=time.time() + 301),
            signed(raw) | {"webhook-id": "msg_2"},
            signed(raw) | {"webhook-timestamp": "now"},
            signed(json.dumps(yes | {"answer": "deny"}).encode()),
        ]
        assert [answer(url, yes, one) for one in unsigned] == [(401, "webhook.signature")] * len(unsigned)
        for wrong in ({"answer": "maybe"}, {"by": " "}, {"by": "x" * 257}, {"scope": "always"}, {"more": 1}, {"by": 1}):
            assert answer(url, yes | wrong) == (400, "webhook.answer")
        assert answer(url, [yes]) == (400, "webhook.answer")
        assert answer(url, yes | {"approval": "apr_x"}) == (404, "approval.unknown")
        assert answer(url, yes | {"by": "ANN"}) == (403, "approval.own-request")

        assert post(url, CHAT, GO, HELD | {"x-cmf-approval-id": name})[0] == 403


@pytest.mark.spec("GW-216")
def test_without_the_setting_no_answer_is_taken(tmp_path: Path) -> None:
    with receiving() as receiver, serving(tmp_path, settings(tmp_path, receiver.url), ENVIRONMENT) as url:
        assert answer(url, {"approval": "apr_x", "answer": "approve", "by": "carol"})[0] == 404


@pytest.mark.spec("GW-216", "GW-87")
def test_a_signed_answer_lets_the_reply_that_waits_go_on_once(tmp_path: Path) -> None:
    with receiving() as receiver:
        body = settings(tmp_path, receiver.url, answers=True, wait_seconds=20)
        with serving(tmp_path, body, ENVIRONMENT) as url:
            replies: list[int] = []
            client = threading.Thread(target=lambda: replies.append(post(url, CHAT, GO, HELD)[0]))
            client.start()
            until(lambda: receiver.got)
            name = receiver.bodies()[0]["data"]["approval"]
            yes = {"approval": name, "answer": "approve", "by": "carol", "scope": "session"}
            assert answer(url, yes) == (200, None)
            assert answer(url, yes) == (409, "approval.decided")
            client.join(20)

    assert replies == [200]
    with open_sessions(f"sqlite:///{tmp_path / 'cmf.db'}", made=False) as sessions:
        (stands,) = Approvals(sessions).standing()
        assert (stands.approver, stands.scope.value) == ("carol", "session")


@pytest.mark.spec("GW-216")
def test_a_signed_denial_refuses(tmp_path: Path) -> None:
    with receiving() as receiver, serving(tmp_path, settings(tmp_path, receiver.url, answers=True), ENVIRONMENT) as url:
        name = post(url, CHAT, GO, HELD)[1]["x-cmf-approval-id"]
        assert answer(url, {"approval": name, "answer": "deny", "by": "carol"}) == (200, None)

        assert post(url, CHAT, GO, HELD)[1]["x-cmf-code"] == "approval.denied"
