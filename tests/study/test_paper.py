"""The paper's numbers as they stand in the package."""

from __future__ import annotations

import pytest

from hf_mlcl.data.registry import corpus_facts
from hf_mlcl.study.paper import paper_value, paper_values


@pytest.mark.parametrize(
    ("corpus", "size", "loss", "metric", "value"),
    [
        ("voc2007", "full", "asymmetric", "macro_f1", 0.816),
        ("coco2014", "full", "reg", "micro_f1", 0.7219),
        ("bgc", "small", "reg", "macro_f1", 0.5344),
        ("semeval2018", "full", "reg", "macro_f1", 0.5771),
        ("nuswide", "full", "zlpr", "mAP", 0.5485),
        ("newsgroups20", "full", "supcon_reg", "accuracy", 0.8664),
        ("aapd", "full", "proto", "alignment", 0.25),
        ("voc2007", "full", "reg", "uniformity", -1.72),
        ("aapd", "full", "bce", "hamming_loss", 0.02273),
    ],
)
def test_numbers_are_those_of_the_papers_tables(corpus, size, loss, metric, value):
    assert paper_value(corpus, size, loss, metric) == pytest.approx(value)


def test_what_the_paper_does_not_report_is_none():
    assert paper_value("semeval2018", "small", "reg", "macro_f1") is None


def numbers():
    for size, corpora in paper_values().items():
        for corpus, losses in corpora.items():
            for loss, scores in losses.items():
                yield from ((corpus, size, loss, metric, value) for metric, value in scores.items())


def test_hamming_losses_are_in_the_only_unit_that_fits_the_papers_own_micro_f1():
    """With precision = recall = F1, a share 2 (1 - F1) of the positives is wrong; a power of ten more cannot be."""
    hamming = [number for number in numbers() if number[3] == "hamming_loss"]
    for corpus, size, loss, _, value in hamming:
        study = corpus_facts(corpus).study
        micro = paper_value(corpus, size, loss, "micro_f1")
        expected = 2 * (1 - micro) * study.labels_per_example / study.num_labels
        assert 0.5 < value / expected < 2, (corpus, size, loss)
    assert (len(hamming), len(list(numbers()))) == (9 * 13, 417)
