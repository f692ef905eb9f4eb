"""What labels mean, in words: from a mapping or a file."""

import json

import pytest

from hf_mlcl.data import corpus_facts
from hf_mlcl.data.labels import read_descriptions

WORDS = {"cs.LG": "machine learning", "cs.CL": "language, spoken or written"}


def test_descriptions_are_the_same_from_a_mapping_and_from_files(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(WORDS))
    (tmp_path / "a.csv").write_text(
        'number,label,description\n1,cs.LG,machine learning\n2,cs.CL,"language, spoken or written"\n3,cs.AI,\n'
    )
    (tmp_path / "a.tsv").write_text("label\tdescription\n" + "\n".join(map("\t".join, WORDS.items())))
    assert read_descriptions(WORDS) == WORDS
    for name in ("a.json", "a.csv", "a.tsv"):
        assert read_descriptions(str(tmp_path / name)) == WORDS


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.csv", "name,text\na,b\n", "needs the columns label and description; it has name, text"),
        ("a.csv", "label,description\na,b\na,c\n", "'a' is described twice"),
        ("a.json", '{"a": 3}', "'a' must be a label with a text; got 3"),
        ("a.json", '{"a": "x", "a": "y"}', "'a' is described twice"),
        ("a.json", '["a"]', "must hold an object"),
        ("a.json", "{", "is not valid JSON"),
        ("a.csv", "", "is empty"),
        ("missing.csv", None, "there is no file"),
    ],
)
def test_a_file_of_another_kind_is_refused_by_what_is_wrong_with_it(tmp_path, name, content, problem):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=problem) as error:
        read_descriptions(str(tmp_path / name))
    assert "label_descriptions" in str(error.value)


def test_every_code_of_arxiv_has_its_words():
    facts = corpus_facts("aapd")
    assert list(facts.descriptions) == facts.labels
    assert len(facts.labels) == facts.study.num_labels
