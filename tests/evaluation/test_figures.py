import io
import sys

import numpy as np
import pytest

from hf_mlcl import evaluation
from hf_mlcl.evaluation import figures

RNG = np.random.default_rng(0)
LABELS = RNG.random((60, 12)) < np.linspace(0.5, 0.0, 12)
FEATURES = LABELS @ RNG.normal(size=(12, 8)) + 0.1 * RNG.normal(size=(60, 8))
NAMES = [f"label {i}" for i in range(12)]


def curve(seed):
    guess = LABELS ^ (np.random.default_rng(seed).random(LABELS.shape) < 0.2)
    return evaluation.f1_by_frequency(LABELS, guess, LABELS, NAMES)


def centroid_similarities():
    return evaluation.prototype_similarities(evaluation.label_centroids(FEATURES, LABELS))


DRAWINGS = {
    "prr": lambda: figures.draw_prr([0.1, 0.5], {"a": evaluation.prr_by_temperature(FEATURES, LABELS, [0.1, 0.5])}),
    "similarities": lambda: figures.draw_similarities(centroid_similarities(), NAMES),
    "two similarities": lambda: figures.draw_similarities(centroid_similarities()[:2, :2], NAMES[:2]),
    "map": lambda: figures.draw_map(evaluation.project_2d(FEATURES), LABELS, NAMES),
    "f1 by frequency": lambda: figures.draw_f1_by_frequency({"a": curve(0), "b": curve(1)}),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_every_figure_has_named_axes_and_can_be_saved(name):
    figure = DRAWINGS[name]()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    assert len(buffer.getvalue()) > 1000
    if name not in ("map", "similarities", "two similarities"):  # a map's axes mean nothing, a matrix has its names
        assert all(axes.get_ylabel() for axes in figure.axes)


def test_figures_leave_pyplot_alone():
    for draw in DRAWINGS.values():
        draw()
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


def test_the_map_shows_frequent_labels_by_name_and_the_rest_as_other():
    legend = figures.draw_map(evaluation.project_2d(FEATURES), LABELS, NAMES, most=3).axes[0].get_legend()
    frequent = np.argsort(-LABELS.sum(0), kind="stable")[:3]
    assert [text.get_text() for text in legend.get_texts()] == ["other", *(NAMES[i] for i in frequent)]
