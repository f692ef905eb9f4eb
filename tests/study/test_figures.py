"""Figures: every line shows the mean of its runs; what cannot be drawn is said."""

from __future__ import annotations

import matplotlib.image
import numpy as np
import pytest

from hf_mlcl.study.cost import split_sizes
from hf_mlcl.study.figures import (
    draw_alpha,
    draw_data_share,
    draw_epochs,
    draw_pairs,
    draw_prr_by_temperature,
    draw_space,
    save_figures,
)
from hf_mlcl.study.results import study_table
from study.made import finished_study, run

SHARES = (250, 1000, 2500)


def paper_like(folder):
    """All that the paper's figures need, with scores that are known."""
    rng = np.random.default_rng(0)
    runs = []
    for corpus in ("toy_text", "toy_images"):
        for seed in range(3):
            for loss, strength in (("zlpr", 0.1), ("reg", 0.2)):
                for step, rows in enumerate(SHARES):
                    scores = {"test_macro_f1": strength + 0.1 * step + 0.01 * seed}
                    runs.append((run(corpus, loss, seed, f"{rows} rows", max_train_samples=rows), scores))
                for epochs in (5, 10, 20, 40):
                    more = {"num_train_epochs": epochs, "pretrained": False}
                    scores = {"test_macro_f1": strength + 0.1 * np.log(epochs) + 0.01 * rng.normal()}
                    runs.append((run(corpus, loss, seed, f"{epochs} epochs", **more), scores))
            for temperature in (0.05, 0.1, 0.2, 0.5):
                scores = {"prr": 0.45 - 0.2 * temperature + 0.01 * seed, "alignment": 0.3, "uniformity": -2.0}
                setting = f"temperature {temperature}"
                runs.append((run(corpus, "reg", seed, setting, temperature=temperature), scores))
            for alpha in (0.0, 0.5, 1.0):
                choice = {"loss_kwargs.alpha": alpha}
                for loss in ("reg", "wo_reg"):
                    scores = {"test_macro_f1": 0.5 + 0.1 * alpha, "validation_micro_f1": 0.5, "alignment": 0.5 + alpha}
                    scores["uniformity"] = -1.0 - alpha
                    runs.append((run(corpus, loss, seed, "alpha", choice, loss_kwargs={"alpha": alpha}), scores))
    return finished_study(folder, runs)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return paper_like(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def table(study):
    return study_table(study)


def lines(figure, panel=0):
    return {line.get_label(): np.transpose(line.get_data()) for line in figure.axes[panel].lines}


def test_macro_f1_against_the_share_of_training_data(table):
    figure = draw_data_share(table)
    assert [axes.get_title() for axes in figure.axes] == ["toy_text", "toy_images"]
    drawn = lines(figure)
    assert set(drawn) == {"zlpr", "reg"}
    expected = [[100 * rows / split_sizes("toy_text").train, 100 * (0.21 + 0.1 * i)] for i, rows in enumerate(SHARES)]
    np.testing.assert_allclose(drawn["reg"], expected)


def test_macro_f1_against_epochs_only_of_runs_from_random_weights(table):
    drawn = lines(draw_epochs(table))
    assert drawn["reg"][:, 0].tolist() == [5, 10, 20, 40]
    assert draw_epochs(table[~table["setting"].str.endswith("epochs")]) is None


def test_prr_against_temperature(table):
    figure = draw_prr_by_temperature(table)
    assert [axes.get_title() for axes in figure.axes] == ["toy_text", "toy_images"]
    temperatures = [0.05, 0.1, 0.2, 0.5]
    np.testing.assert_allclose(lines(figure)["reg"], [[t, 100 * (0.46 - 0.2 * t)] for t in temperatures])
    for axes in figure.axes:
        assert axes.get_xticks().tolist() == temperatures
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0.05", "0.1", "0.2", "0.5"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["reg"]  # no point of an unnamed corpus


@pytest.mark.parametrize("draw", [draw_data_share, draw_epochs, draw_prr_by_temperature, draw_alpha])
def test_every_line_has_a_band_of_one_standard_deviation_over_seeds(draw, table):
    figure = draw(table)
    for axes in figure.axes:
        assert len(axes.lines) == len(axes.collections) > 0
    if draw is draw_prr_by_temperature:
        (band,) = figure.axes[0].collections[0].get_paths()
        at_one_tenth = band.vertices[band.vertices[:, 0] == 0.1][:, 1]
        np.testing.assert_allclose([at_one_tenth.min(), at_one_tenth.max()], [43, 45])  # seeds have 43, 44, 45 %


def test_macro_f1_against_alpha(table):
    drawn = lines(draw_alpha(table))
    np.testing.assert_allclose(drawn["wo_reg"], [[0, 50], [0.5, 55], [1, 60]])


def test_alignment_and_uniformity_of_each_loss(table):
    figure = draw_space(table[table["setting"] == "alpha"])
    assert [axes.get_title() for axes in figure.axes] == ["toy_text", "toy_images"]
    drawn = {dots.get_label(): dots.get_offsets().tolist() for dots in figure.axes[0].collections}
    assert drawn == {"reg": [[-1.0, 0.5]], "wo_reg": [[-1.0, 0.5]]}  # uniformity, alignment: of the chosen alpha
    assert [text.get_text() for text in figure.axes[0].texts] == []  # one name would cover the other


def test_points_that_stand_alone_have_their_names_beside_them(table):
    apart = table[table["setting"] == "alpha"].copy()
    apart.loc[apart["loss"] == "reg", ["uniformity", "alignment"]] = (-3.0, 1.5)
    figure = draw_space(apart)
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["reg", "wo_reg"]


def test_pairs_of_rows_over_time_are_means_over_seeds_of_what_the_runs_logged(tmp_path):
    runs = [
        (run("toy_text", loss, seed), {"test_macro_f1": 0.5}) for loss in ("wo_reg", "reg", "bce") for seed in (0, 1)
    ]
    study = finished_study(tmp_path, runs)
    table = study_table(study)
    histories = {
        (loss, seed): [
            {"step": step, "loss": 1.0, "positive_similarity": 0.1 * seed + step / 100, "negative_similarity": 0.05}
            for step in (10, 20)
        ]
        for loss in ("wo_reg", "reg")
        for seed in (0, 1)
    }
    histories["reg", 1][1]["positive_similarity"] = 0.9
    logged = [histories.get((row["loss"], row["seed"]), [{"step": 10, "loss": 1.0}]) for _, row in table.iterrows()]
    (axes,) = draw_pairs(table.assign(history=logged)).axes
    lines = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert set(lines) == {"wo_reg", "reg"}
    np.testing.assert_allclose(lines["wo_reg"].get_ydata(), [0.15, 0.25])
    np.testing.assert_allclose(lines["reg"].get_ydata(), [0.15, (0.2 + 0.9) / 2])
    alone = ["default" if row["loss"] == "reg" else "another" for _, row in table.iterrows()]
    assert draw_pairs(table.assign(history=logged, setting=alone)) is None, "like is compared with like"
    assert draw_pairs(table) is None
    assert draw_pairs(table.assign(history=[[] for _ in logged])) is None


def test_points_that_differ_in_other_arguments_too_make_no_line(tmp_path):
    settings = {
        "few": {"max_train_samples": 250},
        "hot": {"temperature": 0.5, "max_train_samples": 1000},
        "long": {"num_train_epochs": 20, "pretrained": False, "max_train_samples": 1000},
        "short": {"num_train_epochs": 5, "pretrained": False, "temperature": 0.2},
    }
    metrics = {"test_macro_f1": 0.5, "prr": 0.4}
    runs = [(run("toy_text", "reg", 0, name, **more), metrics) for name, more in settings.items()]
    drawn, missing = save_figures(finished_study(tmp_path, runs), tmp_path / "figures")
    assert drawn == {}
    assert {"data_share", "epochs", "prr"} <= set(missing)


def test_what_can_be_drawn_is_and_the_rest_says_what_it_needs(study, tmp_path):
    drawn, missing = save_figures(study, tmp_path / "all")
    assert set(drawn) == {"data_share", "epochs", "prr", "space", "alpha"}
    assert set(missing) == {"pairs"}, "these runs have no logs"
    for path in drawn.values():
        picture = matplotlib.image.imread(path)
        assert picture.shape[0] > 300
        assert picture[..., :3].std() > 0.05
    one = finished_study(tmp_path / "one", [(run("toy_text", "reg", 0), {"test_macro_f1": 0.5})])
    drawn, missing = save_figures(one, tmp_path / "one")
    assert drawn == {}
    assert "several loss_kwargs.alpha" in missing["alpha"]
    with pytest.raises(ValueError, match="There is no figure 'beta'"):
        save_figures(one, tmp_path, names=["beta"])
    with pytest.raises(ValueError, match="There is no picture format 'doc'"):
        save_figures(one, tmp_path, suffix="doc")
