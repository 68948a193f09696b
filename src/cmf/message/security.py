"""Who asks, what data is touched, and what may be done with it. Spec: docs/spec/extensions.md [EXT-6]."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator

from cmf.enums import SubjectType
from cmf.json.frozen import FrozenDict, JsonObject, frozen_mapping
from cmf.json.value import Count, Str, UtcTime, Value, value, whole_reader


def _as_set(items: Any) -> Any:
    """Sets are written as JSON arrays, and read back from any of the built-in collections."""
    try:
        return frozenset(items) if isinstance(items, list | tuple | set) else items
    except TypeError:
        raise ValueError("the items of a set are texts") from None  # an object or array is among them


StrSet = Annotated[frozenset[Str], BeforeValidator(_as_set)]


@value
class SubjectExtension(Value):
    """The authenticated entity that makes the request. A field that is None was not granted, or not known."""

    id: Str | None = None
    type: SubjectType | None = None
    roles: StrSet | None = None
    permissions: StrSet | None = None
    teams: StrSet | None = None
    claims: JsonObject | None = None


@value
class ObjectSecurityProfile(Value):
    """What access to an entity (tool, resource, prompt) requires, and which data it reaches."""

    managed_by: Literal["host", "tool", "both"] = "host"
    permissions: tuple[Str, ...] = ()
    trust_domain: Str | None = None
    data_scope: tuple[Str, ...] = ()


@value
class RetentionPolicy(Value):
    """How long data may be kept: the earlier of `max_age_seconds` and `delete_after` wins."""

    max_age_seconds: Count | None = None
    policy: Literal["session", "transient", "persistent", "none"] = "persistent"
    delete_after: UtcTime | None = None


@value
class DataPolicy(Value):
    """Rules for the data that an entity returns. `allowed_actions` None is unrestricted, empty allows nothing."""

    apply_labels: tuple[Str, ...] = ()
    allowed_actions: tuple[Str, ...] | None = None
    denied_actions: tuple[Str, ...] = ()
    retention: RetentionPolicy | None = None


def spelled_out(entry: ObjectSecurityProfile | DataPolicy | RetentionPolicy) -> dict[str, Any]:
    """The fields of a profile as policy sees them: those at their default too, and none that is None.

    A rule that asks whether access is kept by the host must not depend on whether somebody wrote so [VIEW-19].
    """
    shown = _READERS[type(entry)](entry)
    if "retention" in shown:
        shown["retention"] = spelled_out(shown["retention"])
    return shown


_READERS: Final = {cls: whole_reader(cls) for cls in (ObjectSecurityProfile, DataPolicy, RetentionPolicy)}

Objects = Annotated[dict[Str, ObjectSecurityProfile], AfterValidator(frozen_mapping)]
DataPolicies = Annotated[dict[Str, DataPolicy], AfterValidator(frozen_mapping)]


@value
class SecurityExtension(Value):
    """Labels (which only grow), classification, subject, and the profiles and data policies by entity name."""

    labels: StrSet = frozenset()
    classification: Str | None = None
    subject: SubjectExtension | None = None
    objects: Objects = FrozenDict()
    data: DataPolicies = FrozenDict()
