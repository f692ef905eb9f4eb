"""The study's image transforms, and the processor that does the same in a pipeline."""

from __future__ import annotations

from typing import Any, Literal

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def image_transform(
    size: int = 224,
    train: bool = False,
    num_ops: int = 2,
    magnitude: int = 9,
    augmentation: Literal["randaugment", "crop"] = "randaugment",
) -> Any:
    """From a PIL image to a normalised float tensor of shape (3, size, size).

    Evaluation is a plain resize to a square, as in the study; training puts RandAugment(2, 9) after it. Resizing comes
    first because augmenting 224 x 224 pixels is several times cheaper than augmenting a photograph. ``"crop"`` takes
    half of an image or more, perhaps mirrored, in its place: milder, and better for small images and few rows, though
    it may cut off objects whose labels stay.

    Args:
        size: Side of the square.
        train: Augment.
        num_ops: RandAugment's n: operations an image.
        magnitude: RandAugment's m: their strength, up to 30.
        augmentation: What `train` does to images.

    Returns:
        A `torchvision.transforms.v2.Compose`.

    Examples:
        >>> from PIL import Image
        >>> image_transform(size=32, train=True)(Image.new("RGB", (64, 48))).shape
        torch.Size([3, 32, 32])
    """
    import torch
    from torchvision.transforms import v2

    if size < 1:
        raise ValueError(f"size={size} has no pixels: pass a positive number, such as 224.")
    if augmentation not in ("randaugment", "crop"):
        raise ValueError(f"augmentation must be 'randaugment' or 'crop'; got {augmentation!r}.")
    steps = [v2.RGB(), v2.PILToTensor()]
    if train and augmentation == "crop":
        steps += [v2.RandomResizedCrop(size, scale=(0.5, 1.0), antialias=True), v2.RandomHorizontalFlip()]
    else:
        steps.append(v2.Resize((size, size), antialias=True))
    if train and augmentation == "randaugment":
        # Tensors resize faster, PIL images augment faster: the way there and back pays (docs/benchmarks.md).
        steps += [v2.ToPILImage(), v2.RandAugment(num_ops=num_ops, magnitude=magnitude), v2.PILToTensor()]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    return v2.Compose(steps)


def image_processor(size: int = 224) -> Any:
    """What `image_transform` does in evaluation, as an image processor: pipelines use it, and it is saved with a model.

    Args:
        size: Side of the square; the one that the features were extracted with.

    Returns:
        A `transformers.ViTImageProcessor`.

    Examples:
        >>> from PIL import Image
        >>> image_processor(size=32)(Image.new("RGB", (64, 48)), return_tensors="pt")["pixel_values"].shape
        torch.Size([1, 3, 32, 32])
    """
    from transformers import ViTImageProcessor

    if size < 1:
        raise ValueError(f"size={size} has no pixels: pass a positive number, such as 224.")
    return ViTImageProcessor(
        size={"height": size, "width": size},
        image_mean=list(IMAGENET_MEAN),
        image_std=list(IMAGENET_STD),
        do_convert_rgb=True,
    )
