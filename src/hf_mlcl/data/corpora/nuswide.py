"""NUS-WIDE: photographs from Flickr with the concepts they show."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from hf_mlcl.data.builder import CorpusBuilder, LabelNames, Plan
from hf_mlcl.data.sources import SourceTree
from hf_mlcl.data.splits import seeded_rank

OFFICIAL_TRAIN, OFFICIAL_ALL = 161_789, 269_648
IMAGE = re.compile(r"(?:.*/)?([^/]+)")


class Nuswide(CorpusBuilder):
    """Trains on the official training images; halves the official test images."""

    def plan(self, sources: SourceTree) -> Plan:
        """Reads the concepts, the image lists and one file of 0/1 lines per concept."""
        found = sources.find(r"[^/]+\.txt")
        concepts = self._lines(found, "Concepts81.txt")
        labels = self._labels(found, concepts, "Imagelist.txt", "")
        if labels is None:
            parts = [self._labels(found, concepts, f"{part}Imagelist.txt", f"_{part}") for part in ("Train", "Test")]
            if parts[0] is None or parts[1] is None:
                raise self.missing("Imagelist.txt with the 81 files Labels_<concept>.txt was")
            labels = {**parts[0], **parts[1]}
        train = self._train_images(found, list(labels))
        tables: tuple[dict[str, LabelNames], dict[str, LabelNames]] = ({}, {})
        for image, names in labels.items():
            if names:
                tables[image not in train][image] = names
        return Plan(concepts, self.image_splits(*tables, IMAGE))

    def _lines(self, found: dict[str, str], name: str) -> list[str]:
        """The lines of a list that are not blank, without the folders of images."""
        if name not in found:
            raise self.missing(f"{name} was")
        with self.sources.open_one(found[name]) as member:
            texts = [text.strip().replace("\\", "/") for _, text in member.lines()]
        return [posixpath.basename(text) for text in texts if text]

    def _labels(
        self, found: dict[str, str], concepts: Sequence[str], image_list: str, suffix: str
    ) -> dict[str, LabelNames] | None:
        """The concepts of each image of a list; None if the list or a label file is not there."""
        files = [f"Labels_{concept}{suffix}.txt" for concept in concepts]
        if image_list not in found or any(name not in found for name in files):
            return None
        images = self._lines(found, image_list)
        chosen: list[list[str]] = [[] for _ in images]
        by_path = {found[name]: concept for name, concept in zip(files, concepts, strict=True)}
        for member in self.sources.walk(by_path.__contains__):
            line = 0
            for line, text in member.lines():
                flag = text.strip()
                if line > len(images) and flag:
                    raise member.malformed(line, f"{image_list} has only {len(images)} images")
                if flag == "1":
                    chosen[line - 1].append(by_path[member.name])
                elif flag not in ("0", ""):
                    raise member.malformed(line, f"{text!r}, expected 0 or 1")
            if line < len(images):
                raise member.malformed(line, f"the file ends, but {image_list} has {len(images)} images")
        shared: dict[LabelNames, LabelNames] = {}  # 269,648 images have a few thousand different label sets
        names = map(tuple, chosen)
        return {image: shared.setdefault(key, key) for image, key in zip(images, names, strict=True)}

    def _train_images(self, found: dict[str, str], images: list[str]) -> set[str]:
        if "TrainImagelist.txt" in found:
            return set(self._lines(found, "TrainImagelist.txt"))
        self.problems.add(
            "official split missing",
            "TrainImagelist.txt is not there, so that a seeded draw of the official size takes its place: results "
            "cannot be compared with others'",
        )
        ordered = sorted(images, key=lambda image: (seeded_rank(image), image))
        return set(ordered[: round(len(ordered) * OFFICIAL_TRAIN / OFFICIAL_ALL)])
