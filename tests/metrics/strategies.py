"""Inputs that break metrics: ties, labels nobody has, rows without labels, constant columns."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

shapes = st.tuples(st.integers(1, 12), st.integers(1, 6))


@st.composite
def labels_and_scores(draw, min_rows=1):
    shape = draw(shapes.filter(lambda s: s[0] >= min_rows))
    labels = draw(hnp.arrays(np.int8, shape, elements=st.integers(0, 1)))
    # Few distinct values: most rows and columns hold ties, and many columns are constant.
    scores = draw(hnp.arrays(np.float64, shape, elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0])))
    if draw(st.booleans()):
        scores = draw(hnp.arrays(np.float64, shape, elements=st.floats(0, 1)))
    if draw(st.booleans()):
        labels[:, draw(st.integers(0, shape[1] - 1))] = draw(st.integers(0, 1))
    if draw(st.booleans()):
        scores[:, draw(st.integers(0, shape[1] - 1))] = 0.5
    return labels, scores
