"""Small corpora in the official layouts, awkward rows included, for the formats whose files are not available."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from PIL import Image

VOC_KINDS = ("person", "dog", "car", "tvmonitor")


def write_files(root: Path, files: Mapping[str, bytes | str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def write_zip(path: Path, files: Mapping[str, bytes | str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_tar(path: Path, files: Mapping[str, bytes | str], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_gzipped(root: Path, files: Mapping[str, bytes | str]) -> Path:
    packed = {
        f"{name}.gz": gzip.compress(data if isinstance(data, bytes) else data.encode()) for name, data in files.items()
    }
    return write_files(root, packed)


def jpeg(colour: int, side: int = 24) -> bytes:
    encoded = io.BytesIO()
    Image.new("RGB", (side, side), (colour % 256, 90, 160)).save(encoded, "JPEG")
    return encoded.getvalue()


# -- AAPD

AAPD_ROWS = {
    "train": [
        ('He said "no", twice.', ["cs.AI"]),
        ("Two\nlines, one abstract", ["cs.CL", "cs.LG"]),
        ("", ["cs.LG"]),  # a blank text stays a row
        ("naïve — façade", ["cs.AI", "stat.ML"]),
        ("a" * 5000, []),
        *((f"training abstract {i}", ["cs.AI" if i % 2 else "cs.CL"]) for i in range(20)),
    ],
    "dev": [("validation abstract", ["stat.ML"]), ("another", ["cs.CL"])],
    "test": [("test abstract", ["cs.AI"]), ("last", [])],
}
AAPD_HEADER = ["abstract", "cs.AI", "cs.CL", "cs.LG", "stat.ML"]


def aapd_csv(rows: Mapping[str, list[tuple[str, list[str]]]] = AAPD_ROWS, line_end: str = "\r\n") -> dict[str, str]:
    files = {}
    for split, examples in rows.items():
        text = io.StringIO()
        writer = csv.writer(text, lineterminator=line_end)
        writer.writerow(AAPD_HEADER)
        writer.writerows([text_, *(int(name in labels) for name in AAPD_HEADER[1:])] for text_, labels in examples)
        files[f"{split}.csv"] = text.getvalue()
    return files


# -- RCV1


def news_item(number: int, headline: str = "Headline", paragraphs: tuple[str, ...] = ("First.", "Second.")) -> bytes:
    body = "\n".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return (
        f'<?xml version="1.0" encoding="iso-8859-1" ?>\n<newsitem itemid="{number}" id="root" date="1996-08-20" '
        f'xml:lang="en">\n<title>USA: {headline}</title>\n<headline>{headline}</headline>\n<dateline>NY</dateline>\n'
        f"<text>\n{body}\n</text>\n<copyright>(c) Reuters Limited 1996</copyright>\n<metadata>\n"
        f'<codes class="bip:topics:1.0">'
        f"</codes>\n</metadata>\n</newsitem>\n"
    ).encode("iso-8859-1")


RCV1_TRAIN_IDS = range(2286, 2286 + 40)
RCV1_TEST_IDS = range(26151, 26151 + 30)


def rcv1_items() -> dict[int, bytes]:
    items = {number: news_item(number, f"Story {number}") for number in (*RCV1_TRAIN_IDS, *RCV1_TEST_IDS)}
    items[2286] = news_item(2286, "AT&amp;T &lt;T.N&gt; says &quot;no&quot;", ("Café prices rose &#163;5.",))
    items[2287] = news_item(2287, "", ())  # nothing but tags
    items[26151] = news_item(26151, "Line\r\nends", ("one\r\n two",))
    return items


def rcv1_qrels() -> str:
    lines = []
    for number in (*RCV1_TRAIN_IDS, *RCV1_TEST_IDS):
        lines += [f"{topic} {number} 1" for topic in (("CCAT", "C15") if number % 2 else ("GCAT",))]
        if number % 5 == 0:
            lines.append(f"M14 {number} 1")
    lines += ["CCAT 2287 1", f"GMIL {RCV1_TRAIN_IDS[3]} 1"]  # an assignment twice; a topic that is in no other split
    return "\r\n".join(lines) + "\r\n"


# -- BGC


def bgc_book(number: int, body: str, topics: str, line_end: str = "\n") -> str:
    return line_end.join(
        [
            '<book date="2018-08-18" xml:lang="en">',
            f"<title>Book {number}</title>",
            f"<body>{body}</body>",
            "<copyright>(c) Penguin Random House</copyright>",
            "<metadata>",
            f"<topics>{topics}</topics>",
            "<author>A. Writer</author>",
            "<published>Jan 01, 2001</published>",
            f"<isbn>{9780000000000 + number}</isbn>",
            "<url>https://www.penguinrandomhouse.com/books/1/</url>",
            "</metadata>",
            "</book>",
            "",
        ]
    )


def bgc_files() -> dict[str, bytes]:
    train = [
        bgc_book(1, 'She said "Q&A" & left.', "<d0>Fiction</d0><d1>Mystery & Suspense</d1>"),
        bgc_book(2, "Entities: &amp; &eacute; &#8212;.", "<d0>Fiction</d0><d1>Mystery &amp; Suspense</d1>"),
        bgc_book(3, "", "<d0>Nonfiction</d0>"),
        bgc_book(4, "Twice.", "<d0>Nonfiction</d0><d0>Nonfiction</d0><d1>Cooking</d1>"),
        bgc_book(5, "CRLF here.", "<d0>Fiction</d0>", line_end="\r\n"),
        bgc_book(6, "Two\nlines.", "<d0>Children\N{RIGHT SINGLE QUOTATION MARK}s Books</d0>"),
        *(bgc_book(10 + i, f"Blurb {i}.", f"<d0>{('Fiction', 'Nonfiction')[i % 2]}</d0>") for i in range(20)),
    ]
    encoded = "".join(train).encode() + bgc_book(7, "Caf\xe9.", "<d0>Nonfiction</d0>").encode("latin-1")
    return {
        "BlurbGenreCollection_EN_train.txt": encoded,
        "BlurbGenreCollection_EN_dev.txt": bgc_book(100, "Dev.", "<d0>Fiction</d0>").encode(),
        "BlurbGenreCollection_EN_test.txt": bgc_book(101, "Test.", "<d0>Not in the hierarchy</d0>").encode(),
        "hierarchy.txt": b"Fiction\tMystery & Suspense\nNonfiction\tCooking\nPoetry\n",
    }


# -- VOC


def voc_annotation(objects: list[tuple[str, int]]) -> str:
    inner = "".join(
        f"<object><name>{name}</name><difficult>{difficult}</difficult></object>" for name, difficult in objects
    )
    return f"<annotation><folder>VOC2007</folder>{inner}</annotation>"


def voc_files(part: str, numbers: range, year: int = 2007) -> dict[str, bytes | str]:
    root = f"VOCdevkit/VOC{year}"
    prefix = "" if year == 2007 else f"{year}_"
    ids = [f"{prefix}{n:06d}" for n in numbers]
    files: dict[str, bytes | str] = {f"{root}/ImageSets/Main/{part}.txt": "".join(f"{one}\n" for one in ids)}
    files[f"{root}/ImageSets/Main/car_{part}.txt"] = "".join(f"{one} -1\n" for one in ids)
    for n, one in zip(numbers, ids, strict=True):
        kinds = [(VOC_KINDS[n % 4], 0), (VOC_KINDS[n % 4], 0), (VOC_KINDS[(n + 1) % 4], n % 2)]
        files[f"{root}/Annotations/{one}.xml"] = voc_annotation(kinds)
        files[f"{root}/JPEGImages/{one}.jpg"] = jpeg(n)
    return files


# -- NUS-WIDE

NUS_CONCEPTS = ("airport", "animal", "beach")


def nus_lists(images: int = 20, official_split: bool = True) -> dict[str, str]:
    names = [f"actor\\{n:04d}_{1000 + n}.jpg" for n in range(images)]
    files = {
        "ConceptsList/Concepts81.txt": "\r\n".join(NUS_CONCEPTS) + "\r\n",
        "ImageList/Imagelist.txt": "\n".join(names) + "\n",
    }
    if official_split:
        files["ImageList/TrainImagelist.txt"] = "".join(f"{name}\n" for name in names[::2])
        files["ImageList/TestImagelist.txt"] = "".join(f"{name}\n" for name in names[1::2])
    for number, concept in enumerate(NUS_CONCEPTS):
        flags = [int(n % 10 != 9 and (n % 3 == number or n % 7 == number)) for n in range(images)]
        files[f"Groundtruth/AllLabels/Labels_{concept}.txt"] = "".join(f"{flag}\n" for flag in flags)
    return files


def nus_images(images: int = 20) -> dict[str, bytes]:
    return {f"Flickr/actor/{n:04d}_{1000 + n}.jpg": jpeg(n) for n in range(images)}


# -- COCO


def coco_instances(part: str, images: int, unannotated: int = 1) -> str:
    import json

    categories = [{"id": 1, "name": "person"}, {"id": 3, "name": "car"}, {"id": 17, "name": "cat"}]
    listed = [{"id": n, "file_name": f"COCO_{part}2014_{n:012d}.jpg"} for n in range(1, images + unannotated + 1)]
    identities = itertools.count()
    annotations = [
        {"id": next(identities), "image_id": n, "category_id": kind, "segmentation": [[1.5, 2.5]], "iscrowd": 0}
        for n in range(1, images + 1)
        for kind in {categories[n % 3]["id"], 1}
    ]
    return json.dumps(
        {"info": {"year": 2014}, "images": listed, "licenses": [], "annotations": annotations, "categories": categories}
    )


def coco_images(part: str, images: int) -> dict[str, bytes]:
    return {f"{part}2014/COCO_{part}2014_{n:012d}.jpg": jpeg(n) for n in range(1, images + 1)}
