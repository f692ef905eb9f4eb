"""Split rules: exact, disjoint, and blind to the order in which examples come."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hf_mlcl.data.splits import Example, chain, covering_draw, draw, halves, partition, repartition, seeded_rank

keys = st.lists(st.text(max_size=8), unique=True, max_size=40)


@given(keys, st.randoms())
def test_halves_are_exact_disjoint_and_do_not_depend_on_order(names, random):
    first, second = halves(names)
    assert len(first) == len(names) // 2
    assert first | second == set(names)
    assert not first & second
    shuffled = list(names)
    random.shuffle(shuffled)
    assert halves(shuffled) == (first, second)


def test_halves_are_pinned_so_that_results_stay_comparable_between_versions():
    names = [f"{number:06d}.jpg" for number in range(1, 11)]
    assert sorted(halves(names)[0]) == ["000003.jpg", "000005.jpg", "000006.jpg", "000008.jpg", "000010.jpg"]
    assert seeded_rank("000001.jpg") == 11912451225878137083


def test_another_seed_gives_other_halves():
    names = [str(number) for number in range(50)]
    assert halves(names, seed=1) != halves(names, seed=2)


labelled = st.lists(
    st.tuples(st.text(max_size=3), st.lists(st.sampled_from("abcdefg"), max_size=3)), min_size=1, max_size=40
)


@given(labelled, st.integers(0, 45), st.randoms())
def test_a_draw_has_its_size_and_does_not_depend_on_order(rows, size, random):
    drawn = covering_draw([key for key, _ in rows], [labels for _, labels in rows], size)
    assert drawn.sum() == min(size, len(rows))
    shuffled = list(rows)
    random.shuffle(shuffled)
    again = covering_draw([key for key, _ in shuffled], [labels for _, labels in shuffled], size)

    def content(rows, mask):
        return sorted((key, sorted(labels)) for (key, labels), kept in zip(rows, mask, strict=True) if kept)

    assert content(rows, drawn) == content(shuffled, again)


@given(labelled)
def test_a_draw_as_large_as_the_number_of_labels_keeps_every_label(rows):
    labels = [labels for _, labels in rows]
    every = {label for names in labels for label in names}
    drawn = covering_draw([key for key, _ in rows], labels, min(len(every), len(rows)))
    assert {label for names, kept in zip(labels, drawn, strict=True) if kept for label in names} == every


def test_a_partition_keeps_rare_labels_in_train_first_then_in_validation():
    names = [str(number) for number in range(100)]
    labels = [["common"]] * 97 + [["once"], ["twice"], ["twice"]]
    part = partition(names, labels, train=10, validation=20)
    assert np.bincount(part).tolist() == [10, 20, 70]
    assert part[97] == 0
    assert sorted(part[98:]) == [0, 1]


def stream():
    return (Example(f"key {number}", f"text {number}", ("x",)) for number in range(30))


def test_repartition_and_draw_neither_lose_nor_repeat_an_example():
    parts = repartition(stream, 0.2, 0.3)
    assert [len(list(part())) for part in parts.values()] == [6, 9, 15]
    assert sorted(chain(*parts.values())()) == sorted(stream())
    drawn, rest = draw(stream, 0.1)
    assert len(list(drawn())) == 3
    assert sorted(chain(drawn, rest)()) == sorted(stream())
