"""Tests of significance, against scipy, brute force and cases whose answer is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, hamming_loss

from hf_mlcl.study.significance import (
    COUNTED_METRICS,
    Scores,
    compare,
    holm,
    paired_t_test,
    randomisation_test,
)


def by_seed(*values):
    return Scores(dict(enumerate(values)))


def by_hand(metric, truth, decisions):
    return {
        "micro_f1": lambda: f1_score(truth, decisions, average="micro", zero_division=0),
        "macro_f1": lambda: f1_score(truth, decisions, average="macro", zero_division=0),
        "hamming_loss": lambda: hamming_loss(truth, decisions),
        "accuracy": lambda: (truth == decisions).all(1).mean(),
        "subset_accuracy": lambda: (truth == decisions).all(1).mean(),
    }[metric]()


def test_the_t_test_is_scipys():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 7))
    assert paired_t_test(first, second) == pytest.approx(stats.ttest_rel(first, second).pvalue, rel=1e-12)


def test_differences_without_spread_have_the_limits_of_the_t_test():
    assert paired_t_test([0.5, 0.6], [0.5, 0.6]) == 1.0
    assert paired_t_test([0.5, 0.6, 0.7], [0.4, 0.5, 0.6]) == 0.0
    assert math.isnan(paired_t_test([0.5], [0.6]))


@pytest.mark.parametrize("metric", COUNTED_METRICS)
def test_randomisation_agrees_with_all_swaps_by_brute_force(metric):
    rng = np.random.default_rng(1)
    truth = rng.random((7, 3)) < 0.5
    first = [truth ^ (rng.random(truth.shape) < 0.15) for _ in range(2)]
    second = [truth ^ (rng.random(truth.shape) < 0.4) for _ in range(2)]

    def difference(swap):
        pairs = [(np.where(swap, b, a), np.where(swap, a, b)) for a, b in zip(first, second, strict=True)]
        return np.mean([by_hand(metric, truth, a) - by_hand(metric, truth, b) for a, b in pairs])

    observed = abs(difference(np.zeros((7, 1), bool)))
    swaps = [np.array(bits, bool)[:, None] for bits in itertools.product([0, 1], repeat=7)]
    exact = np.mean([abs(difference(swap)) >= observed - 1e-12 for swap in swaps])
    assert randomisation_test(truth, first, second, metric, rounds=20_000) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1", "hamming_loss"])
def test_equally_good_classifiers_are_called_different_as_often_as_the_level_says(metric):
    rng = np.random.default_rng(2)
    rejected = 0
    for _ in range(200):
        truth = rng.random((80, 4)) < 0.3
        first, second = (truth ^ (rng.random(truth.shape) < 0.2) for _ in range(2))
        rejected += randomisation_test(truth, [first], [second], metric, rounds=199) <= 0.05
    assert 2 <= rejected <= 20  # 10 expected; outside with a chance of about 0.001


def test_holm_is_right_on_the_textbook_and_ignores_what_was_not_tested():
    corrected = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005, "e": float("nan")})
    assert {name: round(p, 6) for name, p in corrected.items() if not math.isnan(p)} == {
        "a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02
    }  # fmt: skip
    assert math.isnan(corrected["e"])
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}


HAND_MADE = {
    "best": by_seed(0.80, 0.82, 0.81, 0.83, 0.80),
    "like it": by_seed(0.81, 0.80, 0.82, 0.81, 0.81),  # differences -1, 2, -1, 2, -1: t = 0.27
    "a little worse, always": by_seed(0.79, 0.81, 0.80, 0.82, 0.79),  # difference 0.01 at every seed
    "far below": by_seed(0.50, 0.55, 0.52, 0.57, 0.51),
}


def test_the_best_and_those_not_significantly_different_win():
    comparison = compare(HAND_MADE, "macro_f1")
    assert (comparison.best, comparison.test) == ("best", "seeds")
    assert comparison.winners == {"best", "like it"}
    assert comparison.p_values["like it"] == pytest.approx(stats.ttest_rel([1, -2, 1, -2, 1], [0] * 5).pvalue)


def test_pairing_matters():
    """The same scores at other seeds: the small difference drowns in the spread."""
    unpaired = {**HAND_MADE, "a little worse, always": by_seed(0.82, 0.79, 0.79, 0.80, 0.81)}
    assert "a little worse, always" in compare(unpaired, "macro_f1").winners


def test_lower_can_be_better():
    comparison = compare(HAND_MADE, "hamming_loss", higher_is_better=False)
    assert comparison.winners == {"far below"}


def test_a_stricter_level_lets_more_win():
    methods = {"best": by_seed(0.80, 0.82, 0.81), "second": by_seed(0.78, 0.81, 0.79)}
    p = stats.ttest_rel([0.80, 0.82, 0.81], [0.78, 0.81, 0.79]).pvalue
    assert 0.01 < p < 0.05
    assert compare(methods, "macro_f1").winners == {"best"}
    assert compare(methods, "macro_f1", level=0.01).winners == {"best", "second"}


def test_correction_for_many_comparisons_lets_more_win():
    pair = {"best": by_seed(0.80, 0.82, 0.81), "second": by_seed(0.78, 0.81, 0.79)}
    crowd = {f"like it {i}": by_seed(0.80, 0.82 - 0.01 * i, 0.80 + 0.01 * (i % 2)) for i in range(5)}
    assert compare(pair, "macro_f1").winners == {"best"}
    assert "second" in compare({**pair, **crowd}, "macro_f1").winners


def test_with_few_seeds_the_examples_decide_where_decisions_are_at_hand():
    rng = np.random.default_rng(3)
    truth = rng.random((400, 5)) < 0.3
    good, like_it, bad = (truth ^ (rng.random(truth.shape) < rate) for rate in (0.05, 0.05, 0.2))
    methods = {
        name: Scores({0: by_hand("micro_f1", truth, decisions)}, {0: decisions})
        for name, decisions in (("good", good), ("like it", like_it), ("bad", bad))
    }
    comparison = compare(methods, "micro_f1", labels=truth)
    assert comparison.test == "examples"
    assert comparison.winners == {"good", "like it"}
    assert compare(methods, "mAP", labels=truth).test == "none"  # mAP is no function of decisions
    assert compare(methods, "micro_f1").test == "none"
    assert compare(
        {name: by_seed(*scores.by_seed.values()) for name, scores in methods.items()}, "micro_f1"
    ).winners == {compare(methods, "micro_f1").best}


def test_with_two_seeds_and_no_decisions_nothing_is_tested_and_the_best_stands_alone():
    methods = {"best": by_seed(0.4775, 0.4776), "far below": by_seed(0.1848, 0.2750)}
    assert stats.ttest_rel([0.4775, 0.4776], [0.1848, 0.2750]).pvalue > 0.05  # two seeds show next to nothing
    comparison = compare(methods, "macro_f1")
    assert (comparison.test, comparison.winners) == ("none", {"best"})
    assert compare(methods, "macro_f1", test="seeds").winners == {"best", "far below"}  # on demand


def test_only_common_seeds_are_compared():
    methods = {"best": Scores({0: 0.9, 1: 0.8, 2: 0.9, 3: 0.8}), "other": Scores({1: 0.7, 2: 0.8, 3: 0.7, 9: 0.99})}
    assert compare(methods, "macro_f1", test="seeds").p_values["other"] == 0.0
    apart = {"best": Scores({0: 0.9, 1: 0.8}), "other": Scores({2: 0.7, 3: 0.8})}
    assert compare(apart, "macro_f1", test="seeds").winners == {"best"}


def test_a_loss_that_is_ahead_on_the_common_seeds_is_not_called_worse_for_a_seed_of_its_own():
    methods = {"msc": Scores({0: 0.60, 1: 0.61, 2: 0.60}), "reg": Scores({0: 0.62, 1: 0.628, 2: 0.62, 3: 0.50})}
    assert methods["msc"].mean > methods["reg"].mean
    assert compare(methods, "macro_f1").winners == {"msc", "reg"}
    assert compare(methods, "macro_f1", test="none").winners == {"msc"}


def test_what_has_too_few_seeds_to_be_tested_is_not_called_worse():
    methods = {"best": by_seed(0.9, 0.91, 0.92), "one seed": by_seed(0.5), "worse": by_seed(0.8, 0.81, 0.82)}
    assert compare(methods, "macro_f1", test="seeds").winners == {"best", "one seed"}
    assert compare({"best": by_seed(0.9), "worse": by_seed(0.8)}, "macro_f1", test="seeds").test == "none"


def test_wrong_names_are_refused():
    with pytest.raises(ValueError, match="test must be one of auto, seeds"):
        compare(HAND_MADE, "macro_f1", test="wilcoxon")
    with pytest.raises(ValueError, match="metric must be one of"):
        randomisation_test([[1]], [[[1]]], [[[1]]], "mAP")
