"""The report as a page: verdicts follow from the runs, everything is in the file."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from scipy.stats import ttest_rel

from hf_mlcl.study.claims import verdicts
from hf_mlcl.study.publishing import publish
from hf_mlcl.study.results import study_table
from pages.made import data_of
from study.made import fail, finished_study, run, write_work

SCORES = {"bce": 0.50, "zlpr": 0.52, "wo_reg": 0.53, "reg": 0.55}


def runs(corpus="aapd", scores=SCORES, seeds=2, **more):
    return [
        (run(corpus, loss, seed, **more), {"test_macro_f1": score + 0.01 * seed, "alignment": 1.0, "uniformity": -2.0})
        for loss, score in scores.items()
        for seed in range(seeds)
    ]


def by_claim(study):
    return {one.claim: one for one in verdicts(study, study_table(study))}


def test_a_verdict_has_the_difference_of_means_and_the_papers_beside_it(tmp_path):
    found = by_claim(finished_study(tmp_path, runs()))
    gain = found["Contrastive losses gain macro-F1 over losses on logits"]
    assert gain.holds == "yes"
    assert "AAPD +3.00 (`reg` against `zlpr`), the paper +1." in gain.sentence
    assert found["`reg` is at least as good as `wo_reg`"].sentence.startswith("Seen: AAPD +2.00")


@pytest.mark.parametrize(
    ("seeds", "noise", "sure"),
    [(1, 0, "not tested"), (5, 0.002, "hardly chance: p = "), (5, 0.2, "may be chance: p = ")],
)
def test_a_verdict_says_how_sure_it_is(tmp_path, seeds, noise, sure):
    drawn = np.random.default_rng(0).normal(size=(2, seeds))
    every = [
        (run("aapd", loss, seed), {"test_macro_f1": score + noise * drawn[i, seed]})
        for i, (loss, score) in enumerate({"wo_reg": 0.50, "reg": 0.52}.items())
        for seed in range(seeds)
    ]
    found = by_claim(finished_study(tmp_path, every))["`reg` is at least as good as `wo_reg`"]
    assert found.sure.startswith(sure)
    if seeds > 1:
        expected = ttest_rel(*([one["test_macro_f1"] for _, one in every[k : k + seeds]] for k in (0, seeds))).pvalue
        assert found.sure.endswith(f"p = {expected:.2g} over seeds")


def test_a_claim_may_hold_on_some_corpora_or_on_none(tmp_path):
    worse = {"zlpr": 0.6, "wo_reg": 0.5, "reg": 0.4}
    mixed = by_claim(finished_study(tmp_path / "mixed", runs() + runs("bgc", worse)))
    assert mixed["`reg` is at least as good as `wo_reg`"].holds == "partly"
    assert "Seen on 1 of 2" in mixed["`reg` is at least as good as `wo_reg`"].sentence
    none = by_claim(finished_study(tmp_path / "none", runs("bgc", worse)))
    assert none["Contrastive losses gain macro-F1 over losses on logits"].holds == "no"


def test_a_claim_is_judged_by_the_metric_that_the_tables_show(tmp_path):
    scores = {"bce": (0.40, 0.60), "reg": (0.50, 0.55)}
    every = [
        (run("aapd", loss, seed), {"test_macro_f1": half, "tuned_test_macro_f1": tuned + 0.01 * seed})
        for loss, (half, tuned) in scores.items()
        for seed in range(2)
    ]
    gain = "Contrastive losses gain macro-F1 over losses on logits"
    shown = by_claim(finished_study(tmp_path / "tuned", every, metrics=("tuned_test_macro_f1",)))[gain]
    assert (shown.holds, "Macro-F1, tuned thresholds: AAPD -5.00" in shown.sentence) == ("no", True)
    assert "the paper" not in shown.sentence  # which is at 0.5
    both = by_claim(finished_study(tmp_path / "both", every, metrics=("tuned_test_macro_f1", "macro_f1")))[gain]
    assert both.sentence.startswith("Seen: AAPD +10.00")
    plain = by_claim(finished_study(tmp_path / "plain", every, metrics=("test_macro_f1",)))[gain]
    assert plain.sentence == both.sentence


@pytest.mark.parametrize(
    ("scores", "claim", "seen"),
    [
        (
            {"wo_reg": [0.60, 0.61, 0.60], "reg": [0.62, 0.628, 0.62, 0.50]},
            "`reg` is at least as good as `wo_reg`",
            "AAPD +1.93",
        ),
        (
            {"bce": [0.60, 0.50, 0.51, 0.50, 0.49], "reg": [0.55, 0.60, 0.61, 0.59, 0.60], "zlpr": [0.40]},
            "Contrastive losses gain macro-F1 over losses on logits",
            "AAPD +7.00 (`reg` against `bce`)",
        ),
    ],
    ids=["a seed more", "a third loss with few"],
)
def test_claims_compare_two_losses_on_the_seeds_that_they_share(tmp_path, scores, claim, seen):
    every = [
        (run("aapd", loss, seed), {"test_macro_f1": score})
        for loss, found in scores.items()
        for seed, score in enumerate(found)
    ]
    found = by_claim(finished_study(tmp_path, every))[claim]
    assert (found.holds, seen in found.sentence) == ("yes", True)


def test_a_verdict_says_where_only_some_of_its_differences_were_tested(tmp_path):
    tested = runs(scores={"wo_reg": 0.5, "reg": 0.6}, seeds=3)
    found = by_claim(finished_study(tmp_path, [*tested, *runs("bgc", {"wo_reg": 0.5, "reg": 0.51}, seeds=1)]))
    assert found["`reg` is at least as good as `wo_reg`"].sure.endswith("over seeds, 1 of 2 tested")


def test_a_studys_own_claims_are_judged_by_the_tables_metric_place_by_place_with_a_paired_test(tmp_path):
    drawn = np.random.default_rng(1).normal(scale=0.01, size=(2, 2, 3))
    scores = {"reg+zlpr": 0.56, "zlpr": 0.50}
    every = [
        (run(corpus, loss, seed), {"test_mAP": score + drawn[i, j, seed]})
        for i, corpus in enumerate(("aapd", "mine.csv"))
        for j, (loss, score) in enumerate(scores.items())
        for seed in range(3)
    ]
    claim = {"text": "Joined is better", "metric": "mAP", "better": ["reg+zlpr"], "worse": ["zlpr"]}
    absent = {**claim, "text": "Not run", "worse": ["bce"]}
    study = finished_study(tmp_path, every, metrics=("mAP",), claims=(claim, absent))
    (found,) = verdicts(study, study_table(study))
    places = found.sentence.removeprefix("Seen: ").removesuffix(".").split("; ")
    assert (found.holds, len(places)) == ("yes", 2)
    for i, told in enumerate(places):
        joined, alone = (score + drawn[i, j] for j, score in enumerate(scores.values()))
        gain, p = 100 * (joined - alone).mean(), ttest_rel(joined, alone).pvalue
        assert told.endswith(f" {gain:+.2f} (`reg+zlpr` against `zlpr`), p = {p:.2g}")


def test_data_of_ones_own_that_are_called_as_a_corpus_are_not_what_the_paper_speaks_of(tmp_path):
    mine = [(dataclasses.replace(one, corpus="aapd"), scores) for one, scores in runs("mine.csv")]
    assert by_claim(finished_study(tmp_path, mine)) == {}


def test_what_the_runs_do_not_speak_of_has_no_verdict(tmp_path):
    found = by_claim(finished_study(tmp_path, runs(scores={"bce": 0.5, "zlpr": 0.6})))
    assert found == {}


def test_little_data_and_prr_have_verdicts_where_there_are_such_runs(tmp_path):
    both = [
        (run("aapd", loss, 0, size, size=size, temperature=0.1), {"test_macro_f1": score, "prr": 0.3 + 0.1 * score})
        for size, scores in (("full", {"zlpr": 0.6, "reg": 0.61}), ("small", {"zlpr": 0.4, "reg": 0.45}))
        for loss, score in scores.items()
    ]
    found = by_claim(finished_study(tmp_path, both))
    little = found["Contrastive losses gain most where training data are few"]
    assert (little.holds, "+5.00 with little data, +1.00 with all" in little.sentence) == ("yes", True)
    assert found["About 38 % of positive pairs would be pushed apart at temperature 0.1 (PRR)"].holds == "partly"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    every = [*runs(seeds=1, learning_rate=0.1), *runs(scores={"base": 0.4}, seeds=1, learning_rate=0.3)]
    waiting = run("aapd", "proto", 0, learning_rate=0.1)
    study = finished_study(folder, [*every, (waiting, {})], metrics=("macro_f1",))
    for number, (one, _) in enumerate(every):
        write_work(study, one, {"rare": 0.1 * number, "medium": 0.5, "frequent": 0.9})
    fail(study, waiting, "Traceback\nRuntimeError: a <b> of trouble")
    publish(study)
    return (folder / "report.html").read_text(encoding="utf-8")


def test_every_picture_is_in_the_page(page):
    sources = re.findall(r'<img src="([^"]*)"', re.sub(r"<script.*?</script>", "", page, flags=re.S))
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "figures/" not in re.sub(r"<script.*?</script>", "", page, flags=re.S)


def test_every_run_has_its_scores_and_the_settings_in_which_runs_differ(page):
    table = re.search(r'id="run-table">(.*?)</table>', page, re.S).group(1)
    headings = re.findall(r"<th(?: [^>]*)?>(.*?)</th>", table)
    assert headings[:5] == ["corpus", "loss", "setting", "seed", "state"]
    assert headings[-1] == "learning_rate"
    assert len(re.findall("<tr>", table)) == 1 + 6
    assert "a &lt;b&gt; of trouble" in page


def test_labels_and_learning_curves_come_from_the_folders_of_the_runs(page):
    data = data_of(page)["datasets"]
    rare = next(one for one in data["per_label"] if one["label"] == "rare")
    assert rare["scores"] == pytest.approx({"bce": 0.0, "zlpr": 0.1, "wo_reg": 0.2, "reg": 0.3, "base": 0.4})
    reg = [(point["step"], point["value"]) for point in data["curves"] if point["loss"] == "reg"]
    np.testing.assert_allclose(reg, [(10, 0.5), (20, 0.25), (30, 5 / 30)])
    assert "Macro-F1 (%) of frequent and rare labels" in page
    assert {one["loss"] for one in data["times"]} == {*SCORES, "base"}
