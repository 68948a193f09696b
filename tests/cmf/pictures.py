"""Image files for tests, honest and hostile."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any

from PIL import Image

from cmf.enums import Role
from cmf.message.message import ImagePart, Message
from cmf.models.capabilities import ModelCapabilities

TAKES = ModelCapabilities(supports_images=True, accepted_image_media_types=("image/png", "image/jpeg"))
SECRET = b"SECRET-IN-METADATA"


def gradient(mode: str = "RGB", size: tuple[int, int] = (60, 40)) -> Image.Image:
    """A picture in which each corner differs."""
    across = Image.linear_gradient("L").resize(size)
    down = across.transpose(Image.Transpose.ROTATE_90).resize(size)
    return Image.merge("RGB", (across, down, Image.new("L", size, 40))).convert(mode)


def written(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The file of `image`."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def animated(kind: str) -> bytes:
    """A file with two frames."""
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
    return written(frames[0], kind, save_all=True, append_images=frames[1:])


def png_claiming(width: int, height: int) -> bytes:
    """A tiny PNG whose header claims a size that its data does not have."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


def oriented(kind: str = "JPEG") -> bytes:
    """A wide picture that EXIF says is to be shown tall, with a secret beside it."""
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate
    exif[0x010E] = SECRET.decode()  # description
    return written(gradient(), kind, exif=exif)


def image_part(raw: bytes, media_type: str | None = None) -> ImagePart:
    """An image part with these bytes."""
    return ImagePart(type="base64", data=base64.b64encode(raw).decode(), media_type=media_type)


def said(*parts: Any) -> Message:
    """A user message with these parts."""
    return Message(role=Role.USER, content=parts)


def raw_of(part: Any) -> bytes:
    """The bytes of a prepared part."""
    return base64.b64decode(part.data, validate=True)


def shown(part: Any) -> Image.Image:
    """The picture of a prepared part."""
    return Image.open(io.BytesIO(raw_of(part)))
