"""An OpenAI chat request to an Anthropic one, against LiteLLM and a translation by hand; folding of streams."""

from __future__ import annotations

from bench.rounds import Effort, Ratio, Report, Side, interleaved

CHUNKS = (250, 1000, 4000)


def measure(effort: Effort) -> Report:
    """Body to body as Python objects, on all sides."""
    with (
        Side("cmf_translate") as own,
        Side("litellm_translate", peer="litellm") as peer,
        Side("pydantic_ai_history", peer="pydantic_ai") as history,
    ):
        if own.ask("blocks", call=True) != peer.ask("blocks", call=True):
            raise RuntimeError("the two sides do not translate to the same blocks")
        if not own.ask("by_hand_is_alike", call=True):
            raise RuntimeError("the translation by hand gives another request")
        size = own.ask("size", call=True)
        pairs = [
            ("cmf: translate", own, "translate"),
            ("cmf: of that, decode", own, "decode"),
            ("cmf: of that, encode", own, "encode"),
            ("by hand: translate", own, "by_hand"),
            ("litellm: translate, on a copy", peer, "translate"),
            ("litellm: of that, the copy", peer, "copy"),
            ("cmf: the conversation from JSON", own, "read_history"),
            ("pydantic-ai: the conversation from JSON", history, "read"),
            ("cmf: the conversation to JSON", own, "write_history"),
            ("pydantic-ai: the conversation to JSON", history, "write"),
            *((f"cmf: fold {count} chunks", own, f"fold_{count}") for count in CHUNKS),
        ]
        figures = interleaved(pairs, effort)
    ours = figures["cmf: translate"]
    theirs = figures["litellm: translate, on a copy"].less(figures["litellm: of that, the copy"])
    by_hand = figures["by hand: translate"]
    few, many = (figures[f"cmf: fold {count} chunks"] for count in (CHUNKS[0], CHUNKS[-1]))
    return Report(
        "OpenAI chat request to Anthropic request, against LiteLLM 1.106.2",
        f"20 messages, 6 tool calls, 3 tools, {size // 1000} KB; Python objects to Python objects. LiteLLM's steps are "
        "`map_openai_params` and `transform_request`; they write into their input, so they work on a copy, whose time"
        " is taken off. The translation by hand covers the fields of this one request and gives the very same one; it"
        " shares the tools' schemas with its input, and takes any argument text that parses."
        " pydantic-ai-slim 2.68.0 reads and writes the same conversation as its own messages,"
        " ours as a canonical request. CPU time.",
        list(figures.values()),
        [
            Ratio("translate: litellm / cmf", theirs.over(ours), "≥ 5"),
            Ratio("translate: cmf / by hand", ours.over(by_hand), "≤ 3"),
            *(
                Ratio(
                    f"{what}: pydantic-ai / cmf",
                    figures[f"pydantic-ai: the conversation {what}"].over(figures[f"cmf: the conversation {what}"]),
                    "≥ 1",
                )
                for what in ("from JSON", "to JSON")
            ),
            Ratio("fold: per chunk, 4000 / 250", many.over(few) * CHUNKS[0] / CHUNKS[-1], "≤ 1.5"),
        ],
    )
