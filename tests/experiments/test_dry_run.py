"""A dry run shows every setting with its origin, and shows the paper's."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from hf_mlcl.data.facts import SplitSizes
from hf_mlcl.experiments import Recipe, study_recipe
from hf_mlcl.experiments.dry_run import dry_run
from hf_mlcl.recipes import RECIPES

RECIPE_FOLDER = Path(__file__).parents[2] / "recipes"
LOSSES = {"contrastive": "reg", "logit": "zlpr"}

# The paper's tables of hyperparameters. What it tried of each; a single number where it tried one.
COLUMNS = (
    *("num_train_epochs", "learning_rate", "global_batch_size", "alpha", "optim"),
    *("linear_learning_rates", "linear_weight_decays", "linear_batch_size", "linear_optimizer"),
)
LONG, SHORT = [1, 1e-1, 1e-2, 1e-4, 1e-6], [1e-1, 1e-2, 1e-4]
CONTRASTIVE = {
    # Of VOC and NUS-WIDE the table says AdamW, the text SGD.
    ("voc2007", "full"): (10, 0.003, 64, 0, "sgd", [1, 0.1], SHORT, 64, "adamw"),
    ("coco2014", "full"): (10, 0.01, 64, 0, "sgd", [1, 0.1], SHORT, 64, "adam"),
    ("nuswide", "full"): (10, 0.01, 64, 0, "sgd", [1, 0.1], SHORT, 64, "rmsprop"),
    ("aapd", "full"): ((320, 640), (5e-5, 2e-5), 256, (0, 1), "adamw_torch_fused", [1, 0.1], LONG, 256, "adamw"),
    ("rcv1", "full"): (320, (5e-5, 2e-5), 256, (0, 1), "adamw_torch_fused", [1, 0.1], SHORT, 256, "adamw"),
    ("bgc", "full"): ((320, 640), (5e-5, 2e-5), 256, (0, 1), "adamw_torch_fused", [1, 0.1], LONG, 256, "adamw"),
    ("aapd", "small"): ((320, 640), (5e-5, 2e-5), (128, 256), (0, 1), "adamw_torch_fused", [1], [1e-2], 256, "adamw"),
    ("rcv1", "small"): ((320, 640), (5e-5, 2e-5), (128, 256), (0, 1), "adamw_torch_fused", [1], [1e-2], 256, "adamw"),
    ("bgc", "small"): ((320, 640), (5e-5, 2e-5), (128, 256), (0, 1), "adamw_torch_fused", [1], [1e-2], 256, "adamw"),
}
CONTRASTIVE |= {(name, "small"): CONTRASTIVE[name, "full"] for name in ("voc2007", "coco2014", "nuswide")}
LOGIT = {
    "voc2007": ((5, 10, 20), 0.003, 64, "sgd"),
    "coco2014": ((5, 10, 20), 0.01, 64, "sgd"),
    "nuswide": ((5, 10, 20), 0.01, 64, "sgd"),
    "aapd": ((10, 40, 80, 160), (5e-5, 2e-5), (32, 64), "adamw_torch_fused"),
    "rcv1": ((10, 40, 80, 160), (5e-5, 2e-5), (32, 64), "adamw_torch_fused"),
    "bgc": ((10, 40, 80, 160), (5e-5, 2e-5), (32, 64), "adamw_torch_fused"),
}
TEXTS = ("aapd", "rcv1", "bgc")
# In thousands, cut off after a digit. The paper prints 2.5k, 20.2k and 25.1k for 2,476 images of VOC, for COCO's halves
# (it seems to keep images without an object there) and for 25,090 of NUS-WIDE, and all the others like this.
ROWS = {
    ("voc2007", "full"): ("5.0", "2.4", "2.4"),
    ("voc2007", "small"): ("1.0", "2.4", "2.4"),
    ("coco2014", "full"): ("82.0", "20.0", "20.0"),
    ("coco2014", "small"): ("16.4", "20.0", "20.0"),
    ("nuswide", "full"): ("125.4", "41.9", "41.9"),
    ("nuswide", "small"): ("25.0", "41.9", "41.9"),
    ("rcv1", "full"): ("19.6", "3.4", "781.2"),
    ("rcv1", "small"): ("4.9", "10.8", "788.6"),
    ("aapd", "full"): ("37.8", "6.7", "11.3"),
    ("aapd", "small"): ("4.3", "16.3", "35.1"),
    ("bgc", "full"): ("58.7", "14.7", "18.3"),
    ("bgc", "small"): ("5.8", "30.6", "55.3"),
}


def plan(corpus, size="full", **settings):
    return dry_run(study_recipe(corpus), {"size": size, "use_cpu": True, **settings})


def tried(one):
    return sorted(one.tried) if one.tried else [one.value]


def as_list(value):
    return sorted(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize(("corpus", "size"), CONTRASTIVE)
def test_contrastive_settings_are_the_papers(corpus, size):
    found = plan(corpus, size).study
    for name, expected in zip(COLUMNS, CONTRASTIVE[corpus, size], strict=True):
        assert tried(found[name]) == as_list(expected), name
        assert found[name].origin == "paper"
    assert (found["lr_scheduler_type"].value, found["warmup_steps"].value, found["max_grad_norm"].value) == (
        *("cosine", 0.05),
        1.0,
    )
    assert (found["temperature"].value, found["projection_dim"].value, found["linear_heads"].value) == (0.1, 256, 3)
    assert found["load_best_model_at_end"].value is False  # the last checkpoint
    assert found["projection_bias"].value is False


@pytest.mark.parametrize("size", ["full", "small"])
@pytest.mark.parametrize("corpus", LOGIT)
def test_settings_of_losses_on_logits_are_the_papers(corpus, size):
    found = plan(corpus, size, loss="zlpr").study
    names = ("num_train_epochs", "learning_rate", "global_batch_size", "optim")
    for name, expected in zip(names, LOGIT[corpus], strict=True):
        assert tried(found[name]) == as_list(expected), name
        assert found[name].origin == "paper"
    assert (found["lr_scheduler_type"].value, found["warmup_steps"].value) == ("linear", 0.05)
    assert (found["load_best_model_at_end"].value, found["metric_for_best_model"].value) == (True, "micro_f1")
    assert not {"temperature", "linear_epochs", "projection_dim", "alpha"} & found.keys()


@pytest.mark.parametrize(
    ("given", "note"),
    [
        ({"loss": "two_way"}, "logits of this loss rank and have no threshold"),
        ({"loss": "zlpr", "protocol": "best"}, ""),
    ],
)
def test_tuned_thresholds_are_ours_and_the_reason_is_told(given, note):
    found = plan("aapd", **given).study["thresholds"]
    assert (found.value, found.origin, found.note) == ("macro_f1", "ours", note)


def test_hyperparameters_and_weights_of_a_joined_loss_are_shown():
    given = {"weights": [1.0, 0.5], "positive_temperature": 2.0, "alpha": 1.0}
    found = plan("aapd", loss="reg+two_way", loss_kwargs=given).study
    assert {name: found[name].value for name in given} == given


@pytest.mark.parametrize("loss", LOSSES.values())
@pytest.mark.parametrize(("corpus", "size"), ROWS)
def test_data_and_backbone_are_the_papers_and_what_is_not_is_said_to_be_ours(corpus, size, loss):
    made = plan(corpus, size, loss=loss)
    found = made.study
    rows = (made.rows.train, made.rows.validation, made.rows.test)
    assert tuple(f"{count // 100 / 10:.1f}" for count in rows) == ROWS[corpus, size]
    if corpus in TEXTS:
        assert (found["backbone"].value, found["max_length"].value) == ("roberta-base", 220)
        assert (found["weight_decay"].value, found["weight_decay"].origin) == (0.01, "paper")
        assert (found["clean_text"].value, found["clean_text"].origin) == (True, "authors' code")
        assert "image_size" not in found
    else:
        assert (found["backbone"].value, found["image_size"].value) == ("timm/resnet50.tv_in1k", 224)
        assert (found["optim_args"].value, found["optim_args"].origin) == ("momentum=0.9", "authors' code")
        assert (found["weight_decay"].value, found["weight_decay"].origin) == (1e-4, "ours")
        assert ("augmented_passes" in found) == (loss == "reg")
    epochs, batch = found["num_train_epochs"].value, found["global_batch_size"].value
    assert made.steps == epochs * (made.rows.train // batch)
    assert made.hours > 0


def test_authors_and_papers_choices_of_losses_and_corpora_are_told_apart():
    assert plan("aapd", loss="msc").study["beta"].value == 0.1
    assert plan("aapd", loss="msc").study["beta"].origin == "authors' code"
    asymmetric = plan("aapd", loss="asymmetric").study
    assert [asymmetric[name].value for name in ("gamma_pos", "gamma_neg", "margin")] == [0, 1, 0]
    voc = plan("voc2007").study
    assert (voc["difficult"].value, voc["difficult"].origin) == ("present", "authors' code")
    semeval = plan("semeval2018")
    assert (semeval.study["labelled_only"].value, semeval.study["labelled_only"].origin) == (True, "paper")
    assert semeval.study["learning_rate"].origin == "ours"  # the paper states none for it
    assert semeval.rows == SplitSizes(6_634, 872, 3_184)


def test_what_the_user_says_is_said_to_be_the_users(tmp_path):
    made = dry_run(
        study_recipe("aapd"),
        {"learning_rate": 1e-3, "seed": 5, "loss_kwargs": {"alpha": 2.0}, "use_cpu": True, "max_train_samples": 1000},
        from_file={"seed"},
    )
    found = made.study
    assert {name: found[name].origin for name in ("learning_rate", "alpha", "seed", "num_train_epochs")} == {
        "learning_rate": "command line",
        "alpha": "command line",
        "seed": "configuration file",
        "num_train_epochs": "paper",
    }
    assert found["learning_rate"].tried == ()  # the paper's are not tried then
    assert made.rows.train == 1000
    assert made.steps == 320 * 3


def test_every_setting_is_there_once():
    made = plan("voc2007")
    assert not made.study.keys() & made.others.keys()
    assert {"adam_beta1", "dataloader_num_workers", "output_dir", "per_device_train_batch_size"} <= made.others.keys()
    assert made.others["adam_beta1"].origin == "transformers"
    assert made.others["dataloader_num_workers"].origin == "ours"
    assert not [name for name in made.study | made.others if "token" in name]


@pytest.mark.parametrize(("launched_with", "origin"), [("fp16", "accelerate launch"), (None, "ours")])
def test_the_precision_says_who_chose_it(launched_with, origin, monkeypatch):
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    if launched_with:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched_with)
    found = plan("aapd").study["mixed_precision"]
    assert (found.value, found.origin) == (launched_with or "no", origin)


def test_data_of_ones_own_need_their_modality_and_rows():
    recipe = Recipe("reviews.csv", settings={"global_batch_size": 10, "num_train_epochs": 2})
    with pytest.raises(ValueError, match="modality is missing"):
        dry_run(recipe, {"use_cpu": True})
    made = dry_run(recipe, {"use_cpu": True}, modality="text", rows=SplitSizes(100, 10, 10))
    assert (made.steps, made.study["num_train_epochs"].origin) == (20, "ours")
    assert "not known before the data are read" in str(dry_run(recipe, {"use_cpu": True}, modality="text"))


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("corpus", RECIPES)
def test_every_recipe_prints_its_settings_and_does_nothing(corpus, kind, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    loss = LOSSES[kind]
    monkeypatch.setattr(sys, "argv", ["recipe.py", "--dry-run", "--loss", loss, "--use_cpu"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(RECIPE_FOLDER / f"{RECIPES[corpus]}.py"), run_name="__main__")
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{corpus}, {loss}, full: nothing is loaded or trained")
    for part in ("learning_rate", "origin", "command line", "rows   ", "steps  ", "time   about"):
        assert part in printed
    assert not list(tmp_path.iterdir())


def test_a_dry_run_of_wrong_arguments_ends_as_the_run_would(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["recipe.py", "--dry-run", "--learning_rat", "1"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(RECIPE_FOLDER / "aapd_reg.py"), run_name="__main__")
    assert ended.value.code == 2
    assert "There is no argument '--learning_rat'" in capsys.readouterr().err
