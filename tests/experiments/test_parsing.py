"""Recipe, then file, then command line: who says what holds, and what is refused."""

from __future__ import annotations

import json

import pytest
import torch

from hf_mlcl import list_losses
from hf_mlcl.experiments import Recipe, build_experiment, parse_experiment, parsing, running, study_recipe

CPU = ["--use_cpu", "--report_to", "none"]
RECIPE = Recipe(
    "toy_text",
    settings={"max_length": 50, "weight_decay": 0.02},
    contrastive={"num_train_epochs": 7, "learning_rate": (1e-3, 1e-4), "alpha": (0.5, 1.0)},
    logit={"num_train_epochs": 3, "eval_strategy": "epoch"},
)


def test_without_arguments_the_recipe_holds():
    experiment, training = parse_experiment(RECIPE, CPU)
    assert (experiment.corpus, experiment.max_length) == ("toy_text", 50)
    assert (training.loss, training.num_train_epochs, training.learning_rate) == ("reg", 7, 1e-3)
    assert (training.weight_decay, training.loss_kwargs) == (0.02, {"alpha": 0.5})
    assert training.output_dir == "outputs/toy_text-reg"
    mine = [build_experiment(Recipe("mine.csv", loss=loss), {"use_cpu": True})[1] for loss in ("reg", "zlpr")]
    assert [one.output_dir for one in mine] == ["outputs/mine-reg", "outputs/mine-zlpr"], "two recipes, two folders"


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_the_command_line_goes_before_the_file_and_the_file_before_the_recipe(ending, tmp_path):
    settings = {"learning_rate": "3e-5", "num_train_epochs": 9, "max_train_samples": 5, "loss_kwargs": {"alpha": 0.25}}
    file = tmp_path / f"settings.{ending}"
    file.write_text(
        json.dumps(settings) if ending == "json" else "\n".join(f"{key}: {value}" for key, value in settings.items())
    )
    experiment, training = parse_experiment(RECIPE, [*CPU, "--config", str(file), "--num_train_epochs", "2"])
    assert training.learning_rate == 3e-5  # YAML takes 3e-5 for a word
    assert training.num_train_epochs == 2
    assert experiment.max_train_samples == 5
    assert training.loss_kwargs == {"alpha": 0.25}


def test_a_file_is_read_as_yaml_1_2_in_utf_8(tmp_path):
    file = tmp_path / "settings.yaml"
    text = "linear_learning_rates: [1e-1, 1e-2]\nsave_strategy: no\nrun_name: größe\nlearning_rate: 1e-5\n"
    file.write_bytes(text.encode("utf-8"))
    experiment, training = parse_experiment(RECIPE, [*CPU, "--config", str(file)])
    assert experiment.linear_learning_rates == [0.1, 0.01]
    assert training.save_strategy.value == "no"
    assert training.run_name == "größe"
    assert training.learning_rate == 1e-5


@pytest.mark.parametrize("loss", ["zlpr", "bce", "asymmetric"])
def test_a_loss_on_logits_brings_schedule_epochs_batch_and_checkpoint_rule(loss):
    experiment, training = parse_experiment(study_recipe("aapd"), [*CPU, "--loss", loss])
    assert training.lr_scheduler_type.value == "linear"
    assert training.num_train_epochs == 40
    assert (experiment.global_batch_size, training.per_device_train_batch_size) == (32, 32)
    assert training.load_best_model_at_end
    assert training.metric_for_best_model == "micro_f1"
    assert training.eval_strategy.value == training.save_strategy.value == "epoch"


@pytest.mark.parametrize(
    ("given", "thresholds"),
    [
        ({"loss": "two_way"}, "macro_f1"),
        ({"loss": "lsep"}, "macro_f1"),
        ({"loss": "reg+two_way", "evaluation": "direct"}, "macro_f1"),
        ({"loss": "two_way", "thresholds": "half"}, "half"),
        ({"loss": "two_way", "evaluation": "linear"}, "half"),  # fitted heads decide
        ({"loss": "reg+two_way"}, "half"),
        ({"loss": "zlpr"}, "half"),
    ],
)
def test_logits_that_decide_without_a_threshold_of_their_own_get_tuned_ones(given, thresholds):
    experiment, _ = build_experiment(study_recipe("aapd"), {**given, "use_cpu": True, "output_dir": "unused"})
    assert experiment.thresholds == thresholds


@pytest.mark.parametrize("loss", ["bce", "reg"])
def test_with_the_best_protocol_the_stages_look_at_validation_and_the_trainer_does_not(loss):
    settings = {"loss": loss, "protocol": "best", "use_cpu": True, "output_dir": "unused"}
    for said, expected in (({}, "no"), ({"eval_strategy": "epoch"}, "epoch")):
        _, training = build_experiment(study_recipe("semeval2018"), {**settings, **said})
        assert (training.eval_strategy.value, training.load_best_model_at_end) == (expected, False)


@pytest.mark.parametrize("loss", ["reg", "msc", "reg+zlpr"])
def test_a_contrastive_loss_brings_cosine_and_the_last_checkpoint(loss):
    experiment, training = parse_experiment(study_recipe("aapd"), [*CPU, "--loss", loss])
    assert training.lr_scheduler_type.value == "cosine"
    assert training.num_train_epochs == 320
    assert experiment.global_batch_size == 256
    assert not training.load_best_model_at_end


def test_every_recipe_can_be_parsed_for_every_loss_and_size():
    for corpus in ("aapd", "voc2007", "newsgroups20", "toy_text"):
        for loss in list_losses():
            experiment, training = build_experiment(study_recipe(corpus), {"loss": loss, "use_cpu": True})
            assert (experiment.corpus, training.loss) == (corpus, loss)


def test_rows_of_each_device_override_the_batch_of_all():
    _, training = parse_experiment(study_recipe("aapd"), [*CPU, "--per_device_train_batch_size", "6"])
    assert training.per_device_train_batch_size == 6


def test_hyperparameters_on_the_command_line_join_those_of_the_recipe():
    argv = [*CPU, "--loss_kwargs", '{"chunk_size": 3}', "--temperature", "0.2"]
    _, training = parse_experiment(RECIPE, argv)
    assert training.loss_kwargs == {"alpha": 0.5, "chunk_size": 3}
    assert training.build_loss().temperature == 0.2


def test_a_plugin_makes_a_loss_of_ones_own_known(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom hf_mlcl import register_loss\n\n"
        "@register_loss('parsing-test-loss')\nclass Mine(torch.nn.Module):\n"
        "    def forward(self, logits, labels):\n        return (logits - labels).square().mean()\n"
    )
    argv = [*CPU, "--plugins", str(tmp_path / "mine.py"), "--loss", "parsing-test-loss"]
    _, training = parse_experiment(RECIPE, argv)
    loss = training.build_loss()
    assert loss(torch.zeros(2, 2), torch.ones(2, 2)).item() == 1.0
    assert training.num_train_epochs == 3  # the protocol of losses on logits


WRONG = [
    (["--loss", "regg"], "There is no loss 'regg'. Known, nearest first: reg"),
    (["--learning_rate", "fast"], "invalid float value: 'fast'"),
    (["--size", "tiny"], "'tiny'"),
    (["--no_such_argument", "1"], "There is no argument '--no_such_argument'"),
    (["--learning_rat", "1"], "There is no argument '--learning_rat'. Known, nearest first: --learning_rate"),
    (["--learning-rat=1"], "There is no argument '--learning-rat'. Known, nearest first: --learning_rate"),
    (["aapd"], "There is no argument 'aapd'"),
    (["--data_dir", "/no/such/folder"], "data_dir='/no/such/folder' is not a folder"),
    (["--max_train_samples", "0"], "max_train_samples must be at least 1; got 0"),
    (["--loss_kwargs", "alpha=1"], "loss_kwargs must be JSON"),
    (["--loss_kwargs", '{"gamma": 1}'], "Unknown hyperparameter 'gamma' for loss 'reg'"),
    (["--config", "missing.yaml"], "--config must name a YAML or JSON file"),
    (["--evaluation", "direct"], "evaluation='direct' needs a loss on logits; 'reg' trains no classifier"),
    (["--linear_learning_rates", "0"], "linear_learning_rates must hold positive numbers"),
    (["--num_train_epochs", "-1"], "num_train_epochs must be above 0, or max_steps must; got -1 and -1"),
    (["--num_train_epochs", "0"], "nothing would be trained"),
    (["--do_train", "False"], "do_train=False is not possible: an experiment trains and evaluates"),
    (["--label_smoothing_factor", "0.1"], "label_smoothing_factor=0.1 smooths the cross entropy of HF's own loss"),
    (["--push_to_hub", "--hub_strategy", "checkpoint"], "hub_strategy='checkpoint' is not possible"),
    (["--plugins", "no_such_module"], "plugins names 'no_such_module', which cannot be imported"),
]


@pytest.mark.parametrize(("argv", "message"), WRONG)
def test_wrong_arguments_end_with_code_2_and_a_message(argv, message, capsys):
    with pytest.raises(SystemExit) as end:
        parse_experiment(RECIPE, [*CPU, *argv])
    assert end.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("learning_rat: 1", "There is no setting 'learning_rat'. Known, nearest first: learning_rate"),
        ("- a\n- b", "must hold settings as `name: value`; got list"),
        ("a: [", "cannot be read"),
        ("num_train_epochs: many", "num_train_epochs cannot be 'many'"),
        ("linear_optimizer: lbfgs", "linear_optimizer must be adamw or adam or rmsprop or sgd; got 'lbfgs'"),
        ("linear_learning_rates: 0.1", "linear_learning_rates must be a list, each item a number; got 0.1"),
        ("linear_learning_rates: [fast]", "linear_learning_rates cannot be 'fast'"),
        ("max_train_samples: 10.5", "max_train_samples must be a whole number or null; got 10.5"),
        ("pretrained: 3", "pretrained must be true or false; got 3"),
        ("seed: 1\nseed: 2", "the key 'seed' stands here a second time"),
    ],
)
def test_a_file_with_mistakes_is_refused(content, message, tmp_path, capsys):
    file = tmp_path / "settings.yaml"
    file.write_text(content)
    with pytest.raises(SystemExit) as end:
        parse_experiment(RECIPE, [*CPU, "--config", str(file)])
    assert end.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_batch_that_cannot_be_parted_names_the_way_out(monkeypatch):
    from hf_mlcl.training import ContrastiveTrainingArguments

    monkeypatch.setattr(ContrastiveTrainingArguments, "world_size", 3)
    with pytest.raises(ValueError, match=r"global_batch_size 256 cannot be parted among 3 devices.*a multiple of 3"):
        build_experiment(study_recipe("aapd"), {"use_cpu": True})


@pytest.mark.parametrize(
    ("launched_with", "given", "expected"),
    [
        (None, {}, {"bf16": True}),
        ("no", {}, {}),
        ("fp16", {}, {}),
        ("no", {"bf16": True}, {"bf16": True}),
        (None, {"bf16": False}, {"bf16": False}),
        (None, {"bf16": "auto"}, {"bf16": True}),
        ("no", {"bf16": "auto"}, {"bf16": True}),  # which accelerate launch says of its own accord
        ("fp16", {"bf16": "auto"}, {}),
    ],
)
def test_the_precision_is_what_the_user_says_to_the_launcher_or_here_and_else_the_studys(
    launched_with, given, expected, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    if launched_with is not None:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched_with)
    chosen = dict(given)
    parsing._choose_precision(chosen, given)
    assert chosen == expected


@pytest.mark.parametrize("knows", [True, False])
def test_bf16_auto_is_what_the_cpu_does_faster_and_a_slow_bf16_is_told(knows, monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": knows}, raising=False)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    assert build_experiment(RECIPE, {"bf16": "auto", "use_cpu": True})[1].bf16 == knows
    assert parse_experiment(RECIPE, ["--bf16", "auto", "--use_cpu"])[1].bf16 == knows
    slow = parse_experiment(RECIPE, ["--bf16", "--use_cpu"])[1]
    assert slow.bf16
    assert not caplog.messages, "a study may be planned on another machine"
    running._for_trainer(slow)
    assert any("no instructions for bfloat16" in message for message in caplog.messages) == (not knows)
    caplog.clear()
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"neon": True}, raising=False)
    running._for_trainer(slow)
    assert not caplog.messages, "nothing is known of this CPU"
    with pytest.raises(ValueError, match="bf16 cannot be 'fast'"):
        build_experiment(RECIPE, {"bf16": "fast", "use_cpu": True})


@pytest.mark.parametrize(
    ("corpus", "options", "reason"),
    [
        ("voc2007", '{"difficult": "ignore"}', "difficult='ignore' marks labels that are neither present nor absent"),
        ("voc2007", '{"draw_seed": "seed"}', "draw_seed=42 has no use for size='full'"),
        ("aapd", '{"halves": "hash"}', "corpus_options: aapd has no option 'halves'"),
        ("aapd", "[1]", "corpus_options must be a mapping such as"),
        ("mine.csv", '{"labelled_only": true}', r"is for the corpora of `hf-mlcl corpora`, and 'mine\.csv' is none"),
    ],
)
def test_options_of_a_corpus_are_refused_before_anything_is_loaded(corpus, options, reason):
    with pytest.raises(ValueError, match=reason):
        build_experiment(Recipe(corpus), {"corpus_options": options, "use_cpu": True})


@pytest.mark.parametrize("setting", [{"size": "small"}, {"data_dir": "."}])
def test_what_is_for_corpora_is_refused_for_data_of_ones_own(setting):
    with pytest.raises(ValueError, match=r"is for the corpora of `hf-mlcl corpora`, and 'mine\.csv' is none"):
        build_experiment(Recipe("mine.csv"), {**setting, "use_cpu": True})


def test_options_of_the_recipe_hold_until_others_are_named():
    recipe = Recipe("voc2007", settings={"corpus_options": {"difficult": "absent"}})
    chosen = build_experiment(recipe, {"corpus_options": {"halves": "hash"}, "use_cpu": True})[0]
    assert chosen.corpus_options == {"difficult": "absent", "halves": "hash"}


def test_the_precision_that_accelerate_launch_was_given_reaches_the_training(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert build_experiment(RECIPE, {"use_cpu": True})[1].mixed_precision == "bf16"
