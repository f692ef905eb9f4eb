"""Images of one's own: every one is decoded before training; those that cannot be used are named."""

from __future__ import annotations

import io
import shutil
import struct
import warnings
import zlib

import datasets
import numpy as np
import pytest
from PIL import Image

from hf_mlcl.data import CorpusError, CorpusFileError, CorpusWarning, image_transform, read_own_data
from hf_mlcl.data.own import content_of

COUNT = 200


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of good images."""
    folder = tmp_path_factory.mktemp("pictures")
    for i in range(COUNT):
        Image.new("RGB", (16, 12), (i, 0, 0)).save(folder / f"{i}.jpg")
    return folder


@pytest.fixture
def folder(pictures, tmp_path):
    shutil.copytree(pictures, tmp_path / "own")
    return tmp_path / "own"


def write_table(path, paths, labels=("a", "a|b")):
    lines = [f"{where},{labels[i % len(labels)]}" for i, where in enumerate(paths)]
    path.write_text("\n".join(["file_name,labels", *lines]))
    return path


@pytest.mark.parametrize("name", ["metadata.csv", "labels.csv", "Annotations.tsv"])
def test_the_only_table_beside_images_says_their_labels_whatever_it_is_called(folder, name):
    table = write_table(folder / "draft", [f"{i}.jpg" for i in range(COUNT)])
    text = table.read_text().replace(",", "\t") if name.endswith(".tsv") else table.read_text()
    table.unlink()
    (folder / name).write_text(text)
    data = read_own_data(folder)
    assert data.modality == "image"
    assert data.splits["train"].features["labels"].feature.names == ["a", "b"]


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def bomb(width=40_000, height=40_000):
    """A PNG of a hundred bytes that claims to be enormous."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
DAMAGE = {
    "a truncated JPEG": (encoded(NOISE, "JPEG")[:900], "truncated|broken"),
    "a text": (b"this is no picture", "not an image"),
    "nothing": (b"", "empty file"),
    "a bomb": (bomb(), "pixels"),
    "a small bomb": (bomb(10_000, 10_000), r"10000 x 10000 pixels are more than an image may have"),
    "nothing at all": (None, "there is no such file"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_bad_image_is_left_out_by_name_and_strictly_an_error(case, folder):
    content, reason = DAMAGE[case]
    (folder / "7.jpg").unlink()
    if content is not None:
        (folder / "7.jpg").write_bytes(content)
    write_table(folder / "metadata.csv", [f"{i}.jpg" for i in range(COUNT)])
    with pytest.warns(CorpusWarning, match=rf"1 of {COUNT} images .* left out: \S*/7\.jpg \(.*({reason})"):
        data = read_own_data(folder)
    assert sum(map(len, data.splits.values())) == COUNT - 1
    assert any(f"1 of {COUNT} images of column 'file_name' cannot be used" in note for note in data.notes)
    with pytest.raises(CorpusFileError, match=rf"7\.jpg \(.*({reason})"):
        read_own_data(folder, strict=True)


def test_rows_keep_their_labels_when_one_before_them_is_left_out(folder):
    (folder / "3.jpg").write_bytes(b"")
    names = [f"n{i}|{'ab'[i % 2]}" for i in range(COUNT)]
    names[3] = "a"  # the only row of a label must not go
    write_table(folder / "metadata.csv", [f"{i}.jpg" for i in range(COUNT)], names)
    with pytest.warns(CorpusWarning, match=r"3\.jpg"):
        data = read_own_data(folder, cut=False)
    rows = data.splits["train"].cast_column("image", datasets.Image(decode=False))
    for row in rows:
        number = row["image"]["path"].rsplit("/", 1)[1].removesuffix(".jpg")
        assert f"n{number}" in [data.label_names[i] for i in row["labels"]]


def test_many_bad_images_are_an_error_that_names_ten_and_counts_the_rest(folder):
    for i in range(13):
        (folder / f"{i}.jpg").write_bytes(b"")
    write_table(folder / "metadata.csv", [f"{i}.jpg" for i in range(COUNT)])
    with pytest.raises(
        CorpusFileError, match=r"13 of 200 .*more than 1 %.*/9\.jpg \(empty file\) and 3 more"
    ) as caught:
        read_own_data(folder)
    assert str(caught.value).count("empty file") == 10


def test_a_label_does_not_lose_half_of_its_images_in_silence(folder):
    (folder / "0.jpg").write_bytes(b"")
    labels = ["rare|a", "rare|b", *(["a", "b"] * COUNT)][:COUNT]
    write_table(folder / "metadata.csv", [f"{i}.jpg" for i in range(COUNT)], labels)
    with pytest.raises(CorpusFileError, match="half or more of those of label 'rare'"):
        read_own_data(folder)


GOOD = {
    "an animated GIF": encoded(NOISE.convert("P"), "GIF", save_all=True, append_images=[NOISE.convert("P")] * 2),
    "CMYK": encoded(NOISE.convert("CMYK"), "JPEG"),
    "16 bit": encoded(Image.fromarray(np.full((8, 8), 128, dtype=np.uint16)), "PNG"),
    "a palette": encoded(NOISE.convert("P"), "PNG", transparency=0),
    "grey": encoded(NOISE.convert("L"), "PNG"),
    "grey with alpha": encoded(NOISE.convert("LA"), "PNG"),
    "one bit": encoded(NOISE.convert("1"), "TIFF"),
    "progressive": encoded(NOISE, "JPEG", progressive=True),
    "one pixel": encoded(Image.new("RGB", (1, 1)), "PNG"),
    "a JPEG of one pixel": encoded(Image.new("RGB", (1, 1)), "JPEG"),
    "a narrow JPEG": encoded(Image.new("RGB", (40, 7)), "JPEG"),
}


def test_odd_images_are_good_ones_and_become_pixels(folder):
    for i, content in enumerate(GOOD.values()):
        (folder / f"{i}.jpg").write_bytes(content)
    write_table(folder / "metadata.csv", [f"{i}.jpg" for i in range(COUNT)])
    with warnings.catch_warnings():
        warnings.simplefilter("error", CorpusWarning)
        data = read_own_data(folder, cut=False)
    for row in data.splits["train"].select(range(len(GOOD))):
        assert image_transform(8)(row["image"]).shape == (3, 8, 8)


@pytest.mark.parametrize("column", ["file_name", "photo"])
@pytest.mark.parametrize("place", ["relative", "absolute", "one without an ending"])
def test_paths_may_be_relative_absolute_or_without_an_ending(place, column, pictures, tmp_path, monkeypatch):
    shutil.copytree(pictures, tmp_path / "own")
    (tmp_path / "own" / "5.jpg").rename(tmp_path / "own" / "5")
    monkeypatch.chdir("/")
    start = tmp_path / "own" if place == "absolute" else "own"
    paths = [f"{start}/{i}.jpg" if i != 5 else f"{start}/5" for i in range(COUNT)]
    path = write_table(tmp_path / "data.csv", paths)
    path.write_text(path.read_text().replace("file_name", column))
    data = read_own_data(path, cut=False)
    assert (data.modality, data.content_column, len(data.splits["train"])) == ("image", column, COUNT)
    assert data.splits["train"][5]["image"].size == (16, 12)
    assert content_of(path, "image")[0][4:6] == [str(tmp_path / "own" / "4.jpg"), str(tmp_path / "own" / "5")]


def test_files_without_any_ending_are_images_under_a_usual_name(folder):
    for i in range(COUNT):
        (folder / f"{i}.jpg").rename(folder / str(i))
    path = write_table(folder / "data.csv", range(COUNT))
    assert read_own_data(path).modality == "image"
    (folder / "notes").mkdir()
    for i in range(12):
        (folder / "notes" / str(i)).write_text("a note")
    write_table(folder / "notes.csv", [f"notes/{i}" for i in range(12)])
    assert read_own_data(folder / "notes.csv", cut=False).modality == "text"


def test_a_cell_without_a_path_is_a_bad_image(folder):
    paths = [f"{i}.jpg" for i in range(COUNT)]
    paths[9] = ""
    write_table(folder / "metadata.csv", paths)
    with pytest.warns(CorpusWarning, match=r"row 10 of train \(no image is named\)"):
        assert len(read_own_data(folder, cut=False).splits["train"]) == COUNT - 1


def test_images_in_a_table_are_checked_too(tmp_path):
    good, bad = encoded(NOISE, "PNG"), encoded(NOISE, "PNG")[:500]
    features = datasets.Features({"image": datasets.Image(), "labels": datasets.List(datasets.Value("string"))})
    images = [{"bytes": bad if i == 4 else good, "path": f"{i}.png"} for i in range(100)]
    rows = {"image": images, "labels": [["a"], ["b"]] * 50}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "data.parquet")
    with pytest.warns(CorpusWarning, match=r"1 of 100 images .*4\.png"):
        data = read_own_data(tmp_path / "data.parquet", cut=False)
    assert len(data.splits["train"]) == 99


def test_a_folder_of_classes_is_checked_too(folder):
    for i in range(COUNT):
        target = folder / ("cat", "dog")[i % 2]
        target.mkdir(exist_ok=True)
        (folder / f"{i}.jpg").rename(target / f"{i}.jpg")
    (folder / "cat" / "0.jpg").write_bytes(b"no picture")
    with pytest.warns(CorpusWarning, match=r"cat/0\.jpg \(not an image\)"):
        data = read_own_data(folder)
    assert sum(map(len, data.splits.values())) == COUNT - 1
    with pytest.raises(CorpusError, match=r"cat/0\.jpg"):
        read_own_data(folder, strict=True)


@pytest.mark.parametrize("written", ["{}", "{}.jpg"], ids=["ids", "names"])
@pytest.mark.parametrize("inside", ["", "photos"], ids=["beside", "in a subfolder"])
def test_ids_and_bare_names_are_images_where_files_are_called_so(pictures, tmp_path, written, inside):
    shutil.copytree(pictures, tmp_path / inside, dirs_exist_ok=True)
    lines = [f"{written.format(i)},a long enough remark on picture {i},{'a' if i % 2 else 'a|b'}" for i in range(COUNT)]
    (tmp_path / "table.csv").write_text("\n".join(["Id,remark,labels", *lines]))
    data = read_own_data(tmp_path / "table.csv")
    assert (data.modality, data.content_column) == ("image", "Id")
    assert sum(map(len, data.splits.values())) == COUNT
    assert data.splits["train"][0]["image"].size == (16, 12)
    assert any("names of images" in note for note in data.notes)
    assert content_of(tmp_path / "table.csv", "image")[0][3] == str((tmp_path / inside / "3.jpg").resolve())


def test_numbers_are_no_ids_of_images_where_there_are_none(tmp_path):
    rows = [f"{i},a remark that is number {i},{'a' if i % 2 else 'a|b'}" for i in range(40)]
    (tmp_path / "table.csv").write_text("\n".join(["Id,remark,labels", *rows]))
    assert read_own_data(tmp_path / "table.csv").content_column == "remark"


def test_an_id_of_two_images_is_refused(pictures, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(pictures, tmp_path / name)
    write_table(tmp_path / "table.csv", range(COUNT))
    with pytest.raises(CorpusError, match="several images"):
        read_own_data(tmp_path / "table.csv")
