"""MS-COCO 2014: photographs with the kinds of objects in them."""

from __future__ import annotations

import re

from hf_mlcl.data.builder import IMAGE_OPTIONS, CorpusBuilder, LabelNames, Plan
from hf_mlcl.data.errors import CorpusFormatError
from hf_mlcl.data.facts import CorpusFacts, RemoteFile, SplitSizes, StudyStatistics
from hf_mlcl.data.json_stream import elements
from hf_mlcl.data.sources import Member, SourceTree

ANNOTATIONS = re.compile(r"(?:.*/)?instances_(train|val)2014\.json")
IMAGE = re.compile(r"(?:.*/)?(COCO_(?:train|val)2014_\d+\.jpg)")

FACTS = CorpusFacts(
    name="coco2014",
    kind="image",
    summary="Photographs of everyday scenes labelled with the kinds of objects in them, of 80 kinds.",
    homepage="https://cocodataset.org",
    license="annotations CC BY 4.0; images under Flickr's terms of use",
    citation="""@inproceedings{lin2014microsoft,
  title = {Microsoft {COCO}: Common Objects in Context},
  author = {Lin, Tsung-Yi and Maire, Michael and Belongie, Serge and Hays, James and Perona, Pietro and Ramanan, Deva
            and Doll{\\'a}r, Piotr and Zitnick, C. Lawrence},
  booktitle = {ECCV},
  year = {2014}
}""",
    study=StudyStatistics("82.0k / 20.2k / 20.2k", 80, 2.9, "16.4k / 20.2k / 20.2k"),
    files=(
        RemoteFile(
            "train2014.zip",
            "http://images.cocodataset.org/zips/train2014.zip",
            md5="0da8c0bd3d6becc4dcb32757491aca88",
        ),
        RemoteFile(
            "val2014.zip", "http://images.cocodataset.org/zips/val2014.zip", md5="a3d79f5ed8d289b7a7554ce06a5782b3"
        ),
        RemoteFile(
            "annotations_trainval2014.zip",
            "http://images.cocodataset.org/annotations/annotations_trainval2014.zip",
        ),
    ),
    manual=(
        "put train2014.zip, val2014.zip and annotations_trainval2014.zip, or the folders train2014, val2014 and "
        "annotations that they unpack to, into a folder."
    ),
    sizes=SplitSizes(82_081, 20_068, 20_069),
    small_sizes=SplitSizes(16_416, 20_068, 20_069),
)


class Coco2014(CorpusBuilder):
    """Trains on `train2014`; halves `val2014`. Images without an annotated object are dropped."""

    FACTS = FACTS
    OPTIONS = {**CorpusBuilder.OPTIONS, **IMAGE_OPTIONS}  # noqa: RUF012

    def plan(self, sources: SourceTree) -> Plan:
        """Reads the annotations as a stream; images follow when they are needed."""
        parts: dict[str, dict[str, LabelNames]] = {}
        names: list[str] = []
        for member in sources.walk(lambda name: ANNOTATIONS.fullmatch(name) is not None):
            match = ANNOTATIONS.fullmatch(member.name)
            assert match is not None
            found, parts[match[1]] = read_annotations(member)
            if names and found != names:
                raise CorpusFormatError(f"{member.origin} has other categories than the annotations read before it.")
            names = found
        for part in ("train", "val"):
            if not parts.get(part):
                raise self.missing(f"instances_{part}2014.json with annotations was")
        return Plan(names, self.image_splits(parts["train"], parts["val"], image_key))


def read_annotations(member: Member) -> tuple[list[str], dict[str, LabelNames]]:
    """The names of the categories in the order of their ids, and the labels of each annotated image."""
    files: dict[int, str] = {}
    categories: dict[int, str] = {}
    present: dict[int, set[int]] = {}
    try:
        for key, value in elements(member):
            if key == "images":
                files[value["id"]] = value["file_name"]
            elif key == "categories":
                categories[value["id"]] = value["name"]
            elif key == "annotations":
                present.setdefault(value["image_id"], set()).add(value["category_id"])
        labels = {
            files[image]: tuple(categories[category] for category in sorted(kinds))
            for image, kinds in sorted(present.items())
        }
    except (KeyError, TypeError) as error:
        raise CorpusFormatError(
            f"{member.origin}: an image, a category or an annotation lacks or refers to {error}, which is not there."
        ) from error
    return [categories[number] for number in sorted(categories)], labels


def image_key(name: str) -> str:
    """The file name of an image; empty for other files."""
    match = IMAGE.fullmatch(name)
    return match[1] if match else ""
