"""Where the addresses in a content argument came from. Spec: docs/spec/provenance.md [PROV-12].

A text that goes out is in the model's own words, but a link or address in it may have been put there by somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from pipeline.provenance.lookup_variants import Entries
from pipeline.provenance.matching import addresses, host_words
from pipeline.provenance.sources import Origin, has_source, is_trusted

MAX_ADDRESSES: Final = 32  # addresses of one content argument that are looked up by themselves


def address_entries(entry: Entries, path: str, text: str) -> Iterator[Origin]:
    """The entry of each address in a text, with its `span`."""
    for start, end in islice(addresses(text), MAX_ADDRESSES):
        yield _described(entry, path, text[start:end]) | {"span": [start, end]}


def _described(entry: Entries, path: str, address: str) -> Origin:
    """The entry of an address. If no text has it whole, texts that have its host count as sources."""
    found = entry(path, "address", "content", address)
    if has_source(found):
        return found
    names = [entry(path, "address", "content", name) for name in host_words(address)]
    strange = [name for name in names if not is_trusted(name)]
    return strange[0] if strange and all(map(has_source, names)) else found
