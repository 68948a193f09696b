"""Pictures out of bytes that nobody vouches for, and clean bytes out of pictures. Spec: docs/spec/media.md.

What comes out was written here, from pixels alone: no metadata, no second file behind the first, no other frame.
Pillow reads; it is shown only the one format that the first bytes are of, and only after the header's size was checked.
"""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from cmf.errors import MediaError, needs

with needs("media"):
    from PIL import (
        BmpImagePlugin,
        GifImagePlugin,
        Image,
        ImageOps,
        JpegImagePlugin,
        PngImagePlugin,
        TiffImagePlugin,
        WebPImagePlugin,
    )

READABLE: Final = {
    "image/bmp": BmpImagePlugin.BmpImageFile.format,
    "image/gif": GifImagePlugin.GifImageFile.format,
    "image/jpeg": JpegImagePlugin.JpegImageFile.format,
    "image/png": PngImagePlugin.PngImageFile.format,
    "image/tiff": TiffImagePlugin.TiffImageFile.format,
    "image/webp": WebPImagePlugin.WebPImageFile.format,
}
WRITABLE: Final = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
"""In the order of preference for what has alpha or few colours, by Pillow's names."""
_PHOTOS: Final = ("image/jpeg", "image/webp", "image/tiff")  # sources whose pixels a lossy writer keeps well

MAX_JPEG_SCANS: Final = 100  # progressive encoders write about 10; each scan costs a pass over all pixels
_QUALITIES: Final = (90, 75, 55)
_SHRINK: Final = 0.7  # of each edge, when even the lowest quality is too many bytes
_SHRINK_ROUNDS: Final = 8  # to a twentieth of each edge


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """What a picture may be, going in and coming out.

    Attributes:
        max_pixels: width times height of a source; more is refused before a pixel is decoded.
        max_edge: the longer edge of what comes out, in pixels; longer is scaled down.
        max_output_bytes: of what comes out; more is written smaller.
        first_frame_only: take the first frame of an animation, instead of refusing it.
    """

    max_pixels: int = 40_000_000  # 160 MB when decoded, the most that one picture may cost
    max_edge: int = 8_000  # the longest that the strictest provider takes
    max_output_bytes: int = 3_750_000  # 5 MB as base64, the least that a provider takes
    first_frame_only: bool = False


class Picture(NamedTuple):
    """Clean bytes, their true media type, and how many pixels the source had."""

    data: bytes
    media_type: str
    source_pixels: int


def redraw(raw: bytes, media_type: str, *, accepted: Collection[str], limits: ImageLimits) -> Picture:
    """The picture that `raw` (of sniffed type `media_type`) shows, upright, written anew as an accepted type.

    Raises:
        MediaError: media.unreadable-type, media.too-many-pixels, media.too-many-scans, media.animated, media.damaged,
            media.not-accepted, media.does-not-fit.
    """
    if media_type not in READABLE:
        raise MediaError("not an image type that is read here", code="media.unreadable-type", hint="send PNG or JPEG")
    if not any(kind in accepted for kind in WRITABLE):
        raise MediaError(
            "the target takes no image type that is written here", code="media.not-accepted", hint="ask another model"
        )
    if media_type == "image/jpeg" and raw.count(b"\xff\xda") > MAX_JPEG_SCANS:
        raise MediaError(f"more than {MAX_JPEG_SCANS} scans", code="media.too-many-scans", hint="save it anew")
    try:
        picture, pixels = _decoded(raw, READABLE[media_type], limits)
        data, kind = _encoded(picture, _target(picture, media_type, accepted), limits)
    except MediaError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_many(limits) from None
    except Exception:  # noqa: BLE001  (a reader of hostile files raises what it likes; none of it may pass)
        raise MediaError("the image cannot be read to its end", code="media.damaged", hint="save it anew") from None
    return Picture(data, kind, pixels)


def _decoded(raw: bytes, file_format: str, limits: ImageLimits) -> tuple[Image.Image, int]:
    with Image.open(io.BytesIO(raw), formats=(file_format,)) as source:
        pixels = source.width * source.height
        if pixels > limits.max_pixels:
            raise _too_many(limits)
        # A JPEG with a second picture is a camera's preview or depth map, not an animation.
        if getattr(source, "is_animated", False) and file_format != "JPEG" and not limits.first_frame_only:
            raise MediaError("more than one frame", code="media.animated", hint="send the one frame that matters")
        source.load()
        return _plain(ImageOps.exif_transpose(source), limits.max_edge), pixels


def _plain(image: Image.Image, max_edge: int) -> Image.Image:
    """The pixels alone: grey, RGB or RGBA with eight bits a channel, no longer than `max_edge`."""
    if image.mode.startswith("I;16"):
        image = image.convert("I").point(lambda value: value * (1 / 256)).convert("L")
    elif image.mode in ("I", "F"):
        raise MediaError("pixels of 32 bits a channel", code="media.unreadable-type", hint="send PNG or JPEG")
    if image.has_transparency_data:
        image = image.convert("RGBA")
    else:
        image = image.convert("L" if image.mode in ("1", "L") else "RGB")
    image.info.clear()
    image.thumbnail((max_edge, max_edge))
    return image


def _target(image: Image.Image, media_type: str, accepted: Collection[str]) -> str:
    if media_type in WRITABLE and media_type in accepted:
        return media_type
    photo = image.mode == "RGB" and media_type in _PHOTOS
    order = ("image/jpeg", *WRITABLE) if photo else WRITABLE
    return next(kind for kind in order if kind in accepted)


def _encoded(image: Image.Image, kind: str, limits: ImageLimits) -> tuple[bytes, str]:
    for _ in range(_SHRINK_ROUNDS):
        for quality in (None,) if kind == "image/png" else _QUALITIES:
            data = _written(image, kind, quality)
            if len(data) <= limits.max_output_bytes:
                return data, kind
        smaller = (max(1, round(image.width * _SHRINK)), max(1, round(image.height * _SHRINK)))
        image = image.resize(smaller)
    raise MediaError(
        f"no smaller copy has {limits.max_output_bytes} bytes", code="media.does-not-fit", hint="raise the limit"
    )


def _written(image: Image.Image, kind: str, quality: int | None) -> bytes:
    if kind == "image/jpeg" and image.mode == "RGBA":
        ground = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(ground, image).convert("RGB")
    out = io.BytesIO()
    image.save(out, format=WRITABLE[kind], **({} if quality is None else {"quality": quality}))
    return out.getvalue()


def _too_many(limits: ImageLimits) -> MediaError:
    return MediaError(
        f"more than {limits.max_pixels} pixels", code="media.too-many-pixels", hint="send a smaller image"
    )
