"""Encoded images: are these bytes a picture? And the study's way from a picture to a tensor."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from PIL import Image, UnidentifiedImageError
from tqdm import tqdm

MAX_PIXELS = 64_000_000
"""Far above any picture of the corpora; a small file that claims more is a decompression bomb."""
MAX_IMAGE_BYTES = 64 << 20
AT_A_TIME = 512
"""Images that are read into memory together, where their bytes are in a table."""
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def image_defect(data: bytes | str) -> str | None:
    """Say why an encoded image, or the file at a path, cannot be used; None when it can.

    The picture is decoded once, at an eighth of its size where its format allows that (JPEG does), so that a truncated
    file is found when the corpus is built and not in the middle of a training.

    Examples:
        >>> image_defect(b"no picture")
        'not an image'
    """
    if isinstance(data, bytes) and len(data) > MAX_IMAGE_BYTES:
        return f"{len(data):,} bytes are more than an image may have"
    with _without_warnings():
        return _defect(data, MAX_PIXELS)


def image_defects(images: pa.ChunkedArray, most: int | None = None) -> dict[int, str]:
    """Which images cannot be used, by row, and why: every one is decoded, on all cores, until `most` are found.

    They are structures with ``bytes`` and ``path``, as `datasets.Image` stores them. What has more pixels than
    ``PIL.Image.MAX_IMAGE_PIXELS`` is refused. A bar shows progress in a terminal.
    """
    found: dict[int, str] = {}
    with (
        _without_warnings(),
        ThreadPoolExecutor() as pool,
        tqdm(total=len(images), desc="Checking images", unit="", disable=None) as progress,
    ):
        for start in range(0, len(images), AT_A_TIME):
            defects = pool.map(_stored_defect, images[start : start + AT_A_TIME].to_pylist())
            found |= {row: defect for row, defect in enumerate(defects, start) if defect is not None}
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


def _stored_defect(image: Mapping[str, Any] | None) -> str | None:
    path, data = ("", None) if image is None else (image["path"] or "", image["bytes"])
    if data is None and "://" in path:  # within an archive, or far away
        from datasets import Image as Feature

        try:
            Feature().decode_example({"path": path, "bytes": None})
        except Exception as error:  # whatever archives, the network or the image come up with
            return f"{type(error).__name__}: {error}"
        return None
    return _defect(path if data is None else data, Image.MAX_IMAGE_PIXELS) if path or data else "no image is named"


def _defect(data: bytes | str, max_pixels: int | None) -> str | None:
    if isinstance(data, str) and not os.path.isfile(data):  # nor a pipe, for which one could wait forever
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


class Preprocessing(NamedTuple):
    """How a model wants its images: the side of the square, what colours are normalised by, how pixels are resized."""

    size: int = 224
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear"


def image_transform(
    size: int = 224,
    train: bool = False,
    num_ops: int = 2,
    magnitude: int = 9,
    augmentation: Literal["randaugment", "crop"] = "randaugment",
    *,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
) -> Any:
    """From a PIL image to a normalised float tensor of shape (3, size, size), as a `torchvision.transforms.v2.Compose`.

    Evaluation is a plain resize to a square, as in the study; training puts RandAugment(2, 9) after it. Resizing comes
    first because augmenting 224 x 224 pixels is several times cheaper than augmenting a photograph. ``"crop"`` takes
    half of an image or more, perhaps mirrored, in its place: milder, and better for small images and few rows, though
    it may cut off objects whose labels stay.

    `num_ops` and `magnitude` (up to 30) are RandAugment's n and m; `mean`, `std` and `interpolation` those that the
    backbone was trained with.

    Examples:
        >>> from PIL import Image
        >>> image_transform(size=32, train=True)(Image.new("RGB", (64, 48))).shape
        torch.Size([3, 32, 32])
    """
    import torch
    from torchvision.transforms import v2

    _check_size(size)
    if augmentation not in ("randaugment", "crop"):
        raise ValueError(f"augmentation must be 'randaugment' or 'crop'; got {augmentation!r}.")
    resize = {"antialias": True, "interpolation": v2.InterpolationMode(interpolation)}
    steps = [v2.RGB(), v2.PILToTensor()]
    if train and augmentation == "crop":
        steps += [v2.RandomResizedCrop(size, scale=(0.5, 1.0), **resize), v2.RandomHorizontalFlip()]
    else:
        steps.append(v2.Resize((size, size), **resize))
    if train and augmentation == "randaugment":
        # Tensors resize faster, PIL images augment faster: the way there and back pays (docs/benchmarks.md).
        steps += [v2.ToPILImage(), v2.RandAugment(num_ops=num_ops, magnitude=magnitude), v2.PILToTensor()]
    return v2.Compose([*steps, v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)])


def image_processor(
    size: int = 224,
    *,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    interpolation: Literal["nearest", "bilinear", "bicubic"] = "bilinear",
) -> Any:
    """What `image_transform` does in evaluation, as a `ViTImageProcessor`, which pipelines use and models come with.

    Examples:
        >>> from PIL import Image
        >>> image_processor(size=32)(Image.new("RGB", (64, 48)), return_tensors="pt")["pixel_values"].shape
        torch.Size([1, 3, 32, 32])
    """
    from transformers import ViTImageProcessor

    _check_size(size)
    square, resample = {"height": size, "width": size}, Image.Resampling[interpolation.upper()]
    return ViTImageProcessor(
        size=square, image_mean=list(mean), image_std=list(std), resample=resample, do_convert_rgb=True
    )


def _check_size(size: int) -> None:
    if size < 1:
        raise ValueError(f"size={size} has no pixels: pass a positive number, such as 224.")
