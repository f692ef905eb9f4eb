"""PASCAL VOC 2007: photographs with the kinds of objects in them."""

from __future__ import annotations

import re

from hf_mlcl.data.builder import CorpusBuilder, LabelNames, Plan
from hf_mlcl.data.facts import CorpusFacts, RemoteFile, SplitSizes, StudyStatistics
from hf_mlcl.data.sources import Member, SourceTree
from hf_mlcl.data.xml_text import parse_xml

LABELS = str.split(
    "aeroplane bicycle bird boat bottle bus car cat chair cow diningtable dog horse motorbike person pottedplant "
    "sheep sofa train tvmonitor"
)
ID_LIST = re.compile(r"(?:.*/)?ImageSets/Main/(trainval|test)\.txt")
ANNOTATION = re.compile(r"(?:.*/)?Annotations/([^/]+)\.xml")
IMAGE = re.compile(r"(?:.*/)?JPEGImages/([^/]+\.jpg)")
BASE = "http://thor.robots.ox.ac.uk/pascal/VOC/voc2007"

FACTS = CorpusFacts(
    name="voc2007",
    kind="image",
    summary="Photographs labelled with the kinds of objects in them, of 20 kinds; difficult objects do not count.",
    homepage="http://host.robots.ox.ac.uk/pascal/VOC/voc2007/",
    license="Flickr terms of use",
    citation="""@misc{pascal-voc-2007,
  author = {Everingham, Mark and Van Gool, Luc and Williams, Chris and Winn, John and Zisserman, Andrew},
  title = {The {PASCAL} {V}isual {O}bject {C}lasses {C}hallenge 2007 ({VOC2007}) {R}esults},
  year = {2007}
}""",
    study=StudyStatistics("5.0k / 2.5k / 2.5k", 20, 1.5, "1.0k / 2.5k / 2.5k"),
    files=(
        RemoteFile(
            "VOCtrainval_06-Nov-2007.tar",
            f"{BASE}/VOCtrainval_06-Nov-2007.tar",
            md5="c52e279531787c972589f7e41ab4ae64",
        ),
        RemoteFile(
            "VOCtest_06-Nov-2007.tar", f"{BASE}/VOCtest_06-Nov-2007.tar", md5="b6e924de25625d8de591ea690078ad9f"
        ),
    ),
    manual=(
        "put VOCtrainval_06-Nov-2007.tar and VOCtest_06-Nov-2007.tar, or the folder VOCdevkit that they unpack to, "
        "into a folder."
    ),
    sizes=SplitSizes(5_011, 2_476, 2_476),
    small_sizes=SplitSizes(1_002, 2_476, 2_476),
)


class Voc2007(CorpusBuilder):
    """Trains on `trainval`; halves `test`."""

    FACTS = FACTS

    def plan(self, sources: SourceTree) -> Plan:
        """Reads the lists of ids and every annotation; images follow when they are needed."""
        ids: dict[str, list[str]] = {"trainval": [], "test": []}
        labels: dict[str, LabelNames] = {}
        for member in sources.walk(lambda name: bool(ID_LIST.fullmatch(name) or ANNOTATION.fullmatch(name))):
            listed, annotated = ID_LIST.fullmatch(member.name), ANNOTATION.fullmatch(member.name)
            if listed:
                ids[listed[1]] = [text.split()[0] for _, text in member.lines() if text.strip()]
            elif annotated:
                labels[annotated[1]] = object_names(member)
        for part, names in ids.items():
            if not names:
                raise self.missing(f"ImageSets/Main/{part}.txt was")
            without = [name for name in names if name not in labels]
            if without:
                raise self.missing(
                    f"{len(without)} annotations of {part}, the first Annotations/{without[0]}.xml, were"
                )
        train, held_out = ({f"{name}.jpg": labels[name] for name in ids[part]} for part in ("trainval", "test"))
        return Plan(LABELS, self.image_splits(train, held_out, image_key))


def object_names(member: Member) -> LabelNames:
    """The kinds of the objects of an annotation, without those flagged as difficult, as the challenge scores them.

    An image with difficult objects only stays in the corpus, without a label.
    """
    objects = parse_xml(member).iter("object")
    names = (item.findtext("name", "").strip() for item in objects if item.findtext("difficult", "0").strip() != "1")
    return tuple(dict.fromkeys(names))


def image_key(name: str) -> str:
    """The file name of an image; empty for other files."""
    match = IMAGE.fullmatch(name)
    return match[1] if match else ""
