"""What is known of one tool, prompt or resource: the values of a profile document. Spec: docs/spec/profiles.md.

A profile is data, not a rule [D9]: which fields of a result a third party can write, which arguments steer the act and
which only carry content, what the act does, and what words ask for it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache, lru_cache
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from cmf.json.frozen import FrozenDict, JsonObject, frozen_mapping
from cmf.json.value import Flag, Str, Value, json_schema, value
from cmf.message.security import DataPolicy, ObjectSecurityProfile
from pipeline.decisions import field_paths
from pipeline.decisions.field_paths import Mark, Path
from pipeline.provenance.negation import matches, says_any
from pipeline.provenance.words import inferred_words, words_of

MAX_NAME: Final = 80  # characters of a name
MAX_WORDS: Final = 8
MIN_CAPITAL: Final = 4  # letters of a word that begins with a capital in title case
MAX_TOKEN: Final = 256  # characters of an id or address
_TOKEN: Final = re.compile(r"[^\s,;|<>\"'`]+")
_WORD: Final = re.compile(r"[^\W_]+")
_ADDRESS: Final = re.compile(r"\S+@\S+\.\S+|[a-z][a-z0-9+.-]*://\S+|www\.\S+", re.I)
_FIGURES: Final = re.compile(r"[-+\d.,:/%\s()TZ$\u20ac\u00a3]+")
_SENTENCE: Final = re.compile(r"[.!?;](?:\s|\Z)|[\n\r\t!?]|\w\s*[<>{}]|:\s")
_ABBREVIATED: Final = re.compile(r"(?<!\w)(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Inc|Ltd|Co|Corp|No|Str|Ave|Blvd|Rd)\.")
_MIXED: Final = re.compile(r"(?=\S*\d)(?=\S*[^\W\d_])\S{6,}|\S*\d{5,}\S*|\S*[@/\\=]\S*")
"""A word that could be an id or an address: among other words it may be the one that an attacker wants used."""


def trust_of(path: Path, content: str) -> bool:
    """Whether a service fills in a value: its key is not one for text, and it has the shape of no sentence."""
    is_key = path[-1:] == (Mark.KEY,)
    key = next((step for step in reversed(path) if isinstance(step, str)), None)
    if key is not None and not is_key and _is_free(key):
        return False
    text = content.strip()
    if not text or _FIGURES.fullmatch(text):
        return len(text) <= MAX_NAME
    if _TOKEN.fullmatch(text):
        return len(text) <= MAX_TOKEN and (
            _ADDRESS.fullmatch(text) is None or (key is not None and _holds_address(key))
        )
    return (
        _is_name(text)
        if key is not None
        else bool(path)
        and (_is_name(text) and all(len(word) < MIN_CAPITAL or not word[0].islower() for word in text.split()))
    )


def _is_name(text: str) -> bool:
    if len(text) > MAX_NAME or _SENTENCE.search(_ABBREVIATED.sub("", text)):
        return False
    words = text.split()
    return len(words) <= MAX_WORDS and not any(map(_MIXED.fullmatch, words))


@lru_cache(maxsize=4096)
def _key_words(key: str) -> tuple[str, ...]:
    return tuple(word for word in words_of(key) if not word.isdecimal())


def _is_free(key: str) -> bool:
    """Whether a key is one for text: `body`, `review_text`; `message_id` is not."""
    words = _key_words(key)
    return bool(words) and (words[-1] in _free() or words[-1].removesuffix("s") in _free())


def _holds_address(key: str) -> bool:
    words = _key_words(key)
    return any(word in _pointing() or word.removesuffix("s") in _pointing() for word in words)


@cache
def _free() -> frozenset[str]:
    return frozenset(inferred_words()["free_fields"])


@cache
def _pointing() -> frozenset[str]:
    words = inferred_words()
    return frozenset(words["arguments"]["control"]) | frozenset(words["address_fields"])


MAX_SHAPED_CHARACTERS: Final = 256  # of a value that has the shape of a name
MAX_ASKED_CHARACTERS: Final = 65_536  # of one user message that are searched for words that ask


class Trust(StrEnum):
    """Who can have written a field."""

    TRUSTED = "trusted"
    METADATA = "metadata"
    AUTO = "auto"
    UNTRUSTED = "untrusted"


def _pattern(text: str) -> str:
    try:
        field_paths.compiled(text)
    except ValueError as error:
        raise PydanticCustomError("field_pattern", "{why}", {"why": str(error)}) from None
    return text


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error:
        raise PydanticCustomError("expression", "not a regular expression") from None
    return text


def _spelled_short(rule: Any) -> Any:
    return {"trust": rule} if isinstance(rule, str) else rule


Pattern: TypeAlias = Annotated[Str, AfterValidator(_pattern)]
Expression: TypeAlias = Annotated[Str, AfterValidator(_expression)]
Word: TypeAlias = Annotated[Str, Field(min_length=1, max_length=80)]
DataAction = Literal[
    "read", "write", "execute", "invoke", "send", "receive", "generate", "export", "forward", "store", "log", "train",
    "display",
]  # fmt: skip
"""ViewAction and the data-policy words of C13."""
DATA_ACTIONS: Final[frozenset[str]] = frozenset(get_args(DataAction))
LEAVING: Final = frozenset({"send", "export", "forward"})
"""The actions by which data leaves: who does one of them is a sink."""


def _known_words(policy: DataPolicy) -> DataPolicy:
    # A word that nothing is called by would forbid nothing.
    if not DATA_ACTIONS.issuperset((*policy.denied_actions, *(policy.allowed_actions or ()))):
        raise PydanticCustomError("data_action", "an action that there is not")
    return policy


@value
class FieldRule(Value):
    """How far one field of a result is trusted, and the labels of its content."""

    trust: Annotated[
        Trust,
        Field(
            description="`untrusted` if a third party can author free text there; `metadata` if the service itself "
            "fills it in (ids, senders, dates); `trusted` if it is first-party data; `auto` for `metadata` where the "
            "key is not one for text and the value no sentence, and `untrusted` elsewhere"
        ),
    ]
    labels: tuple[Str, ...] = ()
    shape: Annotated[
        Expression | None,
        Field(
            description="A regular expression for the whole value, at most 256 characters long: the trust holds only "
            "for what has this shape, and the rest is untrusted. For names that others choose but cannot write text in"
        ),
    ] = None

    def trust_in(self, path: field_paths.Path, content: str) -> Trust:
        """The trust of one value of the field."""
        if self.shape is None:
            return resolved(self.trust, path, content)
        fits = len(content) <= MAX_SHAPED_CHARACTERS and re.fullmatch(self.shape, content) is not None
        return resolved(self.trust, path, content) if fits else Trust.UNTRUSTED


def resolved(trust: Trust, path: field_paths.Path, content: str) -> Trust:
    """The trust of one value; `auto` is told by its key and its shape."""
    if trust is not Trust.AUTO:
        return trust
    return Trust.METADATA if trust_of(path, content) else Trust.UNTRUSTED


FieldRules: TypeAlias = Annotated[
    dict[Pattern, Annotated[FieldRule, BeforeValidator(_spelled_short)]],
    AfterValidator(frozen_mapping),
    Field(
        description="Field pattern -> trust (a word, or {trust, labels}). A pattern names a field and all below it: "
        "`[*].sender`, `items[*].from`, `**.id`; a final `~` names the keys themselves: `*~`. Where several match, the "
        "least trusted holds."
    ),
]


FieldLabels: TypeAlias = Annotated[
    dict[Pattern, tuple[Str, ...]],
    AfterValidator(frozen_mapping),
    Field(description="Field pattern -> labels of what stands there, whatever its trust"),
]


@value
class ResultProfile(Value):
    """How far a tool's result is trusted: as a whole, and field by field where it can be read."""

    trust: Annotated[Trust, Field(description="Of every field that no rule names")] = Trust.UNTRUSTED
    format: Annotated[
        Literal["auto", "json", "yaml", "python", "text"],
        Field(
            description="How a result that comes as text is read into fields: strict JSON, block YAML, or a Python "
            "literal; `auto` tries them in this order; `text` has no fields. Name the one that the tool writes if it "
            "may also return text of others as it is. What cannot be read is trusted as its least trusted field."
        ),
    ] = "auto"
    labels: Annotated[tuple[Str, ...], Field(description="Labels of everything in the result")] = ()
    fields: FieldRules = FrozenDict()
    field_labels: FieldLabels = FrozenDict()

    @property
    def patterns(self) -> tuple[tuple[field_paths.Path, tuple[str, ...]], ...]:
        """Every field pattern that brings labels, with them."""
        own = ((pattern, rule.labels) for pattern, rule in self.fields.items() if rule.labels)
        return tuple((field_paths.compiled(pattern), labels) for pattern, labels in (*own, *self.field_labels.items()))

    @property
    def every_label(self) -> frozenset[str]:
        """The labels of a result whose fields cannot be told apart."""
        return frozenset(self.labels).union(*(labels for _, labels in self.patterns))

    @property
    def weakest(self) -> Trust:
        """The trust of a result whose fields cannot be told apart."""
        rules = self.fields.values()
        ranks = [self.trust, *(rule.trust if rule.shape is None else Trust.UNTRUSTED for rule in rules)]
        weakest = max(ranks, key=list(Trust).index)
        return Trust.UNTRUSTED if weakest is Trust.AUTO else weakest


@value
class AskedFor(Value):
    """The words by which a user asks for the act. Each message of the user is looked at by itself; case is ignored."""

    verbs: Annotated[
        tuple[Word, ...], Field(description="Words or phrases; English endings and irregular forms match too")
    ] = ()
    objects: Annotated[
        tuple[Word, ...], Field(description="If given, one of them must stand in the same message as the verb")
    ] = ()
    patterns: Annotated[tuple[Expression, ...], Field(description="Regular expressions; each is enough by itself")] = ()

    def is_said_in(self, text: str) -> bool:
        """Whether one message of the user asks for the act."""
        text = text[:MAX_ASKED_CHARACTERS]
        if any(matches(pattern, text) for pattern in self.patterns):
            return True
        return says_any(self.verbs, text, acts=True) and (not self.objects or says_any(self.objects, text))


@value
class Profile(Value):
    """What is known of one tool, prompt or resource."""

    description: Str | None = None
    actions: Annotated[
        tuple[DataAction, ...] | None,
        Field(description="What running it does with data; absent: not known, so it may write"),
    ] = None
    sink: Annotated[
        Flag | None,
        Field(
            description="Data leaves, or the world changes. Rules on provenance look at calls of such tools only. "
            "Absent: true if `actions` has send, export or forward, or it is irreversible; if there are no `actions` "
            "either, it is inferred"
        ),
    ] = None
    irreversible: Annotated[Flag | None, Field(description="What it does cannot be undone")] = None
    control: Annotated[
        tuple[Pattern, ...] | None,
        Field(
            description="Arguments that say what is acted on, or where data goes: recipients, accounts, ids, URLs. A "
            "person is asked about a value that nobody trusted said"
        ),
    ] = None
    content: Annotated[
        tuple[Pattern, ...] | None, Field(description="Arguments that only carry text: subject, body")
    ] = None
    asked_for: AskedFor | None = None
    result: ResultProfile | None = None
    object: ObjectSecurityProfile | None = None
    data_policy: Annotated[DataPolicy, AfterValidator(_known_words)] | None = None
    input_schema: Annotated[
        JsonObject | None, Field(description="JSON Schema of the tool's arguments: edited arguments must fit it")
    ] = None
    intents: Annotated[tuple[Str, ...], Field(description="Names of purposes that this serves, for rules")] = ()

    @property
    def acts(self) -> bool:
        """Whether it is a sink, declared or by what it does [PRF-12]."""
        if self.sink is not None:
            return self.sink
        return bool(self.irreversible) or not LEAVING.isdisjoint(self.actions or ())

    @property
    def rules(self) -> ResultProfile:
        """How far its results are trusted; where nobody says, not at all."""
        return ResultProfile() if self.result is None else self.result

    @property
    def writes(self) -> bool:
        """Whether running it may change what a later call reads."""
        return self.actions is None or not set(self.actions) <= {"read", "receive", "display"}

    @property
    def result_labels(self) -> frozenset[str]:
        """The labels of everything that it returns."""
        return frozenset(self.rules.labels) | frozenset(self.data_policy.apply_labels if self.data_policy else ())

    @property
    def every_label(self) -> frozenset[str]:
        """The labels of something returned whose fields cannot be told apart."""
        return self.result_labels | self.rules.every_label

    def use_of(self, path: field_paths.Path) -> str:
        """`control`, `content` or `other`: what an argument is for. Where both name it, it is control."""
        for use, patterns in (("control", self.control), ("content", self.content)):
            if any(field_paths.names(field_paths.compiled(pattern), path) for pattern in patterns or ()):
                return use
        return "other"


@value
class ServerProfile(Value):
    """What is known of a server: an MCP server, say, by its namespace."""

    description: Str | None = None
    trusted: Annotated[Flag, Field(description="What it says of its own tools is believed, not merely a claim")] = False


@value
class ProfileDocument(Value):
    """A file of profiles."""

    version: Annotated[Literal[1], Field(description="Of this form; always 1")] = 1
    profiles: Annotated[
        dict[Str, Profile],
        AfterValidator(frozen_mapping),
        Field(description="By `name`, `namespace/name`, or URI (`tool://namespace/name`, `prompt://…`, a resource's)"),
    ]
    servers: Annotated[dict[Str, ServerProfile], AfterValidator(frozen_mapping), Field(description="By namespace")] = (
        FrozenDict()
    )


def profiles_schema() -> dict[str, Any]:
    """The JSON Schema of a file of profiles [D9]."""
    schema = json_schema(ProfileDocument)
    definitions = schema["$defs"]
    rules = definitions["ResultProfile"]["properties"]["fields"]
    words = {"type": "string", "enum": [trust.value for trust in Trust]}
    rules["additionalProperties"] = {"anyOf": [words, rules["additionalProperties"]]}
    for field in ("allowed_actions", "denied_actions"):
        declared = definitions["DataPolicy"]["properties"][field]
        declared = next((one for one in declared.get("anyOf", ()) if "items" in one), declared)
        declared["items"] = {"type": "string", "enum": list(get_args(DataAction))}
    return {**schema, "title": "Profiles of tools, prompts and resources"}
