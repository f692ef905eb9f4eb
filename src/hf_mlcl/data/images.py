"""Encoded images: are these bytes a picture?"""

from __future__ import annotations

import io
import warnings

from PIL import Image, UnidentifiedImageError

MAX_PIXELS = 64_000_000
"""Far above any picture of the corpora; a small file that claims more is a decompression bomb."""
MAX_IMAGE_BYTES = 64 << 20


def image_defect(data: bytes) -> str | None:
    """Say why bytes cannot be used as an image; None when they can.

    The picture is decoded once, at an eighth of its size where its format allows that (JPEG does), so that a truncated
    file is found when the corpus is built and not in the middle of a training.

    Examples:
        >>> image_defect(b"no picture")
        'not an image'
    """
    if len(data) > MAX_IMAGE_BYTES:
        return f"{len(data):,} bytes are more than an image may have"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data)) as image:
                width, height = image.size
                if width * height > MAX_PIXELS:
                    return f"{width} x {height} pixels are more than an image may have"
                image.draft("RGB", (width // 8, height // 8))
                image.load()
    except UnidentifiedImageError:
        return "not an image" if data else "empty file"
    except (OSError, SyntaxError, ValueError, EOFError, MemoryError, Image.DecompressionBombError) as error:
        return f"{type(error).__name__}: {error}"
    return None
