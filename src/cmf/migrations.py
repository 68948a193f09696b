"""Reading older schema versions into the current one [A14]. Spec: docs/spec/evolution.md."""

from __future__ import annotations

from typing import Any

from cmf.errors import SchemaVersionError


def upgrade_message(data: dict[str, Any]) -> dict[str, Any]:
    """`data` in the shape of the current schema version; a fresh dict where something had to change.

    Raises:
        SchemaVersionError: written by a newer version; the message names both numbers.
    """
    version = data.get("schema_version", 2)
    if isinstance(version, int) and version > 2:
        raise SchemaVersionError(
            f"schema version {version} is newer than {2}, the newest this reader knows",
            path="$.schema_version",
            hint="upgrade this installation",
        )
    if "provider_raw" in data:  # never accepted from a canonical form [A15]
        data = {key: item for key, item in data.items() if key != "provider_raw"}
    return data
