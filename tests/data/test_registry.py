"""Names, sizes, facts."""

from __future__ import annotations

import subprocess
import sys

import pytest

import hf_mlcl
from data import official
from hf_mlcl.data import (
    CorpusFileError,
    corpus_builder,
    corpus_facts,
    list_corpora,
    load_corpus,
    tokenize,
    word_tokenizer,
)


def test_the_ten_corpora_are_listed_sorted():
    assert list_corpora() == sorted(list_corpora())
    assert len(list_corpora()) == 10
    assert hf_mlcl.load_corpus is load_corpus


@pytest.mark.parametrize("name", list_corpora())
def test_every_corpus_states_its_facts_and_its_info_carries_them(name, tmp_path):
    facts = corpus_facts(name)
    assert facts.name == name
    assert facts.summary.endswith(".")
    assert facts.homepage.startswith("http")
    assert facts.license
    info = corpus_builder(name, cache_dir=tmp_path).info
    assert info.license == facts.license
    assert facts.summary in info.description
    if facts.study is not None:
        assert facts.citation.startswith("@")
        assert facts.manual
        assert str(facts.study.num_labels) in info.description
    for file in facts.files:
        assert file.url.startswith("http")


def test_an_unknown_name_lists_the_names_nearest_first():
    with pytest.raises(ValueError, match=r"There is no corpus 'aadp'\. Known, nearest first: aapd, "):
        load_corpus("aadp")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"size": "tiny"}, "size='tiny' is not known: pass one of 'full', 'small'"),
        ({"data_dir": "/does/not/exist"}, "data_dir='/does/not/exist' is not a folder"),
    ],
)
def test_wrong_arguments_are_named(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        load_corpus("aapd", **arguments)


def test_what_a_corpus_does_not_have_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the study has no small version"):
        load_corpus("semeval2018", size="small")
    with pytest.raises(ValueError, match="has no use for toy_text"):
        load_corpus("toy_text", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("semeval2018", {"difficult": "present"}, r"semeval2018 has no option 'difficult'\. It has: labelled_only"),
        (
            "voc2007",
            {"difficult": "maybe"},
            r"difficult='maybe' is not known: pass one of 'present', 'ignore', 'absent'",
        ),
        ("semeval2018", {"labelled_only": 1}, r"labelled_only=1 is not known: pass one of False, True"),
        (
            "coco2014",
            {"size": "small", "draw_seed": -1},
            r"draw_seed=-1 is not possible: pass a whole number from 0 on",
        ),
        ("aapd", {"size": "small", "split": "files"}, r"split='files' has no use for size='small'"),
    ],
)
def test_an_option_that_a_corpus_does_not_have_is_refused(name, options, reason):
    with pytest.raises(ValueError, match=reason):
        load_corpus(name, **options)


def test_a_default_that_is_spelt_out_finds_the_same_cache_and_another_choice_never_does(tmp_path):
    plain, spelt, other, third = (
        corpus_builder("voc2007", cache_dir=tmp_path, **options).cache_dir
        for options in ({}, {"difficult": "present"}, {"difficult": "absent"}, {"halves": "hash"})
    )
    assert plain == spelt
    assert len({plain, other, third}) == 3


def test_importing_the_package_loads_no_corpus_code():
    script = "import sys, hf_mlcl.data; print([m for m in sys.modules if m.startswith('hf_mlcl.data.')])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


def test_sizes_of_the_small_versions_are_the_studys_as_printed():
    def printed(sizes):
        return " / ".join(f"{count // 100 / 10:.1f}k" for count in (sizes.train, sizes.validation, sizes.test))

    for name in ("aapd", "bgc", "rcv1"):
        assert printed(corpus_facts(name).small_sizes) == corpus_facts(name).study.small_sizes
    for name in ("aapd", "bgc", "rcv1"):
        assert printed(corpus_facts(name).sizes) == corpus_facts(name).study.sizes


def test_a_stream_has_the_rows_of_the_built_corpus(tmp_path):
    files = official.bgc_files()
    for name, folder in (("toy_text", None), ("bgc", official.write_files(tmp_path / "files", files))):
        built = load_corpus(name, data_dir=folder, cache_dir=tmp_path / "built")
        streamed = load_corpus(name, data_dir=folder, cache_dir=tmp_path / "streamed", streaming=True)
        assert list(streamed) == list(built)
        for split, rows in built.items():
            assert streamed[split].features == rows.features
            assert list(streamed[split]) == list(rows), (name, split)
    assert not list((tmp_path / "streamed").rglob("*.arrow")), "nothing is built"
    with pytest.raises(CorpusFileError, match="rcv1 needs data_dir"):
        load_corpus("rcv1", streaming=True)


def test_streams_are_tokenised_as_they_are_read():
    corpus = load_corpus("toy_text")
    tokenizer = word_tokenizer(corpus["train"]["text"])
    streamed = tokenize(load_corpus("toy_text", streaming=True), tokenizer, max_length=16)
    expected = tokenize(corpus["validation"], tokenizer, max_length=16)
    assert list(streamed["validation"]) == list(expected)
    with pytest.raises(ValueError, match="num_proc is not for streams"):
        tokenize(load_corpus("toy_text", streaming=True), tokenizer, num_proc=2)
