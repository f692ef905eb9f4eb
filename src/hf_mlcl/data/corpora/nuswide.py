"""NUS-WIDE: photographs from Flickr with the concepts they show."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from hf_mlcl.data.builder import IMAGE_OPTIONS, CorpusBuilder, LabelNames, Plan
from hf_mlcl.data.facts import CorpusFacts, SplitSizes, StudyStatistics
from hf_mlcl.data.rows import malformed
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import seeded_rank

OFFICIAL_TRAIN, OFFICIAL_ALL = 161_789, 269_648

FACTS = CorpusFacts(
    name="nuswide",
    kind="image",
    summary="Photographs from Flickr labelled with any of 81 concepts; those with none are dropped.",
    homepage="https://github.com/NExTplusplus/NUS-WIDE",
    license="labels for research use; images under Flickr's terms of use",
    citation="""@inproceedings{nus-wide-civr09,
  author = {Chua, Tat-Seng and Tang, Jinhui and Hong, Richang and Li, Haojie and Luo, Zhiping and Zheng, Yan-Tao},
  title = {{NUS-WIDE}: A Real-World Web Image Database from National University of Singapore},
  booktitle = {Proceedings of the ACM Conference on Image and Video Retrieval},
  year = {2009}
}""",
    study=StudyStatistics("125.4k / 41.9k / 41.9k", 81, 2.4, "25.1k / 41.9k / 41.9k"),
    manual=(
        "put ConceptsList/Concepts81.txt, Groundtruth/AllLabels (81 files Labels_<concept>.txt), "
        "ImageList/Imagelist.txt, ImageList/TrainImagelist.txt and ImageList/TestImagelist.txt of the official release "
        "into a folder, packed or not, and the images (request them from the authors, or fetch those that Flickr still "
        "has: python -m hf_mlcl.data.nuswide_images NUS-WIDE-urls.txt FOLDER) beside them under the names of the image "
        "list, such as Flickr/actor/0001_2124494179.jpg."
    ),
    download_all=False,
    sizes=SplitSizes(125_449, 41_949, 41_949),
    small_sizes=SplitSizes(25_090, 41_949, 41_949),
)


class Nuswide(CorpusBuilder):
    """Trains on the official training images; halves the official test images."""

    FACTS = FACTS
    OPTIONS = {**CorpusBuilder.OPTIONS, **IMAGE_OPTIONS}  # noqa: RUF012

    def plan(self, sources: SourceTree) -> Plan:
        """Reads the concepts, the image lists and one file of 0/1 lines a concept."""
        found = {posixpath.basename(name): name for name in sources.find(r"[^/]+\.txt")}
        concepts = [line.strip() for line in self._lines(found, "Concepts81.txt") if line.strip()]
        labels = self._labels(found, concepts, "Imagelist.txt", "")
        if labels is None:
            parts = [self._labels(found, concepts, f"{part}Imagelist.txt", f"_{part}") for part in ("Train", "Test")]
            if parts[0] is None or parts[1] is None:
                raise self.missing("Imagelist.txt with the 81 files Labels_<concept>.txt was")
            labels = {**parts[0], **parts[1]}
        train = self._train_images(found, list(labels))
        labelled = {image: names for image, names in labels.items() if names}
        return Plan(
            concepts,
            self.image_splits(
                {image: names for image, names in labelled.items() if image in train},
                {image: names for image, names in labelled.items() if image not in train},
                posixpath.basename,
            ),
        )

    def _lines(self, found: dict[str, str], name: str) -> list[str]:
        if name not in found:
            raise self.missing(f"{name} was")
        with self.sources.open_one(found[name]) as member:
            return [text for _, text in member.lines()]

    def _listed(self, found: dict[str, str], name: str) -> list[str]:
        return [
            posixpath.basename(line.strip().replace("\\", "/")) for line in self._lines(found, name) if line.strip()
        ]

    def _labels(
        self, found: dict[str, str], concepts: Sequence[str], image_list: str, suffix: str
    ) -> dict[str, LabelNames] | None:
        """The concepts of each image of a list; None if the list or a label file is not there."""
        files = [f"Labels_{concept}{suffix}.txt" for concept in concepts]
        if image_list not in found or any(name not in found for name in files):
            return None
        images = self._listed(found, image_list)
        chosen: list[list[str]] = [[] for _ in images]
        by_path = {found[name]: concept for name, concept in zip(files, concepts, strict=True)}
        for member in self.sources.walk(by_path.__contains__):
            line = 0
            for line, text in member.lines():
                flag = text.strip()
                if line > len(images) and flag:
                    raise malformed(member, line, f"{image_list} has only {len(images)} images")
                if flag == "1":
                    chosen[line - 1].append(by_path[member.name])
                elif flag not in ("0", ""):
                    raise malformed(member, line, f"{text!r}, expected 0 or 1")
            if line < len(images):
                raise malformed(member, line, f"the file ends, but {image_list} has {len(images)} images")
        order = {concept: number for number, concept in enumerate(concepts)}
        shared: dict[LabelNames, LabelNames] = {}  # 269,648 images have a few thousand different label sets
        labels = {}
        for image, names in zip(images, chosen, strict=True):
            key = tuple(sorted(names, key=order.__getitem__))
            labels[image] = shared.setdefault(key, key)
        return labels

    def _train_images(self, found: dict[str, str], images: list[str]) -> set[str]:
        if "TrainImagelist.txt" in found:
            return set(self._listed(found, "TrainImagelist.txt"))
        self.problems.add(
            "official split missing",
            "TrainImagelist.txt is not there, so that a seeded draw of the official size takes its place: results "
            "cannot be compared with others'",
        )
        ordered = sorted(images, key=lambda image: (seeded_rank(image), image))
        return set(ordered[: round(len(ordered) * OFFICIAL_TRAIN / OFFICIAL_ALL)])
