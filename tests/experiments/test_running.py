"""An experiment from beginning to end: what is written agrees with what the trainer and the pipelines say."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from huggingface_hub.utils import validate_repo_id
from safetensors.torch import load, load_file
from transformers import AutoModel, AutoTokenizer, Trainer, pipeline
from transformers.utils import logging as transformers_logging

import hf_mlcl.experiments.running as running
import hf_mlcl.training.card_facts as training_report
from copies import Copy
from hf_mlcl import ContrastiveMultiLabelTrainer, MLCLModel, load_corpus
from hf_mlcl.data import TextCollator, clean_text, tokenize, with_cleaning, word_tokenizer
from hf_mlcl.evaluation import LinearEvaluationConfig, choose_thresholds, fit_best_heads
from hf_mlcl.experiments import ExperimentResult, build_experiment, run_experiment, study_recipe
from hf_mlcl.experiments.prediction import Predictor, newest_classifier
from hf_mlcl.metrics import compute_metrics, decision_metrics, mean_average_precision
from hub.hub_server import USER, HubServer

QUICK = {
    "max_train_samples": 96,
    "max_eval_samples": 48,
    "max_length": 24,
    "num_train_epochs": 1,
    "global_batch_size": 16,
    "linear_epochs": 3,
    "use_cpu": True,
    "report_to": "none",
    "export": False,
}


def run(folder, quiet=True, **settings):
    chosen = {**QUICK, "output_dir": str(folder), **settings}
    return run_experiment(*build_experiment(study_recipe("toy_text"), chosen), quiet=quiet)


@pytest.fixture(scope="module")
def contrastive(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "reg", seed=1)


@pytest.fixture(scope="module")
def logit(tmp_path_factory):
    return run(tmp_path_factory.mktemp("runs") / "zlpr", loss="zlpr", seed=1)


def same_as(result):
    """Metrics but for rounding: the order in which a processor adds depends on where numbers lie in memory."""
    return pytest.approx(result.metrics, abs=1e-6)


def texts_and_truth(split, count):
    rows = load_corpus("toy_text")[split].shuffle(seed=42).select(range(count))
    truth = np.zeros((count, 28))
    for row, labels in enumerate(rows["labels"]):
        truth[row, labels] = 1
    return rows["text"][:], truth


@pytest.mark.parametrize("kind", ["contrastive", "logit"])
def test_the_saved_classifier_gives_the_scores_that_were_reported(kind, request):
    result = request.getfixturevalue(kind)
    texts, truth = texts_and_truth("test", 48)
    predictor = Predictor(result.folder)
    from hf_mlcl.metrics import multilabel_metrics

    scores = multilabel_metrics(truth, predictor.probabilities(texts))
    for name, value in scores.items():
        assert result.metrics[f"test_{name}"] == pytest.approx(value, abs=1e-6)


def test_linear_evaluation_is_that_of_the_trainer(contrastive):
    model = MLCLModel.from_pretrained(contrastive.folder / "encoder")
    tokenizer = AutoTokenizer.from_pretrained(contrastive.folder / "encoder")
    corpus = load_corpus("toy_text")
    data = {
        split: tokenize(corpus[split].shuffle(seed=42).select(range(count)), tokenizer, 24)
        for split, count in (("train", 96), ("validation", 48), ("test", 48))
    }
    _, training = build_experiment(study_recipe("toy_text"), {**QUICK, "seed": 1})
    trainer = ContrastiveMultiLabelTrainer(model, training, TextCollator(tokenizer, 28, 8))
    config = LinearEvaluationConfig((0.1, 0.01), (1e-1, 1e-2, 1e-4), epochs=3, batch_size=256, seed=1)
    expected = trainer.linear_evaluate(data["train"], data["validation"], data["test"], config=config).metrics
    for name, value in expected.items():
        assert contrastive.metrics[name] == pytest.approx(value, abs=1e-6)


def test_direct_evaluation_is_that_of_the_trainers_predictions(logit):
    model = MLCLModel.from_pretrained(logit.folder / "encoder")
    tokenizer = AutoTokenizer.from_pretrained(logit.folder / "encoder")
    rows = tokenize(load_corpus("toy_text")["test"].shuffle(seed=42).select(range(48)), tokenizer, 24)
    _, training = build_experiment(study_recipe("toy_text"), {**QUICK, "loss": "zlpr"})
    trainer = ContrastiveMultiLabelTrainer(model, training, TextCollator(tokenizer, 28, 8), eval_dataset=rows)
    for name, value in compute_metrics(trainer.predict(rows)).items():
        assert logit.metrics[f"test_{name}"] == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize("loss", ["reg", "zlpr"])
def test_the_best_heads_can_be_scored_on_the_same_features_for_every_loss_alike(contrastive, logit, tmp_path, loss):
    metrics = run(tmp_path / "both", loss=loss, best_heads=True, seed=1).metrics
    best = {name: metrics.pop(name) for name in list(metrics) if name.startswith("best_")}
    assert metrics == same_as(contrastive if loss == "reg" else logit), "nothing else changes"
    model = MLCLModel.from_pretrained(tmp_path / "both" / "encoder")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "both" / "encoder")
    data = {}
    for split, count in (("train", 96), ("validation", 48), ("test", 48)):
        texts, truth = texts_and_truth(split, count)
        tokens = tokenizer(texts, truncation=True, max_length=24, padding=True, return_tensors="pt")
        with torch.no_grad():
            data[split] = model.eval()(**tokens).features, torch.from_numpy(truth) > 0
    heads = fit_best_heads(*data["train"], data["validation"])
    probabilities = {split: heads.logits(data[split][0]).sigmoid().numpy() for split in ("validation", "test")}
    truth = {split: data[split][1].numpy() for split in probabilities}
    ranked = mean_average_precision(truth["test"], probabilities["test"], absent=float("nan"))
    assert best["best_test_mAP"] == pytest.approx(ranked, abs=1e-3)
    rule = choose_thresholds(truth["validation"], probabilities["validation"]).rule
    decided = decision_metrics(truth["test"], rule.decide(probabilities["test"]))
    assert best["best_tuned_test_micro_f1"] == pytest.approx(decided["micro_f1"], abs=1e-2)


def test_macro_f1_is_the_mean_of_the_labels_that_are_listed(contrastive):
    scores = [label["f1"] for label in contrastive.per_label]
    assert np.mean(scores) == pytest.approx(contrastive.metrics["test_macro_f1"])
    assert sum(label["train_rows"] for label in contrastive.per_label) > 96


def test_the_result_reads_back_as_it_was_written(contrastive):
    again = ExperimentResult.load(contrastive.folder)
    assert again.metrics == contrastive.metrics
    assert again.per_label == contrastive.per_label
    assert again.settings["seed"] == 1
    assert "torch" in again.versions
    json.dumps(again.metrics)


def test_metrics_are_json_for_every_program_also_where_a_number_is_none(contrastive, tmp_path):
    unknown = dataclasses.replace(contrastive, folder=tmp_path, metrics={"alignment": float("nan"), "prr": 0.5})
    unknown.save()
    content = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert content["metrics"] == {"alignment": None, "prr": 0.5}
    assert np.isnan(ExperimentResult.load(tmp_path).metrics["alignment"])


def test_tuned_thresholds_are_saved_and_their_scores_stand_beside_those_of_a_half(contrastive, tmp_path):
    result = run(tmp_path / "tuned", seed=1, thresholds="macro_f1")
    texts, truth = texts_and_truth("test", 48)
    predictor = Predictor(result.folder)
    assert len(set(predictor.rule.thresholds)) > 1
    decided = decision_metrics(truth, predictor.rule.decide(predictor.probabilities(texts)))
    for name, value in decided.items():
        assert result.metrics.pop(f"tuned_test_{name}") == pytest.approx(value)
    assert result.metrics == same_as(contrastive)


def test_an_export_loads_without_this_package_and_the_card_has_pictures(contrastive, tmp_path, monkeypatch):
    drawn = []
    draw = training_report._figures
    monkeypatch.setattr(training_report, "_figures", lambda *args: drawn.append(args[1].thresholds) or draw(*args))
    result = run(tmp_path / "shared", seed=1, export=True, thresholds="macro_f1")
    assert {name: result.metrics[name] for name in contrastive.metrics} == same_as(contrastive)
    assert drawn == [list(Predictor(result.folder).rule.thresholds)], "pictures show what the card's table shows"
    encoder, backbone = (AutoModel.from_pretrained(result.folder / name) for name in ("encoder", "backbone"))
    assert type(backbone) is type(encoder.backbone)
    for name, weights in encoder.backbone.state_dict().items():
        assert torch.equal(backbone.state_dict()[name], weights)
    for folder in ("classifier", "backbone"):
        card = (result.folder / folder / "README.md").read_text()
        pictures = list((result.folder / folder / "figures").glob("*.png"))
        assert len(pictures) >= 3
        assert all(f"figures/{picture.name}" in card for picture in pictures)
        assert ("tuned thresholds" in card) == (folder == "classifier")
    run(tmp_path / "shared", seed=2, overwrite=True)
    assert not (tmp_path / "shared" / "backbone").exists(), "it would be that of another encoder"


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(contrastive, tmp_path):
    assert run(tmp_path / "a", seed=1).metrics == same_as(contrastive)
    assert run(tmp_path / "b", seed=2).metrics != same_as(contrastive)


def test_a_joined_loss_is_judged_linearly_and_its_own_logits_are_reported_beside(tmp_path):
    metrics = run(tmp_path / "joined", loss="reg+zlpr").metrics
    assert {"test_macro_f1", "direct_test_macro_f1", "prr"} <= metrics.keys()
    metrics = run(tmp_path / "ranking", loss="reg+two_way").metrics
    assert {name for name in metrics if name.startswith("direct_")} == {"direct_validation_mAP", "direct_test_mAP"}


def test_small_logits_are_not_taken_for_probabilities(tmp_path, monkeypatch):
    train = ContrastiveMultiLabelTrainer.train

    def with_small_logits(self, *args, **kwargs):
        outcome = train(self, *args, **kwargs)
        torch.nn.init.zeros_(self.model.classifier.weight)
        torch.nn.init.constant_(self.model.classifier.bias, 0.2)
        return outcome

    monkeypatch.setattr(ContrastiveMultiLabelTrainer, "train", with_small_logits)
    result = run(tmp_path / "small", loss="zlpr", max_steps=1)
    _, truth = texts_and_truth("test", 48)
    assert result.metrics["test_hamming_loss"] == pytest.approx(1 - truth.mean())  # sigmoid(0.2) is above a half


@pytest.mark.parametrize("loss", ["reg", "bce", "reg+two_way"])
def test_a_single_label_classifier_decides_as_it_was_judged(loss, tmp_path):
    rows = load_corpus("toy_text")
    one_each = rows.map(lambda row: {"labels": row["labels"][:1]}).filter(lambda row: row["labels"])
    chosen = {**QUICK, "output_dir": str(tmp_path / loss), "loss": loss, "single_label": True, "max_steps": 1}
    experiment = build_experiment(study_recipe("toy_text"), chosen)
    result = run_experiment(*experiment, one_each, quiet=True)
    test = one_each["test"].shuffle(seed=42).select(range(48))
    predictor = Predictor(result.folder)
    decisions = predictor.rule.decide(predictor.probabilities(test["text"][:]))
    right = decisions[np.arange(48), [labels[0] for labels in test["labels"]]]
    assert (decisions.sum(axis=1) == 1).all()
    assert right.mean() == pytest.approx(result.metrics["test_accuracy"])
    assert ("direct_test_accuracy" in result.metrics) == ("+" in loss), "the largest logit decides without a threshold"


def test_without_a_card_everything_else_is_there(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(running, "write_model_card", fail)
    result = run(tmp_path / "cardless", max_steps=1)
    assert ExperimentResult.load(result.folder).metrics == result.metrics
    assert Predictor(result.folder).probabilities(["a text"]).shape == (1, 28)
    assert "its card or its plain backbone could not be written: no card today" in caplog.text


def fail(*_):
    raise ValueError("no card today")


def test_data_whose_name_is_no_hub_id_have_a_card(tmp_path):
    rows = load_corpus("toy_text")
    chosen = {**QUICK, "output_dir": str(tmp_path / "lab"), "max_steps": 1}
    experiment, training = build_experiment(study_recipe("toy_text"), chosen)
    experiment.corpus = "my lab/news"
    run_experiment(experiment, training, rows, quiet=True)
    assert "my lab/news" in (tmp_path / "lab" / "classifier" / "README.md").read_text()


def test_the_ratio_of_the_last_log_is_reported():
    class Statistics:
        def flush(self):
            return {"prr": 9.0}

    history = [{"prr": 1.0}, {"prr": 2.0}, {"prr": 3.0}, {"train_runtime": 1.0}]
    trainer = SimpleNamespace(state=SimpleNamespace(log_history=history), statistics=Statistics())
    assert running._prr(trainer) == {"prr": 3.0}
    trainer.state.log_history = []
    assert running._prr(trainer) == {"prr": 9.0}


@pytest.mark.parametrize("logging_steps", [5, 100])
def test_the_ratio_does_not_depend_on_an_interruption(logging_steps, tmp_path):
    settings = {"logging_steps": logging_steps, "save_steps": 2, "save_total_limit": 9}
    whole = run(tmp_path / "whole", **settings)
    shutil.copytree(whole.folder / "checkpoint-4", tmp_path / "resumed" / "checkpoint-4")
    resumed = run(tmp_path / "resumed", **settings, resume_from_checkpoint="last")
    assert resumed.metrics["prr"] == pytest.approx(whole.metrics["prr"], abs=1e-6)


def test_fewer_training_rows_are_a_part_of_more(tmp_path, monkeypatch):
    seen = {}

    class EnoughError(Exception):
        pass

    def stop(model, args, **kwargs):
        seen[len(kwargs["train_dataset"])] = {tuple(row["input_ids"]) for row in kwargs["train_dataset"]}
        raise EnoughError

    monkeypatch.setattr(running, "ContrastiveMultiLabelTrainer", stop)
    for count in (32, 64):
        with pytest.raises(EnoughError):  # the vocabulary is that of the backbone's folder, whatever rows are kept
            run(tmp_path / str(count), max_train_samples=count, backbone=str(backbone(tmp_path / "backbone")))
    assert seen[32] < seen[64]


def backbone(folder):
    from experiments import tiny

    if not folder.is_dir():
        tiny.text_backbone(folder)
        word_tokenizer(load_corpus("toy_text")["train"]["text"][:]).save_pretrained(folder)
    return folder


def test_a_folder_with_checkpoints_is_neither_mixed_nor_overwritten_unasked(tmp_path):
    first = run(tmp_path / "run", save_strategy="epoch")
    before = (first.folder / "metrics.json").read_bytes()
    with pytest.raises(ValueError, match=r"has checkpoints of an earlier run.*--resume_from_checkpoint last"):
        run(tmp_path / "run", seed=5)
    assert (first.folder / "metrics.json").read_bytes() == before
    again = run(tmp_path / "run", seed=5, overwrite=True, save_strategy="epoch")
    assert again.settings["seed"] == 5
    assert [path.name for path in again.folder.glob("checkpoint-*")] == ["checkpoint-6"]


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no folder 'nowhere'"):
        run(tmp_path / "run", resume_from_checkpoint="nowhere")


def run_until_killed(folder, **settings):
    steps = []
    original = Trainer.training_step

    def step(self, *args, **kwargs):
        steps.append(1)
        if len(steps) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *args, **kwargs)

    Trainer.training_step = step
    run(folder, **settings)


def test_an_interrupted_run_goes_on_and_ends_as_if_it_had_not_been(contrastive, tmp_path):
    folder = tmp_path / "killed"
    killed = Copy(partial(run_until_killed, folder, seed=1, save_steps=2), output=tmp_path / "printed.txt")
    assert killed.end() == -signal.SIGKILL, killed.printed()
    assert not (folder / "metrics.json").exists()
    resumed = run(folder, seed=1, save_steps=2, resume_from_checkpoint="last")
    judged = {name: value for name, value in resumed.metrics.items() if name.startswith(("test_", "validation_"))}
    assert {**contrastive.metrics, **judged} == same_as(contrastive)


def test_where_no_bars_are_wanted_every_log_is_a_plain_line(tmp_path, capfd):
    transformers_logging.enable_progress_bar()
    run(tmp_path / "run", quiet=False, disable_tqdm=True, logging_steps=1)
    printed, beside = capfd.readouterr()
    lines = printed.splitlines()
    logs = [line for line in lines if line.startswith("step ")]
    assert re.fullmatch(r"step 1  epoch \S+  loss \S+  .*learning_rate \S+.*", logs[0])
    assert "train_runtime" in logs[-1]
    stages = ["Preparing rows and encoder ...", "Training ...", "Evaluating ...", "Saving ..."]
    assert [line for line in lines if line.endswith(" ...")] == stages
    assert "Writing model shards" not in beside


@pytest.mark.parametrize("encoder", ["backbone", "encoder"])
def test_push_to_hub_uploads_the_finished_encoder_and_the_classifier_once_each(tmp_path, encoder):
    with HubServer() as server, server.here(tmp_path / "cache"):
        settings = {"push_to_hub": True, "hub_model_id": f"{USER}/toy", "save_strategy": "epoch"}
        result = run(tmp_path / "run", **settings, export=encoder == "backbone")
        pushed = {name: server.repositories["model", f"{USER}/toy{name}"] for name in ("", "-classifier")}
    for repository in pushed.values():
        assert repository.private
        assert len([message for message in repository.messages if message == "Upload model"]) == 1
    own, found = load_file(result.folder / "encoder" / "model.safetensors"), load(pushed[""].files["model.safetensors"])
    assert len(found) > 3
    assert all(torch.equal(own[f"backbone.{name}"], weight) for name, weight in found.items()), "as AutoModel has it"
    saved = (result.folder / "classifier" / "model.safetensors").read_bytes()
    assert pushed["-classifier"].files["model.safetensors"] == saved


@pytest.mark.parametrize(
    "name", ["c++", "a+-b", "a..+b", "reg+zlpr", "\u6570\u636e2", "v1.2", ".hidden", "a..b", "old.git", "n" * 90]
)
def test_a_folder_of_any_name_gives_repositories_that_the_hub_takes(name, tmp_path):
    training = SimpleNamespace(hub_model_id=None, output_dir=str(tmp_path / name))
    for repository in running._repositories(training):
        validate_repo_id(repository)


def test_a_folder_of_whose_name_the_hub_takes_nothing_is_refused_and_not_renamed(tmp_path):
    with pytest.raises(ValueError, match=r"cannot name a repository .*--hub_model_id"):
        run(tmp_path / "\u6570\u636e", push_to_hub=True)


def test_a_repository_that_is_named_by_its_folder_has_a_name_that_the_hub_takes(tmp_path):
    folder = tmp_path / "reviews-reg+zlpr"
    with HubServer() as server, server.here(tmp_path / "cache"):
        run(folder, push_to_hub=True, loss="reg+zlpr", save_strategy="epoch")
        expected = {f"{USER}/reviews-reg-zlpr", f"{USER}/reviews-reg-zlpr-classifier"}
        assert {name for _, name in server.repositories} == expected


def test_the_newest_classifier_is_found(contrastive, tmp_path):
    beside = contrastive.folder.parent / "outputs"
    assert newest_classifier(beside) == contrastive.folder / "classifier"
    assert newest_classifier(tmp_path / "outputs") is None


def test_what_is_no_classifier_is_refused(contrastive, tmp_path):
    with pytest.raises(ValueError, match="holds a MLCLModel, which does not classify"):
        Predictor(contrastive.folder / "encoder")
    with pytest.raises(ValueError, match="is not a classifier that can be loaded"):
        Predictor(tmp_path)


class TestOffline:
    """Without a network the message names the way out, and comes at once."""

    @pytest.fixture(autouse=True)
    def _offline(self, monkeypatch):
        monkeypatch.setattr("hf_mlcl.experiments.inputs.hub_is_reachable", lambda: False)

    @pytest.mark.parametrize("corpus", ["toy_text"])
    def test_a_backbone_that_cannot_be_had_names_the_option(self, corpus, tmp_path):
        with pytest.raises(ValueError, match=r"The backbone 'roberta-base-nowhere' is not available(.|\n)*--backbone"):
            run(tmp_path / "run", backbone="roberta-base-nowhere")


AWKWARD = ["Naïve — façade: 90% <b>OK</b>?", "tabs\tand\nlines", "  spaces  ", "(don't)`quote`", "", "日本語 text"]


def bert_like():
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=["[PAD]", "[UNK]", "[CLS]"])
    tokenizer.train_from_iterator(AWKWARD * 3, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]")


def byte_level():
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(AWKWARD * 3, vocab_size=300, special_tokens=["<s>", "<pad>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, pad_token="<pad>", bos_token="<s>")


@pytest.mark.parametrize("make", [bert_like, byte_level, lambda: word_tokenizer(AWKWARD)])
def test_a_tokenizer_that_cleans_gives_the_tokens_of_cleaned_texts_also_after_saving(make, tmp_path):
    tokenizer = make()
    cleaning = with_cleaning(tokenizer)
    cleaning.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for text in AWKWARD:
        expected = tokenizer(clean_text(text))["input_ids"]
        assert cleaning(text)["input_ids"] == expected
        assert loaded(text)["input_ids"] == expected
    assert loaded.pad_token_id == tokenizer.pad_token_id


def test_a_classifier_that_was_trained_on_cleaned_texts_cleans_by_itself(tmp_path):
    result = run(tmp_path / "clean", clean_text=True)
    classify = pipeline("text-classification", model=str(result.folder / "classifier"), top_k=None, device="cpu")
    text = load_corpus("toy_text")["test"]["text"][0]
    shouted = f"  {text.upper()} <>"
    found, expected = (
        {hit["label"]: hit["score"] for hit in classify([words])[0]} for words in (shouted, clean_text(shouted))
    )
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_pipeline_cuts_texts_where_training_did(contrastive):
    predictor = Predictor(contrastive.folder)
    text = load_corpus("toy_text")["test"]["text"][0]
    assert np.allclose(predictor.probabilities([text * 50]), predictor.probabilities([text]), atol=1e-6) == (
        len(AutoTokenizer.from_pretrained(Path(contrastive.folder) / "classifier").tokenize(text)) >= 23
    )
