import numpy as np
import pytest

from hf_mlcl.metrics import bootstrap_intervals


def test_the_interval_of_a_mean_is_the_normal_one_for_many_rows():
    values = np.random.default_rng(0).normal(5, 2, 2000)
    low, high = bootstrap_intervals(lambda rows: {"mean": values[rows].mean()}, 2000, samples=2000)["mean"]
    half_width = 1.96 * values.std() / np.sqrt(2000)
    # 2,000 draws know a percentile to about 3 % of a half-width; 15 % is five times that.
    assert low == pytest.approx(values.mean() - half_width, abs=0.15 * half_width)
    assert high == pytest.approx(values.mean() + half_width, abs=0.15 * half_width)


def test_differences_on_the_same_rows_are_paired():
    a = np.random.default_rng(0).normal(size=500)
    b = a + 0.1  # always better by the same amount, however the rows are drawn
    intervals = bootstrap_intervals(lambda rows: {"gain": (b[rows] - a[rows]).mean(), "a": a[rows].mean()}, 500)
    assert intervals["gain"] == pytest.approx((0.1, 0.1))
    assert intervals["a"][1] - intervals["a"][0] > 0.1


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="rows must be at least 1"):
        bootstrap_intervals(lambda rows: {}, 0)
