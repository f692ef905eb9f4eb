"""The palette is told apart by people with deuteranopia or protanopia; losses differ by marker too."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hf_mlcl.colours import DASHED, LOSSES, OTHERS, PALETTE, loss_styles
from hf_mlcl.losses import build_loss, list_losses

# Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB; Viénot, Brettel and Mollon (1999), likewise.
SIMULATIONS = {
    "normal": np.eye(3),
    "deuteranopia (Machado)": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia (Machado)": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia (Viénot)": np.array([[0.29275, 0.70725, 0.0], [0.29275, 0.70725, 0.0], [-0.02234, 0.02234, 1.0]]),
    "protanopia (Viénot)": np.array([[0.11238, 0.88762, 0.0], [0.11238, 0.88762, 0.0], [0.00401, -0.00401, 1.0]]),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("name", SIMULATIONS)
def test_every_pair_of_the_first_six_colours_is_told_apart(name):
    seen = [lab(SIMULATIONS[name] @ linear(colour)) for colour in PALETTE[:6]]
    pairs = {
        (PALETTE[i], PALETTE[j]): float(np.linalg.norm(seen[i] - seen[j]))  # CIE76
        for i, j in itertools.combinations(range(6), 2)
    }
    assert min(pairs.values()) > 10, min(pairs, key=pairs.get)


def test_the_former_palette_would_not_have_passed():
    blue, purple = (lab(SIMULATIONS["deuteranopia (Machado)"] @ linear(c)) for c in ("#2a6fbb", "#7a5cc2"))
    assert np.linalg.norm(blue - purple) < 10


def test_every_loss_of_ours_has_a_style_and_no_two_have_the_same_marker():
    # Losses of other tests may be registered too.
    ours = {name for name in list_losses() if type(build_loss(name)).__module__.startswith("hf_mlcl.")}
    assert set(LOSSES) == ours
    assert len({style.marker for style in LOSSES.values()}) == len(LOSSES)
    for name, style in LOSSES.items():
        on_logits = name in ("bce", "focal", "asymmetric", "lsep", "zlpr", "two_way", "cross_entropy")
        assert (style.line == DASHED) == on_logits


def test_a_loss_keeps_its_style_whatever_stands_beside_it():
    joined = loss_styles(["reg+zlpr"])["reg+zlpr"]
    for others in (["reg"], ["bce", "reg", "reg+zlpr"], ["reg+zlpr", "zlpr"]):
        styles = loss_styles([*others, "reg+zlpr"])
        assert styles["reg+zlpr"] == joined
        assert styles.get("reg", LOSSES["reg"]) == LOSSES["reg"]
    many = loss_styles([f"mine {i}" for i in range(len(OTHERS))])
    assert len(set(many.values())) == len(OTHERS)


def test_encoders_that_are_no_losses_take_the_colours_in_turn():
    styles = loss_styles(["a", "b", "c"], in_order=True)
    assert [style.colour for style in styles.values()] == PALETTE[:3]
    assert len({style.marker for style in styles.values()}) == 3
