"""Media that may go to a model, and all that may not."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cmf.pictures import (
    TAKES,
    gradient,
    image_part,
    png_claiming,
    raw_of,
    said,
    shown,
    written,
)

from cmf.enums import Role
from cmf.errors import MediaError
from cmf.json.frozen import FrozenDict
from cmf.json.value import replace
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    PromptResultPart,
    ResourcePart,
    TextPart,
    ToolResultPart,
    VideoPart,
)
from cmf.message.request import Choice, Request, Response
from cmf.models.capabilities import ModelCapabilities
from cmf.models.media import MediaLimits, prepare

PNG = written(gradient(), "PNG")
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
PDF = b"%PDF-1.7\n%made by hand\n"


def refusal(part: Any, limits: MediaLimits | None = None, takes: ModelCapabilities = TAKES) -> MediaError:
    with pytest.raises(MediaError) as caught:
        prepare(said(TextPart(text="look"), part), takes, limits)
    return caught.value


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


@pytest.mark.spec("MED-2")
@pytest.mark.parametrize(
    ("part", "code"),
    [
        (ImagePart(type="base64", data="not base64!"), "media.not-base64"),
        (ImagePart(type="url", data="data:image/png,raw"), "media.not-base64"),
        (ImagePart(type="base64", data=""), "media.empty"),
        (image_part(b"\x00\x01\x02"), "media.unknown-type"),
        (image_part(PNG, "image/jpeg"), "media.type-mismatch"),
        (ImagePart(type="url", data=f"data:image/gif;base64,{b64(PNG)}"), "media.type-mismatch"),
        (image_part(PDF), "media.wrong-kind"),
        (AudioPart(type="base64", data=b64(PNG)), "media.wrong-kind"),
        (VideoPart(type="base64", data=b64(PDF)), "media.wrong-kind"),
        (DocumentPart(type="base64", data=b64(PNG), media_type="image/png"), "media.wrong-kind"),
        (DocumentPart(type="base64", data=b64(PNG), media_type="application/pdf"), "media.type-mismatch"),
        (ResourcePart(uri="file:///a", blob=PNG, mime_type="image/gif"), "media.type-mismatch"),
        (image_part(SVG, "image/svg+xml"), "media.wrong-kind"),
        (ImagePart(type="url", data="https://cdn.example/a.png"), "media.not-resolved"),
        (ImagePart(type="file_ref", data="file-1"), "media.not-resolved"),
    ],
)
def test_what_is_not_what_it_says_is_refused_with_code_and_path(part: Any, code: str) -> None:
    error = refusal(part)

    assert (error.code, error.path) == (code, "content[1]")


@pytest.mark.spec("MED-2")
def test_a_source_over_the_limit_of_bytes_is_refused() -> None:
    limits = MediaLimits(max_bytes=len(PNG) - 1)

    assert refusal(image_part(PNG), limits).code == "media.too-large"
    assert refusal(DocumentPart(type="base64", data=b64(PDF)), MediaLimits(max_bytes=5)).code == "media.too-large"


@pytest.mark.spec("MED-7")
def test_all_images_of_a_value_draw_on_one_budget_of_pixels() -> None:
    three = said(*[image_part(PNG)] * 3)

    assert prepare(three, TAKES, MediaLimits(max_total_pixels=3 * 60 * 40)).content
    with pytest.raises(MediaError) as caught:
        prepare(three, TAKES, MediaLimits(max_total_pixels=3 * 60 * 40 - 1))

    assert (caught.value.code, caught.value.path) == ("media.too-many-pixels", "content[2]")


@pytest.mark.spec("MED-5")
def test_a_model_that_sees_nothing_gets_no_image() -> None:
    blind = ModelCapabilities(accepted_image_media_types=("image/png",))

    assert refusal(image_part(PNG), takes=blind).code == "media.not-accepted"


@pytest.mark.spec("MED-1")
@pytest.mark.parametrize(
    "part",
    [image_part(PNG), image_part(PNG, "image/png"), ImagePart(type="url", data=f"DATA:image/png;base64,{b64(PNG)}")],
    ids=["undeclared", "declared", "data-url"],
)
def test_an_image_becomes_base64_with_its_true_type(part: ImagePart) -> None:
    (done,) = prepare(said(part), TAKES).content

    assert (done.type, done.media_type, shown(done).size) == ("base64", "image/png", (60, 40))


@pytest.mark.spec("MED-1")
@pytest.mark.parametrize("hold", ["result", "prompt", "request", "response"])
def test_an_image_is_found_wherever_it_stands(hold: str) -> None:
    bad = image_part(png_claiming(60_000, 60_000))
    value, path = {
        "result": (said(ToolResultPart(content=(TextPart(text="x"), bad))), "content[0].content[1]"),
        "prompt": (said(PromptResultPart(prompt_name="p", messages=(said(bad),))), "content[0].messages[0].content[0]"),
        "request": (Request(messages=(said(TextPart(text="x")), said(bad))), "messages[1].content[0]"),
        "response": (Response(choices=(Choice(message=said(bad)),)), "choices[0].message.content[0]"),
    }[hold]

    with pytest.raises(MediaError) as caught:
        prepare(value, TAKES)

    assert (caught.value.code, caught.value.path) == ("media.too-many-pixels", path)


@pytest.mark.spec("MED-1")
def test_a_resource_that_is_an_image_is_redrawn_and_another_is_not() -> None:
    bmp = written(gradient(), "BMP")
    picture = ResourcePart(uri="file:///a.bmp", blob=bmp, mime_type="image/bmp", size_bytes=len(bmp))
    other = ResourcePart(uri="file:///a.pdf", blob=PDF, mime_type="application/pdf")

    done, kept = prepare(said(picture, other), TAKES).content

    assert (done.mime_type, done.size_bytes) == ("image/png", len(done.blob))
    assert kept is other


@pytest.mark.spec("MED-1")
def test_what_changes_leaves_its_wire_extras_behind_and_what_does_not_is_the_same_object() -> None:
    extra = FrozenDict({"openai_chat": {"detail": "high"}})
    text = TextPart(text="x", extra=extra)
    result = ToolResultPart(
        content=(replace(image_part(b"BM" + written(gradient(), "BMP")[2:]), extra=extra),), extra=extra
    )
    value = Request(messages=(Message(role=Role.USER, content=(text,)), said(result)))

    done = prepare(value, TAKES)

    assert done.messages[0] is value.messages[0]
    assert done.messages[1].content[0].extra is None
    assert done.messages[1].content[0].content[0].extra is None


@pytest.mark.spec("MED-1")
def test_what_was_prepared_once_is_prepared() -> None:
    once = prepare(said(image_part(written(gradient(), "GIF"))), TAKES)

    assert prepare(once, TAKES) is once


@pytest.mark.spec("MED-1")
def test_a_picture_in_a_response_is_redrawn() -> None:
    painted = Response(choices=(Choice(message=said(image_part(written(gradient(), "GIF")))),), model="m")

    done = prepare(painted, TAKES)

    assert (done.message.content[0].media_type, done.model) == ("image/png", "m")


@pytest.mark.spec("MED-10")
@pytest.mark.parametrize(
    ("part", "media_type"),
    [
        (DocumentPart(type="base64", data=b64(PDF), title="t"), "application/pdf"),
        (DocumentPart(type="base64", data=b64(b"a,b\n"), media_type="Text/CSV; charset=utf-8"), "text/csv"),
        (DocumentPart(type="base64", data=b64(b"FORM 10-K and BM")), "text/plain"),
        (AudioPart(type="base64", data=b64(b"RIFF\x00\x00\x00\x00WAVEfmt "), media_type="audio/x-wav"), "audio/x-wav"),
        (AudioPart(type="base64", data=b64(b"\x00\x00\x00\x18ftypM4A \x00\x00")), "audio/mp4"),
        (VideoPart(type="base64", data=b64(b"\x00\x00\x00\x18ftypmp42\x00\x00")), "video/mp4"),
    ],
)
def test_what_is_no_image_keeps_its_bytes(part: Any, media_type: str) -> None:
    (done,) = prepare(said(part), TAKES).content

    assert (raw_of(done), done.media_type) == (base64.b64decode(part.data), media_type)


@pytest.mark.spec("MED-8")
@given(st.data())
def test_a_broken_image_is_refused_or_comes_out_whole(data: st.DataObject) -> None:
    """Bytes flipped, cut or put in anywhere: a picture with a true type, or a MediaError; never anything else."""
    kind = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"]))
    raw = bytearray(written(gradient(size=(16, 12)), kind))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        (done,) = prepare(said(image_part(bytes(raw))), TAKES, MediaLimits(max_total_pixels=1_000_000)).content
    except MediaError:
        return
    picture = shown(done)
    picture.load()
    assert picture.format in {"PNG", "JPEG"}
