"""The contrastive losses against naive float64 loops, and what all of them must survive."""

from __future__ import annotations

import warnings

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from hf_mlcl.losses import ContrastiveLoss, MomentumQueue, build_loss, loss_class
from hf_mlcl.losses.engine import Contrast
from losses.batches import batch, labels_for, multi_hot
from losses.oracles import CONTRASTIVE, rows_of

VARIANTS = [(name, {}) for name in CONTRASTIVE] + [
    ("wo_reg", {"alpha": 1.0}),
    ("reg", {"alpha": 1.0}),
    ("reg", {"alpha": 0.5}),
    ("msc", {"beta": 1.0}),
]
COMPILED = [("proto", {}), ("msc", {}), ("reg", {"alpha": 1.0})]
"""One of each way to weigh pairs; the compiler takes seconds for each, and `make test-all` gives it the others."""
each_variant = pytest.mark.parametrize(("name", "settings_"), VARIANTS, ids=lambda v: str(v) if v else "")
each_loss = pytest.mark.parametrize("name", sorted(CONTRASTIVE))


def value_and_gradients(loss, z, y, c, **kwargs):
    """Loss and its gradients by embeddings and (where used) prototypes."""
    z, c = z.detach().clone().requires_grad_(), c.detach().clone().requires_grad_()
    value = loss(z, y, c, **kwargs)
    value.backward()
    return value.detach(), z.grad, torch.zeros_like(c) if c.grad is None else c.grad


def oracle_value_and_gradients(name, z, y, c, queue=None, tau=0.1, **hyperparameters):
    z, c = z.detach().double().requires_grad_(), c.detach().double().requires_grad_()
    value = CONTRASTIVE[name](*rows_of(z, y, c, queue), tau=tau, **hyperparameters)
    if value.requires_grad:
        value.backward()
    zeros = (torch.zeros_like(z), torch.zeros_like(c))
    return value.detach(), *(zero if p.grad is None else p.grad for p, zero in zip((z, c), zeros, strict=True))


def relative_error(got, expected):
    """Largest difference relative to the largest entry: a gradient's small entries are sums of large ones."""
    scale = expected.abs().max().clamp(min=1e-3)
    return ((got.double() - expected).abs().max() / scale).item() if expected.numel() else 0.0


# The formulas ------------------------------------------------------------------------------------------------------


@each_variant
@pytest.mark.parametrize("chunk_size", [None, 1, 3, 7, 100])
def test_value_and_gradient_equal_the_naive_loops_in_float64(name, settings_, chunk_size):
    z, y, c = batch(name, rows=9, num_labels=5, dim=6, seed=3)
    got = value_and_gradients(build_loss(name, chunk_size=chunk_size, **settings_), z, y, c)
    for mine, theirs in zip(got, oracle_value_and_gradients(name, z, y, c, **settings_), strict=True):
        assert relative_error(mine, theirs) <= 1e-9


@each_variant
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_float32_is_within_1e_5_of_the_naive_loops(name, settings_, chunk_size):
    z, y, c = (t.float() for t in batch(name, rows=24, num_labels=7, dim=16, seed=5, density=0.3))
    got = value_and_gradients(build_loss(name, chunk_size=chunk_size, **settings_), z, y, c)
    for mine, theirs in zip(got, oracle_value_and_gradients(name, z, y, c, **settings_), strict=True):
        assert relative_error(mine, theirs) <= 1e-5


@each_variant
@settings(max_examples=40)
@given(data=st.data())
def test_any_labels_and_chunk_size_give_what_the_naive_loops_give(name, settings_, data):
    y = labels_for(name, data.draw(multi_hot()))
    dtype = data.draw(st.sampled_from([torch.bool, torch.int32, torch.int64, torch.float16, torch.float32]))
    tau = data.draw(st.sampled_from([0.01, 0.05, 0.1, 1.0]))
    chunk_size = data.draw(st.none() | st.integers(1, 9))
    seed = data.draw(st.integers(0, 2**16))
    z, _, c = batch(name, *y.shape, dim=3, seed=seed)
    loss = build_loss(name, temperature=tau, chunk_size=chunk_size, **settings_)
    got = value_and_gradients(loss, z, y.to(dtype), c)
    for mine, theirs in zip(got, oracle_value_and_gradients(name, z, y, c, tau=tau, **settings_), strict=True):
        assert relative_error(mine, theirs) <= 1e-9


@each_loss
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_a_queue_adds_candidates_but_no_anchors(name, chunk_size):
    z, y, c = batch(name, rows=5, num_labels=4, dim=6, seed=1)
    past, past_labels, _ = batch(name, rows=7, num_labels=4, dim=6, seed=2)
    queue = MomentumQueue(size=10, dim=6, num_labels=4).double().push(past, past_labels)
    if name in {"supcon", "supcon_reg"}:
        queue = MomentumQueue(size=10, dim=6, num_labels=None).double()
        queue.push(past, torch.where(past_labels.any(1), past_labels.argmax(1), -100))
    got = value_and_gradients(build_loss(name, chunk_size=chunk_size), z, y, c, queue=queue)
    expected = oracle_value_and_gradients(name, z, y, c, queue=(past, past_labels))
    for mine, theirs in zip(got, expected, strict=True):
        assert relative_error(mine, theirs) <= 1e-9


def test_class_ids_and_one_hot_rows_are_the_same_to_supcon():
    ids = torch.tensor([0, 2, 0, -100, 2, 1])
    one_hot = torch.zeros(6, 3).scatter_(1, ids.clamp(min=0).unsqueeze(1), (ids >= 0).float().unsqueeze(1))
    z = torch.randn(6, 4)
    assert relative_error(build_loss("supcon")(z, ids), build_loss("supcon")(z, one_hot)) <= 1e-6


# The gradient ------------------------------------------------------------------------------------------------------


@each_variant
def test_the_pull_on_every_pair_is_minus_the_naive_gradient_by_its_similarity(name, settings_):
    z, y, c = batch(name, rows=9, num_labels=5, dim=6, seed=3)
    loss = build_loss(name, **settings_)
    pull = loss.pairs(z, y, c).attraction
    rows = [t.clone().requires_grad_() for t in ((z, c) if loss.uses_prototypes else (z,))]
    u = torch.nn.functional.normalize(torch.cat(rows), dim=1)
    similarity = u[: pull.shape[0]] @ u[-pull.shape[1] :].T / 0.1
    (-(pull * similarity).sum() / loss.parts(z, y, c).divisor).backward()
    for mine, theirs in zip(rows, oracle_value_and_gradients(name, z, y, c, **settings_)[1:], strict=False):
        assert relative_error(mine.grad, theirs) <= 1e-9


@pytest.mark.parametrize("name", ["base", "proto", "mulsupcon", "msc", "wo_reg", "supcon"])
def test_gradient_is_the_finite_difference_where_the_loss_is_differentiable_as_written(name):
    z, y, c = batch(name, rows=5, num_labels=3, dim=4, seed=7)
    loss = build_loss(name, temperature=0.5)
    assert torch.autograd.gradcheck(lambda z, c: loss(z, y, c), (z.requires_grad_(), c.requires_grad_()))


@pytest.mark.parametrize("name", ["reg", "supcon_reg"])
def test_regularised_gradient_never_pushes_a_positive_pair_apart(name):
    """The negative gradient of unit row i is sum_j (A_ij + A_ji) x_j / (tau D) off the diagonal: its coordinates in
    the basis of the rows themselves are the attractions."""
    _, y, _ = batch(name, rows=12, num_labels=4, dim=2, seed=11)
    labels = torch.cat([y, torch.eye(4, dtype=torch.float64)]) if name == "reg" else y
    n = len(labels)
    x = torch.randn(n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x = torch.nn.functional.normalize(x, dim=1).requires_grad_()
    loss = build_loss(name, temperature=0.1)
    (grad,) = torch.autograd.grad(loss(x[: len(y)], y, x[len(y) :]), x)
    coordinates = torch.linalg.solve(x.detach().T, -grad.T).T  # -grad_i = sum_j coordinates_ij x_j
    positive = (labels @ labels.T > 0) & ~torch.eye(n, dtype=torch.bool)
    assert positive.any()
    assert coordinates[positive].min() >= -1e-12
    plain = build_loss({"reg": "wo_reg", "supcon_reg": "supcon"}[name], temperature=0.1)
    (grad,) = torch.autograd.grad(plain(x[: len(y)], y, x[len(y) :]), x)
    assert torch.linalg.solve(x.detach().T, -grad.T).T[positive].min() < -1e-6, "the plain loss does push some apart"


def test_second_derivatives_are_refused_not_wrong():
    z, y, c = batch("reg", rows=4, num_labels=3, dim=4)
    z.requires_grad_()
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(build_loss("reg")(z, y, c), z, create_graph=True)


def test_gradient_scales_with_what_comes_from_above():
    z, y, c = batch("reg", rows=6, num_labels=3, dim=4)
    loss = build_loss("reg")
    once = value_and_gradients(loss, z, y, c)
    many = value_and_gradients(lambda *args: 65536.0 * loss(*args), z, y, c)
    assert torch.allclose(many[1], 65536.0 * once[1])


# Invariances -------------------------------------------------------------------------------------------------------


@each_loss
def test_order_of_the_batch_and_of_the_labels_changes_nothing(name):
    z, y, c = batch(name, rows=11, num_labels=5, dim=6, seed=2)
    rows, columns = torch.randperm(11), torch.randperm(5)
    loss = build_loss(name)
    value, grad, _ = value_and_gradients(loss, z, y, c)
    again, grad_again, _ = value_and_gradients(loss, z[rows], y[rows][:, columns], c[columns])
    assert relative_error(again, value) <= 1e-12
    assert relative_error(grad_again, grad[rows]) <= 1e-12


@each_loss
def test_length_of_an_embedding_changes_nothing(name):
    z, y, c = batch(name, rows=6, num_labels=4, dim=5)
    loss = build_loss(name)
    scale = torch.rand(6, 1, dtype=torch.float64) * 100 + 0.01
    assert relative_error(loss(z * scale, y, c), loss(z, y, c)) <= 1e-12


@each_loss
@pytest.mark.parametrize("shards", [2, 3, 20])
def test_shares_of_the_anchors_add_up_to_the_whole(name, shards):
    z, y, c = batch(name, rows=8, num_labels=5, dim=6)
    loss = build_loss(name)
    whole = loss.parts(z, y, c, statistics=True)
    parts = [loss.parts(z, y, c, statistics=True, shard=(k, shards)) for k in range(shards)]
    assert relative_error(sum(p.total for p in parts), whole.total) <= 1e-12
    assert sum(p.divisor for p in parts) == whole.divisor
    assert sum(p.anchors for p in parts) == whole.anchors
    for summed, count in zip(zip(*(p.counts for p in parts), strict=True), whole.counts, strict=True):
        assert relative_error(sum(summed), count) <= 1e-12


@each_loss
@pytest.mark.parametrize("length", [1e-15, 1e25, 3e38])
def test_rows_of_any_length_give_what_unit_rows_give_in_float32(name, length):
    z, y, c = batch(name, rows=6, num_labels=4, dim=5)
    z, c = (torch.nn.functional.normalize(t, dim=1) for t in (z, c))
    expected = build_loss(name)(z, y, c)
    value, *grads = value_and_gradients(build_loss(name), (z * length).float(), y, (c * length).float())
    assert relative_error(value, expected) <= 1e-5  # as far as float32 is from the loops
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("name", ["wo_reg", "reg"])
@pytest.mark.parametrize("alpha", [5.0, 50.0, 200.0])
def test_a_large_alpha_is_right_in_float32(name, alpha):
    z, y, c = batch(name, rows=12, num_labels=9, dim=8, seed=4, density=0.7)
    got = value_and_gradients(build_loss(name, alpha=alpha), z.float(), y, c.float())
    for mine, theirs in zip(got, oracle_value_and_gradients(name, z, y, c, alpha=alpha), strict=True):
        assert relative_error(mine, theirs) <= 1e-5


def test_alpha_zero_is_the_limit_of_small_alpha():
    z, y, c = batch("reg", rows=8, num_labels=5, dim=6)
    assert relative_error(build_loss("reg", alpha=1e-9)(z, y, c), build_loss("reg")(z, y, c)) <= 1e-7


# What each must survive ----------------------------------------------------------------------------------------------

HARD = {
    "one row": lambda y: y[:1],
    "one label": lambda y: y[:, :1],
    "one row, one label": lambda y: y[:1, :1],
    "no labels at all": torch.zeros_like,
    "every label in every row": torch.ones_like,
    "a label nobody has": lambda y: y * (torch.arange(y.shape[1]) > 0),
    "a label everybody has": lambda y: torch.where(torch.arange(y.shape[1]) == 0, 1, y),
    "no rows": lambda y: y[:0],
}


@each_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("embeddings", ["random", "identical", "one zero", "all zero", "large", "small"])
@pytest.mark.parametrize("hard", HARD)
def test_value_and_gradient_stay_finite(name, dtype, embeddings, hard):
    _, y, _ = batch(name, rows=6, num_labels=4, dim=8)
    y = labels_for(name, HARD[hard](y))
    z, _, c = batch(name, *y.shape, dim=8)
    if embeddings == "identical":
        z, c = z * 0 + 1, c * 0 + 1
    elif embeddings == "one zero":
        z, c = z.clone(), c.clone()
        z[:1], c[:1] = 0, 0
    elif embeddings == "all zero":
        z, c = z * 0, c * 0
    elif embeddings in {"large", "small"}:
        factor = 1e3 if embeddings == "large" else 1e-2
        z, c = z * factor, c * factor
    value, *grads = value_and_gradients(build_loss(name), z.to(dtype), y, c.to(dtype))
    assert value.dtype == torch.float32
    assert value.isfinite()
    assert all(grad.isfinite().all() for grad in grads)
    if hard == "no labels at all":
        assert value == 0
        assert all((grad == 0).all() for grad in grads)


@each_loss
@pytest.mark.parametrize("tau", [1e-3, 100.0])
def test_extreme_temperatures_stay_finite(name, tau):
    z, y, c = (t.float() for t in batch(name, rows=8, num_labels=4, dim=8))
    value, *grads = value_and_gradients(build_loss(name, temperature=tau), z, y, c)
    assert value.isfinite()
    assert all(grad.isfinite().all() for grad in grads)


# Unit roundoff is 4.9e-4 for float16 and 3.9e-3 for bfloat16; similarities are divided by tau = 0.1 before the
# exponential, so an input rounding error grows by a factor of about 10 on its way to the loss and its gradient.
TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 4e-2}


@each_loss
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_half_precision_inputs_cost_only_their_own_rounding(name, dtype):
    z, y, c = batch(name, rows=16, num_labels=5, dim=32)
    exact = value_and_gradients(build_loss(name), z, y, c)
    rounded = value_and_gradients(build_loss(name), z.to(dtype), y, c.to(dtype))
    for mine, theirs in zip(rounded, exact, strict=True):
        assert relative_error(mine, theirs) <= TOLERANCE[dtype]


@each_loss
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_autocast_does_not_touch_the_computation(name, dtype):
    z, y, c = (t.float() for t in batch(name, rows=16, num_labels=5, dim=32))
    expected = value_and_gradients(build_loss(name), z, y, c)
    with torch.autocast("cpu", dtype=dtype):
        got = value_and_gradients(build_loss(name), z, y, c)
    for mine, theirs in zip(got, expected, strict=True):
        assert relative_error(mine, theirs) <= 1e-6  # half precision would differ by a thousandth


@each_loss
def test_non_contiguous_inputs_give_the_same(name):
    """Within rounding: in which order a matrix product adds depends on the processor and on the layout in memory."""
    z, y, c = batch(name, rows=7, num_labels=4, dim=5)
    got = build_loss(name)(z.T.contiguous().T, y.T.contiguous().T, c.repeat(1, 2)[:, :5])
    assert relative_error(got, build_loss(name)(z, y, c)) <= 1e-12


@each_loss
def test_inputs_are_left_as_they_were(name):
    z, y, c = batch(name, rows=7, num_labels=4, dim=5)
    before = [t.clone() for t in (z, y, c)]
    value_and_gradients(build_loss(name), z, y, c)
    assert all(torch.equal(a, b) for a, b in zip((z, y, c), before, strict=True))


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_labels_that_a_loss_returns_as_targets_are_never_written_to(chunk_size):
    class SameRow(ContrastiveLoss):
        """Attracts each row to the rows whose number is one of its labels."""

        def targets(self, rows):
            return lambda anchors, out: rows.labels[anchors]

    z, y = torch.randn(5, 4, requires_grad=True), (torch.rand(5, 5) < 0.7).float()
    y.fill_diagonal_(1.0)  # a row's attraction to itself is what the engine masks
    before = y.clone()
    SameRow(chunk_size=chunk_size)(z, y).backward()
    assert torch.equal(y, before)


def test_targets_of_another_shape_are_refused():
    class OnePerRow(ContrastiveLoss):
        def targets(self, rows):
            return lambda anchors, out: rows.labels[anchors].any(1, keepdim=True).float()

    with pytest.raises(ValueError, match=r"shape \(5, 5\); got \(5, 1\)"):
        OnePerRow()(torch.randn(5, 4), torch.ones(5, 3))


def test_prototypes_are_ignored_where_a_loss_has_none():
    z, y, c = batch("base", rows=5, num_labels=3, dim=4)
    assert relative_error(build_loss("base")(z, y, c), build_loss("base")(z, y)) <= 1e-12


def test_evaluation_without_gradient_gives_the_same_value():
    z, y, c = batch("reg", rows=8, num_labels=4, dim=4)
    with torch.no_grad():
        without = build_loss("reg")(z, y, c)
    assert relative_error(without, build_loss("reg")(z.requires_grad_(), y, c).detach()) <= 1e-12


# Statistics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_statistics_are_what_loops_over_the_pairs_count(chunk_size):
    z, y, c = batch("reg", rows=8, num_labels=4, dim=6)
    parts = build_loss("reg", chunk_size=chunk_size).parts(z, y, c, statistics=True)
    x = torch.nn.functional.normalize(torch.cat([z, c]), dim=1)
    labels = torch.cat([y, torch.eye(4, dtype=torch.float64)])
    raised, positives, positive_cosines, negative_cosines = 0, 0, [], []
    for i in range(12):
        others = [j for j in range(12) if j != i]
        p = torch.softmax(torch.stack([x[i] @ x[j] / 0.1 for j in others]), 0)
        for j, p_ij in zip(others, p, strict=True):
            t = sum(
                1 / sum(labels[m, k] for m in others) / labels[i].sum()
                for k in range(4)
                if labels[i, k] and labels[j, k]
            )
            positives, raised = positives + bool(t > 0), raised + bool(0 < t < p_ij)
            (positive_cosines if t > 0 else negative_cosines).append((x[i] @ x[j]).item())
    got = parts.statistics()
    assert got["prr"].item() == pytest.approx(raised / positives)
    assert got["positive_similarity"].item() == pytest.approx(sum(positive_cosines) / len(positive_cosines))
    assert got["negative_similarity"].item() == pytest.approx(sum(negative_cosines) / len(negative_cosines))
    assert got["anchors_without_positives"].item() == pytest.approx(1 / 12)  # the row without a label
    assert relative_error(parts.mean(), build_loss("reg", chunk_size=chunk_size)(z, y, c)) <= 1e-12


def test_statistics_must_be_asked_for():
    z, y, c = batch("reg", rows=4, num_labels=3, dim=4)
    with pytest.raises(ValueError, match="statistics=True"):
        build_loss("reg").parts(z, y, c).statistics()


# Tiles, memory, compilation ------------------------------------------------------------------------------------------


def test_tiles_cover_the_anchors_once_and_fit_the_budget():
    spec = Contrast(range(5, 70_005), range(70_005), lambda rows, out: out, 0.1)
    tiles = spec.tiles()
    assert [row for tile in tiles for row in range(tile.start, tile.stop)] == list(range(5, 70_005))
    assert max(t.stop - t.start for t in tiles) == 128


@pytest.mark.parametrize(
    ("name", "settings_"),
    [
        pytest.param(*one, marks=[] if one in COMPILED else pytest.mark.slow, id=f"{one[0]}-{one[1]}")
        for one in VARIANTS
    ],
)
def test_compiled_without_a_graph_break_it_gives_the_same(name, settings_):
    z, y, c = (t.float() for t in batch(name, rows=10, num_labels=4, dim=8))
    loss = build_loss(name, **settings_)
    expected = value_and_gradients(loss, z, y, c)
    torch.compiler.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = value_and_gradients(torch.compile(loss, backend="aot_eager", fullgraph=True), z, y, c)
    for mine, theirs in zip(got, expected, strict=True):
        assert relative_error(mine, theirs.double()) <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [None, 4])
def test_compiled_by_inductor_it_gives_the_same(chunk_size):
    z, y, c = (t.float() for t in batch("reg", rows=10, num_labels=4, dim=8))
    loss = build_loss("reg", chunk_size=chunk_size)
    expected = value_and_gradients(loss, z, y, c)
    got = value_and_gradients(torch.compile(loss, fullgraph=True), z, y, c)
    for mine, theirs in zip(got, expected, strict=True):
        assert relative_error(mine, theirs.double()) <= 1e-5


def test_ten_thousand_labels_never_become_a_square_matrix_of_labels():
    z = torch.randn(16, 8, requires_grad=True)
    c = torch.randn(10_000, 8, requires_grad=True)
    y = torch.rand(16, 10_000) < 3e-4
    with torch.profiler.profile(profile_memory=True) as profile:
        build_loss("reg", chunk_size=64)(z, y, c).backward()
    largest = max(event.self_cpu_memory_usage for event in profile.events())
    assert largest < 10_000 * 10_000 * 4 / 10


# Wrong inputs --------------------------------------------------------------------------------------------------------

WRONG = {
    "embeddings must be a floating-point matrix": lambda z, y, c: (z[0], y, c),
    "embeddings must be": lambda z, y, c: (z.long(), y, c),
    "labels and embeddings must have the same number of rows": lambda z, y, c: (z, y[1:], c),
    "labels must be a multi-hot matrix": lambda z, y, c: (z, y[:, 0], c),
    r"labels must be 0 or 1, but labels\[1, 2\] is 2": lambda z, y, c: (z, _with(y, 1, 2, 2.0), c),
    r"labels must be 0 or 1, but labels\[0, 0\] is 0.5": lambda z, y, c: (z, _with(y, 0, 0, 0.5), c),
    "labels must be 0 or 1, but": lambda z, y, c: (z, _with(y, 3, 1, -1.0), c),
    "labels must be a torch.Tensor, got list": lambda z, y, c: (z, y.tolist(), c),
    "labels must be a torch.Tensor, got ndarray": lambda z, y, c: (z, y.numpy(), c),
    "labels must be a dense tensor, got torch.sparse_coo": lambda z, y, c: (z, y.to_sparse(), c),
    "embeddings must be a torch.Tensor, got ndarray": lambda z, y, c: (z.numpy(), y, c),
    "prototypes must be a torch.Tensor, got list": lambda z, y, c: (z, y, c.tolist()),
    "prototypes are missing": lambda z, y, c: (z, y, None),
    r"prototypes must have shape \(num_labels, dim\) = \(4, 5\)": lambda z, y, c: (z, y, c[1:]),
    "prototypes must have shape": lambda z, y, c: (z, y, c[:, 1:]),
    "prototypes are on meta but embeddings on cpu": lambda z, y, c: (z, y, c.to("meta")),
    "labels are on meta but embeddings on cpu": lambda z, y, c: (z, y.to("meta"), c),
}


def _with(matrix, row, column, value):
    matrix = matrix.clone()
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize("message", WRONG)
@pytest.mark.parametrize("name", ["proto", "msc", "wo_reg", "reg"])
def test_wrong_inputs_are_named(name, message):
    inputs = WRONG[message](*batch(name, rows=6, num_labels=4, dim=5))
    with pytest.raises(ValueError, match=message):
        build_loss(name)(*inputs)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.ones(6, 4), "at most one class a row"),
        (torch.full((6,), 0.5), "integer class ids"),
        (torch.full((6,), -3), "class ids >= 0"),
        (torch.zeros(6, 4, 2), "class ids of shape"),
        (torch.zeros(5, dtype=torch.long), "same number of rows"),
        (torch.full((6, 4), 2), "0 or 1"),
    ],
)
@pytest.mark.parametrize("name", ["supcon", "supcon_reg"])
def test_wrong_class_labels_are_named(name, labels, message):
    with pytest.raises(ValueError, match=message):
        build_loss(name)(torch.randn(6, 5), labels)


@each_loss
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("temperature", 0.0),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", "0.1"),
        ("temperature", None),
        ("chunk_size", 0),
        ("chunk_size", 2.5),
        ("chunk_size", "8"),
    ],
)
def test_wrong_settings_are_named(name, setting, value):
    with pytest.raises(ValueError, match=setting):
        build_loss(name, **{setting: value})


@pytest.mark.parametrize(("name", "setting"), [("reg", {"alpha": -1.0}), ("msc", {"beta": 0.0})])
def test_wrong_weights_are_named(name, setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        build_loss(name, **setting)


def test_a_queue_of_another_shape_is_named():
    z, y, c = batch("reg", rows=4, num_labels=3, dim=4)
    for queue in (MomentumQueue(4, dim=5, num_labels=3), MomentumQueue(4, dim=4, num_labels=2)):
        with pytest.raises(ValueError, match="queue holds"):
            build_loss("reg")(z, y, c, queue=queue)


@each_loss
def test_every_loss_says_what_it_computes_and_where_it_comes_from(name):
    cls = loss_class(name)
    assert "T_ij" in cls.formula
    assert cls.citation
