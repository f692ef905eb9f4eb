"""The names of labels and the texts of one's own data come back exactly as they are written."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from hf_mlcl.data import CorpusFormatError, read_own_data
from hf_mlcl.data.own import content_of

NUMBERS = [
    "01",
    "1",
    "02",
    "2",
    "1.1",
    "1.10",
    "1e5",
    "100000",
    "TRUE",
    "true",
    "NA",
    "nan",
    "null",
    "0x1",
    "-0",
    "1_0",
]


def found(path, **options):
    """The names of each row's labels, by text."""
    data = read_own_data(path, cut=False, **options)
    rows = data.splits["train"]
    labels = [[data.label_names[i] for i in ids] for ids in rows["labels"][:]]
    return dict(zip(rows["text"][:], labels, strict=True))


def write_csv(path, rows, quoting=csv.QUOTE_MINIMAL, separator=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, quoting=quoting, delimiter=separator).writerows(rows)
    return path


# Cells are cut at the delimiter, and lose the blanks around them; everything else is part of a name.
names = st.text(st.characters(exclude_characters="|\0\r", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda name: name == name.strip()
)
like_numbers = st.sampled_from(NUMBERS) | st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3})?", fullmatch=True)


some_rows = [
    st.lists(st.lists(kind, max_size=3, unique=True), min_size=3, max_size=20) for kind in (names, like_numbers)
]
one_each = st.lists(like_numbers.map(lambda name: [name]), min_size=3, max_size=20)


@given(
    st.one_of(*some_rows, one_each),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from([",", ";", "\t"]),
)
@settings(max_examples=60, deadline=None)
@example([["01"], ["1"], ["02"], ["2"]], csv.QUOTE_ALL, ",")
@example([["1.1"], ["1.10"]], csv.QUOTE_MINIMAL, ",")
@example([["1"], ["2"], [], ["3"]], csv.QUOTE_MINIMAL, ";")
def test_labels_written_to_csv_come_back_exactly(labels, quoting, separator):
    assume(len({name for row in labels for name in row}) > 1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [["text", "labels"], *([f"text {i}", "|".join(row)] for i, row in enumerate(labels))]
        path = write_csv(Path(folder) / "data.csv", rows, quoting, separator)
        got = found(path, label_delimiter="|")
    assert got == {f"text {i}": sorted(row) for i, row in enumerate(labels)}


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".json", ".parquet"])
@pytest.mark.parametrize("names", [["01", "1", "02", "2"], ["1.1", "1.10"], ["2020-01-01", "2020-01-02"], NUMBERS])
def test_strings_that_look_like_numbers_stay_as_written_in_every_format(ending, names, tmp_path):
    table = pd.DataFrame({"text": [f"text {i}" for i in range(len(names))], "label": names})
    path = tmp_path / f"data{ending}"
    if ending in (".csv", ".tsv"):
        table.to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
    elif ending == ".parquet":
        table.to_parquet(path)
    else:
        table.to_json(path, orient="records", lines=ending == ".jsonl")
    assert found(path) == {f"text {i}": [name] for i, name in enumerate(names)}


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_an_empty_cell_changes_no_other_label(quoting, tmp_path):
    cells = ["1", "2", "3", "", "1"]
    rows = [["text", "labels"], *([f"text {i}", cell] for i, cell in enumerate(cells))]
    got = found(write_csv(tmp_path / "data.csv", rows, quoting))
    assert list(got.values()) == [["1"], ["2"], ["3"], [], ["1"]]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_a_number_is_called_by_its_digits_though_an_empty_cell_makes_it_a_float(ending, tmp_path):
    table = pd.DataFrame({"text": list("abcd"), "label": [1.0, None, 3.0, 2.5]})
    path = tmp_path / f"data{ending}"
    table.to_parquet(path) if ending == ".parquet" else table.to_json(path, orient="records", lines=True)
    assert found(path) == {"a": ["1"], "b": [], "c": ["3"], "d": ["2.5"]}


def test_json_numbers_strings_and_dates_keep_their_letters(tmp_path):
    cells = ["2020-01-01", 7, "07", 12345678901234567890123, True, None, "2020-01-01T00:00:00Z"]
    rows = [{"text": f"text {i}", "labels": [cell]} for i, cell in enumerate(cells)]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    expected = [["2020-01-01"], ["7"], ["07"], ["12345678901234567890123"], ["true"], [], ["2020-01-01T00:00:00Z"]]
    assert list(found(tmp_path / "data.jsonl").values()) == expected


def test_blanks_around_labels_in_lists_are_no_part_of_them(tmp_path):
    rows = [{"text": "a", "labels": [" cat", "dog "]}, {"text": "b", "labels": ["cat", " "]}]
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert found(tmp_path / "data.jsonl") == {"a": ["cat", "dog"], "b": ["cat"]}
    table = [["text", "labels"], ["a", "[' cat', 'dog ']"], ["b", '["cat"]']]
    assert found(write_csv(tmp_path / "data.csv", table)) == {"a": ["cat", "dog"], "b": ["cat"]}


def test_numbers_in_lists_that_are_written_out_stay_as_written(tmp_path):
    rows = [["text", "labels"], ["a", "[1.10, 1.1]"], ["b", "['01', 1]"], ["c", '["1.10"]'], ["d", "[]"]]
    got = found(write_csv(tmp_path / "data.csv", rows))
    assert got == {"a": ["1.1", "1.10"], "b": ["01", "1"], "c": ["1.10"], "d": []}


@pytest.mark.parametrize(
    "texts",
    [
        ["NA", "null", "nan", "001", "1e5", "TRUE", "1.10", "None", "-", " 2 "],
        ["001", "1e5", "2.50"],
        ["TRUE", "False"],
        ["12", "", "13", "14"],
    ],
)
def test_texts_that_look_like_numbers_or_nothing_stay_as_written(texts, tmp_path):
    rows = [["text", "labels"], *([text, "ab"[i % 2]] for i, text in enumerate(texts))]
    path = write_csv(tmp_path / "data.csv", rows)
    assert read_own_data(path, cut=False).splits["train"]["text"][:] == [text for text in texts if text]
    assert content_of(path, "text")[0] == texts


def test_a_delimiter_that_was_named_is_obeyed_where_cells_look_like_lists(tmp_path):
    path = write_csv(tmp_path / "data.csv", [["text", "labels"], ["a", "[x]|[y]"], ["b", "[y]"]])
    assert found(path, label_delimiter="|") == {"a": ["[x]", "[y]"], "b": ["[y]"]}


def test_a_column_called_text_is_found_whatever_it_holds(tmp_path):
    path = write_csv(tmp_path / "data.csv", [["text", "labels"], ["12", "a"], ["34", "b"]])
    assert found(path) == {"12": ["a"], "34": ["b"]}
    empty = write_csv(tmp_path / "empty.csv", [["text", "labels"], ["", "a"], ["", "b"]])
    with pytest.raises(CorpusFormatError, match=r"Column 'text' has no text in any of the 2 rows of train"):
        read_own_data(empty)


def test_blanks_around_the_names_of_columns_are_no_part_of_them(tmp_path):
    (tmp_path / "data.csv").write_text("id , text, labels \n" + "1,some text,a\n2,other,b\n")
    assert found(tmp_path / "data.csv") == {"some text": ["a"], "other": ["b"]}
    assert found(tmp_path / "data.csv", text_column="text", label_columns=["labels"])


def test_a_column_of_numbers_is_not_taken_for_texts(tmp_path):
    rows = [["published", "title", "plot", "music"], *([f"{2000 + i}.0000000001", f"t{i}", "1", "0"] for i in range(4))]
    data = read_own_data(write_csv(tmp_path / "data.csv", rows), cut=False)
    assert (data.content_column, data.label_names) == ("title", ["plot", "music"])


KNOWN = ["Food, wine", "Music, dance", "Sport"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["Food, wine", "Music, dance"], [["Food, wine"], ["Music, dance"]]),  # no other delimiter to be seen
        (["Sport", "Sport"], [["Sport"], ["Sport"]]),  # one label alone
        (["Food, wine|Sport", "Sport;Music, dance"], [["Food, wine", "Sport"], ["Music, dance", "Sport"]]),
        (["", "Sport"], [[], ["Sport"]]),
        (["Chess", "Sport"], [["Chess"], ["Sport"]]),
    ],
)
def test_known_names_tell_what_separates_labels_however_few_rows_there_are(tmp_path, rows, expected):
    path = write_csv(tmp_path / "few.csv", [["text", "tags"], *([str(i), row] for i, row in enumerate(rows))])
    assert [*found(path, label_names=KNOWN).values()] == expected


@pytest.mark.parametrize("others", [(), ("views",), ("category",)])
def test_columns_that_are_called_as_known_labels_are_those_of_the_labels(tmp_path, others):
    header, rows = ["text", *others, "sport", "food"], [["a", *"0" * len(others), "1", "0"], ["b", *others, "0", "0"]]
    path = write_csv(tmp_path / "few.csv", [header, *rows])
    assert found(path, text_column="text", label_names=["food", "music", "sport"]) == {"a": ["sport"], "b": []}
