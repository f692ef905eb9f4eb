import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import expit
from sklearn.metrics import f1_score

from hf_mlcl import metrics
from hf_mlcl.evaluation import choose_thresholds, cross_fitted_score, fit_temperature, tune_thresholds
from hf_mlcl.evaluation.thresholds import CANDIDATES, _at_candidates, _best_each, _best_shared, _most_expected


def scores_of(rng, rows=600, frequency=(0.4, 0.2, 0.08, 0.02), shift=-1.0):
    """Logits that rank well but are shifted, so that 0.5 is a bad threshold."""
    labels = rng.random((rows, len(frequency))) < np.array(frequency)
    return labels, expit(3 * labels - 1.5 + shift + rng.normal(0, 1, labels.shape))


@st.composite
def small_case(draw):
    shape = draw(st.integers(1, 10)), draw(st.integers(1, 3))
    labels = draw(hnp.arrays(np.bool_, shape))
    p = draw(hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.01, 0.3, 0.5, 0.7, 1.0])))
    return labels, p


@given(small_case())
def test_counts_at_every_candidate_are_those_of_its_decisions(case):
    labels, p = case
    counts = _at_candidates(labels, p)
    for index in range(0, len(CANDIDATES), 40):
        expected = metrics.LabelCounts.of(labels, metrics.decide(p, CANDIDATES[index]))
        np.testing.assert_array_equal(counts[0, index], expected.true_positives)
        np.testing.assert_array_equal(counts[1, index], expected.predicted)
        np.testing.assert_array_equal(counts[2, index], expected.actual)


@given(small_case())
@settings(max_examples=30)
def test_no_candidates_beat_those_that_are_found(case):
    labels, p = case
    counts = _at_candidates(labels, p)
    some = range(0, len(CANDIDATES), 16)  # a subset that still separates all values of p
    own = CANDIDATES[_best_each(counts, "macro_f1", None)]
    best = metrics.f1(labels, metrics.decide(p, own))
    for index in some:
        assert (metrics.f1(labels, metrics.decide(p, CANDIDATES[index])) <= best + 1e-9).all()
    found = metrics.f1(labels, metrics.decide(p, CANDIDATES[_best_each(counts, "micro_f1", None)]), "micro")
    grid = np.stack(np.meshgrid(*[list(some)] * labels.shape[1])).reshape(labels.shape[1], -1).T
    for indices in grid[:: max(len(grid) // 200, 1)]:
        assert metrics.f1(labels, metrics.decide(p, CANDIDATES[indices]), "micro") <= found + 1e-9
    for average in ("micro", "macro"):
        shared = metrics.f1(labels, metrics.decide(p, CANDIDATES[_best_shared(counts, f"{average}_f1", None)]), average)
        for index in some:
            assert metrics.f1(labels, metrics.decide(p, CANDIDATES[index]), average) <= shared + 1e-9


@pytest.mark.parametrize("objective", ["macro_f1", "micro_f1"])
@pytest.mark.parametrize("scope", ["label", "global"])
def test_tuning_gains_on_unseen_rows_where_the_threshold_one_half_is_wrong(objective, scope):
    rng = np.random.default_rng(0)
    thresholds = tune_thresholds(*scores_of(rng), objective=objective, scope=scope)
    labels, p = scores_of(rng, rows=4000)
    average = objective.split("_")[0]
    tuned = metrics.f1(labels, thresholds.decide(p), average)
    assert tuned > metrics.f1(labels, metrics.decide(p), average) + 0.01
    assert len(set(thresholds.per_label(4))) == (1 if scope == "global" else 4)


def test_the_cross_fitted_score_tells_what_unseen_rows_will_give():
    rng = np.random.default_rng(1)
    labels, p = scores_of(rng, rows=2000)
    score = cross_fitted_score(labels, p)
    fresh_labels, fresh = scores_of(rng, rows=20_000)
    truth = metrics.f1(fresh_labels, tune_thresholds(labels, p).decide(fresh), "macro")
    assert score.tuned == pytest.approx(truth, abs=0.03)
    assert score.plain == metrics.f1(labels, metrics.decide(p), "macro")


@pytest.mark.parametrize("seed", range(5))
def test_scores_that_need_no_tuning_do_not_lose_by_it(seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(-1, 2, (400, 6)) - np.array([0, 0, 1, 2, 3, 4])
    labels, p = rng.random(logits.shape) < expit(logits), expit(logits)
    score = cross_fitted_score(labels, p, objective="micro_f1")
    assert score.tuned > score.plain - 0.02


def test_a_label_with_few_positives_stays_near_the_shared_threshold_and_one_without_takes_it():
    rng = np.random.default_rng(0)
    labels, p = scores_of(rng, frequency=(0.4, 0.3, 0.3, 0.0))
    shared = tune_thresholds(labels, p, "micro_f1", scope="global").thresholds
    before = {name: tune_thresholds(labels, p, name).thresholds[3] for name in ("micro_f1", "macro_f1")}
    assert before["micro_f1"] == pytest.approx(shared)
    labels[:2, 3], p[:2, 3] = True, 0.001  # two positives at a score that would say: threshold 0.001
    for objective, reference in before.items():
        free = tune_thresholds(labels, p, objective, prior_positives=0).thresholds[3]
        held = tune_thresholds(labels, p, objective).thresholds[3]
        assert abs(held - reference) < abs(free - reference) / 2


@given(small_case())
@settings(max_examples=30)
def test_no_candidate_has_a_higher_expected_f1_than_where_a_rare_labels_threshold_starts(case):
    _, p = case

    def expected(cut):  # twice the expected hits, by predictions and expected positives
        chosen = metrics.decide(p, cut)
        return 2 * (p * chosen).sum(0) / np.maximum(chosen.sum(0) + p.sum(0), 1e-12)

    best = expected(CANDIDATES[_most_expected(p)])
    for cut in CANDIDATES[::16]:
        assert (expected(cut) <= best + 1e-9).all()


@pytest.mark.parametrize("seed", range(3))
def test_rare_labels_that_are_hard_to_tell_gain_by_thresholds_that_their_probabilities_suggest(seed):
    rng = np.random.default_rng(seed)

    def rows(count):
        logits = rng.normal(0, 1.5, (count, 30)) - np.linspace(0, 5, 30)
        return rng.random(logits.shape) < expit(logits), expit(logits)

    labels, p = rows(150)
    fresh_labels, fresh = rows(20_000)
    scores = {
        scope: metrics.f1(fresh_labels, tune_thresholds(labels, p, scope=scope).decide(fresh), "macro")
        for scope in ("global", "label")
    }
    assert scores["label"] > scores["global"] + 0.005


@pytest.mark.parametrize("scope", ["label", "global"])
def test_a_target_precision_is_reached_with_more_recall_than_a_higher_target(scope):
    rng = np.random.default_rng(0)
    labels, p = scores_of(rng, rows=3000, frequency=(0.4, 0.3, 0.2))
    fresh_labels, fresh = scores_of(rng, rows=8000, frequency=(0.4, 0.3, 0.2))
    recalls = []
    for target in (0.8, 0.95):
        chosen = tune_thresholds(labels, p, "precision", scope, target_precision=target)
        assert metrics.precision(fresh_labels, chosen.decide(fresh), "micro") > target - 0.03
        recalls.append(metrics.recall(fresh_labels, chosen.decide(fresh), "micro"))
    assert recalls[0] > recalls[1]


@given(small_case(), st.sampled_from([0.3, 0.5, 0.8]), st.sampled_from([1, 2, 5]), st.sampled_from([0.0, 20.0]))
@settings(max_examples=40)
def test_a_target_precision_holds_on_the_rows_it_was_tuned_on_wherever_a_candidate_reaches_it(
    case, target, folds, prior
):
    labels, p = case
    each, pooled = (
        np.array([metrics.precision(labels, metrics.decide(p, cut), average) for cut in CANDIDATES[::16]]).max(0)
        for average in (None, "micro")  # every 16th candidate still separates all values of p
    )
    own = tune_thresholds(labels, p, "precision", "label", target, folds=folds, prior_positives=prior)
    reached = metrics.precision(labels, own.decide(p)) >= target
    np.testing.assert_array_equal(reached, each >= target)
    shared = tune_thresholds(labels, p, "precision", "global", target, folds=folds)
    assert isinstance(shared.thresholds, float)
    assert (metrics.precision(labels, shared.decide(p), "micro") >= target) == (pooled >= target)


def test_a_target_precision_holds_on_noisy_scores_of_many_rows():
    rng = np.random.default_rng(0)
    logits = rng.normal(-2, 1.5, (2000, 10))
    labels = rng.random(logits.shape) < expit(logits)
    p = expit(logits + rng.normal(0, 0.7, logits.shape))
    highest = np.max([metrics.precision(labels, metrics.decide(p, cut)) for cut in CANDIDATES], axis=0)
    tuned = tune_thresholds(labels, p, "precision", target_precision=0.8).decide(p)
    np.testing.assert_array_equal(metrics.precision(labels, tuned) >= 0.8, highest >= 0.8)
    assert np.count_nonzero(highest >= 0.8) == 8  # two of the ten labels cannot be so precise
    shared = tune_thresholds(labels, p, "precision", "global", 0.8)
    assert metrics.precision(labels, shared.decide(p), "micro") >= 0.8


def test_for_a_target_precision_a_rare_label_is_drawn_up_and_never_down():
    rng = np.random.default_rng(0)
    labels, p = scores_of(rng, rows=3000, frequency=(0.4, 0.4, 0.01))
    free = tune_thresholds(labels, p, "precision", target_precision=0.8, prior_positives=0).thresholds
    held = tune_thresholds(labels, p, "precision", target_precision=0.8, prior_positives=1000).thresholds
    shared = tune_thresholds(labels, p, "precision", "global", 0.8).thresholds
    assert free[2] > shared > free[0]
    assert held[2] == free[2]
    assert free[0] < held[0] <= shared


def test_the_same_seed_gives_the_same_thresholds():
    case = scores_of(np.random.default_rng(0))
    assert tune_thresholds(*case, seed=3) == tune_thresholds(*case, seed=3)


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_temperature_undoes_the_scale_of_logits_and_lowers_the_calibration_error(factor):
    rng = np.random.default_rng(0)
    logits = rng.normal(-1, 2, (8000, 3))
    labels = rng.random(logits.shape) < expit(logits)
    temperature = fit_temperature(labels, expit(factor * logits))
    assert temperature == pytest.approx(factor, rel=0.05)
    calibrated = expit(factor * logits / temperature)
    np.testing.assert_allclose(
        metrics.DecisionRule(temperature=temperature).scaled(expit(factor * logits)), calibrated, atol=1e-6
    )
    before = metrics.expected_calibration_error(labels, expit(factor * logits))
    assert metrics.expected_calibration_error(labels, calibrated) <= before + 0.002
    np.testing.assert_array_equal(calibrated >= 0.5, logits >= 0)


def test_probabilities_of_exactly_zero_and_one_stay_finite():
    labels, p = np.array([[1], [0], [1]]), np.array([[1.0], [0.0], [0.0]])
    assert np.isfinite(fit_temperature(labels, p))
    assert np.isfinite(metrics.DecisionRule(temperature=2.0).scaled(p)).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"objective": "accuracy"}, "`objective` must be one of macro_f1, micro_f1, precision, but is 'accuracy'"),
        ({"scope": "row"}, "`scope` must be one of label, global, but is 'row'"),
        ({"objective": "precision"}, "`target_precision` goes with objective='precision'"),
        ({"target_precision": 0.5}, "`target_precision` goes with objective='precision'"),
        ({"objective": "precision", "target_precision": 2.0}, "`target_precision` must lie between 0 and 1"),
        ({"folds": 0}, "`folds` must be at least 1"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        tune_thresholds([[1], [0]], [[0.2], [0.1]], **arguments)


def test_a_cross_fitted_score_needs_rows_to_tune_on_and_rows_to_score():
    with pytest.raises(ValueError, match="`labels` has 1 row: a cross-fitted score needs at least 2"):
        cross_fitted_score([[1, 0]], [[0.2, 0.1]])


def test_logits_are_refused_as_probabilities():
    with pytest.raises(ValueError, match="`probabilities` must lie between 0 and 1"):
        tune_thresholds([[1], [0]], [[3.0], [-2.0]])


# Thresholds that cannot hurt ----------------------------------------------------------------------------------------


def f1_of(truth, decisions):
    """Mean of micro- and macro-F1, from scikit-learn."""
    return np.mean([f1_score(truth, decisions, average=kind, zero_division=0) for kind in ("micro", "macro")])


@pytest.mark.parametrize("rows", [20, 60, 300])
def test_chosen_thresholds_do_not_hurt_on_new_rows_on_average(rows):
    gains = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        logits = rng.normal(-1.5, 1.5, (rows + 4000, 8))
        truth = rng.random(logits.shape) < expit(logits)  # honest probabilities of rare labels
        chosen = choose_thresholds(truth[:rows], expit(logits[:rows])).rule
        p = expit(logits[rows:])
        gains.append(f1_of(truth[rows:], chosen.decide(p)) - f1_of(truth[rows:], p >= 0.5))
    assert np.mean(gains) > 0.0
    assert min(gains) > -0.05


def test_the_scores_of_a_choice_are_those_of_rows_that_its_thresholds_had_not_seen():
    rng = np.random.default_rng(0)
    logits = rng.normal(-1.5, 1.5, (200, 4))
    truth = rng.random(logits.shape) < expit(logits)
    scores = choose_thresholds(truth, expit(logits), folds=4, seed=5).scores
    for scope in ("global", "label"):
        decisions = np.zeros_like(truth)
        for part in np.array_split(np.random.default_rng(5).permutation(200), 4):
            rest = np.setdiff1d(np.arange(200), part)
            tuned = tune_thresholds(truth[rest], expit(logits[rest]), scope=scope, folds=4, seed=6)
            decisions[part] = tuned.decide(expit(logits[part]))
        assert scores[scope] == pytest.approx(f1_of(truth, decisions))
    assert scores["half"] == pytest.approx(f1_of(truth, logits >= 0))


def test_a_single_row_is_decided_at_one_half():
    assert choose_thresholds([[1, 0]], [[0.2, 0.1]]).kind == "half"
