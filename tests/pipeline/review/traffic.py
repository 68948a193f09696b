"""Records of made-up decisions, and a site over a store of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient
from tests.pipeline.new_store import migrated
from ulid import ULID

from cmf.message.message import Message
from cmf.message.security import SubjectExtension
from pipeline.audit.record import Content, Record, Run, record_of
from pipeline.decisions.context import Context
from pipeline.decisions.decision import (
    Action,
    Coverage,
    Decision,
    Effect,
    Excused,
    Hit,
    Mode,
    Skipped,
    Verdict,
    ViewDecision,
)
from pipeline.guard import Guard
from pipeline.policy.policy_set import PolicySet
from pipeline.review.access import Named, Person, Role
from pipeline.review.site import Site
from pipeline.review.web import build_site
from pipeline.run.assembly import Config
from pipeline.store.database import Store
from pipeline.store.recorder import Recorder

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}\u202etxt'
OF = {Verdict.DENY: Effect.DENY, Verdict.REQUIRE_APPROVAL: Effect.REQUIRE_APPROVAL, Verdict.WARN: Effect.WARN}


def record(
    verdict: str = "allow",
    *,
    subject: str | None = "ann",
    session: str | None = "s1",
    rule: str = "tools/a",
    severity: str = "high",
    tool: str = "pay",
    minute: float = 0,
    revision: str = "r" * 64,
    skipped: Sequence[str] = (),
    effect: Effect | None = None,
    mode: Mode = Mode.ENFORCE,
    content: bytes | Content | None = None,
    excused: Excused | None = None,
) -> Record:
    """The record of a decision about one tool call, and about the parts that were skipped."""
    said = Verdict(verdict)
    asked = effect or OF.get(said)
    said_of: Any = {"reason": "REASON", "severity": severity, "excused": excused}
    hits = () if asked is None else (Hit(rule=rule, code="a.b", effect=asked, **said_of),)
    action = {Verdict.DENY: Action.REFUSE, Verdict.REQUIRE_APPROVAL: Action.SUSPEND}.get(said, Action.FORWARD)
    if effect is Effect.REDACT:
        action = Action.FORWARD_MODIFIED
    if mode is Mode.OBSERVE or excused is not None:
        action = Action.FORWARD
    view = ViewDecision(
        path="content[0]",
        kind="tool_call",
        role="assistant",
        uri=f"tool://_/{tool}",
        name=tool,
        action="execute",
        direction="pre",
        verdict=said,
        outcome=action,
        hits=hits,
    )
    decision = Decision(
        id=f"dec_{ULID()}",
        verdict=said,
        action=action,
        mode=mode,
        revision=revision,
        views=(view,),
        coverage=Coverage(
            produced=1 + len(skipped),
            evaluated=1,
            skipped=tuple(Skipped(path=path, reason="stage.stopped") for path in skipped),
        ),
    )
    context = Context(subject=None if subject is None else SubjectExtension(id=subject), session=session)
    run = Run(
        timestamp=NOON + timedelta(minutes=minute),
        input_digest="a" * 64,
        timings={"run_ns": 1_200_000},
        content=Content.of(content) if isinstance(content, bytes) else content,
    )
    return record_of(decision, context, run)


def keep(store: Store, *records: Record) -> list[str]:
    """Put them on record; their ids."""
    recorder = Recorder(store)
    for waiting in [recorder.submit(one) for one in records]:
        waiting.result(10)
    return [one.id for one in records]


@contextmanager
def opened(folder: Path, *records: Record) -> Iterator[Store]:
    """A store with these records."""
    with Store.at(migrated(folder / "s.sqlite3")) as store:
        keep(store, *records)
        yield store


@contextmanager
def judged(folder: Path, policies: PolicySet, *texts: str) -> Iterator[Store]:
    """A store with decisions about these texts of a user, and their content."""
    with Store.at(migrated(folder / "s.sqlite3")) as store:
        config = Config(content="whole")
        with Guard(policies, config=config, sessions=store.sessions(), recorder=Recorder(store)) as guard:
            for said in texts:
                part = {"content_type": "text", "text": said}
                guard.run(Message.model_validate({"role": "user", "content": [part]}))
        yield store


class Client:
    """A browser without scripts: it reads pages, and sends the forms that they have."""

    def __init__(self, site: Site, role: Role = Role.SIGNER, name: str = "alice", **options: Any) -> None:
        keeper = Named(Person(name, role), "cmf_review")
        self.http = TestClient(build_site(site, keeper, **options), cookies={"cmf_review": keeper.token})

    def get(self, path: str, **params: str) -> Any:
        """The answer."""
        return self.http.get(path, params=params or None)

    def json(self, path: str, **params: str) -> Any:
        """What the `.json` twin says."""
        answer = self.get(f"{path}.json", **params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def mark(self) -> str:
        """What forms carry."""
        found = re.search(r'name="mark" value="([0-9a-f]{64})"', self.get("/integrity").text)
        assert found is not None
        return found[1]

    def post(self, path: str, **form: str) -> Any:
        """The answer to a form, not followed."""
        return self.http.post(path, data={"mark": self.mark(), **form}, follow_redirects=False)
