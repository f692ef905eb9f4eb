"""MS-COCO 2014: photographs with the kinds of objects in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import ijson

from hf_mlcl.data.builder import CorpusBuilder, LabelNames, Plan
from hf_mlcl.data.errors import CorpusFileError, CorpusFormatError
from hf_mlcl.data.sources import Member, SourceTree

IMAGE = re.compile(r"(?:.*/)?(COCO_(?:train|val)2014_\d+\.jpg)")


class Coco2014(CorpusBuilder):
    """Trains on `train2014`; halves `val2014`. Images without an annotated object are dropped."""

    def plan(self, sources: SourceTree) -> Plan:
        """Reads the annotations as a stream; images follow when they are needed."""
        names: list[str] = []
        parts: list[dict[str, LabelNames]] = []
        for file in ("instances_train2014.json", "instances_val2014.json"):
            found = sources.find(re.escape(file))
            if not found:
                raise self.missing(f"{file} was")
            with sources.open_one(found[file]) as member:
                categories, labels = read_annotations(member)
            if names and categories != names:
                raise CorpusFormatError(f"{member.origin} has other categories than the annotations read before it.")
            if not labels:
                raise self.missing(f"{file} has no annotations; one with annotations was")
            names = categories
            parts.append(labels)
        return Plan(names, self.image_splits(parts[0], parts[1], IMAGE))


def read_annotations(member: Member) -> tuple[list[str], dict[str, LabelNames]]:
    """The names of the categories in the order of their ids, and the labels of each annotated image.

    The file is read element by element: as Python objects, all annotations would fill gigabytes.
    """
    present: dict[int, set[int]] = {}
    try:
        files, categories = (
            {value["id"]: value[name] for value in _elements(member, key)}
            for key, name in (("images", "file_name"), ("categories", "name"))
        )
        for value in _elements(member, "annotations"):
            present.setdefault(value["image_id"], set()).add(value["category_id"])
        labels = {
            files[image]: tuple(categories[category] for category in sorted(kinds))
            for image, kinds in sorted(present.items())
        }
    except (KeyError, TypeError) as error:
        raise CorpusFormatError(
            f"{member.origin}: an image, a category or an annotation lacks or refers to {error}, which is not there."
        ) from error
    except ijson.JSONError as error:
        reason = " ".join(str(error).split())
        raise CorpusFileError(
            f"{member.origin} is truncated or not the JSON it should be: {reason}.", member.path
        ) from error
    return [categories[number] for number in sorted(categories)], labels


def _elements(member: Member, key: str) -> Iterator[dict[str, Any]]:
    with member.open() as stream:
        yield from ijson.items(stream, f"{key}.item", use_float=True, buf_size=1 << 20)
