"""Damaged and hostile files of one's own: the right rows come out, or one line says which file is wrong and why."""

from __future__ import annotations

import csv
import errno
import gzip
import json

import pandas as pd
import pytest

from hf_mlcl.data import CorpusError, read_own_data, sources
from hf_mlcl.data.own import content_of

ROWS = [(f"story {i}", "ab"[i % 2]) for i in range(12)]
PLAIN = "text,labels\n" + "".join(f"{text},{label}\n" for text, label in ROWS)
INDEXED = "".join(f"{i or ''},{line}\n" for i, line in enumerate(PLAIN.splitlines()))
JSON_ROWS = [{"text": text, "labels": [label]} for text, label in ROWS]
COLUMNS = {name: [row[name] for row in JSON_ROWS] for name in ("text", "labels")}
BY_NUMBER = {name: {str(i): value for i, value in enumerate(values)} for name, values in COLUMNS.items()}


def row_3(text):
    """The plain table with another text in its fifth line."""
    return PLAIN.replace("story 3", text).encode()


def objects(*more, **changed):
    """JSON Lines; each row with a further column, whose cells are `more` in turn."""
    rows = [{**row, **changed, **({"more": more[i % len(more)]} if more else {})} for i, row in enumerate(JSON_ROWS)]
    return "\n".join(map(json.dumps, rows)).encode()


def rows_of(path):
    data = read_own_data(path, cut=False)
    rows = data.splits["train"]
    pairs = zip(rows["text"][:], rows["labels"][:], strict=True)
    return [(text, *(data.label_names[i] for i in ids)) for text, ids in pairs]


GOOD = {
    "a byte order mark": ("data.csv", PLAIN.encode("utf-8-sig")),
    "UTF-16": ("data.csv", PLAIN.encode("utf-16")),
    "line ends of Windows": ("data.csv", PLAIN.replace("\n", "\r\n").encode()),
    "line ends of old Macs": ("data.csv", PLAIN.replace("\n", "\r").encode()),
    "blank lines": ("data.csv", ("\n\n" + PLAIN.replace("\n", "\n\n")).encode()),
    "separators at the end of rows": ("data.csv", PLAIN.replace("a\n", "a,,\n").encode()),
    "an index without a name": ("data.csv", INDEXED.encode()),
    "gzip with a capital ending": ("data.csv.GZ", gzip.compress(PLAIN.encode())),
    "a list of objects": ("data.json", json.dumps(JSON_ROWS, indent=1).encode()),
    "objects one after another": ("data.json", "\n".join(json.dumps(row, indent=1) for row in JSON_ROWS).encode()),
    "one object of columns": ("data.json", json.dumps(COLUMNS).encode()),
    "columns by row number": ("data.json", json.dumps(BY_NUMBER).encode()),
    "JSON in UTF-16": ("data.jsonl", objects().decode().encode("utf-16")),
    "objects in a column that is not used": ("data.jsonl", objects({"at": 1})),
    "changing types in a column that is not used": ("data.jsonl", objects(1, "a", [2], None, [[3]])),
}


@pytest.mark.parametrize("case", GOOD)
def test_odd_files_give_the_same_rows(case, tmp_path):
    name, content = GOOD[case]
    (tmp_path / name).write_bytes(content)
    assert rows_of(tmp_path / name) == ROWS


DEEP = b'[{"text": ' + b"[" * 20_000 + b"]" * 20_000 + b', "labels": []}]'
BAD = {
    "NUL bytes": ("data.csv", row_3("sto\0ry"), "line 5: a NUL byte"),
    "UTF-16 without a mark": ("data.csv", PLAIN.encode("utf-16-le"), "line 1: a NUL byte"),
    "Latin-1": ("data.csv", row_3("größe").decode().encode("latin-1"), "'utf-8' codec .*0xf6.*Save it as UTF-8"),
    "two encodings": ("data.csv", PLAIN.encode() + "ö,a\n".encode() + b"\xf6,a\n", "'utf-8' codec .*0xf6"),
    "a row too long": ("data.csv", row_3("story, 3"), "line 5: 3 cells, but the header names 2 columns"),
    "a row too short": ("data.csv", row_3("story\n3"), "line 5: 1 cells, but the header names 2 columns"),
    "all rows too long": ("data.csv", PLAIN.replace(",a", ",x,a").replace(",b", ",x,b").encode(), "line 2: 3 cells"),
    "an unclosed quote": ("data.csv", row_3('"story 3'), "line 5: a quote .* is never closed"),
    "a quote that opens in the header": (
        "data.csv",
        b'"text,labels\n' + b"a text,a\n" * 20_000,
        "line 1: a quote that is",
    ),
    "text after a quote": ("data.csv", row_3('"story" 3'), "line 5: ',' expected after '\"'"),
    "a column twice": ("data.csv", PLAIN.replace("text,labels", "text, text").encode(), "more than one column 'text'"),
    "an empty file": ("data.csv", b"", "is empty"),
    "blank lines only": ("data.csv", b"\n \n", "is empty"),
    "a header only": ("data.csv", b"text,labels\n", "has a header but no rows"),
    "a truncated gzip": ("data.csv.gz", gzip.compress(PLAIN.encode())[:-12], "truncated or corrupt"),
    "no gzip": ("data.csv.gz", PLAIN.encode(), "truncated or corrupt"),
    "truncated JSON": ("data.json", json.dumps(JSON_ROWS).encode()[:-20], "cannot be read as JSON: .*line 1 column"),
    "truncated JSON Lines": ("data.jsonl", objects()[:-20], "cannot be read as JSON: .*line 12 column"),
    "a key twice": ("data.jsonl", b'{"text": "a", "labels": ["a"], "labels": ["b"]}', "has the key 'labels' twice"),
    "JSON that is nested deeply": ("data.json", DEEP, "cannot be read as JSON: it is nested too deeply"),
    "JSON Lines that are nested deeply": ("data.jsonl", b'{"text": ' + b'{"a":' * 20_000, "nested too deeply"),
    "objects as texts": ("data.jsonl", objects(text={"de": "Haus"}), "Column 'text' holds objects such as .*Haus"),
    "objects as labels": ("data.jsonl", objects(labels=[{"name": "a"}]), "Column 'labels' holds objects such as"),
    "lists as texts": ("data.jsonl", objects(text=["one", "two"]), "Column 'text' holds lists such as"),
    "strings instead of rows": ("data.json", b'["a", "b"]', "row 1: 'a', expected an object"),
    "half a character": ("data.jsonl", objects(text="\ud800"), "characters that are none"),
    "empty JSON": ("data.json", b"", "is empty"),
    "no rows in JSON": ("data.json", b"[]", "is empty, or has no rows"),
    "no Parquet": ("data.parquet", b"PAR1 nothing PAR1", "cannot be read as PARQUET"),
    "lists that never end": ("data.csv", b"text,labels\na," + b"[" * 5000 + b"]\n", "looks like a list of labels"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_with_a_file_is_said_in_a_line_that_names_it(case, tmp_path):
    name, content, message = BAD[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=message) as caught:
        read_own_data(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value) or "Column" in str(caught.value)


def test_a_truncated_parquet_file_is_named(tmp_path):
    pd.DataFrame(JSON_ROWS).to_parquet(tmp_path / "whole.parquet")
    (tmp_path / "half.parquet").write_bytes((tmp_path / "whole.parquet").read_bytes()[:-100])
    assert len(rows_of(tmp_path / "whole.parquet")) == len(ROWS)
    with pytest.raises(CorpusError, match=r"half\.parquet cannot be read as PARQUET: .+"):
        read_own_data(tmp_path / "half.parquet")


def test_a_text_longer_than_the_csv_module_allows_for_is_read_and_its_limit_left_alone(tmp_path):
    before = csv.field_size_limit()
    long = "word " * 100_000
    (tmp_path / "data.csv").write_text(PLAIN + f"{long},a\n")
    assert content_of(tmp_path / "data.csv", "text")[0][-1] == long
    assert csv.field_size_limit() == before


def test_a_compressed_bomb_is_stopped_by_what_it_unpacks_to(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "FREE_BYTES", 10_000)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(PLAIN.encode() + b"a" * 4_000_000))
    with pytest.raises(CorpusError, match=r"bomb\.csv\.gz.*archive bomb"):
        read_own_data(tmp_path / "bomb.csv.gz")


def test_a_full_disk_is_named_when_parquet_is_unpacked(tmp_path, monkeypatch):
    def fails(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("hf_mlcl.data.own_files.load_dataset", fails)
    (tmp_path / "data.parquet").touch()
    with pytest.raises(CorpusError, match=r"data\.parquet.*The disk of .* is full"):
        read_own_data(tmp_path / "data.parquet")
