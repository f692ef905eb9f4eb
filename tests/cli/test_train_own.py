"""``hf-mlcl train`` with data of your own that are odd, damaged or hostile."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from cli.conftest import QUICK
from hf_mlcl.data import errors

LABELS = ["01", "1", "1.10", "1.1", "NA", "TRUE"]


def test_labels_are_called_as_they_are_written_from_the_file_to_the_prediction(hf_mlcl, tmp_path):
    rows = [f'text number {i} about {LABELS[i % 6]},"{LABELS[i % 6]}|{LABELS[(i + 1) % 6]}"' for i in range(90)]
    (tmp_path / "data.csv").write_text("\n".join(["text,labels", *rows, "nothing at all,"]))
    hf_mlcl("train", tmp_path / "data.csv", "--output_dir", tmp_path / "run", *QUICK)
    result = hf_mlcl("predict", "text number 7", "--model", tmp_path / "run", "--scores", "--json")
    assert sorted(hit["label"] for hit in json.loads(result.stdout)[0]["labels"]) == sorted(LABELS)


@pytest.fixture
def photos(tmp_path):
    """A folder of a hundred images, of which the one without a number is none."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(100):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / f"{i}.png")
    (folder / "bad.png").write_text("no picture")
    names = [*map(str, range(100)), "bad"]
    lines = [f"{name}.png,{'a|b' if i % 2 else 'a'}" for i, name in enumerate(names)]
    (folder / "metadata.csv").write_text("\n".join(["file_name,labels", *lines]))
    return folder


def test_a_check_for_programs_tells_rows_labels_and_settings(hf_mlcl, photos):
    found = json.loads(hf_mlcl("train", photos, "--check", "--json", "--minutes", "2").stdout)
    assert (set(found["labels"]), found["rows"]["train"], found["steps"]) == ({"a", "b"}, 80, None)
    assert found["settings"]["minutes"] == 2
    refused = hf_mlcl("train", photos, "--check", "--max_length", "32", code=2)
    assert "max_length=32 is for texts, but the data are images" in " ".join(refused.stderr.split())


def test_a_label_that_only_held_out_rows_carry_is_named(hf_mlcl, tmp_path):
    for split, labels in (("train", "ab"), ("dev", "abc"), ("test", "abc")):
        lines = [f"text number {number},{labels[number % len(labels)]}|a" for number in range(30)]
        (tmp_path / f"x_{split}.csv").write_text("\n".join(["text,labels", *lines]))
    shown = " ".join(hf_mlcl("train", tmp_path, "--check").stdout.split())
    assert "1 of 3 labels has no training row: only their names tell of them: c" in shown


def test_a_check_names_images_that_cannot_be_used(hf_mlcl, photos):
    shown = hf_mlcl("train", photos, "--check")
    assert (
        f"1 of 101 images of column 'file_name' cannot be used and are left out: {photos}/bad.png (not an image)"
        in (shown.stdout)
    )
    assert "Checking images" not in shown.stderr  # a bar is for terminals


def test_a_strict_training_stops_at_an_image_that_cannot_be_used(hf_mlcl, photos):
    stopped = hf_mlcl("train", photos, "--strict", "--check", code=1)
    assert f"{photos}/bad.png (not an image)" in stopped.stderr


def test_a_training_goes_on_without_an_image_that_cannot_be_used(hf_mlcl, photos, tmp_path):
    with pytest.warns(errors.CorpusWarning, match=r"bad\.png"):
        done = hf_mlcl("train", photos, "--output_dir", tmp_path / "run", "--json", "--loss", "bce", *QUICK)
    assert "metrics" in json.loads(done.stdout)


def test_a_strict_training_is_strict_with_a_corpus_too(hf_mlcl, tmp_path, monkeypatch):
    asked = []

    def load(name, **options):
        asked.append(options["strict"])
        raise errors.CorpusFileError("a bad image")

    monkeypatch.setattr("hf_mlcl.experiments.inputs.load_corpus", load)
    assert "a bad image" in hf_mlcl("train", "toy_text", "--strict", "--output_dir", tmp_path, *QUICK, code=1).stderr
    assert asked == [True]


HOSTILE = {
    "nested deeply": ("data.json", b'{"text": ' + b"[" * 20_000, "nested too deeply"),
    "with NUL bytes": ("data.csv", b"text,labels\na\0,b\n", "line 2: a NUL byte"),
    "cut off": ("data.parquet", b"PAR1", "cannot be read as PARQUET"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_ends_with_one_line_and_code_1(case, hf_mlcl, tmp_path):
    name, content, reason = HOSTILE[case]
    (tmp_path / name).write_bytes(content)
    said = hf_mlcl("train", tmp_path / name, "--check", code=1).stderr
    assert said.startswith(f"hf-mlcl: {tmp_path / name}")
    assert reason in said
    assert said.count("\n") == 1
