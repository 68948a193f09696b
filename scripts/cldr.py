"""Writes `src/pipeline/provenance/cldr.json`: what people say for countries, languages, dates and times, from CLDR.

`make cldr` runs it in the environment of the documentation's site, whose lock has Babel, which packages CLDR.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from babel import Locale
from babel.units import format_unit

OUT: Final = Path(__file__).parents[1] / "src" / "pipeline" / "provenance" / "cldr.json"
LANGUAGES: Final = ("de", "fr", "es", "it", "nl", "pt")  # those in which dates are read, beside English
UNITS: Final = ("minute", "hour", "day", "night", "week", "month", "year")
PREPOSITIONS: Final = frozenset(["an"])  # a French year, and "at" in German
NO_COUNTRIES: Final = frozenset(["EU", "EZ", "QO", "UN", "XA", "XB", "ZZ"])  # groups, and codes for tests


def main() -> None:
    """Write the file, one entry a line."""
    english, locales = Locale("en"), [Locale(name) for name in LANGUAGES]
    months = [[locale.months["format"]["wide"][number] for locale in locales] for number in range(1, 13)]
    weekdays = [[locale.days["format"]["wide"][number] for locale in locales] for number in range(7)]
    units = {unit: [_unit(unit, count, locale) for locale in locales for count in (1, 2)] for unit in UNITS}
    territories = sorted(english.territories.items())
    countries = {code: [name] for code, name in territories if code.isalpha() and code not in NO_COUNTRIES}
    tables = {
        "countries": countries,
        "languages": {code: [name] for code, name in sorted(english.languages.items()) if len(code) == 2},
        "months": {str(number): sorted(set(map(str.lower, names))) for number, names in enumerate(months, 1)},
        "weekdays": {str(number): sorted(set(map(str.lower, names))) for number, names in enumerate(weekdays)},
        "units": {unit: sorted(set(map(str.lower, names)) - PREPOSITIONS) for unit, names in units.items()},
    }
    OUT.write_text(_written(tables), encoding="utf-8")


def _unit(unit: str, count: int, locale: Locale) -> str:
    return format_unit(count, f"duration-{unit}", length="long", locale=locale).split()[-1]


def _written(tables: dict[str, dict[str, list[str]]]) -> str:
    """The tables as JSON, each row on a line of its own."""
    shown = []
    for name, table in tables.items():
        rows = ",\n".join(f"    {json.dumps(key)}: {json.dumps(row, ensure_ascii=False)}" for key, row in table.items())
        shown.append(f"  {json.dumps(name)}: {{\n{rows}\n  }}")
    return "{\n" + ",\n".join(shown) + "\n}\n"


if __name__ == "__main__":
    main()
