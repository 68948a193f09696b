"""Where each value in the arguments of a tool call came from: `input.origins` [C18]. Spec: docs/spec/provenance.md.

An `Index` reads a conversation message by message, and remembers each text, who said it and how far it is trusted. For
a call it looks each value of the arguments up in these texts. It finds copies, not reasons: a value that the model
computed or reworded has no source, and a value that trusted text happens to contain too has a trusted one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from cmf.enums import Role
from cmf.message.message import (
    Message,
    Part,
    PromptResultPart,
    ResourcePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Request
from pipeline.decisions.errors import ConfigError
from pipeline.decisions.field_paths import Path, escaped, record_of, shape
from pipeline.decisions.paths import steps_of
from pipeline.policy.lookahead import plain_form
from pipeline.provenance.arithmetic import DerivedValues
from pipeline.provenance.claims import Calls, Claims, needs_record
from pipeline.provenance.inference import FIELDS, Described, ToolFacts
from pipeline.provenance.injected_targets import Naming, requests_all
from pipeline.provenance.lookup_variants import ControlValues, address_entries
from pipeline.provenance.matching import is_address
from pipeline.provenance.occurrences import Answer, Occurrences
from pipeline.provenance.profile import AskedFor, Profile, ResultProfile, Trust
from pipeline.provenance.profiles import Entity, Profiles
from pipeline.provenance.result_fields import argument_values, joined_text, result_values, strings
from pipeline.provenance.sources import (
    CLAIM,
    CLAIMED,
    SPEAKERS,
    TRUSTED,
    UNTRUSTED,
    Group,
    Origin,
    ResultGroups,
    all_trusted,
    as_origin,
    fairly,
    has_source,
    is_of_others,
    is_trusted,
    type_of,
)
from pipeline.provenance.user_references import Designation, Referral, RequestedActs, as_sources, is_name

Texts: TypeAlias = Iterator[tuple[Group, str | float]]


class _Everything:
    """A container of every digest, so that all history is believed: for recordings, and hosts that vouch for it."""

    def __contains__(self, item: object) -> bool:
        return True


MIN_HALF: Final = 4  # characters of a half of a value: a shorter one stands everywhere
MAX_JOINED: Final = 128  # characters of a value that is looked for in two halves
MAX_STEPS: Final = 65_536  # search steps for one call; past them, only exact copies of its other values are looked for
EVERYTHING: Final[Container[str]] = _Everything()
NOTHING: Final[Container[str]] = frozenset()


@dataclass(slots=True)
class _Call:
    """A call that was made, with what decides how far its result is trusted."""

    name: str
    namespace: str | None
    profile: Profile | None
    arguments: Any
    unfounded: list[str] = field(default_factory=list)
    """Arguments of the call that were in no trusted text: the result may only repeat them."""
    chosen: bool = False
    """Whether it looked up something that untrusted text named: its result exists, but is not what the user meant."""
    labels: frozenset[str] = frozenset()
    echoes: frozenset[str] = frozenset()
    """What an act was given that someone trusted said: its result may repeat it, and names nothing by that."""
    given: bool = False
    """Whether the user wrote each text of its arguments: its result is what he pointed at."""


class _Speech(NamedTuple):
    """The part that is being read: its speaker, and how far that is trusted."""

    role: Role
    speaker: Group


class Index:
    """The conversation so far, read once. Not to be shared between threads.

    `profiles` say how far the results of tools are trusted, and `facts` what is known of the tools that are called; by
    default what the profiles say. `known` has the digests (`digests_of`) of what was judged
    here for this subject and session. A part of an assistant or a tool that is not among them is only claimed [C4].
    """

    def __init__(self, profiles: Profiles, known: Container[str] = NOTHING, facts: ToolFacts | None = None) -> None:
        self._profiles = profiles
        self.facts = facts or ToolFacts(profiles.find)
        self._called: dict[tuple[str, str | None, tuple[str, ...]], Described | None] = {}
        self._known = known
        self._texts = Occurrences()
        self._until = 0
        self._groups: dict[Group, int] = {}
        self._group_list: list[Group] = []
        self._claims = Claims()
        self._length = 0
        self._calls: Calls[_Call] = Calls()
        self._requested = RequestedActs(self._texts)
        self._untrusted: dict[Group, int] = {}
        self._derived = DerivedValues()
        self._chosen: set[Hashable] = set()
        self._given: dict[Hashable, list[str]] = {}
        self._echoed: dict[Hashable, frozenset[str]] = {}
        self.check: Callable[[], None] | None = None
        """Called for each value and text, if it is set; raises where the time for reading is over."""

    # -- reading ---------------------------------------------------------------------------------------------------

    def holds_with(self, facts: ToolFacts) -> bool:
        """Whether everything that was read would be read the same with `facts`, which are used from here on if so."""
        if facts is not self.facts:
            if facts.mode != self.facts.mode or any(facts.named(*key) != known for key, known in self._called.items()):
                return False
            self.facts = facts
        return True

    def _described(self, name: str, namespace: str | None = None, arguments: Sequence[str] = ()) -> Described | None:
        """What is known of a tool whose call or result is read: it is remembered, as everything after depends on it."""
        key = (name, namespace, tuple(arguments))
        if key not in self._called:
            self._called[key] = self.facts.named(*key)
        return self._called[key]

    def __len__(self) -> int:
        return self._length

    @property
    def work(self) -> int:
        """Steps taken so far, in reading and in answering: a measure of cost that does not depend on a clock."""
        return self._texts.work

    def digests_of(self, message: Message) -> tuple[str | None, ...]:
        """The digest to put on record for each part of `message`, if it comes next; None for a part that needs none.

        The digest of a result covers the call that it answers, so that it cannot be presented as another tool's.
        """
        return self._claims.copy().read(message)

    def extend(self, message: Message, *, known: bool | Sequence[bool] | None = None) -> None:
        """Read the next message. `known` tells of all parts, or of each, whether it is on record; None looks it up."""
        number, self._texts.check = self._length, self.check
        are_known = self._known_parts(message, known)
        for part, is_known in zip(message.content, are_known, strict=True):
            speech = _Speech(message.role, SPEAKERS[Role.ASSISTANT] if is_known else CLAIM)
            for group, content in _READERS.get(type(part), Index._read_other)(self, part, speech):
                if self.check is not None:
                    self.check()
                self._texts.add(self._number(group), number, content)
                if group.trust != TRUSTED and group.kind != "assistant":
                    self._untrusted.setdefault(group, number)
                    plain = plain_form(content) if isinstance(content, str) and not content.isascii() else None
                    if plain is not None:
                        self._texts.add(self._number(group), number, plain)  # as a model reads it
            self._texts.record = None
        if (joined := joined_text(message.content)) is not None:
            speech = _Speech(message.role, SPEAKERS[Role.ASSISTANT] if all(are_known) else CLAIM)
            self._texts.add(self._number(_group_of(speech)), number, joined)
        self._length += 1

    def _known_parts(self, message: Message, known: bool | Sequence[bool] | None) -> Sequence[bool]:
        if known is None and self._known is not EVERYTHING:
            return [digest is None or digest in self._known for digest in self._claims.read(message)]
        self._claims.pass_over(message)
        if known is None or isinstance(known, bool):
            return [known is not False or not needs_record(message.role, part) for part in message.content]
        return known

    def _read_text(self, part: Any, speech: _Speech) -> Texts:
        if speech.role is Role.USER:
            self._requested.read_user(self._length, part.text)
        elif speech.role is Role.ASSISTANT:
            self._requested.read_model(part.text if speech.speaker is not CLAIM else None)
        yield _group_of(speech), part.text

    def _read_call(self, part: Any, speech: _Speech) -> Texts:
        known = self._described(part.name, part.namespace, tuple(part.arguments or ()))
        profile = known.profile if known is not None else None
        call = _Call(part.name, part.namespace, profile, part.arguments)
        self._calls.add(part.tool_call_id, call)
        labels: set[str] = set()
        writes = profile is None or profile.writes
        self._until = self.work + MAX_STEPS
        said = []
        for path, content in argument_values(part):
            whole = self._entry("", "string", "control", content)
            if isinstance(content, str) and content:
                said.append(any(source["kind"] == "user" for source in whole["sources"]))
            labels.update(label for source in whole["sources"] for label in source["labels"])
            founded = is_trusted(whole)
            if not founded and isinstance(content, str) and (profile is None or profile.use_of(path) != "content"):
                founded = all_trusted(self._rephrased("", content, whole))
            if not founded and isinstance(content, str):
                call.unfounded.append(content)
                call.chosen |= is_name(content) and is_of_others(whole) and not self._designation().names(content)
            elif self._chosen and isinstance(content, str):
                call.chosen |= self._naming((), None).is_looked_up(whole, content)
            group = speech.speaker._replace(tool=part.name, field=shape(path), written=writes and not founded)
            yield group, content
        call.labels = frozenset(labels) if writes else frozenset()
        if profile is not None and profile.acts and "read" not in (profile.actions or ()):
            texts = {content for _, content in argument_values(part) if isinstance(content, str)}
            call.echoes = frozenset(texts.difference(call.unfounded))
        call.given = bool(said) and all(said)

    def _read_thinking(self, part: Any, speech: _Speech) -> Texts:
        yield speech.speaker, part.text

    def _read_result(self, part: Any, speech: _Speech) -> Texts:
        call = self._calls.answered(part)
        name = part.tool_name or (call.name if call is not None else None)
        if call is None:
            known = self._described(part.tool_name) if part.tool_name and not part.tool_call_id else None
            profile = known.profile if known is not None else None
        else:
            profile = call.profile if part.tool_name in (None, call.name) else None
        rules = profile.rules if profile is not None else _NO_RULES
        values = []
        for value in result_values(part, rules.format):
            if self.check is not None:
                self.check()
            values.append(value)
        if speech.speaker is CLAIM:
            for path, content in values:
                yield CLAIM._replace(tool=name, field=shape(path)), content
            return
        groups = ResultGroups(rules, name, _result_labels(call), whole=part.is_error)
        found = [(groups(path, str(content)), content) for path, content in values]
        repeated = self._repeated(found, call.unfounded) if call is not None else frozenset()
        if call is not None and repeated and call.profile is not None and not call.profile.writes:
            repeated -= self._looked_up(values, found, repeated)
        if call is not None and call.echoes:
            self._echoed[self._length, part.tool_call_id] = call.echoes
        if call is not None and call.given:
            self._given[self._length, part.tool_call_id] = [content for _, content in found if isinstance(content, str)]
        for place, (group, content) in enumerate(found):
            self._texts.record = (self._length, part.tool_call_id, record_of(values[place][0]))
            if call is not None and call.chosen:
                self._chosen.add(self._texts.record)
            yield group._replace(trust=UNTRUSTED) if place in repeated else group, content

    def _repeated(self, values: Sequence[tuple[Group, str | float]], asked: Sequence[str]) -> frozenset[int]:
        """The indices of trusted values that contain, or are contained in, untrusted arguments of the call."""
        trusted = [place for place, (group, _) in enumerate(values) if group.trust == TRUSTED]
        if not asked or not trusted:
            return frozenset()
        returned, given = Occurrences(), Occurrences()
        for place in trusted:
            returned.add(place, 0, values[place][1])
        for text in asked:
            given.add(0, 0, text)
        held = [returned.find(text) for text in asked]
        inside = {place: given.find(values[place][1]) for place in trusted}
        self._texts.work += returned.work + given.work
        if not all(answer.complete for answer in (*held, *inside.values())):
            return frozenset(trusted)
        within = {place for place, answer in inside.items() if answer.found}
        return frozenset(within.union(*(answer.found for answer in held)))

    def _looked_up(
        self, values: Sequence[tuple[Path, Any]], found: Sequence[tuple[Group, Any]], repeated: frozenset[int]
    ) -> frozenset[int]:
        """The indices of values in records that the user named, by a name that the call was not given."""
        names = self._designation().names
        held = [place for place, (group, _) in enumerate(found) if group.trust == TRUSTED and place not in repeated]
        named_records = {record_of(values[place][0]) for place in held if names(str(values[place][1]))}
        return frozenset(place for place in repeated if record_of(values[place][0]) in named_records)

    def _read_resource(self, part: Any, speech: _Speech) -> Texts:
        profile = self._profiles.for_uri(part.uri)
        rules = profile.rules if profile is not None else ResultProfile()
        labels = tuple(sorted(profile.every_label)) if profile is not None else ()
        trust = UNTRUSTED if rules.weakest is Trust.UNTRUSTED else TRUSTED
        group = Group("resource", CLAIMED if speech.speaker is CLAIM else trust, labels=labels)
        for content in strings(part):
            yield group, content

    def _read_prompt(self, part: Any, speech: _Speech) -> Texts:
        named = self._profiles.named(Entity.prompt(part.prompt_name, None))
        labels = frozenset[str]().union(*(found.profile.every_label for found in named))
        group = Group("resource", CLAIMED if speech.speaker is CLAIM else UNTRUSTED, labels=tuple(sorted(labels)))
        for content in strings(part):
            yield group, content

    def _read_other(self, part: Part, speech: _Speech) -> Texts:
        own = speech.role is Role.ASSISTANT or speech.speaker is CLAIM
        for content in strings(part):
            yield speech.speaker if own else Group("resource", UNTRUSTED), content

    def _number(self, group: Group) -> int:
        number = self._groups.setdefault(group, len(self._group_list))
        if number == len(self._group_list):
            self._group_list.append(group)
        return number

    # -- answering -------------------------------------------------------------------------------------------------

    def origins(self, call: ToolCallPart) -> list[Origin]:
        """An entry for each value of the call's arguments, in order, after one for the call as a whole.

        Each has `path` (a JSON pointer into the arguments), `type`, `use` and `sources`. Spec: [PROV-1] to [PROV-3],
        [PROV-11], [PROV-12].
        """
        described = self._described(call.name, call.namespace, tuple(call.arguments or ()))
        profile = described.profile if described is not None else None
        entries = [self._call_entry(described), *self._read_before()]
        self._until = self.work + MAX_STEPS
        if call.arguments is not None:
            self._look_into(call.arguments, (), "", profile, entries)
        elif call.arguments_raw:
            entries.append(self._entry("", "raw", "control", call.arguments_raw))
        if profile is not None and profile.asked_for and self._untrusted and not entries[0]["sources"]:
            entries[0]["sources"] = self._asked_of_thing(call, profile, profile.asked_for)
        return entries

    def _asked_of_thing(self, call: ToolCallPart, profile: Profile, acts: AskedFor) -> list[Origin]:
        """The entry of a request by the user that names the thing to act on (its id, say) and not its kind."""
        asking = self._requested.messages_with(AskedFor(verbs=acts.verbs)) if acts.objects and profile.acts else []
        for path, content in argument_values(call) if asking else ():
            if isinstance(content, str) and profile.use_of(path) == "control":
                speech = any(source["kind"] == "user" for source in self._sources(content)[0])
                if (speech and is_name(content)) or self._designation().tells(content):
                    return as_sources((number, "asked") for number in asking)
        return []

    def _designation(self) -> Designation:
        return Designation(self._texts, self._group_list, self._requested.user_texts)

    def _look_into(
        self, held: Any, path: tuple[str | int, ...], at: str, profile: Profile | None, entries: list[Origin]
    ) -> None:
        """Add the entries of all values in `held`, which is at `path` (`at` as a pointer); keys before their items."""
        keyed = isinstance(held, dict)
        has_keys = keyed and bool(path)  # names of arguments are the tool's own, and came from nobody
        items: Iterable[tuple[Any, Any]] = held.items() if keyed else enumerate(held)
        for step, item in items:
            if self.check is not None:
                self.check()
            under, pointed = (*path, step), f"{at}/{escaped(step) if keyed else step}"
            holds = type(item) not in _LEAVES and isinstance(item, _HOLDING)
            use = "control" if profile is None or (holds and not has_keys) else profile.use_of(under)
            if has_keys:
                entries.append(self._entry(pointed, "key", use, step))
            if holds:
                self._look_into(item, under, pointed, profile, entries)
                continue
            kind = type_of(item)
            if not self._group_list:  # nothing was read yet, as in most first messages
                entries.append({"path": pointed, "type": kind, "use": use, "sources": []})
            else:
                found = [self._entry(pointed, kind, use, item)]
                too_long = type(item) is int and item.bit_length() > _BITS  # no view shows it: the run will be refused
                if use != "content" and kind in _STEERING and not too_long:
                    found = self._steering(found[0], item, under, profile)
                entries += found
            if use != "control" and kind == "string":
                entries += [self._left(entry, item, profile) for entry in address_entries(self._entry, pointed, item)]

    def _steering(
        self, whole: Origin, content: str | float, path: tuple[str | int, ...], profile: Profile | None
    ) -> list[Origin]:
        """The entries of a control value, marked if untrusted text named it for this call [PROV-16], [PROV-17]."""
        control = whole["use"] == "control"
        entries = self._rephrased(whole["path"], content, whole) if control else [whole]
        if control and isinstance(content, str) and not has_source(entries[0]):
            entries = [self._joined(entries[0], content), *entries[1:]]
        entries = [self._left(entry, content, profile) for entry in entries]
        judged = bool(self._profiles) if profile is None else profile.acts
        if not self._untrusted or not judged or self.work > self._until:
            return entries
        acts = profile.asked_for if profile is not None else None
        naming = self._naming(path, acts)
        for entry in entries:
            span = entry.get("span")
            if naming.names(entry, content if span is None else str(content)[slice(*span)]):
                entry["named"] = True
        for part in naming.replacing(content, self._requested.user_texts) if not (control or is_trusted(whole)) else ():
            if not all_trusted(self._rephrased("", part, self._entry("", "string", "other", part))):
                whole["named"] = True
        return entries

    def _joined(self, entry: Origin, content: str) -> Origin:
        """The entry of a value without a source, with those of its two halves if others wrote both [PROV-24]."""
        whole, anywhere = len(content.split()) == 1, is_address(content)
        for at in range(MIN_HALF, len(content) - MIN_HALF + 1) if whole and len(content) <= MAX_JOINED else ():
            # Anybody writes two words; a half ends within one, or beside a sign of an address.
            if self.work > self._until or not (anywhere or content[at - 1 : at + 1].isalnum()):
                continue
            halves = [self._texts.find(half) for half in (content[:at], content[at:])]
            if all(half.found for half in halves):
                joined = self._entry(entry["path"], entry["type"], entry["use"], content, *halves)
                if not is_trusted(joined):
                    return joined
        return entry

    def _left(self, entry: Origin, content: Any, profile: Profile | None) -> Origin:
        """The entry, marked if the user leaves its value to a text that he names [PROV-22]."""
        if not isinstance(content, str) or not is_of_others(entry) or self.work > self._until:
            return entry
        span = entry.get("span")
        opens = profile is not None and "read" in (profile.actions or ())
        texts = self._requested.user_texts
        referral = Referral(self._texts, self._group_list, texts, self._given, self._designation())
        if referral.leaves(content if span is None else content[slice(*span)], many=opens or entry["use"] != "control"):
            entry["referred"] = True
        return entry

    def _naming(self, path: tuple[str | int, ...], acts: AskedFor | None) -> Naming:
        return Naming(self._texts, self._group_list, path, acts, self._designation(), self._chosen, self._echoed)

    def _rephrased(self, path: str, content: str | float, whole: Origin) -> list[Origin]:
        """The entries of a control value: `whole`; if no trusted text has it, also other forms and pieces."""
        if is_trusted(whole) or isinstance(content, bool) or "complete" in whole or self.work > self._until:
            return [whole]
        self._derived.read(self._requested.user_texts)
        return ControlValues(self._texts, self._entry, self._derived).entries(path, content, whole)

    def _entry(self, path: str, kind: str, use: str, content: Any, *others: Answer) -> Origin:
        """The entry of a value; `others` are further look-ups whose sources count as its own."""
        if self.check is not None:
            self.check()
        if not self._group_list:  # nothing was read yet
            return {"path": path, "type": kind, "use": use, "sources": []}
        sources, complete, more = self._sources(content, *others)
        entry: Origin = {"path": path, "type": kind, "use": use, "sources": sources}
        if not complete:
            entry["complete"] = False
        if more:
            entry["more"] = more
        return entry

    def _read_before(self) -> list[Origin]:
        """One entry for all untrusted text that the model has read before this call; none if there is no such text."""
        if not self._untrusted:
            return []
        read: dict[tuple[str, str, str | None], Origin] = {}
        for group, message in self._untrusted.items():
            source: Origin = {"kind": group.kind, "trust": group.trust, "message": message, "match": "read"}
            if group.tool is not None:
                source["tool"] = group.tool
            held = read.setdefault((group.kind, group.trust, group.tool), source | {"labels": []})
            held["labels"] = sorted({*held["labels"], *group.labels})
        return [{"path": "", "type": "before", "use": "other", "sources": fairly(list(read.values()))}]

    def _call_entry(self, described: Described | None) -> Origin:
        """The entry of the call as a whole: the profile's facts, and where the user asked for it or delegated it."""
        if described is None:
            known: Origin = {"profile": "unknown" if self._profiles else "none"}
            return {"path": "", "type": "call", "use": "control", "sources": []} | known
        profile, inferred = described
        acts = profile.asked_for
        known = {
            "profile": "inferred" if len(inferred) == len(FIELDS) else "known",
            "sink": profile.acts,
            "irreversible": profile.irreversible is True,
            "askable": bool(acts),
        }
        if inferred:
            known |= {
                "inferred": sorted(inferred),
                "inference": self.facts.mode,
                "actions": list(profile.actions or ()),
            }
        sources = self._requested.sources(acts) if acts is not None else []
        if acts and profile.acts:
            own = AskedFor(verbs=acts.verbs[:1]) if "asked_for" in inferred else acts  # others stand for its class
            if requests_all(self._texts, self._group_list, own, self._requested.user_texts):
                known["named"] = True
        return {"path": "", "type": "call", "use": "control", "sources": sources} | known

    def _sources(self, content: Any, *others: Answer) -> tuple[list[Origin], bool, int]:
        """The sources of one value, whether the search was complete, and how many sources were left out."""
        if isinstance(content, bool) or content is None:
            return [], True, 0
        answers = (self._texts.find(content), *others)
        hits = {group: hit for answer in reversed(answers) for group, hit in answer.found.items()}
        found = [(self._group_list[group], hit) for group, hit in hits.items()]
        since = min((hit.first for group, hit in found if group.written), default=None)
        sources = [as_origin(group, hit, since) for group, hit in found]
        sources.sort(key=lambda source: (source["message"], source["kind"], source["trust"], source.get("field", "")))
        kept = fairly(sources)
        return kept, all(answer.complete for answer in answers), len(sources) - len(kept)


def origins(
    conversation: Request | Sequence[Message], call_path: str, profiles: Profiles, known: Container[str] = NOTHING
) -> list[Origin]:
    """The origins of the tool call at `call_path` (`messages[i].content[j]`), from the messages before its own.

    For a single call; to ask about many calls of one conversation, keep an `Index`.

    Raises:
        ConfigError: `provenance.no-call`: there is no tool call at that path.
    """
    messages = conversation.messages if isinstance(conversation, Request) else conversation
    match steps_of(call_path):
        case (("messages", int(at)), ("content", int(place))) if at < len(messages):
            parts = messages[at].content
            part = parts[place] if place < len(parts) else None
        case _:
            part = None
    if not isinstance(part, ToolCallPart):
        raise ConfigError(
            "no tool call is there", path=call_path, code="provenance.no-call", hint="give messages[i].content[j]"
        )
    index = Index(profiles, known)
    for message in messages[:at]:
        index.extend(message)
    return index.origins(part)


def _result_labels(call: _Call | None) -> frozenset[str]:
    if call is None:
        return frozenset()
    return call.labels | (call.profile.result_labels if call.profile is not None else frozenset())


def _group_of(speech: _Speech) -> Group:
    """The group of a text of a message."""
    untrusted = speech.speaker is CLAIM and speech.role in (Role.ASSISTANT, Role.TOOL)
    return CLAIM if untrusted else SPEAKERS[speech.role]


_HOLDING: Final = (dict, list, tuple)
_STEERING: Final = frozenset({"string", "number", "boolean"})
_BITS: Final = 14_284  # of integers of 4,300 digits, the longest that Python writes
_LEAVES: Final = frozenset({str, int, float, bool, type(None)})
_NO_RULES: Final = ResultProfile()
_READERS: Final[Mapping[type[Part], Callable[..., Texts]]] = {
    TextPart: Index._read_text,
    ThinkingPart: Index._read_thinking,
    ToolCallPart: Index._read_call,
    ToolResultPart: Index._read_result,
    ResourcePart: Index._read_resource,
    PromptResultPart: Index._read_prompt,
}
