"""PASCAL VOC 2007: photographs with the kinds of objects in them."""

from __future__ import annotations

import re

import datasets

from hf_mlcl.data.builder import CorpusBuilder, LabelNames, Plan
from hf_mlcl.data.errors import CorpusFormatError
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.splits import halves, study_halves

THIS_YEAR = r"(?!(?:.*/)?VOC(?!2007/)\d{4}/)(?:.*/)?"
"""Folders on the way to a file; a `VOCdevkit` often holds other years of the challenge too, in the same layout."""
ID_LIST = re.compile(rf"{THIS_YEAR}ImageSets/Main/(trainval|test)\.txt")
ANNOTATION = re.compile(rf"{THIS_YEAR}Annotations/([^/]+)\.xml")
IMAGE = re.compile(rf"{THIS_YEAR}JPEGImages/([^/]+\.jpg)")
ID = re.compile(r"\d{6}")


class Voc2007(CorpusBuilder):
    """Trains on `trainval`; halves `test`.

    The challenge does not score objects that the annotators flagged as difficult; the authors of the study count them
    as present. So do we, unless the option `difficult` says otherwise.
    """

    VERSION = datasets.Version("1.1.0")

    def plan(self, sources: SourceTree) -> Plan:
        """Reads the lists of ids and every annotation; images follow when they are needed."""
        ids: dict[str, list[str]] = {"trainval": [], "test": []}
        present: dict[str, LabelNames] = {}
        ignored: dict[str, LabelNames] = {}
        for member in sources.walk(lambda name: ID_LIST.fullmatch(name) or ANNOTATION.fullmatch(name)):
            if listed := ID_LIST.fullmatch(member.name):
                ids[listed[1]] = list(dict.fromkeys(text.split()[0] for _, text in member.lines() if text.strip()))
                other = next((name for name in ids[listed[1]] if not ID.fullmatch(name)), None)
                if other is not None:
                    raise CorpusFormatError(
                        f"{member.origin} lists {other!r}, expected ids of six digits: it seems to be of another year. "
                        f"Give the folder of VOC2007, or the VOCdevkit that holds it."
                    )
            elif annotated := ANNOTATION.fullmatch(member.name):
                easy, every = object_names(member)
                present[annotated[1]] = every if self.option("difficult") == "present" else easy
                ignored[f"{annotated[1]}.jpg"] = tuple(name for name in every if name not in easy)
        for part, names in ids.items():
            if not names:
                raise self.missing(f"ImageSets/Main/{part}.txt was")
            if without := [name for name in names if name not in present]:
                first = f"Annotations/{without[0]}.xml"
                raise self.missing(f"{len(without)} annotations of {part}, the first {first}, were")
        train, held_out = ({f"{name}.jpg": present[name] for name in ids[part]} for part in ("trainval", "test"))
        halved = study_halves if self.option("halves") == "study" else halves
        splits = self.image_splits(train, held_out, IMAGE, halved)
        return Plan(self.FACTS.labels, splits, ignored if self.option("difficult") == "ignore" else None)


def object_names(member: Member) -> tuple[LabelNames, LabelNames]:
    """The kinds of the objects of an annotation: of those that are not flagged as difficult, and of all."""
    found = [
        (item.findtext("name", "").strip(), item.findtext("difficult", "0").strip() == "1")
        for item in member.xml().iter("object")
    ]
    easy = dict.fromkeys(name for name, difficult in found if not difficult)
    return tuple(easy), tuple(dict.fromkeys(name for name, _ in found))
