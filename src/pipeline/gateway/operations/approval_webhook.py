"""Tells a webhook what waits for a person, and takes the answers that it signs. Spec: docs/spec/gateway.md [GW-214] ff.

Signed as Standard Webhooks are. Nothing goes on because of a webhook that fails: what waits stays listed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

from cmf.errors import DecodeError, MediaError
from cmf.json.codec import dumps, loads
from cmf.message.security import SubjectExtension
from pipeline.approvals.queue import Approvals
from pipeline.decisions.approval import Approval, ApprovalScope
from pipeline.decisions.authority import APPROVE, is_legible
from pipeline.decisions.context import shown_subject
from pipeline.decisions.display import visible
from pipeline.decisions.errors import ApprovalError, StoreError
from pipeline.decisions.events import ApprovalAsked, Event
from pipeline.decisions.timestamps import iso
from pipeline.gateway.config.settings import Webhook
from pipeline.gateway.http.refusal import Refusal, later
from pipeline.media.fetch import Fetcher, FetchSettings
from pipeline.run.offload import Offload
from pipeline.sessions.base import SessionStore

MAX_PENDING: Final = 256  # messages on their way; more are dropped
MAX_AT_ONCE: Final = 8
MAX_ANSWER_BYTES: Final = 4_096
TOLERANCE_SECONDS: Final = 300
CLOSE_SECONDS: Final = 2.0  # for messages on their way when the gateway ends
DELIVERED, FAILED, DROPPED = "delivered", "failed", "dropped"
_PASSING: Final = frozenset({"media.unreachable", "media.timeout", "media.unresolvable"})
_SHOWN: Final = 200  # characters of a name
_NAMING: Final = frozenset({"tool", "tool_result", "prompt", "prompt_result", "llm", "opaque"})  # what names are behind
_log: Final = logging.getLogger("pipeline.gateway")


def signature(secret: str, name: str, timestamp: str, body: bytes) -> str:
    """`v1,` and the HMAC-SHA-256 of id, time and body, in base64, as Standard Webhooks has it."""
    signed = b".".join((name.encode(), timestamp.encode(), body))
    key = secret.encode()
    if secret.startswith("whsec_"):  # what follows is base64; anything else is the key itself
        with suppress(binascii.Error):
            key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


class ApprovalWebhook:
    """Delivers a message for each new question, on a thread with an event loop of its own."""

    def __init__(self, settings: Webhook, url: str, secret: str, sessions: SessionStore, site: str | None) -> None:
        self._settings = settings
        self._url = url
        self._secret = secret
        self._sessions = sessions
        self._site = site
        self._fetcher = Fetcher(
            FetchSettings(
                allow=(url,),
                timeout_seconds=settings.timeout_seconds,
                inner_networks=tuple(map(str, settings.networks)),
            )
        )
        self.counts = Counter({DELIVERED: 0, FAILED: 0, DROPPED: 0})
        self._loop = asyncio.new_event_loop()
        self._deliveries: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(MAX_AT_ONCE)
        self._offload = Offload(waits=sessions.waits)
        self._thread = threading.Thread(target=self._loop.run_forever, name="cmf-approval-webhook", daemon=True)
        self._thread.start()

    def on_event(self, event: Event) -> None:
        """For `Events.subscribe`: begins to deliver what is asked; never waits."""

        def begin(approval_id: str) -> None:
            if len(self._deliveries) >= MAX_PENDING:
                self.counts[DROPPED] += 1
                return
            task = self._loop.create_task(self._deliver(approval_id))
            self._deliveries.add(task)
            task.add_done_callback(self._deliveries.discard)

        if isinstance(event, ApprovalAsked):
            self._loop.call_soon_threadsafe(begin, event.id)

    def close(self) -> None:
        """Wait a moment for messages on their way, and end."""

        async def end() -> None:
            if self._deliveries:
                _, late = await asyncio.wait(self._deliveries, timeout=CLOSE_SECONDS)
                for task in late:
                    task.cancel()
                self.counts[FAILED] += len(late)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._offload.close()

    async def _deliver(self, approval_id: str) -> None:
        async with self._places:
            code = "approval.unknown"
            try:
                approval = await self._offload(self._sessions.approval, approval_id)
                code = code if approval is None else await self._delivered(approval_id, self._message(approval))
            except StoreError as error:
                code = error.code
        self.counts[FAILED if code else DELIVERED] += 1
        if code:
            _log.warning("the webhook could not be told of approval %s: %s", approval_id, code)

    async def _delivered(self, approval_id: str, body: bytes) -> str:
        """Empty once the receiver took it; otherwise why not, after all tries."""
        code = ""
        for number in range(self._settings.tries):
            if number:
                await asyncio.sleep(self._settings.retry_seconds * 2 ** (number - 1))
            timestamp = str(int(time.time()))  # noqa: TID251 - the receiver compares it with its own
            headers = {
                "content-type": "application/json",
                "webhook-id": approval_id,
                "webhook-timestamp": timestamp,
                "webhook-signature": signature(self._secret, approval_id, timestamp, body),
            }
            try:
                status = await self._fetcher.post(self._url, body, headers)
            except MediaError as error:
                code, passes = error.code, error.code in _PASSING
            else:
                code = "" if 200 <= status < 300 else f"http {status}"
                passes = status in (408, 425, 429) or status >= 500
            if not (code and passes):
                break
        return code

    def _message(self, approval: Approval) -> bytes:
        link = None if self._site is None else f"{self._site}/approvals/{approval.asked.id}"
        facts = facts_of(approval) | ({} if link is None else {"link": link})
        if self._settings.form == "slack":
            return dumps(_slack(facts))
        return dumps({"type": "approval.asked", "timestamp": iso(approval.requested_at), "data": facts})


def facts_of(approval: Approval) -> dict[str, Any]:
    """What a webhook is told: what the page of the approval shows to everyone who may see it, and no content."""
    asked = approval.asked
    return {
        "approval": asked.id,
        "target": _told(visible(asked.target)),
        "arguments": list(asked.arguments),
        "reasons": list(asked.reasons),
        "rules": list(asked.rules),
        "subject": visible(shown_subject(approval.key.subject))[:_SHOWN],
        "session": approval.key.session and visible(approval.key.session)[:_SHOWN],
        "expires": iso(asked.expires_at),
        "scopes": ["once", *asked.scopes],
    }


def _told(target: str) -> str:
    """The target as far as it is a name: an address, or a name with words in it, can say anything."""
    scheme, separator, rest = target.partition("://")
    is_name = not separator or (scheme in _NAMING and len(rest) <= _SHOWN and "%20" not in rest)
    return target[:_SHOWN] if is_name else f"{scheme[:_SHOWN]}://…"


def _slack(facts: Mapping[str, Any]) -> dict[str, Any]:
    """A message as incoming webhooks of Slack take it. All texts are plain, so that no name can format or notify."""
    why = " ".join(facts["reasons"])
    arguments = f"\nArguments: {', '.join(facts['arguments'])}" if facts["arguments"] else ""
    title = f"{facts['subject']} needs an approval: {facts['target']}"
    below = f"{facts['approval']}, by {', '.join(facts['rules'])}, until {facts['expires']}"
    blocks: list[dict[str, Any]] = [
        {"type": "section", "text": _plain(f"{title}\n{why}{arguments}")},
        {"type": "context", "elements": [_plain(below)]},
    ]
    if "link" in facts:
        button = {"type": "button", "text": _plain("Look and decide"), "url": facts["link"]}
        blocks.append({"type": "actions", "elements": [button]})
    return {"text": title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), "blocks": blocks}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text[:2_900], "emoji": False}


class ApprovalAnswers:
    """Takes signed answers: who holds the secret is trusted to say who answers."""

    def __init__(
        self,
        approvals: Approvals,
        secret: str,
        *,
        waits: bool,
        clock: Callable[[], float] = time.time,  # noqa: TID251 - what a sender's time is compared with
    ) -> None:
        self._approvals = approvals
        self._secret = secret
        self._clock = clock
        self._offload = Offload(waits=waits)

    def close(self) -> None:
        """Let go of the threads."""
        self._offload.close()

    async def answer(self, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
        """What became of the approval.

        Raises:
            Refusal: 401 not signed, or not now; 400 not an answer; 403, 404, 409 it cannot be decided like that; 503.
        """
        self._check(headers, body)
        named, approves, scope, who = _read(body)
        decide = partial(self._approvals.approve, scope=scope) if approves else self._approvals.deny
        try:
            decided = await self._offload(decide, named, who)
        except ApprovalError as error:
            status = {"approval.unknown": 404, "approval.own-request": 403}.get(error.code, 409)
            raise Refusal(status, error.code, error.message) from None
        except StoreError as error:
            raise Refusal(503, error.code, "The store cannot be reached.", headers=later()) from None
        return {"approval": named, "status": decided.status.value}

    def _check(self, headers: Mapping[str, str], body: bytes) -> None:
        name, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        given = headers.get("webhook-signature", "").encode().split(b" ")
        expected = signature(self._secret, name, timestamp, body).encode()
        is_signed = any([hmac.compare_digest(expected, one) for one in given])  # noqa: C419 - each takes the same time
        is_time = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 15
        if not (is_signed and is_time and abs(int(timestamp) - self._clock()) <= TOLERANCE_SECONDS):
            message = "Sign it with the webhook's secret, as Standard Webhooks does, and send it within five minutes."
            raise Refusal(401, "webhook.signature", message)


def _read(body: bytes) -> tuple[str, bool, ApprovalScope, SubjectExtension]:
    """The approval's id, whether the answer is yes, in which scope, and who gives it. Refusal 400 for anything else."""
    try:
        match loads(body, max_bytes=MAX_ANSWER_BYTES):
            case {"approval": str(named), "answer": "approve" | "deny" as answer, "by": str(by), **rest} if (
                is_legible(by) and len(by) <= 256 and rest.keys() <= {"scope"}
            ):
                who = SubjectExtension(id=by, roles=frozenset({"webhook"}), permissions=frozenset({APPROVE}))
                return named, answer == "approve", ApprovalScope(str(rest.get("scope", ApprovalScope.ONCE.value))), who
    except (DecodeError, ValueError, TypeError):
        pass
    message = "An answer is {approval, answer: approve or deny, by}, with a scope if it is for more than once."
    raise Refusal(400, "webhook.answer", message)
