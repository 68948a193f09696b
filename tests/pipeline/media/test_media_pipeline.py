"""References become bytes where that is allowed, and everything leaves as checked base64."""

from __future__ import annotations

import pytest
from tests.cmf.pictures import TAKES, gradient, image_part, raw_of, said, shown, written

from cmf.errors import MediaError
from cmf.message.message import DocumentPart, ImagePart, MediaPart, TextPart
from cmf.message.request import Request
from cmf.models.media import MediaLimits
from pipeline.media.fetch import Fetcher, FetchSettings
from pipeline.media.media_pipeline import MAX_REFERENCES, MediaPipeline

GIF = written(gradient(), "GIF")
URL = ImagePart(type="url", data="https://cdn.example/a.gif")
FILE = DocumentPart(type="file_ref", data="file-1")


class Web(Fetcher):
    """A fetcher whose internet is a table."""

    def __init__(self, pages: dict[str, bytes]) -> None:
        super().__init__(FetchSettings())
        self.pages = pages

    async def fetch(self, url: str) -> bytes:
        if url not in self.pages:
            raise MediaError("the URL is not on the list", code="media.url-not-allowed")
        return self.pages[url]


async def refusal(pipeline: MediaPipeline, *parts: MediaPart) -> tuple[str, str]:
    with pytest.raises(MediaError) as caught:
        await pipeline.prepare(Request(messages=(said(TextPart(text="see"), *parts),)), TAKES)
    return caught.value.code, caught.value.path


@pytest.mark.spec("MED-11")
async def test_by_default_nothing_is_fetched_and_no_file_is_known() -> None:
    pipeline = MediaPipeline()

    assert await refusal(pipeline, URL) == ("media.url-not-allowed", "messages[0].content[1]")
    assert await refusal(pipeline, FILE) == ("media.file-not-known", "messages[0].content[1]")


@pytest.mark.spec("MED-11")
async def test_the_first_refusal_in_order_is_reported() -> None:
    pipeline = MediaPipeline(fetcher=Web({URL.data: GIF}))

    assert await refusal(pipeline, URL, FILE, ImagePart(type="url", data="https://no.example/")) == (
        "media.file-not-known",
        "messages[0].content[2]",
    )


@pytest.mark.spec("MED-11")
@pytest.mark.parametrize(
    ("body", "declared", "code"),
    [
        (b"<html>not found</html>", None, "media.wrong-kind"),
        (b"", None, "media.empty"),
        (GIF, "image/png", "media.type-mismatch"),
        (GIF[:200], None, "media.damaged"),
    ],
)
async def test_what_was_fetched_is_checked_like_what_was_sent(body: bytes, declared: str | None, code: str) -> None:
    pipeline = MediaPipeline(fetcher=Web({URL.data: body}))
    part = ImagePart(type="url", data=URL.data, media_type=declared)

    assert await refusal(pipeline, part) == (code, "messages[0].content[1]")


@pytest.mark.spec("MED-11")
async def test_one_value_cannot_cause_any_number_of_requests() -> None:
    pipeline = MediaPipeline(fetcher=Web({URL.data: GIF}))

    assert (await refusal(pipeline, *[URL] * (MAX_REFERENCES + 1)))[0] == "media.too-many-references"


@pytest.mark.spec("MED-11")
async def test_what_is_on_the_list_leaves_as_base64() -> None:
    async def open_file(part: MediaPart) -> bytes:
        return b"%PDF-1.7\n" + part.data.encode()

    pipeline = MediaPipeline(fetcher=Web({URL.data: GIF}), open_file=open_file)
    sent = said(TextPart(text="see"), URL, FILE, image_part(GIF))

    text, fetched, opened, carried = (await pipeline.prepare(sent, TAKES)).content

    assert text is sent.content[0]
    assert (fetched.type, fetched.media_type, shown(fetched).size) == ("base64", "image/png", (60, 40))
    assert (opened.type, opened.media_type, raw_of(opened)) == ("base64", "application/pdf", b"%PDF-1.7\nfile-1")
    assert raw_of(carried) == raw_of(fetched)


@pytest.mark.spec("MED-2")
async def test_the_limits_are_the_pipelines() -> None:
    assert (await refusal(MediaPipeline(MediaLimits(max_bytes=10)), image_part(GIF)))[0] == "media.too-large"
