"""Dates and times in other languages than English. Spec: [PROV-13], [PROV-15], [PROV-19].

German, French, Spanish, Italian, Dutch and Portuguese: the names of months, of days of the week and of units of time.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final


def _bare(text: str) -> str:
    """Without the accents of its letters."""
    return "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))


_MONTHS: Final = (
    "januar jänner janvier enero gennaio januari janeiro",
    "februar février febrero febbraio februari fevereiro",
    "märz mars marzo maart março",
    "april avril abril aprile",
    "mai mayo maggio mei maio",
    "juni juin junio giugno junho",
    "juli juillet julio luglio julho",
    "august août agosto augustus",
    "september septembre septiembre setiembre settembre setembro",
    "oktober octobre octubre ottobre outubro",
    "november novembre noviembre novembro",
    "dezember décembre diciembre dicembre december dezembro",
)
_WEEKDAYS: Final = (
    "montag lundi lunes lunedì maandag segunda-feira",
    "dienstag mardi martes martedì dinsdag terça-feira",
    "mittwoch mercredi miércoles mercoledì woensdag quarta-feira",
    "donnerstag jeudi jueves giovedì donderdag quinta-feira",
    "freitag vendredi viernes venerdì vrijdag sexta-feira",
    "samstag samedi sábado sabato zaterdag",
    "sonntag dimanche domingo domenica zondag",
)
_DAYS_AWAY: Final = {
    1: "morgen demain mañana domani amanhã",
    2: "übermorgen après-demain dopodomani overmorgen",
}
_UNITS: Final = {
    "minute": "minute minuten minutes minuto minutos minuti minuut",
    "hour": "stunde stunden heure heures hora horas ora ore uur uren",
    "day": "tag tage tagen jour jours día días giorno giorni dag dagen",
    "night": "nacht nächte nächten nuit nuits noche noches notte notti nachten noite noites",
    "week": "woche wochen semaine semaines semana semanas settimana settimane week weken",
    "month": "monat monate monaten mois mes meses mese mesi maand maanden mês",
    "year": "jahr jahre jahren année années ans año años anno anni jaar ano anos",
}
_COUNTS: Final = (
    "ein eine einen einem einer un une una uno een um uma",
    "zwei deux dos due twee dois duas",
    "drei trois tres tre drie três",
    "vier quatre cuatro quattro quatro",
    "fünf cinq cinco cinque vijf",
    "sechs six seis sei zes",
    "sieben sept siete sette zeven sete",
    "acht huit ocho otto oito",
    "neun neuf nueve nove negen",
    "zehn dix diez dieci tien dez",
)


def _table(rows: Iterator[tuple[str, str]]) -> dict[str, str]:
    """What each word of a row says, with its accents or without."""
    return {form: said for words, said in rows for word in words.split() for form in (word, _bare(word))}


_MONTH_OF: Final = _table((words, str(number)) for number, words in enumerate(_MONTHS, 1))
_UNIT_OF: Final = _table((words, unit) for unit, words in _UNITS.items())
_COUNT_OF: Final = _table((words, str(number)) for number, words in enumerate(_COUNTS, 1))
DATE: Final = re.compile(
    r"(?<![\w.,])(?P<day>\d{1,2})(?:\.|er|\u00ba)?\s{1,3}(?:de\s{1,3})?"
    rf"(?P<month>{'|'.join(_MONTH_OF)})(?!\w)(?:\s{{1,3}}(?:del?\s{{1,3}})?(?P<year>[12]\d{{3}})(?![\d:]))?",
    re.I,
)
"""A date with the name of its month, the day before it."""
_SPAN: Final = re.compile(
    rf"(?<![\w.,])(?P<count>\d{{1,4}}|{'|'.join(_COUNT_OF)})\s{{1,3}}(?P<unit>{'|'.join(_UNIT_OF)})(?!\w)", re.I
)


def month_of(name: str) -> int:
    """The number of a month that `DATE` found; 0 for a name that only folds to one (a dotless i)."""
    return int(_MONTH_OF.get(name.casefold(), 0))


def spans(text: str) -> Iterator[tuple[str, int, str]]:
    """The times in a text: the words of each, how many, and the unit in English."""
    for match in _SPAN.finditer(text):
        said, unit = match["count"].casefold(), _UNIT_OF.get(match["unit"].casefold())
        count = _COUNT_OF.get(said, said)
        if unit is not None and count.isdecimal():  # no words that only fold to these
            yield match[0], int(count), unit


def weekday(number: int) -> list[str]:
    """The names of a day of the week, Monday being 0."""
    return _WEEKDAYS[number].split()


def days_away(number: int) -> list[str]:
    """How a day is said that is so many days from now."""
    return _DAYS_AWAY.get(number, "").split()


__all__ = ["DATE", "days_away", "month_of", "spans", "weekday"]
