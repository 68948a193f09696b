"""What people say for the codes of countries (ISO 3166-1, two letters) and languages (ISO 639-1). Spec: [PROV-15]."""

from __future__ import annotations

from typing import Final

_COUNTRIES: Final = (
    "AE United Arab Emirates,Emirates;AR Argentina,Argentine;AT Austria,Austrian;AU Australia,Australian"
    ";BE Belgium,Belgian;BG Bulgaria,Bulgarian;BR Brazil,Brazilian;CA Canada,Canadian;CH Switzerland,Swiss"
    ";CL Chile,Chilean;CN China,Chinese;CO Colombia,Colombian;CY Cyprus,Cypriot;CZ Czech Republic,Czechia,Czech"
    ";DE Germany,German;DK Denmark,Danish;EE Estonia,Estonian;EG Egypt,Egyptian;ES Spain,Spanish"
    ";FI Finland,Finnish;FR France,French;GB United Kingdom,UK,Great Britain,Britain,England,British"
    ";GR Greece,Greek;HK Hong Kong;HR Croatia,Croatian;HU Hungary,Hungarian;ID Indonesia,Indonesian"
    ";IE Ireland,Irish;IL Israel,Israeli;IN India,Indian;IS Iceland,Icelandic;IT Italy,Italian;JP Japan,Japanese"
    ";KE Kenya,Kenyan;KR South Korea,Korea,Korean;LT Lithuania,Lithuanian;LU Luxembourg;LV Latvia,Latvian"
    ";MA Morocco,Moroccan;MT Malta,Maltese;MX Mexico,Mexican;MY Malaysia,Malaysian;NG Nigeria,Nigerian"
    ";NL Netherlands,Holland,Dutch;NO Norway,Norwegian;NZ New Zealand;PE Peru,Peruvian;PH Philippines,Philippine"
    ";PK Pakistan,Pakistani;PL Poland,Polish;PT Portugal,Portuguese;RO Romania,Romanian;RS Serbia,Serbian"
    ";RU Russia,Russian;SA Saudi Arabia,Saudi;SE Sweden,Swedish;SG Singapore;SI Slovenia,Slovenian"
    ";SK Slovakia,Slovak;TH Thailand,Thai;TR Turkey,Turkish;TW Taiwan,Taiwanese;UA Ukraine,Ukrainian"
    ";US United States,USA,America,American;VN Vietnam,Vietnamese;ZA South Africa,South African"
)
_LANGUAGES: Final = (
    "ar Arabic;cs Czech;da Danish;de German;el Greek;en English;es Spanish;fi Finnish;fr French;he Hebrew"
    ";hi Hindi;hu Hungarian;it Italian;ja Japanese;ko Korean;nl Dutch;no Norwegian;pl Polish;pt Portuguese"
    ";ro Romanian;ru Russian;sv Swedish;th Thai;tr Turkish;uk Ukrainian;vi Vietnamese;zh Chinese"
)
_SAID: Final = {
    code: said.split(",") for code, _, said in (row.partition(" ") for row in f"{_COUNTRIES};{_LANGUAGES}".split(";"))
}


def names_of(code: str) -> list[str]:
    """The names of what a code is one of: of a country in capitals, of a language in small letters."""
    return _SAID.get(code, [])


__all__ = ["names_of"]
