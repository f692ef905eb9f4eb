"""The recipes state what the study's tables of hyperparameters say."""

from __future__ import annotations

import math

import pytest

from hf_mlcl.evaluation import LinearEvaluationConfig
from hf_mlcl.experiments import Recipe, study_recipe

# Typed from the paper's tables: epochs, learning rates, batches, alphas; then learning rates, weight decays, batch and
# optimizer of the linear evaluation.
CONTRASTIVE = {
    ("voc2007", "full"): ([10], [0.003], [64], [0], [1, 0.1], [1e-1, 1e-2, 1e-4], 64, "adamw"),
    ("coco2014", "full"): ([10], [0.01], [64], [0], [1, 0.1], [1e-1, 1e-2, 1e-4], 64, "adam"),
    ("nuswide", "full"): ([10], [0.01], [64], [0], [1, 0.1], [1e-1, 1e-2, 1e-4], 64, "rmsprop"),
    ("aapd", "full"): ([320, 640], [5e-5, 2e-5], [256], [0, 1], [1, 0.1], [1, 1e-1, 1e-2, 1e-4, 1e-6], 256, "adamw"),
    ("rcv1", "full"): ([320], [5e-5, 2e-5], [256], [0, 1], [1, 0.1], [1e-1, 1e-2, 1e-4], 256, "adamw"),
    ("bgc", "full"): ([320, 640], [5e-5, 2e-5], [256], [0, 1], [1, 0.1], [1, 1e-1, 1e-2, 1e-4, 1e-6], 256, "adamw"),
    ("aapd", "small"): ([320, 640], [5e-5, 2e-5], [128, 256], [0, 1], [1], [1e-2], 256, "adamw"),
    ("rcv1", "small"): ([320, 640], [5e-5, 2e-5], [128, 256], [0, 1], [1], [1e-2], 256, "adamw"),
    ("bgc", "small"): ([320, 640], [5e-5, 2e-5], [128, 256], [0, 1], [1], [1e-2], 256, "adamw"),
}
LOGIT = {
    "voc2007": ([5, 10, 20], [0.003], [64]),
    "coco2014": ([5, 10, 20], [0.01], [64]),
    "nuswide": ([5, 10, 20], [0.01], [64]),
    "aapd": ([10, 40, 80, 160], [5e-5, 2e-5], [32, 64]),
    "rcv1": ([10, 40, 80, 160], [5e-5, 2e-5], [32, 64]),
    "bgc": ([10, 40, 80, 160], [5e-5, 2e-5], [32, 64]),
}
TRIED = ("num_train_epochs", "learning_rate", "global_batch_size")


def tried(grid, name):
    return sorted({point[name] for point in grid})


@pytest.mark.parametrize(("corpus", "size"), CONTRASTIVE)
def test_contrastive_settings_are_those_of_the_study(corpus, size):
    *values, alphas, rates, decays, batch, optimizer = CONTRASTIVE[corpus, size]
    grid = study_recipe(corpus).grid("reg", size)
    for name, expected in zip(TRIED, values, strict=True):
        assert tried(grid, name) == sorted(expected)
    assert sorted({point["loss_kwargs"]["alpha"] for point in grid}) == alphas
    linear = LinearEvaluationConfig.for_corpus(corpus, size)
    assert (list(linear.learning_rates), list(linear.weight_decays)) == (rates, decays)
    assert (linear.batch_size, linear.optimizer, linear.heads, linear.epochs) == (batch, optimizer, 3, 40)


@pytest.mark.parametrize("size", ["full", "small"])
@pytest.mark.parametrize("corpus", LOGIT)
def test_settings_of_losses_on_logits_are_those_of_the_study(corpus, size):
    grid = study_recipe(corpus).grid("zlpr", size)
    for name, expected in zip(TRIED, LOGIT[corpus], strict=True):
        assert tried(grid, name) == sorted(expected)
    assert {point["eval_strategy"] for point in grid} == {"epoch"}


@pytest.mark.parametrize("corpus", ["voc2007", "coco2014", "nuswide"])
def test_images_are_trained_with_sgd_and_momentum_from_torchvisions_weights(corpus):
    for loss in ("reg", "zlpr"):
        settings = study_recipe(corpus).for_loss(loss)
        assert (settings["optim"], settings["optim_args"]) == ("sgd", "momentum=0.9")
        assert (settings["backbone"], settings["image_size"]) == ("timm/resnet50.tv_in1k", 224)
        assert settings["weight_decay"] == 1e-4
    assert study_recipe(corpus).for_loss("reg")["augmented_passes"] == 1


@pytest.mark.parametrize(("corpus", "rows"), [("coco2014", 82_081), ("nuswide", 125_449)])
def test_weight_decay_leaves_a_weight_of_images_most_of_its_size(corpus, rows):
    """Without a gradient. The 0.01 of texts would leave 0.2 % on COCO and 0.01 % on NUS-WIDE."""
    settings = study_recipe(corpus).for_loss("reg")
    steps = settings["num_train_epochs"] * (rows // settings["global_batch_size"])
    # A cosine from the peak to 0 has half of it on average; momentum 0.9 multiplies each step by 10.
    shrinks = settings["learning_rate"] / 2 * settings["weight_decay"] / (1 - 0.9)
    assert math.exp(-steps * shrinks) > 0.9
    assert math.exp(-steps * shrinks / settings["weight_decay"] * 0.01) < 0.002


@pytest.mark.parametrize("corpus", ["aapd", "rcv1", "bgc"])
def test_texts_are_cleaned_and_cut_for_roberta(corpus):
    settings = study_recipe(corpus).for_loss("msc")
    assert (settings["backbone"], settings["max_length"], settings["clean_text"]) == ("roberta-base", 220, True)
    assert "loss_kwargs" not in settings  # msc has no alpha


def test_small_settings_change_only_what_they_name():
    recipe = Recipe(
        "aapd",
        settings={"seed": 1},
        small={"seed": 2},
        contrastive={"learning_rate": 0.1, "alpha": (0.0, 1.0)},
        contrastive_small={"learning_rate": 0.2},
    )
    assert recipe.for_loss("reg") == {"seed": 1, "learning_rate": 0.1, "loss_kwargs": {"alpha": 0.0}}
    assert recipe.for_loss("reg", "small") == {"seed": 2, "learning_rate": 0.2, "loss_kwargs": {"alpha": 0.0}}
    assert recipe.for_loss("zlpr", "small") == {"seed": 2}
    assert len(recipe.grid("reg")) == 2
    assert len(recipe.grid("msc")) == 1  # without alpha both points are one


def test_a_corpus_without_a_recipe_is_refused():
    with pytest.raises(ValueError, match=r"There is no recipe for 'imagenet'\. There are: aapd, bgc"):
        study_recipe("imagenet")
