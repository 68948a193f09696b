"""Media as a model may be sent it: base64 of bytes that are what they say, within bounds. Spec: docs/spec/media.md.

Pure: what has to be fetched or opened was fetched or opened before (`pipeline.media.media_pipeline`).
"""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from cmf.errors import MediaError, needs
from cmf.message import binary
from cmf.message.message import AudioPart, DocumentPart, ImagePart, MediaPart, Message, Part, ResourcePart, VideoPart
from cmf.message.request import Request, Response
from cmf.message.transform import map_parts
from cmf.models.capabilities import ModelCapabilities

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

# What the bytes of a part may be, by the beginning of the sniffed type. Containers hold sound, pictures or both.
_KINDS: Final[Mapping[type[Part], tuple[str, ...]]] = {
    ImagePart: ("image/",),
    AudioPart: ("audio/", "video/mp4", "video/webm"),
    VideoPart: ("video/", "audio/ogg"),
    DocumentPart: ("application/pdf", "application/zip", "text/plain"),
}
_SOUND_IN: Final = {"video/mp4": "audio/mp4", "video/webm": "audio/webm"}

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
_QUALITIES: Final = ({"quality": 90}, {"quality": 75}, {"quality": 55})
_SHRINK: Final = 0.7  # of each edge, when even the lowest quality is too many bytes
_SHRINK_ROUNDS: Final = 8  # to a twentieth of each edge

_T = TypeVar("_T", bound=Message | Request | Response)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ImageLimits:
    """What a picture may be, going in (`max_pixels`, refused before a pixel is decoded) and coming out.

    What has a longer edge, in pixels, is scaled down; what has more bytes is written smaller. With `first_frame_only`,
    an animation gives its first frame, instead of being refused.
    """

    max_pixels: int = 40_000_000  # 160 MB when decoded, the most that one picture may cost
    max_edge: int = 8_000  # the longest that the strictest provider takes
    max_output_bytes: int = 3_750_000  # 5 MB as base64, the least that a provider takes
    first_frame_only: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MediaLimits:
    """Bounds on the media of one value: the bytes of one source, decoded, and bounds of each image.

    All source images together have at most `max_total_pixels`: each costs time in proportion.
    """

    max_bytes: int = 20 * 1024 * 1024
    max_total_pixels: int = 400_000_000
    image: ImageLimits = dataclasses.field(default_factory=ImageLimits)


def prepare(value: _T, capabilities: ModelCapabilities, limits: MediaLimits | None = None) -> _T:
    """`value` with all its media as the target takes it: `type: base64`, true media type, images redrawn.

    Images inside tool results, rendered prompts and resources are media too. What is no image is checked and kept as
    it is. A part that changes leaves its wire extras behind.

    Raises:
        MediaError: a part that cannot be accepted, with its path; see [MED-2] ff. for the codes.
    """
    return map_parts(value, _Preparation(capabilities, limits or MediaLimits()).part)


def bytes_of(part: MediaPart) -> bytes:
    """The bytes that a part carries itself: base64, or a `data:` URL.

    Raises:
        MediaError: media.not-base64; media.not-resolved where the bytes are elsewhere.
    """
    text = part.data
    if part.type == "url" and text[:5].lower() == "data:":
        head, _, text = text.partition(",")
        if not head.lower().endswith(";base64"):
            raise MediaError(
                "a data URL that is not base64", code="media.not-base64", hint="encode it as data:<type>;base64,<data>"
            )
    elif part.type != "base64":
        raise MediaError("the bytes are not in the message", code="media.not-resolved", hint="resolve it first")
    raw = binary.decoded(text)
    if raw is None:
        raise MediaError("the data is not base64", code="media.not-base64", hint="encode the bytes as base64")
    return raw


def carries_bytes(part: Part) -> bool:
    """Whether a media part carries its bytes itself, so that nothing needs to be fetched or opened."""
    return isinstance(part, MediaPart) and (part.type == "base64" or part.data[:5].lower() == "data:")


def with_bytes(part: MediaPart, raw: bytes) -> MediaPart:
    """The part with `raw` itself in place of where it was."""
    carried: MediaPart = part.edited(type="base64", data=base64.b64encode(raw).decode("ascii"))
    return carried


class _Preparation:
    """One value's media; images draw on one budget of pixels."""

    def __init__(self, capabilities: ModelCapabilities, limits: MediaLimits) -> None:
        self._accepted = capabilities.accepted_image_media_types if capabilities.supports_images else ()
        self._limits = limits
        self._pixels_left = limits.max_total_pixels

    def part(self, part: Part, path: str) -> Part:
        try:
            if isinstance(part, MediaPart):
                return self._media(part)
            if isinstance(part, ResourcePart) and part.blob is not None:
                return self._resource(part, part.blob)
        except MediaError as error:
            raise error.at(path) from None
        return part

    def _media(self, part: MediaPart) -> Part:
        raw, declared = bytes_of(part), _declared(part)
        kind = self._true_type(raw, declared)
        if not kind.startswith(_KINDS[type(part)]):
            raise MediaError(
                f"{kind} is not a kind of {part.content_type.value}",
                code="media.wrong-kind",
                hint="send it in the part for its kind",
            )
        if isinstance(part, ImagePart):
            raw, kind = self._image(raw, kind)
        elif declared is not None:  # as declared, where that is a closer word for what the bytes are
            kind = declared.partition(";")[0].strip().lower()
        elif isinstance(part, AudioPart):
            kind = _SOUND_IN.get(kind, kind)
        return _changed(part, type="base64", data=base64.b64encode(raw).decode("ascii"), media_type=kind)

    def _resource(self, part: ResourcePart, blob: bytes) -> Part:
        kind = self._true_type(blob, part.mime_type)
        if not kind.startswith("image/"):
            return part
        data, kind = self._image(blob, kind)
        size = None if part.size_bytes is None else len(data)
        return _changed(part, blob=data, mime_type=kind, size_bytes=size)

    def _true_type(self, raw: bytes, declared: str | None) -> str:
        if not raw:
            raise MediaError("no bytes", code="media.empty", hint="send the bytes, or leave the part out")
        if len(raw) > self._limits.max_bytes:
            raise MediaError(
                f"more than {self._limits.max_bytes} bytes",
                code="media.too-large",
                hint="send a smaller one, or raise MediaLimits.max_bytes",
            )
        kind = binary.sniff(raw)
        if kind is None:
            raise MediaError(
                "the bytes are of no known type", code="media.unknown-type", hint="convert it to a type that is known"
            )
        if declared is not None and not binary.agrees(declared, kind):
            raise MediaError(
                f"the bytes are {kind}, not what was declared",
                code="media.type-mismatch",
                hint="declare the type that the bytes have",
            )
        return kind

    def _image(self, raw: bytes, kind: str) -> tuple[bytes, str]:
        limits = self._limits.image
        if self._pixels_left < limits.max_pixels:
            limits = dataclasses.replace(limits, max_pixels=self._pixels_left)
        picture = redraw(raw, kind, accepted=self._accepted, limits=limits)
        self._pixels_left -= picture.source_pixels
        return picture.data, picture.media_type


def _declared(part: MediaPart) -> str | None:
    """The type that the part claims, or that its data URL does; with both, they have to agree with the bytes alike."""
    if part.media_type is not None:
        return part.media_type
    if part.type != "url":
        return None
    return part.data[len("data:") : part.data.index(",")].partition(";")[0] or None


def _changed(part: Part, **fields: Any) -> Part:
    unchanged = all(getattr(part, name) == new for name, new in fields.items())
    changed: Part = part if unchanged else part.edited(**fields)
    return changed


# -- pictures ----------------------------------------------------------------------------------------------------------
# What comes out was written here, from pixels alone: no metadata, no second file behind the first, no other frame.
# Pillow reads; it is shown only the one format that the first bytes are of, and only after the header's size was
# checked.


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
        data, kind = _encoded(picture, media_type, accepted, limits)
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


def _encoded(image: Image.Image, media_type: str, accepted: Collection[str], limits: ImageLimits) -> tuple[bytes, str]:
    """The picture as its own type, or else the accepted one that keeps it best; smaller if it is too many bytes."""
    photo = ("image/jpeg",) if image.mode == "RGB" and media_type in _PHOTOS else ()
    kind = next(kind for kind in (media_type, *photo, *WRITABLE) if kind in WRITABLE and kind in accepted)
    for _ in range(_SHRINK_ROUNDS):
        shown = image
        if kind == "image/jpeg" and image.mode == "RGBA":
            ground = Image.new("RGBA", image.size, "white")
            shown = Image.alpha_composite(ground, image).convert("RGB")
        for quality in ({},) if kind == "image/png" else _QUALITIES:
            out = io.BytesIO()
            shown.save(out, format=WRITABLE[kind], **quality)
            if len(data := out.getvalue()) <= limits.max_output_bytes:
                return data, kind
        image = image.resize((max(1, round(image.width * _SHRINK)), max(1, round(image.height * _SHRINK))))
    raise MediaError(
        f"no smaller copy has {limits.max_output_bytes} bytes", code="media.does-not-fit", hint="raise the limit"
    )


def _too_many(limits: ImageLimits) -> MediaError:
    return MediaError(
        f"more than {limits.max_pixels} pixels", code="media.too-many-pixels", hint="send a smaller image"
    )
