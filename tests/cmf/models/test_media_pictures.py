"""Pictures read from hostile bytes, and what is written instead of them."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from typing import Any

import pytest
from PIL import Image
from tests.cmf.pictures import SECRET, animated, gradient, oriented, png_claiming, written

from cmf.errors import MediaError
from cmf.message.binary import sniff
from cmf.models.media import ImageLimits, Picture, redraw

PNG_OR_JPEG = ("image/png", "image/jpeg")
LIMITS = ImageLimits()


def drawn(raw: bytes, accepted: tuple[str, ...] = PNG_OR_JPEG, **limits: Any) -> Picture:
    return redraw(raw, str(sniff(raw)), accepted=accepted, limits=ImageLimits(**limits))


def refusal(raw: bytes, accepted: tuple[str, ...] = PNG_OR_JPEG, **limits: Any) -> str:
    with pytest.raises(MediaError) as caught:
        drawn(raw, accepted, **limits)
    return caught.value.code


def opened(picture: Picture) -> Image.Image:
    return Image.open(io.BytesIO(picture.data))


@pytest.mark.spec("MED-7")
@pytest.mark.parametrize("size", [(8_000, 8_000), (40_000_001, 1), (2**31 - 1, 2**31 - 1)])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_a_bomb_is_refused_by_its_header(size: tuple[int, int]) -> None:
    bomb = png_claiming(*size)

    tracemalloc.start()
    code = refusal(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert code == "media.too-many-pixels"
    assert peak < 1_000_000


@pytest.mark.spec("MED-7")
def test_the_limit_of_pixels_is_exact() -> None:
    raw = written(gradient(size=(60, 40)), "PNG")

    assert drawn(raw, max_pixels=2_400).source_pixels == 2_400
    assert refusal(raw, max_pixels=2_399) == "media.too-many-pixels"


@pytest.mark.spec("MED-7")
def test_a_jpeg_of_endless_scans_is_refused() -> None:
    raw = written(gradient(), "JPEG", progressive=True)
    start = raw.index(b"\xff\xda")

    assert refusal(raw[:start] + raw[start:-2] * 101) == "media.too-many-scans"
    assert drawn(raw).media_type == "image/jpeg"


@pytest.mark.spec("MED-9")
@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_an_animation_is_refused_or_is_its_first_frame(kind: str) -> None:
    raw = animated(kind)

    assert refusal(raw) == "media.animated"
    picture = opened(drawn(raw, ("image/png",), first_frame_only=True)).convert("RGB")
    assert picture.getpixel((5, 5))[0] > 250  # lossy formats keep red only about


@pytest.mark.spec("MED-9")
def test_the_preview_inside_a_photograph_is_no_animation() -> None:
    raw = written(gradient(), "MPO", save_all=True, append_images=[gradient(size=(8, 8))])

    assert opened(drawn(raw)).size == (60, 40)


@pytest.mark.spec("MED-8")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_an_image_that_ends_early_is_refused(kind: str, share: float) -> None:
    raw = written(gradient(size=(200, 150)), kind)

    assert refusal(raw[: int(len(raw) * share)]) in {"media.damaged", "media.too-many-pixels"}


@pytest.mark.spec("MED-8")
def test_a_header_without_an_image_is_refused() -> None:
    assert refusal(b"\xff\xd8\xff") == "media.damaged"
    assert refusal(b"GIF89a" + bytes(100)) == "media.damaged"
    assert refusal(png_claiming(100, 100)) == "media.damaged"


@pytest.mark.spec("MED-4")
@pytest.mark.parametrize("kind", ["image/svg+xml", "image/heic", "image/avif", "application/pdf", "image/x-eps"])
def test_what_has_no_reader_here_is_refused(kind: str) -> None:
    with pytest.raises(MediaError) as caught:
        redraw(b"%!PS", kind, accepted=PNG_OR_JPEG, limits=LIMITS)

    assert caught.value.code == "media.unreadable-type"


@pytest.mark.spec("MED-4")
def test_a_file_is_read_only_as_what_its_first_bytes_are() -> None:
    with pytest.raises(MediaError) as caught:
        redraw(written(gradient(), "PNG"), "image/jpeg", accepted=PNG_OR_JPEG, limits=LIMITS)

    assert caught.value.code == "media.damaged"


@pytest.mark.spec("MED-3")
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_second_file_behind_the_image_does_not_come_out(kind: str) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("payload.txt", SECRET)
    raw = written(gradient(), kind) + archive.getvalue()

    data = drawn(raw, ("image/png", "image/jpeg", "image/webp")).data

    assert zipfile.is_zipfile(io.BytesIO(raw))
    assert not zipfile.is_zipfile(io.BytesIO(data))
    assert SECRET not in data


@pytest.mark.spec("MED-3")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_is_applied_and_all_metadata_is_gone(kind: str) -> None:
    raw = oriented(kind)

    picture = drawn(raw, ("image/png", "image/jpeg", "image/webp"))

    assert SECRET in raw
    assert SECRET not in picture.data
    assert opened(picture).size == (40, 60)
    assert not opened(picture).getexif()


@pytest.mark.spec("MED-3")
def test_comments_profiles_and_text_are_gone() -> None:
    profile = SECRET * 10
    jpeg = written(gradient(), "JPEG", icc_profile=profile, comment=SECRET)
    png = written(gradient(), "PNG", icc_profile=profile)

    assert SECRET in jpeg
    assert SECRET not in drawn(jpeg).data
    assert "icc_profile" in Image.open(io.BytesIO(png)).info
    assert opened(drawn(png)).info == {}


@pytest.mark.spec("MED-3")
def test_the_same_bytes_give_the_same_bytes() -> None:
    raw = oriented()

    assert drawn(raw) == drawn(raw)


@pytest.mark.spec("MED-4")
@pytest.mark.parametrize(
    ("raw", "mode", "media_type"),
    [
        (written(gradient("CMYK"), "JPEG"), "RGB", "image/jpeg"),
        (written(gradient("L"), "JPEG"), "L", "image/jpeg"),
        (written(gradient("P"), "PNG"), "RGB", "image/png"),
        (written(gradient("1"), "PNG"), "L", "image/png"),
        (written(gradient("LA"), "PNG"), "RGBA", "image/png"),
        (written(gradient("P"), "PNG", transparency=3), "RGBA", "image/png"),
        (written(gradient("RGB"), "BMP"), "RGB", "image/png"),
        (written(gradient("RGB"), "TIFF"), "RGB", "image/jpeg"),
        (written(gradient("CMYK"), "TIFF"), "RGB", "image/jpeg"),
    ],
)
def test_any_kind_of_pixel_becomes_a_plain_one(raw: bytes, mode: str, media_type: str) -> None:
    picture = drawn(raw)

    assert (opened(picture).mode, picture.media_type, sniff(picture.data)) == (mode, media_type, media_type)


@pytest.mark.spec("MED-4")
def test_sixteen_bits_a_channel_become_eight_without_losing_the_picture() -> None:
    deep = Image.new("I;16", (2, 1))
    deep.putpixel((0, 0), 0x8000)
    deep.putpixel((1, 0), 0xFFFF)

    picture = opened(drawn(written(deep, "PNG")))

    assert [picture.getpixel((x, 0)) for x in (0, 1)] == [0x80, 0xFF]


@pytest.mark.spec("MED-4")
@pytest.mark.parametrize("mode", ["I", "F"])
def test_measurements_are_no_picture(mode: str) -> None:
    assert refusal(written(Image.new(mode, (4, 4)), "TIFF")) == "media.unreadable-type"


@pytest.mark.spec("MED-5")
@pytest.mark.parametrize(
    ("source", "accepted", "media_type"),
    [
        ("WEBP", ("image/webp", "image/png"), "image/webp"),
        ("WEBP", PNG_OR_JPEG, "image/jpeg"),
        ("GIF", ("image/gif", *PNG_OR_JPEG), "image/png"),
        ("GIF", ("image/jpeg",), "image/jpeg"),
        ("JPEG", ("image/png",), "image/png"),
        ("PNG", ("image/webp",), "image/webp"),
    ],
)
def test_the_type_is_kept_or_is_one_that_the_target_takes(
    source: str, accepted: tuple[str, ...], media_type: str
) -> None:
    picture = drawn(written(gradient(), source), accepted)

    assert (picture.media_type, sniff(picture.data)) == (media_type, media_type)


@pytest.mark.spec("MED-5")
@pytest.mark.parametrize("accepted", [(), ("image/gif",), ("image/bmp", "image/tiff")])
def test_a_target_that_takes_nothing_that_is_written_here_refuses(accepted: tuple[str, ...]) -> None:
    assert refusal(written(gradient(), "PNG"), accepted) == "media.not-accepted"


@pytest.mark.spec("MED-5")
def test_transparency_is_white_where_the_target_has_none() -> None:
    clear = written(Image.new("RGBA", (8, 8), (255, 0, 0, 0)), "PNG")

    assert opened(drawn(clear, ("image/jpeg",))).getpixel((4, 4)) == (255, 255, 255)


@pytest.mark.spec("MED-6")
def test_a_long_edge_is_scaled_down_in_proportion() -> None:
    assert opened(drawn(written(gradient(size=(600, 300)), "PNG"), max_edge=200)).size == (200, 100)
    assert opened(drawn(written(gradient(size=(3000, 1)), "PNG"), max_edge=100)).size == (100, 1)


@pytest.mark.spec("MED-6")
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_too_many_bytes_are_written_smaller(kind: str) -> None:
    noise = written(Image.effect_noise((200, 200), 90), kind)

    picture = drawn(noise, max_output_bytes=5_000)

    assert len(picture.data) <= 5_000 < len(noise)
    assert picture.media_type == f"image/{kind.lower()}"


@pytest.mark.spec("MED-6")
def test_what_does_not_fit_however_small_is_refused() -> None:
    assert refusal(written(gradient(), "PNG"), max_output_bytes=40) == "media.does-not-fit"
