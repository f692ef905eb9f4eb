"""Encoded images: are these bytes a picture?"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

MAX_PIXELS = 64_000_000
"""Far above any picture of the corpora; a small file that claims more is a decompression bomb."""
MAX_IMAGE_BYTES = 64 << 20
AT_A_TIME = 512
"""Images that are read into memory together, where their bytes are in a table."""


def image_defect(data: bytes | str, max_pixels: int | None = MAX_PIXELS) -> str | None:
    """Say why bytes or a file cannot be used as an image; None when they can.

    The picture is decoded once, at an eighth of its size where its format allows that (JPEG does), so that a truncated
    file is found when the corpus is built and not in the middle of a training.

    Args:
        data: The encoded image, or the path of its file.
        max_pixels: What is larger is refused before it is decoded; None for no limit.

    Examples:
        >>> image_defect(b"no picture")
        'not an image'
    """
    if isinstance(data, bytes) and len(data) > MAX_IMAGE_BYTES:
        return f"{len(data):,} bytes are more than an image may have"
    with _without_warnings():
        return _defect(data, max_pixels)


def image_defects(images: pa.ChunkedArray, most: int | None = None) -> dict[int, str]:
    """Which images cannot be used, and why: every one is decoded, on all cores.

    What has more pixels than ``PIL.Image.MAX_IMAGE_PIXELS`` is refused. A bar shows progress in a terminal.

    Args:
        images: Structures with ``bytes`` and ``path``, as `datasets.Image` stores them.
        most: Stop when so many are found.

    Returns:
        The reason for each row that has one.
    """
    found: dict[int, str] = {}
    check = partial(_stored_defect, max_pixels=Image.MAX_IMAGE_PIXELS)
    with (
        _without_warnings(),
        ThreadPoolExecutor() as pool,
        tqdm(total=len(images), desc="Checking images", unit="", disable=None) as progress,
    ):
        for start in range(0, len(images), AT_A_TIME):
            for row, defect in enumerate(pool.map(check, images[start : start + AT_A_TIME].to_pylist()), start):
                if defect is not None:
                    found[row] = defect
            progress.update(min(AT_A_TIME, len(images) - start))
            if most is not None and len(found) >= most:
                break
    return found


@contextmanager
def _without_warnings() -> Iterator[None]:
    """For all threads together: Pillow warns of large images, which are refused here, and of odd metadata."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        yield


def _stored_defect(image: Mapping[str, Any] | None, max_pixels: int | None) -> str | None:
    if image is None or (image["bytes"] is None and not image["path"]):
        return "no image is named"
    if image["bytes"] is not None:
        return _defect(image["bytes"], max_pixels)
    if "://" in image["path"]:  # within an archive, or far away
        from datasets import Image as Feature

        try:
            Feature().decode_example({"path": image["path"], "bytes": None})
        except Exception as error:  # whatever archives, the network or the image come up with
            return f"{type(error).__name__}: {error}"
        return None
    return _defect(image["path"], max_pixels)


def _defect(data: bytes | str, max_pixels: int | None) -> str | None:
    if isinstance(data, str) and not os.path.isfile(data):  # nor a pipe, for which one could wait for ever
        return "there is no such file"
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data) as image:
            width, height = image.size
            if max_pixels is not None and width * height > max_pixels:
                return f"{width} x {height} pixels are more than an image may have ({max_pixels:,})"
            image.draft("RGB", (max(1, width // 8), max(1, height // 8)))
            image.load()
            image.getexif()  # it is asked for the orientation when the image is used
    except UnidentifiedImageError:
        return "not an image" if (data if isinstance(data, bytes) else os.path.getsize(data)) else "empty file"
    except Exception as error:  # decoders raise whatever the bytes lead to: OSError, SyntaxError, struct.error, …
        return f"{type(error).__name__}: {error}"
    return None


def named_images(defects: Sequence[tuple[str, str]], most: int = 10) -> str:
    """The first images that cannot be used, with their reasons, and how many more there are.

    Examples:
        >>> named_images([("a.jpg", "empty file"), ("b.jpg", "not an image")], most=1)
        'a.jpg (empty file) and 1 more'
    """
    listed = ", ".join(f"{name} ({reason})" for name, reason in defects[:most])
    return listed + (f" and {len(defects) - most} more" if len(defects) > most else "")
