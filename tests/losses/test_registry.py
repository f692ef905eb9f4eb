"""Losses by name, joined losses, and losses of a user's own."""

from __future__ import annotations

import pytest
import torch

from hf_mlcl import build_loss, list_losses, register_loss
from hf_mlcl.losses import ContrastiveLoss, registry
from losses.batches import batch

STUDY = [
    "base",
    "proto",
    "mulsupcon",
    "msc",
    "wo_reg",
    "reg",
    "supcon",
    "supcon_reg",
    "bce",
    "focal",
    "asymmetric",
    "lsep",
    "two_way",
    "zlpr",
    "cross_entropy",
]


@pytest.fixture(autouse=True)
def _restore_registry(monkeypatch):
    monkeypatch.setattr(registry, "_LOSSES", dict(registry._LOSSES))


def test_all_losses_of_the_study_are_there_in_order():
    assert set(STUDY) <= set(list_losses())
    assert list_losses() == sorted(list_losses())


def test_an_unknown_name_lists_all_nearest_first():
    with pytest.raises(
        ValueError, match=r"There is no loss 'mulsupcom'. Known, nearest first: mulsupcon, supcon"
    ) as error:
        build_loss("mulsupcom")
    assert all(name in str(error.value) for name in STUDY)


def test_an_unknown_hyperparameter_lists_the_valid_ones():
    with pytest.raises(ValueError, match=r"Unknown hyperparameter 'gamma' .* temperature, alpha, chunk_size"):
        build_loss("reg", gamma=1)


def test_printing_a_loss_shows_its_settings():
    assert repr(build_loss("msc", beta=0.5)) == "MSCLoss(temperature=0.1, beta=0.5)"


class TestJoined:
    def test_it_is_the_weighted_sum_of_its_parts(self):
        z, y, c = batch("reg", rows=5, num_labels=3, dim=4)
        x = torch.randn(5, 3, dtype=torch.float64)
        joined = build_loss("reg+zlpr", weights=[1.0, 0.5], temperature=0.2)
        expected = build_loss("reg", temperature=0.2)(z, y, c) + 0.5 * build_loss("zlpr")(x, y)
        assert torch.allclose(joined(z, y, c, logits=x), expected)
        assert joined.kind == "joined"
        assert joined.uses_prototypes

    def test_gradients_reach_both_parts(self):
        z, y, c = (t.requires_grad_(t.shape != (5, 3)) for t in batch("reg", rows=5, num_labels=3, dim=4))
        x = torch.randn(5, 3, requires_grad=True)
        build_loss("base+bce")(z, y, c, logits=x).backward()
        assert z.grad.abs().sum() > 0
        assert x.grad.abs().sum() > 0

    @pytest.mark.parametrize(
        ("name", "settings", "message"),
        [
            ("reg+zlpr", {"weights": [1.0]}, "weights must have one number for each"),
            ("reg", {"weights": [1.0]}, "weights belong to a joined loss"),
            ("reg+reg", {}, "each of its parts once"),
            ("reg+nope", {}, "There is no loss 'nope'"),
            ("reg+zlpr", {"beta": 1}, "Unknown hyperparameter 'beta'"),
        ],
    )
    def test_wrong_settings_are_named(self, name, settings, message):
        with pytest.raises(ValueError, match=message):
            build_loss(name, **settings)

    def test_labels_that_are_no_tensor_are_named_before_they_are_used(self):
        z, _, c = batch("reg", rows=5, num_labels=3, dim=4)
        with pytest.raises(ValueError, match=r"labels must be a torch.Tensor, got list"):
            build_loss("reg+zlpr")(z, [[1, 0, 0]] * 5, c, logits=torch.zeros(5, 3))

    @pytest.mark.parametrize("name", [*list_losses(), "reg+zlpr"])
    def test_missing_labels_are_named_by_every_kind_of_loss(self, name):
        z, _, c = batch("reg", rows=5, num_labels=3, dim=4)
        loss = build_loss(name)
        inputs = {"logit": (z, None), "contrastive": (z, None, c), "joined": (z, None, c)}
        with pytest.raises(ValueError, match="labels are missing"):
            loss(*inputs[loss.kind])

    def test_missing_logits_are_named(self):
        z, y, c = batch("reg", rows=5, num_labels=3, dim=4)
        with pytest.raises(ValueError, match=r"logits are missing: the part 'zlpr'"):
            build_loss("reg+zlpr")(z, y, c)


class TestOwnLoss:
    def test_a_plain_module_works_by_name_and_joined(self):
        @register_loss("half_bce")
        class HalfBCE(torch.nn.Module):
            def __init__(self, factor=0.5):
                super().__init__()
                self.factor = factor

            def forward(self, logits, labels):
                return self.factor * torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)

        z, y, c = batch("reg", rows=5, num_labels=3, dim=4)
        x = torch.randn(5, 3, dtype=torch.float64)
        joined = build_loss("reg+half_bce", factor=1.0)
        assert torch.allclose(joined(z, y, c, logits=x), build_loss("reg")(z, y, c) + build_loss("bce")(x, y))

    def test_a_contrastive_subclass_states_its_targets_only(self):
        @register_loss("dot")
        class DotLoss(ContrastiveLoss):
            """Attraction in proportion to the number of shared labels."""

            def targets(self, rows):
                labels = rows.label_sets()
                return lambda anchors, out: labels.shared(labels[anchors], out)

        z, y, _ = batch("reg", rows=7, num_labels=3, dim=4)
        assert torch.allclose(build_loss("dot", chunk_size=2)(z, y), build_loss("dot")(z, y))

    def test_a_name_is_given_once_but_a_cell_may_run_again(self):
        def define():
            @register_loss("mine")
            class Mine(torch.nn.Module):
                def forward(self, logits, labels):
                    return logits.sum()

            return Mine

        first, second = define(), define()
        assert first is not second
        assert isinstance(build_loss("mine"), second)
        with pytest.raises(ValueError, match=r"'reg' belongs to hf_mlcl.losses.balanced.RegLoss"):
            register_loss("reg")(first)

    def test_what_cannot_be_told_apart_is_refused(self):
        class Odd(torch.nn.Module):
            def forward(self, x, y):
                return x

        with pytest.raises(ValueError, match=r"Odd.forward must take .* got \(x, y\)"):
            register_loss("odd")(Odd)
        for name in ("a+b", "", " pad ", "my.loss"):
            with pytest.raises(ValueError, match="name must be letters"):
                register_loss(name)

    def test_a_contrastive_loss_must_take_prototypes(self):
        class NoPrototypes(torch.nn.Module):
            def forward(self, embeddings, labels):
                return embeddings.sum()

        with pytest.raises(ValueError, match="prototypes=None"):
            register_loss("no_prototypes")(NoPrototypes)
