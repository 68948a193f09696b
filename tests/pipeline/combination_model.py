"""What the rules of `same_decisions` come to, worked out by a plain reading of docs/spec: no code of the product in it.

A request is a list of items; each has a kind and words, and some words are what a rule looks for. See `RULES`.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field

KINDS = ("text", "tool_call", "tool_definition")
WORDS = ("DENY", "QUERY", "CUT", "DIRTY", "STRIP", "TAINT", "SEND", "WARN", "WATCH", "OFF")
LIKELY = (*WORDS, "SEND", "TAINT", "CUT", "CUT", "DIRTY", "DIRTY", "STRIP", "STRIP")
NEAR = tuple(word.lower() for word in WORDS) + tuple(f"{word[:-1]}_{word[-1]}" for word in WORDS) + ("hello",)
MASK = "[MASKED]"
PASSES = 4

HEAD = """\
# METADATA
# title: {name}
# description: It hits what holds {word}.
# custom:
#   code: model.{name}
#   severity: high
#   kinds: [{kinds}]
#   mode: {mode}
package cmf.rules.model.{name}

"""
ALWAYS = (
    '{effect} contains {{"code": "model.{name}", "reason": "It is so."{more}}} if contains(input.content, "{word}")\n'
)
CUT = """\
redact contains {"code": "model.cut", "reason": "It is so.", "spans": spans} if {
	spans := [[at, at + 3] | some at in indexof_n(input.content, "CUT")]
	count(spans) > 0
}
"""
AFTER = """\
deny contains {"code": "model.after", "reason": "It is so."} if {
	"tainted" in input.session.labels
	contains(input.content, "SEND")
}
"""


def rules() -> dict[str, str]:
    """The policies, as files."""
    every = "text, tool_call, tool_definition"
    plain = [
        ("deny", "deny", "DENY", every, "enforce", ""),
        ("ask", "require_approval", "QUERY", every, "enforce", ""),
        ("clean", "rewrite", "DIRTY", "tool_call", "enforce", ', "pointer": "/arguments/x", "value": "clean"'),
        ("strip", "strip_tool", "STRIP", "tool_definition", "enforce", ""),
        ("mark", "label", "TAINT", every, "enforce", ', "label": "tainted"'),
        ("warn", "warn", "WARN", every, "enforce", ""),
        ("watch", "deny", "WATCH", every, "observe", ""),
        ("silent", "deny", "OFF", every, "off", ""),
    ]
    texts = {
        name: HEAD.format(name=name, word=word, kinds=kinds, mode=mode)
        + ALWAYS.format(effect=effect, name=name, word=word, more=more)
        for name, effect, word, kinds, mode, more in plain
    }
    texts["cut"] = HEAD.format(name="cut", word="CUT", kinds="text", mode="enforce") + CUT
    labelled = HEAD.format(name="after", word="SEND", kinds=every, mode="enforce")
    texts["after"] = labelled.replace("#   mode", "#   capabilities: [read_labels]\n#   mode") + AFTER
    return {f"cmf/rules/model/{name}/{name}.rego": text for name, text in texts.items()}


@dataclass
class Item:
    kind: str
    words: list[str]
    hits: set[str] = field(default_factory=set)
    gone: bool = False

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass
class Expected:
    verdict: str
    action: str
    hits: list[tuple[str, set[str]]]
    texts: list[str] | None


def generated(chance: random.Random) -> list[Item]:
    """A request: tools first, then texts and calls; mostly words that just miss."""
    items = []
    for kind in sorted(chance.choices(KINDS, k=chance.randrange(1, 6)), key=lambda kind: kind != "tool_definition"):
        rate = chance.choice((0.0, 0.2, 0.5))
        count = chance.randrange(1, 5)
        items.append(Item(kind, [chance.choice(LIKELY if chance.random() < rate else NEAR) for _ in range(count)]))
    return items


def expected(request: list[Item], *, observed: bool) -> Expected:
    """The decision by the order of effects, the modes, and the fixed point of edits."""
    items = copy.deepcopy(request)
    labels: set[str] = set()
    denied = asked = edited = False
    for _ in range(PASSES):
        live = [item for item in items if not item.gone]
        found = {id(item): _hits(item, labels) for item in live}
        for item in live:
            item.hits |= found[id(item)]
        every = set().union(*found.values())
        denied |= bool(every & {"deny", "after"})
        asked |= "ask" in every
        if denied and not observed:
            break
        before = ([(item.text, item.gone) for item in items], set(labels))
        labels |= {"tainted"} if "mark" in every else set()
        for item in live if not observed else ():
            edited |= bool(found[id(item)] & {"cut", "clean", "strip"})
            _edit(item, found[id(item)])
        if before == ([(item.text, item.gone) for item in items], labels):
            break
    else:
        denied = True
    return Expected(
        verdict=_verdict(set().union(*(item.hits for item in items))),
        action="forward" if observed else _action(denied=denied, asked=asked, edited=edited),
        hits=[(item.kind, item.hits) for item in items],
        texts=[item.text for item in items if not item.gone] if observed or not (denied or asked) else None,
    )


def _hits(item: Item, labels: set[str]) -> set[str]:
    held = {word for word in WORDS if word in item.text}
    hits = {name for word, name in _EVERYWHERE.items() if word in held}
    hits |= {"cut"} if item.kind == "text" and "CUT" in held else set()
    hits |= {"clean"} if item.kind == "tool_call" and "DIRTY" in held else set()
    hits |= {"strip"} if item.kind == "tool_definition" and "STRIP" in held else set()
    return hits | ({"after"} if "SEND" in held and "tainted" in labels else set())


_EVERYWHERE = {"DENY": "deny", "QUERY": "ask", "TAINT": "mark", "WARN": "warn", "WATCH": "watch"}


def _edit(item: Item, hits: set[str]) -> None:
    if "strip" in hits:
        item.gone = True
    if "clean" in hits:
        item.words = ["clean"]
    if "cut" in hits:
        item.words = [word.replace("CUT", MASK) for word in item.words]


def _verdict(hits: set[str]) -> str:
    if hits & {"deny", "after", "watch"}:
        return "deny"
    if "ask" in hits:
        return "require_approval"
    return "warn" if "warn" in hits else "allow"


def _action(*, denied: bool, asked: bool, edited: bool) -> str:
    if denied:
        return "refuse"
    return "suspend" if asked else "forward_modified" if edited else "forward"
