"""The logit losses against naive float64 formulas, and at logits where those overflow."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from hf_mlcl.losses import build_loss, loss_class
from losses.batches import labels_for, multi_hot
from losses.oracles import LOGIT

VARIANTS = [(name, {}) for name in LOGIT] + [
    ("focal", {"gamma": 0.0}),
    ("focal", {"gamma": 0.5}),
    ("asymmetric", {"gamma_pos": 1.0, "gamma_neg": 4.0, "margin": 0.05}),
    ("asymmetric", {"gamma_neg": 0.5, "margin": 0.3}),
    ("asymmetric", {"gamma_neg": 1.0, "margin": 0.5}),
    ("asymmetric", {"gamma_neg": 0.0, "margin": 0.2}),
    ("two_way", {"positive_temperature": 1.0}),
    ("two_way", {"positive_temperature": 100.0}),
]
each_variant = pytest.mark.parametrize(("name", "settings_"), VARIANTS, ids=lambda v: str(v) if v else "")
each_loss = pytest.mark.parametrize("name", sorted(LOGIT))


def value_and_gradient(loss, x, y):
    x = x.detach().clone().requires_grad_()
    value = loss(x, y)
    value.backward()
    return value.detach(), x.grad


@each_variant
@settings(max_examples=60)
@given(data=st.data())
def test_value_and_gradient_equal_the_naive_formula(name, settings_, data):
    y = labels_for(name, data.draw(multi_hot()))
    dtype = data.draw(st.sampled_from([torch.bool, torch.int64, torch.float32]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**16)))
    x = (4 * torch.randn(y.shape, generator=generator)).double()  # values that float32 holds exactly
    expected = value_and_gradient(lambda x, y: LOGIT[name](x, y, **settings_), x, y)
    # Values below `floor` are differences of logits around 10, of which float32 keeps an absolute 1e-6 only.
    for precision, tolerance, floor in ((torch.float64, 1e-9, 1e-3), (torch.float32, 1e-5, 0.1)):
        got = value_and_gradient(build_loss(name, **settings_), x.to(precision), y.to(dtype))
        for mine, theirs in zip(got, expected, strict=True):
            scale = theirs.abs().max().clamp(min=floor)
            assert (mine.double() - theirs).abs().max() / scale <= tolerance


@each_variant
@pytest.mark.parametrize("size", [0.0, 100.0, 1e4, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_value_and_gradient_stay_finite_at_any_logit(name, settings_, size, dtype):
    size = min(size, torch.finfo(dtype).max / 2)
    signs = torch.tensor([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0], [0.0, 1.0, -1.0, 0.5]])
    for y in (torch.tensor([[1, 1, 0, 0]] * 3), torch.zeros(3, 4), torch.ones(3, 4)):
        with torch.autocast("cpu", dtype=torch.bfloat16 if dtype == torch.float32 else dtype):
            value, grad = value_and_gradient(
                build_loss(name, **settings_), (size * signs).to(dtype), labels_for(name, y)
            )
        assert value.dtype == torch.float32
        assert value.isfinite()
        assert grad.isfinite().all()


def test_a_negative_just_at_the_margin_has_a_finite_gradient():
    x = torch.linspace(-1e-6, 1e-6, 201).unsqueeze(1)
    _, grad = value_and_gradient(build_loss("asymmetric", margin=0.5), x, torch.zeros(201, 1))
    assert grad.isfinite().all()


@pytest.mark.parametrize("name", ["zlpr", "lsep", "focal", "two_way"])
@pytest.mark.parametrize("x", [19.9, 20.2, 25.0])
def test_float64_is_exact_where_softplus_would_not_be(name, x):
    x, y = torch.tensor([[x, 0.0]], dtype=torch.float64), torch.tensor([[1, 0]])
    mine, theirs = value_and_gradient(build_loss(name), x, y), value_and_gradient(LOGIT[name], x, y)
    assert (mine[1] - theirs[1]).abs().max() / theirs[1].abs().max() <= 1e-9


@each_variant
def test_gradient_is_the_finite_difference(name, settings_):
    y = labels_for(name, torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]]))
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss = build_loss(name, **settings_)
    assert torch.autograd.gradcheck(lambda x: loss(x, y), (x,))


@pytest.mark.parametrize(("x", "expected"), [(1e4, 1e4), (-1e4, 0.0), (100.0, 100.0)])
def test_zlpr_is_exact_where_the_exponential_overflows(x, expected):
    value = build_loss("zlpr")(torch.full((1, 1), x), torch.zeros(1, 1))
    assert value.item() == pytest.approx(expected)


def test_two_way_is_lsep_of_rows_and_of_columns_at_temperature_1():
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.tensor([[1, 0, 1, 0]] * 3 + [[0, 1, 1, 0], [0, 0, 0, 0]])
    lsep, with_label, with_row = build_loss("lsep"), y.any(1), y.any(0)
    expected = lsep(x[with_label], y[with_label]) + lsep(x.T[with_row], y.T[with_row])
    torch.testing.assert_close(build_loss("two_way", positive_temperature=1.0)(x, y), expected)


def test_the_special_cases_are_bce():
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.rand(5, 4) < 0.5
    expected = build_loss("bce")(x, y)
    assert torch.allclose(build_loss("focal", gamma=0)(x, y), expected)
    assert torch.allclose(build_loss("asymmetric", gamma_pos=0, gamma_neg=0, margin=0)(x, y), expected)


def test_cross_entropy_takes_class_ids_or_one_hot_and_skips_rows_without_a_class():
    x, ids = torch.randn(4, 3), torch.tensor([2, -100, 0, 0])
    one_hot = torch.tensor([[0, 0, 1], [0, 0, 0], [1, 0, 0], [1, 0, 0]])
    loss = build_loss("cross_entropy")
    assert loss(x, ids).item() == pytest.approx(loss(x, one_hot).item())
    assert loss(x, ids).item() == pytest.approx(torch.nn.functional.cross_entropy(x[[0, 2, 3]], ids[[0, 2, 3]]).item())
    assert loss(x, torch.full((4,), -100)) == 0


@each_loss
def test_an_empty_batch_costs_nothing(name):
    assert build_loss(name)(torch.zeros(0, 3), torch.zeros(0, 3)) == 0


@pytest.mark.parametrize("name", ["bce", "zlpr", "asymmetric", "two_way"])
def test_compiled_without_a_graph_break_it_gives_the_same(name):
    x, y = torch.randn(5, 4), (torch.rand(5, 4) < 0.5).float()
    torch.compiler.reset()
    compiled = torch.compile(build_loss(name), backend="aot_eager", fullgraph=True)
    for mine, theirs in zip(
        value_and_gradient(compiled, x, y), value_and_gradient(build_loss(name), x, y), strict=True
    ):
        assert torch.allclose(mine, theirs)


@pytest.mark.parametrize("name", sorted(LOGIT.keys() - {"cross_entropy"}))
@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(3), torch.zeros(3), "logits must be a floating-point matrix"),
        (torch.zeros(3, 2, dtype=torch.long), torch.zeros(3, 2), "logits must be a floating-point matrix"),
        (torch.zeros(3, 2), torch.zeros(2, 2), "same number of rows"),
        (torch.zeros(3, 2), torch.zeros(3, 4), "same shape"),
        (torch.zeros(3, 2), torch.zeros(3), "multi-hot"),
        (torch.zeros(3, 2), torch.full((3, 2), 0.3), "0 or 1"),
    ],
)
def test_wrong_inputs_are_named(name, x, y, message):
    with pytest.raises(ValueError, match=message):
        build_loss(name)(x, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.tensor([0, 1, 2]), "below the number of logits, 2; got 2"),
        (torch.tensor([0, 1, -1]), "class ids >= 0"),
        (torch.ones(3, 2), "at most one class"),
        (torch.ones(3, 3), "shape of the logits"),
    ],
)
def test_wrong_classes_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        build_loss("cross_entropy")(torch.zeros(3, 2), y)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("focal", {"gamma": -1}),
        ("asymmetric", {"margin": 1.0}),
        ("asymmetric", {"gamma_neg": -0.1}),
        ("two_way", {"positive_temperature": 0.5}),
    ],
)
def test_wrong_settings_are_named(name, setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        build_loss(name, **setting)


@each_loss
def test_every_loss_says_what_it_computes_and_where_it_comes_from(name):
    assert loss_class(name).formula
    assert loss_class(name).citation
