"""Any number of rows in the memory of one batch, each with its line of output, whatever the others are."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tracemalloc

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from hf_mlcl.cli import predict
from hf_mlcl.cli.app import app
from models import saved

LABELS = 100


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return saved.save_classifier(tmp_path_factory.mktemp("model"), LABELS)


def call(*arguments, code=0, **settings):
    result = CliRunner().invoke(app, ["predict", *map(str, arguments)], **settings)
    assert result.exit_code == code, f"{result.output}\n{result.stderr}\n{result.exception!r}"
    assert code == 0 or type(result.exception) is SystemExit, repr(result.exception)
    return result


def predict_lines(folder, model, count, output, *options):
    path = folder / f"{count}.txt"
    path.write_text("".join(f"a red cat {number}\n" for number in range(count)))
    call(path, "--model", model, "--output", folder / output, *options)


@pytest.mark.parametrize("options", [[], ["--json", "--threshold", "1"]], ids=["csv", "json"])
def test_memory_does_not_grow_with_the_rows(options, model, tmp_path):
    peaks = []
    for count in (500, 2_000):
        tracemalloc.start()
        predict_lines(tmp_path, model, count, "out", *options)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Keeping nothing but the probabilities of each row, in float32, would take 1,500 x 100 x 4 bytes = 600 kB.
    assert peaks[1] - peaks[0] < 300_000
    lines = (tmp_path / "out").read_text().splitlines()
    assert len(json.loads("\n".join(lines))) == 2_000 if options else len(lines) == 2_001


class Watched:
    """Rows that look, before the last one is given, at what has been written so far."""

    def __init__(self, count, look):
        self.count, self.look, self.seen = count, look, None

    def __iter__(self):
        for number in range(self.count):
            yield f"a red cat {number}"
        self.seen = self.look()


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["lines", "json"])
def test_what_is_printed_comes_batch_by_batch(options, model, monkeypatch, capsys):
    rows = Watched(200, lambda: capsys.readouterr().out)
    monkeypatch.setattr(predict, "expand", lambda *_: rows)
    predict.predict(["-"], str(model), as_json=bool(options))
    assert "a red cat 150" in rows.seen
    if options:
        assert len(json.loads(rows.seen + capsys.readouterr().out)) == 200


@pytest.mark.parametrize("as_json", [False, True])
def test_a_file_grows_beside_its_name_and_gets_it_once_it_is_whole(as_json, model, monkeypatch, tmp_path):
    look = lambda: {path.name: path.read_text() for path in tmp_path.iterdir()}  # noqa: E731
    rows = Watched(200, look)
    monkeypatch.setattr(predict, "expand", lambda *_: rows)
    predict.predict(["-"], str(model), output=str(tmp_path / "out"), as_json=as_json)
    [(draft, text)] = rows.seen.items()
    assert draft.endswith(".part")
    assert "a red cat 150" in text
    assert list(look()) == ["out"]


def test_a_file_does_not_appear_where_prediction_breaks_off(model, monkeypatch, tmp_path):
    def rows():
        yield from ["a red cat"] * 100
        raise OSError("the disk is gone")

    (tmp_path / "out.csv").write_text("of before")
    monkeypatch.setattr(predict, "expand", lambda *_: rows())
    with pytest.raises(OSError, match="the disk is gone"):
        predict.predict(["-"], str(model), output=str(tmp_path / "out.csv"))
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]
    assert (tmp_path / "out.csv").read_text() == "of before"


# Lines ----------------------------------------------------------------------------------------------------------------

ODD = "a\u2028red\x0ccat\x85runs\u2029a\x1cdog\rruns"


@pytest.mark.parametrize("source", ["-", "file"])
def test_lines_end_with_newlines_alone(source, model, tmp_path):
    text = f"{ODD}\na cat\r\na dog"
    (tmp_path / "texts.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    given = tmp_path / "texts.txt" if source == "file" else "-"
    result = call(given, "--model", model, "--json", input=text.encode())
    assert [one["input"] for one in json.loads(result.stdout)] == [ODD, "a cat", "a dog"]


MIXED = "a cat\n\nein Mädchen\n  \na dog\n".encode("latin-1")


@pytest.mark.parametrize("source", ["-", "file"])
def test_a_row_that_cannot_be_read_stops_no_other(source, model, tmp_path):
    (tmp_path / "texts.txt").write_bytes(MIXED)
    given = tmp_path / "texts.txt" if source == "file" else "-"
    name = given if source == "file" else "standard input"
    result = call(given, "--model", model, "--json", "--scores", input=MIXED, code=1)
    found = json.loads(result.stdout)
    assert [len(one["labels"]) for one in found] == [LABELS, 0, 0, 0, LABELS]
    assert found[1]["error"] == f"line 2 of {name} is empty"
    assert f"line 3 of {name} is not UTF-8 (byte 0xe4). Convert it first: iconv -f LATIN1" in found[2]["error"]
    assert "row 3 has no prediction: line 3" in result.stderr
    assert "3 of 5 rows have no prediction" in result.stderr
    assert "(failed: line 2 of" in call(given, "--model", model, input=MIXED, code=1).stdout
    call(given, "--model", model, "--output", tmp_path / "out.csv", input=MIXED, code=1)
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [bool(row["error"]) for row in rows] == [False, True, True, True, False]
    assert [row["label 0"] == "" for row in rows] == [False, True, True, True, False]


def test_an_argument_that_is_no_text_stops_no_other(model):
    result = call("a cat", "a \udce4", "a dog", "--model", model, "--json", code=1)
    found = json.loads(result.stdout)
    assert [bool(one.get("error")) for one in found] == [False, True, False]
    assert found[1]["input"] == "a ?"


def test_many_rows_that_fail_are_counted_and_not_all_told(model):
    result = call("-", "--model", model, "--json", input=b"\n" * 100, code=1)
    assert len(json.loads(result.stdout)) == 100
    assert len(result.stderr.splitlines()) == predict.TOLD + 1


def test_an_empty_cell_of_a_table_stops_no_other(model, tmp_path):
    (tmp_path / "texts.csv").write_text('id,text\n1,a cat\n2,\n3,"a\ndog"\n')
    result = call(tmp_path / "texts.csv", "--model", model, "--json", code=1)
    found = json.loads(result.stdout)
    assert [one.get("error") for one in found] == [None, f"row 2 of {tmp_path / 'texts.csv'} is empty", None]
    assert found[2]["input"] == "a\ndog"


def test_a_broken_image_stops_no_other(tmp_path):
    model = saved.save_image_classifier(tmp_path / "model")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for number in range(4):
        Image.new("RGB", (20 + number, 30), (60 * number, 0, 0)).save(pictures / f"{number}.png")
    whole = json.loads(call(pictures, "--model", model, "--json", "--scores").stdout)
    (pictures / "1.png").write_bytes((pictures / "1.png").read_bytes()[:20])
    (pictures / "2.png").write_text("no picture")
    found = json.loads(call(pictures, "--model", model, "--json", "--scores", code=1).stdout)
    assert [bool(one.get("error")) for one in found] == [False, True, True, False]
    for row in (0, 3):
        assert {hit["label"]: hit["score"] for hit in found[row]["labels"]} == pytest.approx(
            {hit["label"]: hit["score"] for hit in whole[row]["labels"]}, abs=1e-4
        )


def test_a_row_without_finite_scores_stops_no_other(tmp_path):
    classifier = saved.text_classifier()
    red = saved.tokenizer()("red")["input_ids"][1]
    with torch.no_grad():  # numbers all of them, but too large to be squared
        classifier.backbone.embeddings.LayerNorm = torch.nn.Identity()
        classifier.backbone.embeddings.word_embeddings.weight[red] = 3e38
    classifier.backbone.embeddings.LayerNorm = torch.nn.LayerNorm(16)
    classifier.save_pretrained(tmp_path)
    saved.tokenizer().save_pretrained(tmp_path)
    found = json.loads(call("a cat", "red red", "a dog", "--model", tmp_path, "--json", code=1).stdout)
    assert [one.get("error") for one in found] == [None, "its scores are not finite", None]


def test_every_argument_is_looked_at_before_anything_is_predicted(model, tmp_path):
    (tmp_path / "texts.txt").write_text("a cat\n")
    result = call(tmp_path / "texts.txt", "missing.csv", "--model", model, code=1)
    assert result.stdout == ""
    assert "'missing.csv' is not there" in result.stderr


def test_an_output_that_is_a_folder_is_refused_before_anything_is_predicted(tmp_path):
    result = call("a cat", "--model", "none", "--output", tmp_path, code=1)
    assert "--output must be a file" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "expected"), [("notes.csv.txt", ["text", "a cat"]), ("old.txt.csv", ["a cat"])])
def test_the_last_ending_says_whether_a_file_is_a_table(name, expected, tmp_path):
    (tmp_path / name).write_text("text\na cat\n")
    assert list(predict.expand(str(tmp_path / name), "text")) == expected
    with gzip.open(tmp_path / "packed.csv.gz", "wt") as file:
        file.write("text\na cat\n")
    assert list(predict.expand(str(tmp_path / "packed.csv.gz"), "text")) == ["a cat"]


def test_nothing_is_not_predicted(model, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    result = call(tmp_path / "empty.txt", "--model", model, "--output", tmp_path / "out.csv", code=1)
    assert "There is nothing to predict" in result.stderr
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ("a text\nanother\n".encode("utf-16"), "in UTF-16"),
        (b"%PDF-1.4\nendobj\n", "a PDF"),
        (b"PK\x03\x04 a sheet", "an archive"),
        (b"some \0 bytes", "no text"),
        (gzip.compress(b"a text", mtime=0), "packed"),  # no time in it: one name in all processes
    ],
)
def test_a_file_that_is_no_text_in_utf_8_is_refused_whole(content, kind, model, tmp_path):
    (tmp_path / "rows.txt").write_bytes(content)
    for given in (tmp_path / "rows.txt", tmp_path):
        error = call(given, "--model", model, code=1).stderr
        assert f"rows.txt is {kind}" in error
        assert "expected texts in UTF-8" in error


def test_what_is_read_is_not_replaced_by_what_comes_of_it(model, tmp_path):
    (tmp_path / "mine.csv").write_text("id,text\n1,a red cat\n")
    before = (tmp_path / "mine.csv").read_text()
    error = call(tmp_path / "mine.csv", "--model", model, "--output", tmp_path / "." / "mine.csv", code=1).stderr
    assert "is to be read" in error
    assert (tmp_path / "mine.csv").read_text() == before


def test_labels_that_are_called_as_other_columns_have_columns_of_their_own():
    file = io.StringIO()
    predict._as_csv(file, ["cat", "error", "labels"])
    assert file.getvalue().strip() == "input,labels,cat,error (label),labels (label),error"


def test_the_column_of_the_training_is_read_and_the_labels_are_not(tmp_path):
    (tmp_path / "rows.csv").write_text("query,subjects,text\nfirst,a long story about labels,none\n")
    both, labels = {"text_column": "query"}, {"label_columns": ["subjects", "text"]}
    for trained, expected in (({}, "none"), (both, "first"), (labels, "first"), ({"text_column": "gone"}, "none")):
        assert list(predict.expand(str(tmp_path / "rows.csv"), "text", None, trained)) == [expected]
    assert list(predict.expand(str(tmp_path / "rows.csv"), "text", "text", both)) == ["none"]  # the one that is named


def test_a_label_comes_with_its_threshold_and_the_reason_why_it_counts(model):
    (one,) = json.loads(call("a red cat", "--model", model, "--top", 5, "--threshold", "0.6", "--json").stdout)
    assert len(one["labels"]) == 5
    scores = [hit["score"] for hit in one["labels"]]
    assert scores == sorted(scores, reverse=True)
    for hit in one["labels"]:
        assert hit["threshold"] == 0.6
        assert hit["given"] == (hit["score"] >= 0.6)
    printed = call("a red cat", "--model", model, "--top", 5, "--threshold", "0.6").stdout
    assert all(f"{hit['label']} {hit['score']:.2f}" in printed for hit in one["labels"])


def test_the_nearest_examples_are_shown_with_their_labels(model, tmp_path):
    texts = ["a red cat", "a blue dog runs", "green dog", "a cat runs", "blue", "a dog", "red dog runs", "a green cat"]
    rows = [f"{text},label {i % 3}|label 3" for i, text in enumerate(texts * 5)]
    (tmp_path / "mine.csv").write_text("\n".join(["text,labels", *rows]))
    near = ["--neighbours", 2, "--examples", tmp_path / "mine.csv"]
    (one,) = json.loads(call("a blue dog runs", "--model", model, *near, "--json").stdout)
    assert one["neighbours"][0]["example"] == "a blue dog runs"
    assert one["neighbours"][0]["similarity"] == pytest.approx(1.0, abs=1e-3)
    assert "label 3" in one["neighbours"][0]["labels"]
    assert "1.00 a blue dog runs" in call("a blue dog runs", "--model", model, *near).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scores", "--top", "2"], "Give one of the two"),
        (["--examples", "x.csv"], "are for --neighbours"),
        (["--neighbours", "2", "--output", "x.csv"], "no place for --neighbours"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    assert message in " ".join(call("a red cat", *options, code=2).stderr.replace("│", " ").split())


def test_where_it_is_not_known_what_a_classifier_learned_from_the_data_are_asked_for(model):
    assert "--examples DATA" in call("a red cat", "--model", model, "--neighbours", 2, code=1).stderr
