"""Turns that take over what the turn before settled come out as if they did not: the same of everything, many times."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import pytest
from tests.pipeline.conftest import ALL_KINDS, write_rules
from tests.pipeline.conversations import PROFILES
from tests.pipeline.session_stores import Clock

from cmf import Message, Request, SubjectExtension
from cmf.json.codec import dumps, loads
from cmf.json.value import replace, to_bytes
from cmf.message.message import RequestExtension
from pipeline import Config, Context, Pipeline, Stage
from pipeline.audit.record import Run, record_of
from pipeline.decisions.events import LabelAdded, ToolInputInvalid
from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import build_engine, load_policies
from pipeline.run.emit import emit
from pipeline.run.outcome import Outcome
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes, Grant

RULES = {
    "mask": """
redact contains {"code": "m", "reason": "r", "spans": [[at, at + 6]], "replacement": "hash"} if {
\tsome at in indexof_n(input.content, "secret")
}
""",
    "number": """
redact contains {"code": "n", "reason": "r", "spans": [[at, at + 7]], "replacement": "token"} if {
\tinput.kind == "text"
\tsome at in indexof_n(input.content, "number")
}
""",
    "sign": """
redact contains {"code": "s", "reason": "r", "spans": [[0, 1]]} if input.kind == "thinking"
""",
    "tag": """
label contains {"code": "l", "reason": "r", "label": "pii"} if contains(input.content, "personal")
label contains {"code": "l", "reason": "r", "label": "tooled"} if input.kind == "tool_result"
label contains {"code": "l", "reason": "r", "label": "long"} if {
\tinput.kind == "request"
\tinput.properties.message_count > 7
}
""",
    "refuse": """
deny contains {"code": "d", "reason": "r"} if contains(input.content, "forbidden")
deny contains {"code": "d", "reason": "r"} if {
\tinput.kind == "text"
\t"hot" in input.session.labels
\tcontains(input.content, "relay")
}
""",
    "count": """
warn contains {"code": "w", "reason": "r"} if {
\tinput.kind == "tool_call"
\tinput.session.counters[sprintf("calls:%s", [input.uri])] > 1
}
warn contains {"code": "w", "reason": "r"} if {
\tinput.kind == "tool_result"
\tsome event in input.session.events
\tevent.type == "label"
}
""",
    "pay": """
require_approval contains {"code": "p", "reason": "r"} if input.name == "pay"
""",
    "cap": """
rewrite contains {"code": "c", "reason": "r", "pointer": "/arguments/amount", "value": 100} if {
\tinput.kind == "tool_call"
\tinput.arguments.amount > 100
}
redact contains {"code": "k", "reason": "r", "pointer": "/arguments/key", "replacement": "mask"} if {
\tinput.kind == "tool_call"
\tinput.arguments.key != "[MASKED]"
}
""",
    "trust": """
warn contains {"code": "t", "reason": "r"} if {
\tsome entry in input.origins
\tsome source in entry.sources
\tsource.trust != "trusted"
}
warn contains {"code": "f", "reason": "r"} if {
\tsome entry in input.origins
\tentry.fits == false
}
""",
    "strip": """
strip_tool contains {"code": "x", "reason": "r"} if {
\tinput.kind == "tool_definition"
\tcontains(input.content, "dangerous")
}
""",
    "context": """
warn contains {"code": "h", "reason": "r"} if input.extensions.http.headers.tone == "loud"
warn contains {"code": "b", "reason": "r"} if {
\tinput.extensions.security.subject.roles[_] == "guest"
\tinput.kind == "text"
\tcontains(input.content, "report")
}
warn contains {"code": "o", "reason": "r"} if {
\tinput.kind == "text"
\tinput.extensions.security.labels[_] == "tooled"
}
""",
    "hours": """
warn contains {"code": "late", "reason": "r"} if startswith(input.extensions.request.timestamp, "2027-01-01T2")
warn contains {"code": "odd", "reason": "r"} if {
\tinput.kind == "tool_call"
\tinput.extensions.request.environment == "test"
}
""",
}
KINDS = {
    "sign": "thinking",
    "count": "tool_call, tool_result",
    "refuse": "text, tool_call, tool_result",
    "pay": "tool_call",
    "cap": "tool_call",
    "trust": "tool_call",
    "strip": "tool_definition",
    "hours": "tool_call, tool_result, tool_definition",
}
CAPABILITIES = "read_labels, read_roles, read_subject, read_agent, read_headers"
OTHER = {**RULES, "refuse": 'warn contains {"code": "d2", "reason": "r"} if contains(input.content, "report")\n'}
WORDS = ("report", "secret", "personal", "relay", "number1", "number2", "hello", "ann@x.com", "figures", "forbidden")
WEIGHTS = (90, 20, 10, 20, 6, 6, 90, 30, 90, 5)
TOOLS = ("read_mail", "contacts", "send", "pay", "save")
BOUND = Profiles.load(
    {
        "profiles": {
            "read_mail": {
                "actions": ["read"],
                "object": {"permissions": ["mail.read"]},
                "data_policy": {"apply_labels": ["mail"], "denied_actions": ["send"]},
            },
            "send": {"actions": ["send"], "sink": True, "control": ["to"], "content": ["body"]},
        }
    }
)
TODAY = datetime.datetime(2027, 1, 1, tzinfo=datetime.UTC)
RUN = Run(timestamp=TODAY, input_digest="")


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> tuple[PolicySet, PolicySet]:
    """Two policy sets to judge by, one after the other, with exceptions of which one or two end each day."""
    found = []
    for number, rules in enumerate((RULES, OTHER)):
        home = tmp_path_factory.mktemp(f"set{number}")
        for name, text in rules.items():
            write_rules(home, {name: text}, kinds=KINDS.get(name, ALL_KINDS), capabilities=CAPABILITIES)
        days = (f"{datetime.date(2026, 1, 1) + datetime.timedelta(days=day)}" for day in range(400))
        whose = [("test/context", {"session": "s*"}), ("test/tag", {"uri": "tool_result://*"})]
        exceptions = [
            {"rule": rule, **covers, "until": day, "owner": "o", "reason": "r"}
            for day in days
            for rule, covers in whose
        ]
        (home / "data.json").write_bytes(dumps({"cmf": {"exceptions": exceptions}}))
        found.append(load_policies(home))
    return found[0], found[1]


def stage_masking() -> Stage:
    """Changes history: another name for one, and a label, wherever they stand."""

    def call(value: Any, _: Context) -> Any:
        if not isinstance(value, Request):
            return None
        messages = [_renamed(message) for message in value.messages]
        return None if messages == list(value.messages) else replace(value, messages=tuple(messages))

    return Stage(name="rename", call=call)


def _renamed(message: Message) -> Message:
    parts = [
        replace(part, text=part.text.replace("figures", "numerals")) if hasattr(part, "text") else part
        for part in message.content
    ]
    return message if parts == list(message.content) else replace(message, content=tuple(parts))


class Side:
    """One pipeline, in a world of its own, that is told the same as the other one."""

    def __init__(self, policies: PolicySet, profiles: Profiles | None, stages: list[Stage], *, reuse: bool) -> None:
        self.clock = Clock()
        self.config = Config(reuse=reuse, seal_key=b"k" * 32)
        self.sessions = MemorySessions(self.clock)
        self.pipeline = Pipeline(
            stages, policies=policies, config=self.config, sessions=self.sessions, profiles=profiles
        )
        self.names: dict[str, str] = {}
        self.told: list[Any] = []
        self.pipeline.events.subscribe(lambda event: self.told.append(event))
        self.reused = 0

    def run(self, value: Any, context: Context) -> dict[str, Any]:
        """Everything that came of a run, but ids, times and what was taken over."""
        self.told.clear()
        outcome = self.pipeline.run(value, context)
        self.reused += outcome.decision.coverage.reused
        return self.plain(outcome, context)

    def plain(self, outcome: Outcome, context: Context) -> dict[str, Any]:
        decision = outcome.decision
        facts = self.sessions.read(context)
        told = [
            [type(event).__name__, *(getattr(event, field.name) for field in fields(event))]
            for event in self.told
            if isinstance(event, LabelAdded | ToolInputInvalid)
        ]
        shown = {
            "decision": decision.to_json(),
            "record": loads(record_of(decision, context, RUN).body),
            "hits": [hit.to_json() for hit in decision.hits],
            "value": None if outcome.value is None else to_bytes(outcome.value).decode(),
            "digest": None if outcome.certificate is None else outcome.certificate.digest,
            "complete": None if outcome.certificate is None else outcome.certificate.complete,
            "labels": sorted(outcome.labels),
            "events": sorted(outcome.events),
            "session": [sorted(facts.labels), dict(facts.counters), list(facts.events), facts.version],
            "told": told,
        }
        if outcome.value is not None:
            shown["emitted"] = emit(outcome, "canonical")
        return dict(self.without_ids(loads(dumps(shown, str))))

    def without_ids(self, item: Any) -> Any:
        if isinstance(item, dict):
            apart = ("decision_id", "reused", "metrics")
            return {self.without_ids(key): self.without_ids(each) for key, each in item.items() if key not in apart}
        if isinstance(item, list):
            return [self.without_ids(each) for each in item]
        if isinstance(item, str) and item.startswith(("apr_", "dec_")):
            return self.names.setdefault(item, f"{item[:4]}{len(self.names)}")
        return item

    def swap(self, policies: PolicySet) -> None:
        """What `reload` does, but for the vetting."""
        self.pipeline._serving.swap(policies, build_engine(policies, "embedded", self.config))

    def approve(self, number: int, *, yes: bool) -> None:
        waiting = self.sessions.pending_approvals()
        if waiting:
            one = waiting[number % len(waiting)]
            self.sessions.decide_approval(one.asked.id, approver="boss", approve=yes)


class World:
    """A conversation that grows and is tampered with, as chance will have it, told to both sides."""

    def __init__(self, chance: random.Random, sides: tuple[Side, Side], sets: tuple[PolicySet, PolicySet]) -> None:
        self.chance = chance
        self.sides = sides
        self.sets = sets
        self.session = f"s{chance.random()}"
        self.messages: list[Message] = []
        self.calls = 0
        self.tools = self.some_tools()
        self.context = self.some_context()
        self.anew = chance.random() < 0.4
        self.tells = chance.random() < 0.6
        self.calm = chance.choice([1.0, 0.3, 0.0])  # how much happens between turns

    def steps(self, count: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """What both sides made of each turn."""
        for _ in range(count):
            self.meanwhile()
            before = list(self.messages)
            for _ in range(self.chance.choice([0, 1, 1, 2, 3])):
                self.messages += self.next_messages()
            if not self.messages:
                continue
            made = self.both(self.request())
            yield made
            if made[0]["value"] is None and self.chance.random() < 0.8:
                self.messages = before
                continue
            if self.chance.random() < 0.2:
                reply = self.text("assistant")
                self.messages.append(reply)
                yield self.both(reply)

    def both(self, value: Message | Request) -> tuple[dict[str, Any], dict[str, Any]]:
        context = replace(self.context, request=self.request_facts())
        with_reuse, without = (side.run(value, context) for side in self.sides)
        return with_reuse, without

    def request(self) -> Request:
        messages = self.messages
        if self.anew:  # as a gateway does, that decodes a body each turn
            messages = [Message.model_validate_json(to_bytes(message)) for message in messages]
        model = self.chance.choice(["openai:gpt", "openai:gpt", "anthropic:claude"])
        return Request(model=model, messages=tuple(messages), tools=self.tools)

    def some_context(self) -> Context:
        headers = {"tone": self.chance.choice(["loud", "soft"])} if self.chance.random() < 0.5 else {}
        subject = SubjectExtension(id="ann", roles=frozenset({"guest"} if self.chance.random() < 0.5 else ()))
        labels = frozenset({"given"} if self.chance.random() < 0.2 else ())
        return Context(subject=subject, session=self.session, headers=headers, labels=labels)

    def request_facts(self) -> RequestExtension | None:
        """As a gateway gives each request an id and a time; some hosts give none, and some forget it once."""
        if not self.tells or self.chance.random() < 0.05:
            return None
        return RequestExtension(
            request_id=self.chance.choice(["req_0", f"req_{self.chance.random()}"]),
            timestamp=self.chance.choice(["2027-01-01T12:00:00Z", "2027-01-01T12:00:00Z", "2027-01-01T21:00:00Z"]),
            environment=self.chance.choice([None, None, None, "test"]),
        )

    def some_tools(self) -> Any:
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}}}
        return [
            {"name": name, "description": self.chance.choice(["fine", "dangerous"]), "input_schema": schema}
            for name in TOOLS
            if self.chance.random() < 0.5
        ]

    def text(self, role: str) -> Message:
        words = " ".join(self.chance.choices(WORDS, WEIGHTS, k=self.chance.randint(1, 4)))
        return Message.model_validate({"role": role, "content": [{"content_type": "text", "text": words}]})

    def next_messages(self) -> list[Message]:
        kind = self.chance.random()
        if kind < 0.5:
            return [self.text("user"), *([self.text("assistant")] if self.chance.random() < 0.7 else [])]
        if kind < 0.55:
            part = {"content_type": "thinking", "text": "hm", "signature": self.chance.choice([None, "sig"])}
            own = self.text("assistant")
            thought = Message.model_validate({"role": "assistant", "content": [part]}).content
            return [replace(own, content=(*thought, *own.content))]
        if kind < 0.6:
            prompt = {"content_type": "prompt_request", "name": "summary", "arguments": {"n": self.calls}}
            return [Message.model_validate({"role": "user", "content": [prompt]})]
        self.calls += 1
        number = f"call_{self.calls}"
        arguments: dict[str, Any] = {"to": self.chance.choice(WORDS), "amount": self.chance.choice([1, 1.0, 200, "x"])}
        arguments |= {"key": "k1"} if self.chance.random() < 0.2 else {}
        name = self.chance.choice(TOOLS[:3] * 5 + TOOLS)
        call = {"content_type": "tool_call", "name": name, "arguments": arguments, "tool_call_id": number}
        said: Any = self.chance.choice(
            [
                [{"id": 1, "sender": "ann@x.com", "body": " ".join(self.chance.choices(WORDS, WEIGHTS, k=3))}],
                [{"content_type": "text", "text": self.chance.choice(WORDS[:-1])}],
                "ann@x.com says hello",
                7,
            ]
        )
        result = {"content_type": "tool_result", "tool_call_id": number, "content": said}
        messages = [Message.model_validate({"role": "assistant", "content": [call]})]
        if self.chance.random() < 0.9:
            messages.append(Message.model_validate({"role": "tool", "content": [result]}))
        return messages

    def meanwhile(self) -> None:
        """What happens between two turns: to the session, to the policies, to the history that the client keeps."""
        for chance, happens in (
            (0.15, self.edit_history),
            (0.08, self.respell),
            (0.1, self.other_tools),
            (0.1, self.other_context),
            (0.08, self.label),
            (0.08, self.grant),
            (0.15, self.time_passes),
            (0.08, self.reload),
            (1.0, self.decide),
        ):
            if self.chance.random() < chance * self.calm:
                happens()

    def edit_history(self) -> None:
        if self.messages:
            place = self.chance.randrange(len(self.messages))
            match self.chance.randrange(3):
                case 0:
                    self.messages[place] = self.text("user")
                case 1:
                    del self.messages[place]
                case _:
                    del self.messages[place:]

    def respell(self) -> None:
        """The same call, to whoever only asks whether it is equal: keys in another order, a number of another type."""
        for place, message in enumerate(self.messages):
            part = message.content[0]
            if part.content_type == "tool_call" and self.chance.random() < 0.5:
                arguments = dict(reversed(list(part.arguments.items())))
                amount = arguments["amount"]
                arguments["amount"] = float(amount) if type(amount) is int else amount
                body = message.model_dump()
                body["content"][0]["arguments"] = arguments
                self.messages[place] = Message.model_validate(body)

    def other_tools(self) -> None:
        self.tools = self.some_tools()

    def other_context(self) -> None:
        self.context = self.some_context()

    def label(self) -> None:
        for side in self.sides:
            side.sessions.add_labels(self.context, frozenset({"hot"}))

    def grant(self) -> None:
        """Lift whatever labels are in force, for a while."""
        seconds = self.chance.choice([60, 90_000])
        for side in self.sides:
            facts = side.sessions.read(self.context)
            now = facts.moment
            ends, sources = now + seconds * 1_000_000, sorted(facts.label_sources.items())
            grants = tuple(
                Grant(
                    id=f"g{now}{label}",
                    label=label,
                    sources=events,
                    actor="boss",
                    reason="r",
                    scope="session",
                    expires_at=ends,
                )
                for label, events in sources
            )
            side.sessions.commit(self.context, None, Changes(grants=grants))

    def time_passes(self) -> None:
        hours = self.chance.choice([1, 13, 30])
        for side in self.sides:
            side.clock.now += datetime.timedelta(hours=hours)

    def reload(self) -> None:
        policies = self.chance.choice(self.sets)
        for side in self.sides:
            side.swap(policies)

    def decide(self) -> None:
        number, yes = self.chance.randrange(8), self.chance.random() < 0.8
        for side in self.sides:
            side.approve(number, yes=yes)


@pytest.mark.spec("PIPE-16")
def test_turns_come_out_alike_whether_or_not_they_take_over_what_was_settled(
    sets: tuple[PolicySet, PolicySet], proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    runs = views = forwarded = 0
    variants = [
        (Side(sets[0], profiles, stages, reuse=True), Side(sets[0], profiles, stages, reuse=False))
        for profiles, stages in ((None, []), (None, [stage_masking()]), (PROFILES, []), (BOUND, [stage_masking()]))
    ]
    for number in range(round(250 * proof_scale)):
        world = World(random.Random(f"{proof_seed} {number}"), variants[number % len(variants)], sets)
        for turn, (with_reuse, without) in enumerate(world.steps(12)):
            for name, item in with_reuse.items():
                assert item == without[name], f"conversation {number}, turn {turn}: {name}"
            runs += 1
            views += with_reuse["decision"]["coverage"]["produced"]
            forwarded += with_reuse["value"] is not None
    reused = sum(side.reused for side, _ in variants)
    assert not any(side.reused for _, side in variants)
    assert reused > views / 5  # a fourth to a third, as the conversations go
    proof_row(
        "Turns that take over what was settled come out as those that do not",
        seed=proof_seed, runs=runs, forwarded=forwarded, views=views, reused=reused,
    )  # fmt: skip
