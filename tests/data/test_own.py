"""Data of your own: whatever the layout, the same rows and labels come out; what is wrong is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import datasets
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value
from PIL import Image

from hf_mlcl.data import CorpusFileError, CorpusFormatError, read_own_data
from hf_mlcl.data.own import content_of, data_fingerprint
from hf_mlcl.files import HIDDEN_FOLDER

TOPICS = ("art", "music", "sport")


def examples(count=40):
    """Texts with their labels; every seventh has none."""
    return [
        (f"story {i} about {' and '.join(chosen) or 'nothing'}", chosen)
        for i in range(count)
        for chosen in [[] if i % 7 == 0 else sorted({TOPICS[i % 3], TOPICS[(i // 2) % 3]})]
    ]


def frame(form):
    texts, labels = zip(*examples(), strict=True)
    columns = {"id": range(len(texts)), "text": texts}
    if form == "flags":
        columns |= {name: [int(name in row) for row in labels] for name in TOPICS}
    elif form == "lists":
        columns["labels"] = labels
    elif form == "written":
        columns["labels"] = [str(row) for row in labels]
    else:
        columns["tags"] = [form.join(row) for row in labels]
    return pd.DataFrame(columns)


def write(folder, form, ending):
    path = folder / f"data{ending}"
    table = frame(form)
    if ending == ".csv":
        table.to_csv(path, index=False)
    elif ending == ".tsv":
        table.to_csv(path, index=False, sep="\t")
    elif ending == ".csv.gz":
        path.write_bytes(gzip.compress(table.to_csv(index=False, sep=";").encode()))
    elif ending == ".jsonl":
        table.to_json(path, orient="records", lines=True)
    elif ending == ".json":
        path.write_text(json.dumps(table.to_dict(orient="records")))
    else:
        table.to_parquet(path)
    return path


def found(data):
    """Text and names of labels of every row, over all splits."""
    names = data.label_names
    rows = [(row["text"], [names[i] for i in row["labels"]]) for split in data.splits.values() for row in split]
    return sorted(rows)


LAYOUTS = [
    ("flags", ".csv", "3 columns of 0 and 1"),
    ("flags", ".parquet", "3 columns of 0 and 1"),
    ("flags", ".csv.gz", "3 columns of 0 and 1"),
    ("lists", ".jsonl", "column 'labels', lists of labels"),
    ("lists", ".json", "column 'labels', lists of labels"),
    ("lists", ".parquet", "column 'labels', lists of labels"),
    ("written", ".csv", "column 'labels', lists of labels, written out"),
    ("|", ".csv", "column 'tags', labels separated by '|'"),
    (";", ".csv", "column 'tags', labels separated by ';'"),
    (",", ".tsv", "column 'tags', labels separated by ','"),
    (" ", ".jsonl", "column 'tags', labels separated by spaces"),
]


@pytest.mark.parametrize(("form", "ending", "said"), LAYOUTS)
def test_every_layout_gives_the_same_rows_and_says_how_labels_were_found(form, ending, said, tmp_path):
    data = read_own_data(write(tmp_path, form, ending))
    assert found(data) == sorted(examples())
    assert data.labels_found == said
    assert (data.modality, data.content_column) == ("text", "text")


def test_rows_without_splits_are_stratified_in_eight_one_one(tmp_path):
    data = read_own_data(write(tmp_path, "|", ".csv"))
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 32, "validation": 4, "test": 4}
    assert "by stratification" in data.split_rule


def test_a_folder_with_files_of_splits_keeps_them(tmp_path):
    table = frame("|")
    table[:20].to_csv(tmp_path / "train.csv", index=False)
    table[20:30].to_csv(tmp_path / "dev.csv", index=False)
    table[30:].to_csv(tmp_path / "test.csv", index=False)
    data = read_own_data(tmp_path)
    assert data.split_rule == "as given"
    assert data.splits["validation"]["text"][0] == examples()[20][0]
    assert [len(rows) for rows in data.splits.values()] == [20, 10, 10]


def test_files_that_are_named_after_data_and_split_are_splits(tmp_path):
    for split, rows in (("train", 30), ("dev", 6), ("test", 4)):
        frame("|").head(rows).to_csv(tmp_path / f"reviews_{split}.csv", index=False)
    splits = read_own_data(tmp_path).splits
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 30, "validation": 6, "test": 4}
    frame("|").to_csv(tmp_path / "train.csv", index=False)
    with pytest.raises(CorpusFormatError, match="two files for train"):
        read_own_data(tmp_path)


def test_a_test_file_beside_the_data_is_their_test_split(tmp_path):
    frame("|").to_csv(tmp_path / "data.csv", index=False)
    frame("|").head(5).to_csv(tmp_path / "held_out.csv", index=False)
    splits = read_own_data(tmp_path / "data.csv", test_file=tmp_path / "held_out.csv").splits
    assert len(splits["test"]) == 5
    assert len(splits["train"]) + len(splits["validation"]) == 40
    (tmp_path / "folder").mkdir()
    for split in ("train", "test"):
        frame("|").to_csv(tmp_path / "folder" / f"{split}.csv", index=False)
    with pytest.raises(CorpusFormatError, match="test split of its own"):
        read_own_data(tmp_path / "folder", test_file=tmp_path / "held_out.csv")


def test_only_the_missing_split_is_cut_off(tmp_path):
    table = frame("|")
    table[:30].to_csv(tmp_path / "train.csv", index=False)
    table[30:].to_csv(tmp_path / "test.csv", index=False)
    data = read_own_data(tmp_path)
    assert [len(rows) for rows in data.splits.values()] == [27, 3, 10]
    assert data.split_rule == "validation by stratification"


def test_rows_stay_as_they_come_where_nothing_is_to_be_cut_off(tmp_path):
    frame("|")[:5].to_csv(tmp_path / "few.csv", index=False)
    data = read_own_data(tmp_path / "few.csv", cut=False)
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 5}
    assert data.split_rule == "as given"


def test_the_fingerprint_of_images_is_that_of_their_files_wherever_they_lie(tmp_path):
    for place in ("here", "there"):
        images(tmp_path / place)
        lines = ["file_name,labels", *(f"{i}.png,{('a', 'a|b')[i % 2]}" for i in range(20))]
        (tmp_path / place / "metadata.csv").write_text("\n".join(lines))
    first, second = (data_fingerprint(read_own_data(tmp_path / place).splits) for place in ("here", "there"))
    assert first == second
    Image.new("RGB", (9, 9)).save(tmp_path / "there" / "3.png")
    assert data_fingerprint(read_own_data(tmp_path / "there").splits) != first


@pytest.mark.parametrize("words", [("no", "yes"), ("N", "Y"), ("False", "TRUE"), ("0.0", "1")])
def test_columns_of_yes_and_no_are_columns_of_0_and_1(words, tmp_path):
    table = frame("flags")
    for name in TOPICS:
        table[name] = [words[flag] for flag in table[name]]
    table.to_csv(tmp_path / "data.csv", index=False)
    data = read_own_data(tmp_path / "data.csv")
    assert found(data) == sorted(examples())
    assert data.labels_found == "3 columns of 0 and 1"


def test_what_cannot_be_read_is_told_once_and_latin_1_with_the_way_out(tmp_path, caplog):
    (tmp_path / "latin.csv").write_bytes("text,tags\ngröße,a\n".encode("latin-1") * 20)
    (tmp_path / "fake.parquet").write_text("nothing")
    level = datasets.logging.get_verbosity()
    with caplog.at_level("INFO", logger="datasets"):
        datasets.logging.enable_propagation()
        with pytest.raises(CorpusFileError, match=r"latin\.csv cannot be read as CSV.*Save it as UTF-8"):
            read_own_data(tmp_path / "latin.csv")
        with pytest.raises(CorpusFileError, match=r"fake\.parquet cannot be read as PARQUET"):
            read_own_data(tmp_path / "fake.parquet")
        datasets.logging.disable_propagation()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert datasets.logging.get_verbosity() == level


def test_labels_with_spaces_are_not_taken_apart(tmp_path):
    rows = [{"text": f"about {i}", "label": ("New York", "Los Angeles")[i % 2]} for i in range(20)]
    pd.DataFrame(rows).to_csv(tmp_path / "cities.csv", index=False)
    data = read_own_data(tmp_path / "cities.csv")
    assert data.label_names == ["Los Angeles", "New York"]
    assert data.labels_found == "column 'label', one label per row"


def texts_with(labels, **columns):
    return pd.DataFrame({"text": [f"about {i}" for i in range(len(labels))], "labels": labels, **columns})


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["very good", "good", "bad", "very bad"], ["bad", "good", "very bad", "very good"]),
        ([f"{a} {b}" for a in ("Men", "Women", "Kids") for b in ("Shoes", "Shirts", "Hats")], None),
        (["Books", "Toys", "Clothing, Shoes & Jewelry"], ["Books", "Clothing, Shoes & Jewelry", "Toys"]),
        (["art music", "art", "sport", "music sport"], ["art", "music", "sport"]),
        (["anger joy", "anger sadness", "joy sadness", "anger joy sadness"], ["anger", "joy", "sadness"]),
        (["Books, Toys", "Toys", "Clothing, Books"], ["Books", "Clothing", "Toys"]),
    ],
)
def test_names_are_taken_apart_only_where_what_comes_of_it_is_shared(names, labels):
    data = read_own_data(texts_with(names * 12))
    assert data.label_names == (labels or sorted(names))
    assert data.single_label == (data.label_names == sorted(names))


@pytest.mark.parametrize(
    "cells",
    [
        ["['plot' 'music']", "['music']", "['plot']", "[]"],  # as numpy writes arrays
        ["{'plot', 'music'}", "{'music'}", "('plot',)", "set()"],
        ['["plot", "music"]', '["music"]', '["plot"]', "nan"],
    ],
)
def test_lists_that_are_written_out_in_any_way_are_lists(cells):
    data = read_own_data(texts_with(cells * 10), cut=False)
    assert data.label_names == ["music", "plot"]
    assert data.splits["train"]["labels"][:4] == [[0, 1], [0], [1], []]


def test_a_cell_that_is_no_list_among_lists_is_named():
    with pytest.raises(CorpusFormatError, match=r"holds 'plot, music', which looks like a list of labels but is none"):
        read_own_data(texts_with(["['plot']", "['music']", "plot, music"] * 10))


def test_splits_that_have_their_labels_in_different_ways_are_refused(tmp_path):
    train = texts_with([["plot", "music"], ["plot"]] * 10)
    train.to_json(tmp_path / "train.jsonl", orient="records", lines=True)
    texts_with(["plot|music"] * 5).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(CorpusFormatError, match="lists of texts in train, but texts in test"):
        read_own_data(tmp_path / "train.jsonl", test_file=tmp_path / "other.csv")


def classes(names, ids):
    features = Features({"text": Value("string"), "label": ClassLabel(names=names)})
    return Dataset.from_dict({"text": [f"{names} {i}" for i in range(len(ids))], "label": ids}, features=features)


def test_splits_may_number_their_classes_differently():
    data = read_own_data(DatasetDict(train=classes(["a", "b", "c"], [0, 1, 2] * 10), test=classes(["b", "c"], [0, 1])))
    names = data.label_names
    assert [[names[number] for number in row] for row in data.splits["test"]["labels"]] == [["b"], ["c"]]


def test_a_split_without_known_labels_is_left_out_and_single_rows_without_are_refused():
    train = classes(["a", "b"], [0, 1] * 20)
    data = read_own_data(DatasetDict(train=train, test=classes(["a", "b"], [-1] * 6)))
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 32, "validation": 4, "test": 4}
    assert "the test split has no labels (-1 in all of its rows) and was left out" in data.notes
    with pytest.raises(CorpusFormatError, match=r"no label in row 2 of test \(the id -1\)"):
        read_own_data(DatasetDict(train=train, test=classes(["a", "b"], [0, -1, 1])))


def test_equal_texts_stay_together_and_different_labels_of_theirs_are_noted():
    rows = [(f"story {i}", label) for i in range(100) for label in ("art", "music")]
    data = read_own_data(pd.DataFrame(rows, columns=["text", "label"]))
    parts = [set(data.splits[split]["text"][:]) for split in ("train", "validation", "test")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 100
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [160, 20, 20]
    assert any(note.startswith("100 texts stand in several rows with different labels") for note in data.notes)


@pytest.mark.parametrize("texts", [["no comment"] * 100, ["again", "and again"] * 2])
def test_texts_of_many_rows_do_not_change_the_sizes_of_the_splits(texts):
    texts = [*texts, *(f"story {i}" for i in range(100))]
    data = read_own_data(pd.DataFrame({"text": texts, "label": [("art", "music")[i % 2] for i in range(len(texts))]}))
    sizes = [len(data.splits[split]) for split in ("train", "validation", "test")]
    assert sizes == pytest.approx([0.8 * len(texts), 0.1 * len(texts), 0.1 * len(texts)], abs=3)
    parts = [set(data.splits[split]["text"][:]) for split in ("train", "validation", "test")]
    assert not parts[0] & parts[1] | parts[0] & parts[2] | parts[1] & parts[2]


def test_where_few_texts_are_in_most_rows_rows_are_parted_one_by_one():
    rows = [(f"answer {i % 4}" if i < 200 else f"row {i}", ("art", "music")[i % 2]) for i in range(208)]
    data = read_own_data(pd.DataFrame(rows, columns=["text", "label"]))
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == pytest.approx([166, 21, 21], abs=2)
    assert any("validation texts also occur in training" in note for note in data.notes)


def test_addresses_alone_are_neither_texts_nor_images():
    table = pd.DataFrame({"image": [f"https://example.org/{i}.jpg" for i in range(20)], "labels": ["a", "b"] * 10})
    with pytest.raises(CorpusFormatError, match="images are not fetched"):
        read_own_data(table)


def test_addresses_of_images_are_no_images_here():
    table = texts_with(["a", "b"] * 10, image_url=[f"https://example.org/{i}.jpg" for i in range(20)])
    assert read_own_data(table).modality == "text"


def test_named_columns_and_delimiter_go_before_what_would_be_found(tmp_path):
    table = frame("/").rename(columns={"text": "title", "tags": "rubric"})
    table["text"] = "the same for all"
    table.to_csv(tmp_path / "data.csv", index=False)
    data = read_own_data(tmp_path / "data.csv", text_column="title", label_columns=["rubric"], label_delimiter="/")
    assert found(data) == sorted(examples())


def test_rows_without_text_are_left_out_and_counted(tmp_path):
    table = frame("|")
    table.loc[[3, 5], "text"] = ["", "   "]
    table.to_csv(tmp_path / "data.csv", index=False)
    data = read_own_data(tmp_path / "data.csv")
    assert sum(len(rows) for rows in data.splits.values()) == 38
    assert "2 rows without a text were left out" in data.notes


def test_rare_labels_and_texts_in_two_splits_are_noted(tmp_path):
    rows = [{"text": "the same", "tags": "a|b" if i else "a|b|rare"} for i in range(20)]
    pd.DataFrame(rows).to_csv(tmp_path / "data.csv", index=False)
    notes = " ".join(read_own_data(tmp_path / "data.csv").notes)
    assert "1 of 3 labels has fewer than 5 rows and can hardly be learned: rare" in notes
    assert "2 test texts also occur in training" in notes


NA_WORDS = ("None", "NA", "null", "n/a", "nan")


def test_labels_and_texts_that_are_words_for_nothing_are_kept(tmp_path):
    rows = [{"text": f"text {i}" if i else "NA", "tags": f"{NA_WORDS[i % 5]}"} for i in range(20)]
    pd.DataFrame(rows).to_csv(tmp_path / "data.csv", index=False)
    data = read_own_data(tmp_path / "data.csv")
    assert data.label_counts() == dict.fromkeys(sorted(NA_WORDS), 4)
    assert sum(len(rows) for rows in data.splits.values()) == 20
    assert content_of(tmp_path / "data.csv", "text")[0][0] == "NA"


def test_labels_of_images_that_are_words_for_nothing_are_kept(tmp_path):
    images(tmp_path)
    lines = ["file_name,labels", *(f"{i}.png,{('None', 'cat|NA')[i % 2]}" for i in range(20))]
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    assert read_own_data(tmp_path).label_counts() == {"NA": 10, "None": 10, "cat": 10}


def test_images_in_folders_of_splits_keep_them(tmp_path):
    for split, count in (("train", 12), ("val", 4), ("test", 5)):
        images(tmp_path / split, count)
        lines = ["file_name,labels", *(f"{i}.png,{('a', 'a|b')[i % 2]}" for i in range(count))]
        (tmp_path / split / "metadata.csv").write_text("\n".join(lines))
    data = read_own_data(tmp_path)
    assert {split: len(rows) for split, rows in data.splits.items()} == {"train": 12, "validation": 4, "test": 5}
    assert data.splits["test"][4]["image"].getpixel((0, 0)) == (48, 0, 0)


@pytest.mark.parametrize("empty", [None, "NA", ""])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_an_empty_cell_among_flags_counts_as_0_and_is_noted(empty, ending, tmp_path):
    expected = [
        (text, [name for name in labels if (i, name) != (8, "music")]) for i, (text, labels) in enumerate(examples())
    ]
    assert expected != examples()
    table = frame("flags").astype({"music": object if empty is None else str})
    table.loc[8, "music"] = empty
    path = tmp_path / f"data{ending}"
    table.to_csv(path, index=False) if ending == ".csv" else table.to_parquet(path)
    data = read_own_data(path)
    assert data.labels_found == "3 columns of 0 and 1"
    assert found(data) == sorted(expected)
    assert "1 empty cells in columns of 0 and 1 count as 0: music 1" in data.notes


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
@pytest.mark.parametrize("kind", [int, float, bool])
def test_lists_of_0_and_1_are_places_of_labels_and_this_is_noted(ending, kind, tmp_path):
    hot = [[kind(name in labels) for name in TOPICS] for _, labels in examples()]
    table = pd.DataFrame({"text": [text for text, _ in examples()], "labels": hot})
    path = tmp_path / f"data{ending}"
    table.to_csv(path, index=False) if ending == ".csv" else table.to_json(path, orient="records", lines=True)
    data = read_own_data(path)
    assert data.label_names == ["0", "1", "2"]
    assert found(data) == sorted((text, [str(TOPICS.index(name)) for name in labels]) for text, labels in examples())
    assert data.labels_found == "column 'labels', lists of 0 and 1, one place per label"
    assert any("called 0 to 2" in note for note in data.notes)


def test_lists_of_the_labels_0_and_1_are_names(tmp_path):
    rows = [{"text": f"text {i}", "labels": ([0], [0, 1], [1], [])[i % 4]} for i in range(20)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = read_own_data(tmp_path / "data.jsonl")
    assert data.labels_found == "column 'labels', lists of labels"
    assert data.label_counts() == {"0": 10, "1": 10}


def test_lists_of_0_and_1_of_different_lengths_are_refused(tmp_path):
    rows = [{"text": f"text {i}", "labels": [0, 1, 0] if i else [1, 0]} for i in range(20)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(CorpusFormatError, match=r"holds lists of 0 and 1, but of different lengths \(2, 3\)"):
        read_own_data(tmp_path / "data.jsonl")


@pytest.mark.parametrize("name", ["genre", "tag", "Topic", "emotion", "category", "class", "label"])
def test_a_column_of_labels_is_known_by_its_name_in_the_singular(name, tmp_path):
    frame("|").rename(columns={"tags": name}).to_csv(tmp_path / "data.csv", index=False)
    data = read_own_data(tmp_path / "data.csv")
    assert data.labels_found == f"column {name!r}, labels separated by '|'"


def images(folder, count=20):
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        Image.new("RGB", (8, 8), (12 * i, 0, 0)).save(folder / f"{i}.png")


@pytest.mark.parametrize("form", ["flags", "|"])
def test_a_folder_of_images_with_metadata_is_read(form, tmp_path):
    images(tmp_path / "pictures")
    chosen = [row for _, row in examples(20)]
    table = pd.DataFrame({"file_name": [f"{i}.png" for i in range(20)]})
    if form == "flags":
        for name in TOPICS:
            table[name] = [int(name in row) for row in chosen]
    else:
        table["labels"] = ["|".join(row) for row in chosen]
    table.to_csv(tmp_path / "pictures" / "metadata.csv", index=False)
    data = read_own_data(tmp_path / "pictures")
    assert data.modality == "image"
    got = {
        row["image"].getpixel((0, 0))[0] // 12: [data.label_names[i] for i in row["labels"]]
        for split in data.splits.values()
        for row in split
    }
    assert got == dict(enumerate(chosen))


def test_a_table_with_paths_of_images_beside_it_is_read(tmp_path):
    images(tmp_path / "pictures")
    table = pd.DataFrame({"path": [f"pictures/{i}.png" for i in range(20)], "tags": ["a|b", "b"] * 10})
    table.to_csv(tmp_path / "pictures.csv", index=False)
    data = read_own_data(tmp_path / "pictures.csv")
    assert data.modality == "image"
    assert data.splits["train"][0]["image"].size == (8, 8)


def test_an_image_that_is_missing_is_named(tmp_path):
    images(tmp_path / "pictures", count=3)
    (tmp_path / "pictures.csv").write_text("path,tags\n" + "".join(f"pictures/{i}.png,a|b\n" for i in range(4)))
    with pytest.raises(CorpusFileError, match=r"1 of 4 images .*pictures/3\.png \(there is no such file\)"):
        read_own_data(tmp_path / "pictures.csv")


def test_a_folder_with_a_subfolder_a_class_is_read(tmp_path):
    for name in ("cat", "dog"):
        images(tmp_path / name, count=10)
    data = read_own_data(tmp_path)
    assert (data.modality, data.label_names) == ("image", ["cat", "dog"])
    assert all(len(row["labels"]) == 1 for row in data.splits["train"])


@pytest.mark.parametrize("parts", [(".",), ("train", "test")], ids=["one", "splits"])
def test_results_of_a_training_among_the_pictures_are_no_data(parts, tmp_path):
    for part in parts:
        for name in ("cat", "dog"):
            images(tmp_path / part / name, count=10)
    before = read_own_data(tmp_path)
    result = tmp_path / "outputs" / "pictures"
    images(result / "classifier" / "figures", count=2)
    (result / HIDDEN_FOLDER).mkdir()
    (result / "test_decisions.npz").write_bytes(b"")
    data = read_own_data(tmp_path)
    assert data.label_names == before.label_names == ["cat", "dog"]
    assert {split: len(rows) for split, rows in data.splits.items()} == {
        split: len(rows) for split, rows in before.splits.items()
    }


def test_texts_of_a_file_are_read_without_looking_for_labels(tmp_path):
    (tmp_path / "texts.csv").write_text("id,review\n1,good\n2,bad\n")
    assert content_of(tmp_path / "texts.csv", "text")[0] == ["good", "bad"]
    with pytest.raises(CorpusFormatError, match="has texts in column 'review', but images are wanted"):
        content_of(tmp_path / "texts.csv", "image")


WRONG = {
    "no labels": ("id,text\n1,a\n2,b\n", {}, "No labels were found among the columns id, text"),
    "no texts": ("a,b\n0,1\n1,0\n", {}, "No column with texts or images was found among a, b"),
    "unknown column": (
        "text,tags\nx,a\n",
        {"label_columns": ["topic"]},
        r"label_columns \(--label_columns\) names 'topic', but the columns",
    ),
    "unknown text": (
        "text,tags\nx,a\n",
        {"text_column": "body"},
        r"text_column \(--text_column\) names 'body', but the columns are text",
    ),
    "one label": ("text,tags\n" + "x,a\n" * 12, {}, "Column 'tags' holds 1 different labels \\(a\\)"),
    "not a flag": ("text,a,b\nx,0,1\ny,2,1\n", {"label_columns": ["a", "b"]}, "Column 'a' holds '2' in row 2 of train"),
    "a column twice": (
        "text,plot,plot,music\n" + "x,0,1,1\n" * 12,
        {},
        "data.csv has more than one column 'plot'",
    ),
    "one wrong flag of many": (
        "text,plot,music,cast\n" + "x,0,1,1\n" * 5 + "x,2,1,0\n" + "x,1,0,1\n" * 6,
        {},
        "Column 'plot' is 0/1 but for row 6 of train: '2'",
    ),
    "wrong flags in all": (
        "text,plot,music\n" + "x,0,1\n" * 9 + "x,?,?\n",
        {},
        r"Column 'plot' is 0/1 but for row 10 of train: '\?'.*label_columns \(--label_columns\)",
    ),
    "rare labels": (
        "text,tags\n" + "".join(f"x,a{i}|b{i}\n" for i in range(80)),
        {},
        "None of 80 rows can be cut off for a validation split, because the labels are too rare: half of the 160 have "
        "at most 1 rows",
    ),
    "a header only": ("text,tags\n\n", {}, "data.csv has a header but no rows"),
    "nothing at all": ("", {}, "data.csv is empty"),
    "too few": ("text,tags\nx,a\ny,b\n", {}, "2 training rows are too few to split"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named(case, tmp_path):
    content, options, message = WRONG[case]
    (tmp_path / "data.csv").write_text(content)
    with pytest.raises(CorpusFormatError, match=message):
        read_own_data(tmp_path / "data.csv", **options)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.csv", "is not there"),
        ("notes.docx", r"ends in '\.docx'; expected one of \.csv"),
        ("empty", r"holds neither train\.csv"),
        ("broken.parquet", "cannot be read as PARQUET"),
        ("cut_off.csv.gz", r"cut_off\.csv\.gz is truncated or corrupt.*Compressed file ended"),
    ],
)
def test_sources_that_cannot_be_read_say_why(source, message, tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("notes.docx", "broken.parquet"):
        (tmp_path / name).write_text("nothing")
    (tmp_path / "cut_off.csv.gz").write_bytes(gzip.compress(b"text,tags\na text,a\n")[:-9])
    with pytest.raises(CorpusFileError, match=message):
        read_own_data(tmp_path / source)


def test_a_dataset_of_the_hub_that_cannot_be_had_says_so(monkeypatch):
    monkeypatch.setattr("hf_mlcl.data.own_files.hub_is_reachable", lambda: False)
    with pytest.raises(CorpusFileError, match="neither a file nor a folder here, and the Hub cannot be reached"):
        read_own_data("somebody/some-dataset")


def test_a_dataset_of_the_hub_with_class_labels_is_read(monkeypatch):
    features = datasets.Features(
        {
            "sentence": datasets.Value("string"),
            "labels": datasets.List(datasets.ClassLabel(names=["joy", "anger"])),
        }
    )
    rows = datasets.Dataset.from_dict(
        {"sentence": [f"text {i}" for i in range(20)], "labels": [[0, 1] if i % 2 else [] for i in range(20)]},
        features=features,
    )
    served = datasets.DatasetDict({"train": rows, "validation": rows.select(range(5)), "test": rows.select(range(5))})
    monkeypatch.setattr("hf_mlcl.data.own_files.hub_is_reachable", lambda: True)
    monkeypatch.setattr(
        "hf_mlcl.data.own_files.load_dataset",
        lambda name, config: served if (name, config) == ("somebody/emotions", "plain") else None,
    )
    data = read_own_data("somebody/emotions:plain")
    assert data.label_names == ["joy", "anger"]
    assert data.split_rule == "as given"
    assert data.splits["train"]["labels"][:2] == [[], [0, 1]]


def test_paths_may_be_paths_or_strings(tmp_path):
    path = write(tmp_path, "|", ".csv")
    assert found(read_own_data(str(path))) == found(read_own_data(Path(path)))


def test_counts_beside_a_column_of_lists_are_no_labels(tmp_path):
    rows = [
        {
            "text": f"text {n}",
            "aspects": ["plot", "music"][: 1 + n % 2],
            "upvotes": 5 if n == 0 else n % 2,
            "old": n % 2,
        }
        for n in range(40)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_own_data(path).splits["train"].features["labels"].feature.names == ["music", "plot"]


def test_images_in_an_archive_have_a_fingerprint(tmp_path):
    features = datasets.Features(
        {"image": datasets.Image(), "labels": datasets.List(datasets.ClassLabel(names=["cat"]))}
    )
    rows = {"image": [{"path": "zip://a.png::photos.zip", "bytes": None}], "labels": [[0]]}
    assert len(data_fingerprint({"train": datasets.Dataset.from_dict(rows, features=features)})) == 64


def in_memory(kind, tmp_path):
    table = frame("|")
    rows = datasets.Dataset.from_pandas(table, preserve_index=False)
    if kind == "dataframe":
        return table
    if kind == "dataset":
        return rows
    if kind == "selected":  # rows in another order, and some twice, of which select makes a list of places
        doubled = datasets.concatenate_datasets([rows, rows.select([1, 2])]).select(range(len(rows)))
        return doubled.with_format("numpy")
    saved = datasets.DatasetDict({"train": rows}) if kind == "saved dict" else rows
    saved.save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("kind", ["dataframe", "dataset", "selected", "saved dict", "saved"])
def test_data_in_memory_and_saved_to_disk_are_read_as_a_file_of_the_same_rows(kind, tmp_path):
    frame("|").to_csv(tmp_path / "rows.csv", index=False)
    expected, found = read_own_data(tmp_path / "rows.csv"), read_own_data(in_memory(kind, tmp_path))
    assert found.describe() == expected.describe()
    assert data_fingerprint(found.splits) == data_fingerprint(expected.splits)


def test_a_dataset_dict_keeps_its_splits_under_their_usual_names():
    rows = datasets.Dataset.from_pandas(frame("lists"), preserve_index=False)
    parts = {"train": rows.select(range(20)), "dev": rows.select(range(20, 30)), "test": rows.select(range(30, 40))}
    data = read_own_data(datasets.DatasetDict(parts))
    assert {split: len(found) for split, found in data.splits.items()} == {"train": 20, "validation": 10, "test": 10}
    assert data.splits["test"]["text"][0] == examples()[30][0]


def test_a_stream_or_something_else_in_memory_is_refused_with_the_way_out():
    stream = datasets.Dataset.from_dict({"text": ["a"], "labels": [["b"]]}).to_iterable_dataset()
    with pytest.raises(CorpusFileError, match=r"type IterableDataset; expected a path.*Dataset\.from_list"):
        read_own_data(stream)
    with pytest.raises(CorpusFileError, match="type dict; expected a path, a Dataset, a DatasetDict or a pandas"):
        read_own_data({"text": ["a"]})


def test_a_saved_dataset_that_is_damaged_is_named(tmp_path):
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "state.json").write_text("{}")
    with pytest.raises(CorpusFileError, match="saved cannot be read as a saved dataset"):
        read_own_data(tmp_path / "saved")


def test_every_row_tells_the_line_of_the_file_that_it_begins_in(tmp_path):
    rows = [(f"story {i}\nin two lines" if i % 3 == 0 else f"story {i}", TOPICS[i % 3]) for i in range(30)]
    text = "\n\ntext,tags\n" + "\n".join(
        f'"{text}",{tag}' + ("\n" if i % 5 == 0 else "") for i, (text, tag) in enumerate(rows)
    )
    (tmp_path / "news {1}.csv").write_text(text)
    (tmp_path / "later.csv").write_text("text,tags\n ,art\nlate story,art\nlatest story,music\n")
    splits = read_own_data(tmp_path / "news {1}.csv", test_file=tmp_path / "later.csv").splits
    lines = text.split("\n")
    seen = [row for split in ("train", "validation") for row in splits[split]]
    assert len(seen) == 30
    for row in seen:
        name, number = row["place"].split(", line ")
        assert name == "news {1}.csv"
        assert lines[int(number) - 1].startswith('"' + row["text"].split("\n")[0])
    assert list(splits["test"]["place"]) == ["later.csv, line 3", "later.csv, line 4"]


def test_where_there_are_no_lines_rows_are_counted_and_images_named(tmp_path):
    table = pd.DataFrame({"text": [f"story {i}" for i in range(20)], "tags": [TOPICS[i % 3] for i in range(20)]})
    table.to_parquet(tmp_path / "news.parquet")
    for row in read_own_data(tmp_path / "news.parquet").splits["train"]:
        assert row["place"] == f"news.parquet, row {int(row['text'].split()[1]) + 1}"
    assert read_own_data(table).splits["test"][0]["place"].startswith("train, row ")
    for topic in TOPICS:
        for i in range(6):
            path = tmp_path / "pictures" / topic / f"{topic}{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (10 * i, 0, 0)).save(path)
    names = {f"{topic}{i}.png" for topic in TOPICS for i in range(6)}
    splits = read_own_data(tmp_path / "pictures").splits
    assert {place for rows in splits.values() for place in rows["place"]} == names
