"""The page of a classifier: whole, self-contained, and true to its numbers."""

from __future__ import annotations

import base64
import csv
import html.parser
import io
import re
from dataclasses import replace

import numpy as np
import pytest

from hf_mlcl.metrics import DecisionRule
from hf_mlcl.pages import Explained, Split, write_explain_page
from pages.made import NAMES, NASTY, data_of, explained, split


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = write_explain_page(tmp_path_factory.mktemp("page") / "explain.html", explained())
    return path.read_text(encoding="utf-8")


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.addresses, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "data", "action")]

    def handle_data(self, data):
        self.text.append(data)


def test_a_page_loads_nothing_and_may_load_nothing(page):
    reader = Reader()
    reader.feed(page)
    assert all(address.startswith(("#", "data:")) for address in reader.addresses)
    assert not {"link", "iframe", "object"} & set(reader.tags)
    assert "default-src 'none'" in page


def test_texts_and_names_of_a_user_are_never_markup(page):
    reader = Reader()
    reader.feed(page)
    assert not {"i", "b"} & set(reader.tags)
    assert "onerror" not in re.sub(r"<script.*?</script>", "", page, flags=re.S).replace("&lt;img src=x onerror", "")
    assert page.count("</script>") == 3
    rows = data_of(page)["datasets"]["rows"]
    assert rows[0]["text"] == NASTY.replace("\ud800", "?")


def test_rows_know_their_labels_errors_and_nearest_training_examples(page):
    one, data = explained(), data_of(page)
    decided = one.rule.decide(one.probabilities)
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (one.test.features, one.train.features)]
    similarity = unit[0] @ unit[1].T
    assert len(data["datasets"]["rows"]) == 120
    for row in data["datasets"]["rows"]:
        i = row["id"]
        assert row["truth"] == np.flatnonzero(one.test.labels[i]).tolist()
        assert row["given"] == np.flatnonzero(decided[i]).tolist()
        assert row["missed"] == int((one.test.labels[i] & ~decided[i]).sum())
        nearest = [int(key) for key, _ in row["near"]]
        np.testing.assert_allclose(similarity[i, nearest], np.sort(similarity[i])[::-1][:5], atol=1e-5)
        assert all(key in data["examples"] for key, _ in row["near"])
    assert data["examples"][row["near"][0][0]]["text"] == one.train.inputs[nearest[0]]


def test_the_list_of_doubtful_labels_can_be_downloaded_as_csv(page):
    source = re.search(r'href="data:text/csv;charset=utf-8;base64,([^"]+)" download=', page).group(1)
    rows = list(csv.DictReader(io.StringIO(base64.b64decode(source).decode("utf-8-sig"))))
    assert 0 < len(rows) < 200
    assert all(row["wrong"] or row["missing"] for row in rows)
    assert [float(row["score"]) for row in rows] == sorted((float(row["score"]) for row in rows), reverse=True)
    assert set(rows[0]) == {"place", "score", "labels", "wrong", "missing", "text"}
    assert re.fullmatch(r"training row \d+", rows[0]["place"])


def test_rows_are_called_by_where_they_were_read_or_counted_and_the_page_says_which(page, tmp_path):
    assert "Rows are counted from 1 within their split, such as “test row 1”" in page
    assert data_of(page)["datasets"]["rows"][7]["place"] == "test row 8"
    one = explained()
    test, train = (
        Split(each.inputs, each.labels, each.features, [f"mine.csv, line {2 * i + 2}" for i in range(len(each.inputs))])
        for each in (one.test, one.train)
    )
    read = write_explain_page(tmp_path / "explain.html", replace(one, test=test, train=train)).read_text("utf-8")
    assert "called by where they were read, such as “mine.csv, line 2”" in read
    assert data_of(read)["datasets"]["rows"][7]["place"] == "mine.csv, line 16"
    source = re.search(r'base64,([^"]+)" download=', read).group(1)
    for row in csv.DictReader(io.StringIO(base64.b64decode(source).decode("utf-8-sig"))):
        number = int(row["place"].removeprefix("mine.csv, line ")) // 2 - 1
        assert row["labels"] == (", ".join(NAMES[i] for i in np.flatnonzero(train.labels[number])) or "none")


def test_the_frozen_encoder_is_not_shown_twice_where_it_is_what_the_classifier_uses(tmp_path):
    same = {"macro_f1": [0.6, 0.5, 0.7]}
    one = explained(scores={"trained": same, "frozen": same, "gain": {"macro_f1": [0.0, 0.0, 0.0]}})
    page = write_explain_page(tmp_path / "explain.html", one).read_text(encoding="utf-8")
    assert "by heads on the frozen encoder." in page
    assert "<th>frozen encoder</th>" not in page


def test_scores_stand_beside_those_of_the_frozen_encoder(page):
    assert "0.600 (0.500 to 0.700)" in page
    assert "0.500 (0.400 to 0.600)" in page
    assert "+0.100 (+0.050 to +0.150)" in page
    assert "0.100 above the frozen encoder" in page


def test_pictures_are_small_jpegs_within_the_page(tmp_path):
    path = write_explain_page(tmp_path / "explain.html", explained(30, 40, pictures=True))
    rows = data_of(path.read_text(encoding="utf-8"))["datasets"]["rows"]
    assert all(row["image"].startswith("data:image/jpeg;base64,/9j/") for row in rows)


def test_a_page_without_training_rows_has_no_neighbours_and_no_doubtful_labels(tmp_path):
    page = write_explain_page(tmp_path / "explain.html", explained(train=0, scores={})).read_text(encoding="utf-8")
    assert "probably labelled wrongly" not in page
    assert all(row["near"] == [] for row in data_of(page)["datasets"]["rows"])
    assert "training rows" not in page


def test_where_the_most_probable_label_counts_there_is_no_slider(tmp_path):
    one = explained(rule=DecisionRule(single_label=True))
    page = write_explain_page(tmp_path / "explain.html", one).read_text(encoding="utf-8")
    assert 'data-chart="threshold"' not in page


def test_a_page_of_very_many_long_texts_stays_below_ten_megabytes(tmp_path):
    rows, labels = 5000, np.random.default_rng(0).random((5000, 20)) < 0.1
    features = np.random.default_rng(1).normal(size=(rows, 8)).astype(np.float32)
    texts = [f"{number} " + "word " * 400 for number in range(rows)]
    one = Split(texts, labels, features)
    many = Explained(
        *("long", "text", [f"label {i}" for i in range(20)], DecisionRule(), one, labels.astype(np.float32)), train=one
    )
    assert write_explain_page(tmp_path / "explain.html", many).stat().st_size < 10e6


def test_what_does_not_fit_together_is_refused():
    rows = split(10, 0)
    with pytest.raises(ValueError, match="same number of rows; got 10, 10 and 9"):
        Split(rows.inputs, rows.labels, rows.features[:9])
    with pytest.raises(ValueError, match=r"must have the shape \(10, 4\)"):
        Explained("x", "text", NAMES, DecisionRule(), rows, np.zeros((9, 4), np.float32))


def test_rows_of_a_model_that_reads_both_show_text_and_picture(tmp_path):
    texts, pictures = split(30, 0), split(30, 0, pictures=True)
    both = [{"text": text, "image": image} for text, image in zip(texts.inputs, pictures.inputs, strict=True)]
    both[1] = {"text": "alone", "image": None}
    rows = Split(both, texts.labels, texts.features)
    scores = texts.labels.astype(np.float32)
    one = Explained("both", "text+image", NAMES, DecisionRule(), rows, scores, train=rows)
    shown = data_of(write_explain_page(tmp_path / "explain.html", one).read_text(encoding="utf-8"))["datasets"]["rows"]
    assert (shown[1]["text"], "image" in shown[1]) == ("alone", False)
    assert shown[2]["text"] == texts.inputs[2]
    assert shown[2]["image"].startswith("data:image/jpeg")
