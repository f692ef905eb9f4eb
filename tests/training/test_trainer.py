"""The trainer beside HF's: losses by name, defaults of the study, logs, evaluation, precision, errors."""

from __future__ import annotations

import inspect
import math
import multiprocessing
import pickle
from itertools import chain

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.utils.data import IterableDataset
from transformers import HfArgumentParser, Trainer, TrainerCallback, TrainingArguments

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments, MLCLModel, build_loss, register_loss
from hf_mlcl.data import ImageCollator, TextCollator, image_processor, word_tokenizer
from hf_mlcl.losses import JoinedLoss, RegLoss, as_loss, registry
from hf_mlcl.training import training_report
from hf_mlcl.training.divergence import TrainingDivergedError
from training.tiny import image_model, image_rows, text_model, text_rows


def arguments(folder, **settings) -> ContrastiveTrainingArguments:
    defaults = {
        "per_device_train_batch_size": 16,
        "max_steps": 3,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
        "learning_rate": 1e-3,
    }
    return ContrastiveTrainingArguments(folder, **(defaults | settings))


def trainer_for(folder, model=None, rows=None, **settings) -> ContrastiveMultiLabelTrainer:
    model = text_model() if model is None else model
    rows = text_rows(48) if rows is None else rows
    return ContrastiveMultiLabelTrainer(model, arguments(folder, **settings), train_dataset=rows, eval_dataset=rows)


class Stream(IterableDataset):
    def __init__(self, rows: list) -> None:
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


class TestDefaults:
    @pytest.mark.parametrize(("loss", "schedule"), [("reg", "cosine"), ("zlpr", "linear"), ("reg+zlpr", "cosine")])
    def test_the_schedule_follows_the_kind_of_loss(self, tmp_path, loss, schedule):
        assert arguments(tmp_path, loss=loss).lr_scheduler_type.value == schedule

    def test_what_the_user_says_wins(self, tmp_path):
        args = arguments(tmp_path, loss="reg", lr_scheduler_type="constant", warmup_steps=7, weight_decay=0.5)
        assert (args.lr_scheduler_type.value, args.warmup_steps, args.weight_decay) == ("constant", 7, 0.5)

    def test_logit_losses_keep_the_checkpoint_with_the_best_micro_f1(self, tmp_path):
        args = arguments(tmp_path, loss="zlpr", eval_strategy="epoch", save_strategy="epoch")
        assert (args.load_best_model_at_end, args.metric_for_best_model, args.greater_is_better) == (
            True,
            "micro_f1",
            True,
        )
        assert not arguments(tmp_path, loss="reg", eval_strategy="epoch", save_strategy="epoch").load_best_model_at_end
        assert not arguments(
            tmp_path, loss="zlpr", eval_strategy="epoch", load_best_model_at_end=False
        ).load_best_model_at_end

    def test_settings_of_the_loss_reach_it(self, tmp_path):
        args = arguments(
            tmp_path, loss="reg+focal", temperature=0.3, loss_kwargs='{"alpha": 1.0, "gamma": 3.0, "weights": [1, 2]}'
        )
        loss = args.build_loss()
        assert (loss.losses["reg"].temperature, loss.losses["reg"].alpha, loss.losses["focal"].gamma) == (0.3, 1.0, 3.0)
        assert loss.weights == [1.0, 2.0]

    def test_only_training_drops_the_last_incomplete_batch(self, tmp_path):
        trainer = trainer_for(tmp_path, rows=text_rows(37), per_device_eval_batch_size=16)
        assert [len(b["labels"]) for b in trainer.get_train_dataloader()] == [16, 16]
        assert [len(b["labels"]) for b in trainer.get_eval_dataloader()] == [16, 16, 5]
        assert trainer.args.dataloader_drop_last is False
        few = trainer_for(tmp_path, rows=text_rows(5))
        assert [len(b["labels"]) for b in few.get_train_dataloader()] == [5]

    def test_every_argument_can_be_given_on_the_command_line(self, tmp_path):
        line = ["--output_dir", str(tmp_path), "--loss", "msc", "--loss_kwargs", '{"beta": 0.5}', "--report_to", "none"]
        line += ["--lr_scheduler_type", "constant", "--embedding_chunk_size", "8", "--use_cpu", "True"]
        (args,) = HfArgumentParser(ContrastiveTrainingArguments).parse_args_into_dataclasses(line)
        assert args.build_loss().beta == 0.5
        assert (args.lr_scheduler_type.value, args.embedding_chunk_size) == ("constant", 8)

    def test_asked_for_the_best_checkpoint_logit_losses_choose_it_by_micro_f1(self, tmp_path):
        chosen = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
        assert arguments(tmp_path, loss="zlpr", **chosen).metric_for_best_model == "micro_f1"
        assert arguments(tmp_path, loss="reg", **chosen).metric_for_best_model == "loss"

    @pytest.mark.parametrize("loss", ["two_way", "lsep"])
    def test_a_loss_whose_logits_have_no_threshold_chooses_it_by_map(self, loss, tmp_path):
        both = {"eval_strategy": "epoch", "save_strategy": "epoch"}
        assert arguments(tmp_path, loss=loss, **both).metric_for_best_model == "mAP"
        assert arguments(tmp_path, loss=f"{loss}+zlpr", **both).metric_for_best_model == "micro_f1"
        searched = arguments(tmp_path, loss="bce", **both)
        searched.follow_loss(loss)
        assert searched.metric_for_best_model == "mAP"
        chosen = arguments(tmp_path, loss="bce", metric_for_best_model="macro_f1", **both)
        chosen.follow_loss(loss)
        assert chosen.metric_for_best_model == "macro_f1"

    @pytest.mark.parametrize(
        ("chosen", "best"),
        [
            ({"save_strategy": "steps", "save_steps": 50, "eval_strategy": "steps", "eval_steps": 10}, True),
            ({"save_strategy": "steps", "save_steps": 0.1, "eval_strategy": "steps", "eval_steps": 0.1}, True),
            ({"save_strategy": "best", "eval_strategy": "epoch"}, True),
            ({"save_strategy": "steps", "save_steps": 50, "eval_strategy": "epoch"}, False),
            ({"save_strategy": "steps", "save_steps": 50, "eval_strategy": "steps", "eval_steps": 20}, False),
        ],
    )
    @pytest.mark.filterwarnings("ignore:The last checkpoint is kept")
    def test_settings_of_saving_are_kept_and_the_best_checkpoint_is_taken_where_they_tell_it(
        self, tmp_path, chosen, best
    ):
        args = arguments(tmp_path, loss="zlpr", **chosen)
        assert {name: getattr(getattr(args, name), "value", getattr(args, name)) for name in chosen} == chosen
        assert args.load_best_model_at_end == best

    def test_a_best_checkpoint_that_cannot_be_told_is_said_to_be_the_last(self, tmp_path):
        with pytest.warns(UserWarning, match="last checkpoint is kept and not the best: with save_strategy='steps'"):
            arguments(tmp_path, loss="zlpr", save_strategy="steps", save_steps=50, eval_strategy="epoch")

    def test_the_best_checkpoint_rule_asks_for_nothing_that_the_user_refused(self, tmp_path):
        assert not arguments(tmp_path, loss="zlpr", eval_strategy="epoch", save_strategy="no").load_best_model_at_end
        args = arguments(tmp_path, loss="bce+zlpr", eval_strategy="steps", eval_steps=200, save_strategy="steps")
        assert (args.load_best_model_at_end, args.save_steps, args.lr_scheduler_type.value) == (True, 200, "linear")


class TestTraining:
    @pytest.mark.parametrize(
        "loss", ["reg", "wo_reg", "msc", "mulsupcon", "base", "proto", "zlpr", "asymmetric", "reg+zlpr"]
    )
    def test_the_loss_falls(self, tmp_path, loss):
        trainer = trainer_for(tmp_path, loss=loss, max_steps=40, learning_rate=3e-3)
        trainer.train()
        losses = logged(trainer, "loss")
        assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])

    def test_images_and_features_train_as_texts_do(self, tmp_path):
        images = trainer_for(tmp_path, image_model(), image_rows(32), max_steps=12, optim="sgd", learning_rate=0.05)
        torch.manual_seed(0)
        features = [
            {"feature_values": torch.cat([r["labels"], torch.randn(4)]), "labels": r["labels"]} for r in text_rows(32)
        ]
        vectors = trainer_for(
            tmp_path, MLCLModel.from_features(8, list("abcd")), features, max_steps=12, learning_rate=1e-2
        )
        for trainer in (images, vectors):
            before = trainer.evaluate()["eval_loss"]
            trainer.train()
            assert trainer.evaluate()["eval_loss"] < 0.9 * before

    def test_only_what_the_loss_uses_is_trained(self, tmp_path):
        for loss, trained in {
            "zlpr": {"classifier"},
            "base": {"projection"},
            "reg": {"projection", "prototypes"},
        }.items():
            model = trainer_for(tmp_path, loss=loss).model
            heads = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad} - {"backbone"}
            assert heads == trained

    def test_a_first_logged_loss_is_the_loss_itself(self, tmp_path):
        rows = text_rows(16)
        trainer = trainer_for(tmp_path, rows=rows, max_steps=1, train_sampling_strategy="sequential")
        batch = {k: torch.stack([row[k] for row in rows]) for k in rows[0]}
        output = trainer.model.train()(batch["input_ids"], batch["attention_mask"])
        expected = build_loss("reg")(output.embeddings, batch["labels"], output.prototypes).item()
        trainer.train()
        assert logged(trainer, "loss")[0] == pytest.approx(expected, rel=1e-5)

    def test_statistics_are_logged_beside_the_loss(self, tmp_path):
        trainer = trainer_for(tmp_path, loss="reg+zlpr")
        trainer.train()
        for name in ("prr", "anchors_without_positives"):
            assert all(0 <= value <= 1 for value in logged(trainer, name))
        for name in ("positive_similarity", "negative_similarity"):
            assert all(-1 <= value <= 1 for value in logged(trainer, name))
        assert logged(trainer, "temperature") == [0.1] * 3
        assert all(value > 0 for value in logged(trainer, "embedding_norm"))
        parts = zip(logged(trainer, "loss_reg"), logged(trainer, "loss_zlpr"), logged(trainer, "loss"), strict=True)
        assert all(a + b == pytest.approx(c, rel=1e-4) for a, b, c in parts)

    def test_gradient_accumulation_averages_its_batches(self, tmp_path):
        rows = text_rows(32)
        settings = {"max_grad_norm": 0.0, "learning_rate": 0.0, "train_sampling_strategy": "sequential", "max_steps": 1}
        gradients = {}

        class Keep(TrainerCallback):
            def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
                gradients[args.gradient_accumulation_steps] = model.prototypes.weight.grad.clone()

        for steps in (1, 2):
            trainer = trainer_for(tmp_path, rows=rows, gradient_accumulation_steps=steps, **settings)
            trainer.add_callback(Keep())
            trainer.train()
        second = trainer_for(tmp_path, rows=rows[16:], **settings)
        second.add_callback(Keep())
        first = gradients[1]
        second.train()
        assert torch.allclose(gradients[2], (first + gradients[1]) / 2, atol=1e-6)

    def test_two_views_of_an_image_are_two_anchors(self, tmp_path):
        rows = [{"pixel_values": torch.stack([r["pixel_values"]] * 2), "labels": r["labels"]} for r in image_rows(16)]
        both = trainer_for(tmp_path, image_model(), rows, max_steps=1, train_sampling_strategy="sequential")
        both.train()
        twice = [{"pixel_values": v, "labels": r["labels"]} for r in rows for v in r["pixel_values"]]
        settings = {"max_steps": 1, "train_sampling_strategy": "sequential", "per_device_train_batch_size": 32}
        single = trainer_for(tmp_path, image_model(), twice, **settings)
        single.train()
        assert logged(both, "loss") == pytest.approx(logged(single, "loss"), rel=1e-5)
        assert both.extract_features(rows).shape == (16, 512)

    def test_evaluation_has_a_collator_of_its_own(self, tmp_path):
        def collate(factor):
            return lambda rows: {
                "input_ids": torch.stack([r["input_ids"] for r in rows]),
                "labels": factor * torch.stack([r["labels"] for r in rows]),
            }

        trainer = ContrastiveMultiLabelTrainer(
            text_model(),
            arguments(tmp_path, remove_unused_columns=False),
            data_collator=collate(1),
            eval_data_collator=collate(0),
            train_dataset=text_rows(32),
            eval_dataset=text_rows(32),
        )
        assert next(iter(trainer.get_train_dataloader()))["labels"].sum() > 0
        assert next(iter(trainer.get_eval_dataloader()))["labels"].sum() == 0
        assert next(iter(trainer.get_test_dataloader(text_rows(4))))["labels"].sum() == 0
        assert next(iter(trainer.get_train_dataloader()))["labels"].sum() > 0

    @pytest.mark.parametrize("loss", ["supcon", "supcon_reg", "cross_entropy"])
    def test_single_label_losses_train_on_one_hot_rows(self, tmp_path, loss):
        rows = [row | {"labels": torch.eye(4)[i % 4]} for i, row in enumerate(text_rows(32))]
        trainer = trainer_for(tmp_path, rows=rows, loss=loss)
        trainer.train()
        assert all(math.isfinite(value) for value in logged(trainer, "loss"))
        assert ("eval_subset_accuracy" in trainer.evaluate()) == (loss == "cross_entropy")

    def test_label_aware_epochs_differ(self, tmp_path):
        seen = []

        def collate(rows):
            seen.append([row["input_ids"].sum().item() for row in rows])
            return {k: torch.stack([row[k] for row in rows]) for k in rows[0]}

        trainer = ContrastiveMultiLabelTrainer(
            text_model(),
            arguments(tmp_path, label_aware_batches=True, num_train_epochs=2, max_steps=-1),
            data_collator=collate,
            train_dataset=text_rows(32),
        )
        trainer.train()
        first, second = seen[:2], seen[2:4]
        assert sorted(chain(*first)) == sorted(chain(*second))
        assert first != second

    def test_a_single_step_trains(self, tmp_path):
        trainer = trainer_for(tmp_path, max_steps=1)
        before = trainer.model.prototypes.weight.detach().clone()
        trainer.train()
        assert not torch.equal(trainer.model.prototypes.weight, before)
        assert trainer.args.get_warmup_steps(19) == 0
        assert [trainer.args.get_warmup_steps(steps) for steps in (20, 21, 100)] == [1, 2, 5]

    def test_rows_that_fill_no_batch_are_mentioned_where_they_are_many(self, tmp_path, caplog):
        trainer_for(tmp_path, rows=text_rows(24)).get_train_dataloader()
        assert "8 of 24 training rows are left out in every epoch, since they do not fill a batch of 16" in caplog.text
        caplog.clear()
        trainer_for(tmp_path, rows=text_rows(33)).get_train_dataloader()
        assert not caplog.text

    def test_logs_hold_nothing_of_an_earlier_training(self, tmp_path):
        trainer = trainer_for(tmp_path, loss="reg", logging_steps=2)
        trainer.train()  # three steps: the third is in no log
        trainer.args.loss = "zlpr"
        trainer.loss = trainer.args.build_loss()
        trainer._fit_model_to_loss(trainer.model, trainer.args)
        trainer.state.log_history.clear()
        trainer.train()
        assert logged(trainer, "loss")
        assert not logged(trainer, "prr")

    @pytest.mark.parametrize("by_init", [False, True], ids=["model", "model_init"])
    def test_with_a_tokenizer_texts_are_padded_and_lists_of_ids_encoded(self, tmp_path, by_init):
        rows = [{"input_ids": [1] * (3 + n % 3), "labels": [n % 4]} for n in range(16)]
        given = {"model_init": lambda: text_model()} if by_init else {"model": text_model()}
        trainer = ContrastiveMultiLabelTrainer(
            args=arguments(tmp_path), train_dataset=rows, processing_class=word_tokenizer([]), **given
        )
        batch = next(iter(trainer.get_train_dataloader()))
        assert batch["input_ids"].shape == (16, 5)
        assert batch["labels"].sum(1).tolist() == [1.0] * 16

    def test_an_image_processor_leaves_the_collator_alone(self, tmp_path):
        rows = image_rows(16)
        trainer = ContrastiveMultiLabelTrainer(
            image_model(), arguments(tmp_path, max_steps=1), train_dataset=rows, processing_class=image_processor(16)
        )
        assert math.isfinite(trainer.train().training_loss)

    def test_labels_in_a_column_of_another_name_reach_training_and_evaluation(self, tmp_path):
        rows = Dataset.from_dict(
            {"input_ids": [[1, 2]] * 16, "topics": [[n % 4] for n in range(16)], "title": ["a"] * 16}
        )
        trainer = ContrastiveMultiLabelTrainer(
            text_model(),
            arguments(tmp_path, loss="zlpr"),
            TextCollator(word_tokenizer([]), 4, label_column="topics"),
            train_dataset=rows,
            eval_dataset=rows,
        )
        trainer.train()
        assert trainer.evaluate()["eval_micro_f1"] >= 0.0

    def test_a_model_of_another_trainer_trains_in_the_precision_of_this_one(self, tmp_path):
        model, rows = text_model(), text_rows(16)
        plain = trainer_for(tmp_path, model, rows).extract_features(rows)
        half = trainer_for(tmp_path, model, rows, bf16=True)
        assert 1e-5 < np.abs(half.extract_features(rows) - plain).max() < 0.1
        half.evaluate()
        again = trainer_for(tmp_path, model, rows).extract_features(rows)
        assert np.allclose(again, plain, rtol=0, atol=3e-6)  # less than bf16 differs

    def test_a_loss_of_the_users_own_works_by_name(self, tmp_path, monkeypatch):
        monkeypatch.setattr(registry, "_LOSSES", dict(registry._LOSSES))

        @register_loss("pull_to_prototypes")
        class Pull(torch.nn.Module):
            def forward(self, embeddings, labels, prototypes=None):
                return -(
                    torch.nn.functional.normalize(embeddings) @ torch.nn.functional.normalize(prototypes).T * labels
                ).mean()

        trainer = trainer_for(tmp_path, loss="pull_to_prototypes", max_steps=20, learning_rate=3e-3)
        trainer.train()
        assert logged(trainer, "loss")[-1] < logged(trainer, "loss")[0]

    def test_a_loss_is_a_name_an_instance_or_a_function_and_arguments_card_and_logs_say_which(self, tmp_path):
        def distance(logits, labels):
            return (torch.sigmoid(logits) - labels).abs().mean()

        class Pull(torch.nn.Module):
            def forward(self, embeddings, labels, prototypes=None):
                return ((embeddings @ prototypes.T - labels) ** 2).mean()

        given = {
            "zlpr": ("zlpr", "linear"),
            "reg": (RegLoss(alpha=1.0, temperature=0.3), "cosine"),
            "reg+distance": (JoinedLoss({"reg": RegLoss(), "distance": as_loss(distance)}), "cosine"),
            "distance": (distance, "linear"),
            "Pull": (Pull(), "cosine"),
        }
        for name, (loss, schedule) in given.items():
            args = arguments(tmp_path / name, save_strategy="steps", save_steps=2, hub_token="hf_secret")
            rows = text_rows(48)
            trainer = ContrastiveMultiLabelTrainer(text_model(), args, None, rows, loss=loss)
            assert (args.loss, trainer.args.loss, trainer.args.hub_token) == ("reg", name, "hf_secret")
            assert trainer.args.lr_scheduler_type == schedule
            trainer.train()
            losses = logged(trainer, "loss")
            report = training_report(trainer, figures=False)
            assert "+".join(fact.name for fact in report.losses) == report.hyperparameters["loss"] == name
            assert torch.load(tmp_path / name / "checkpoint-2" / "training_args.bin", weights_only=False).loss == name
            again = ContrastiveMultiLabelTrainer(text_model(), args, None, rows, loss=loss)
            again.train(resume_from_checkpoint=str(tmp_path / name / "checkpoint-2"))
            assert logged(again, "loss")[-1] == pytest.approx(losses[-1], rel=1e-5)
            if name == "reg":
                assert report.hyperparameters["alpha"] == 1.0
                assert trainer.state.log_history[0]["temperature"] == 0.3

    @pytest.mark.parametrize(
        ("settings", "loss", "message"),
        [
            ({"loss": "reg"}, "zlpr", "given the loss 'zlpr', but loss='reg' in args"),
            ({"loss": "reg"}, torch.nn.BCEWithLogitsLoss(), "BCEWithLogitsLoss must take .* got .input, target."),
            ({"loss": "proto"}, RegLoss(), "given the loss 'reg', but loss='proto' in args"),
            ({"loss_kwargs": {"alpha": 1.0}}, RegLoss(), "but loss_kwargs={'alpha': 1.0} in args"),
            ({"temperature": 0.2}, RegLoss(), "but temperature=0.2 in args"),
            ({}, lambda outputs, labels: 0.0, "<lambda> must take"),
            ({}, "regg", "There is no loss 'regg'. Known, nearest first: reg"),
        ],
    )
    def test_a_loss_that_is_given_twice_or_cannot_be_used_is_refused(self, tmp_path, settings, loss, message):
        with pytest.raises(ValueError, match=message):
            ContrastiveMultiLabelTrainer(text_model(), arguments(tmp_path, **settings), loss=loss)

    def test_a_loss_with_parameters_says_that_they_would_not_be_trained(self, tmp_path):
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(()))

            def forward(self, logits, labels):
                return (self.scale * logits - labels).abs().mean()

        with pytest.raises(ValueError, match="'Scaled' has parameters, which would not be trained"):
            ContrastiveMultiLabelTrainer(text_model(), arguments(tmp_path), loss=Scaled())

    def test_hyperparameter_search_trains_each_trial_with_its_own_loss_and_rate(self, tmp_path):
        optuna = pytest.importorskip("optuna")
        wanted = [("zlpr", 1e-3), ("reg", 2e-3), ("msc+bce", 3e-3)]
        trainer = ContrastiveMultiLabelTrainer(
            args=arguments(tmp_path, loss="proto", lr_scheduler_type="constant", warmup_steps=0),
            train_dataset=text_rows(32),
            eval_dataset=text_rows(16),
            model_init=lambda: text_model(),
        )
        seen = []

        class Look(TrainerCallback):
            def on_train_end(self, args, state, control, model=None, optimizer=None, **kwargs):
                seen.append((str(trainer.loss), model.classifier is not None, optimizer.param_groups[0]["lr"]))

        trainer.add_callback(Look())
        best = trainer.hyperparameter_search(
            hp_space=lambda trial: dict(
                zip(("loss", "learning_rate"), wanted[trial.suggest_int("choice", 0, 2)], strict=True)
            ),
            n_trials=3,
            backend="optuna",
            direction="minimize",
            sampler=optuna.samplers.GridSampler({"choice": [0, 1, 2]}, seed=0),
        )
        expected = [(str(arguments(tmp_path, loss=loss).build_loss()), loss != "reg", rate) for loss, rate in wanted]
        assert sorted(seen) == sorted(expected)
        assert best.hyperparameters["choice"] in (0, 1, 2)

    def test_a_trial_that_diverges_can_be_given_up_alone(self, tmp_path):
        pytest.importorskip("optuna")
        trainer = ContrastiveMultiLabelTrainer(
            args=arguments(tmp_path, loss="zlpr", max_steps=8, max_grad_norm=0.0),
            train_dataset=text_rows(32),
            eval_dataset=text_rows(16),
            model_init=lambda: text_model(),
        )
        best = trainer.hyperparameter_search(
            hp_space=lambda trial: {"learning_rate": [1e38, 1e-3][trial.number]},
            n_trials=2,
            backend="optuna",
            catch=(TrainingDivergedError,),
        )
        assert best.run_id == "1"

    def test_what_reads_logits_is_refused_where_there_are_none(self, tmp_path):
        given = {"train_dataset": text_rows(16), "compute_metrics": lambda prediction: {}}
        with pytest.raises(ValueError, match=r"compute_metrics would never be called: the loss 'reg' trains no logits"):
            ContrastiveMultiLabelTrainer(text_model(), arguments(tmp_path, loss="reg"), **given)
        ContrastiveMultiLabelTrainer(text_model(), arguments(tmp_path, loss="reg+zlpr"), **given)

    def test_smoothing_that_no_loss_would_do_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match=r"label_smoothing_factor=0.1 smooths .* not used here"):
            arguments(tmp_path, label_smoothing_factor=0.1)

    @pytest.mark.parametrize("remove", [True, False])
    def test_a_column_that_the_collator_reads_is_used(self, tmp_path, remove):
        pictures = [np.full((16, 16, 3), n, dtype=np.uint8) for n in range(16)]
        rows = Dataset.from_dict({"image": pictures, "labels": [[n % 4] for n in range(16)], "title": ["a"] * 16})
        collator = ImageCollator(lambda pixels: torch.tensor(pixels).permute(2, 0, 1).float() / 255, 4)
        settings = arguments(tmp_path, max_steps=1, remove_unused_columns=remove)
        trainer = ContrastiveMultiLabelTrainer(image_model(), settings, collator, train_dataset=rows)
        assert math.isfinite(trainer.train().training_loss)

    def test_pickled_arguments_have_no_token(self, tmp_path):
        args = arguments(tmp_path, hub_token="hf_secret", learning_rate=0.5)
        again = pickle.loads(pickle.dumps(args))
        assert b"hf_secret" not in pickle.dumps(args)
        assert (again.hub_token, again.learning_rate, args.hub_token) == (None, 0.5, "hf_secret")

    def test_a_search_over_losses_takes_each_ones_schedule_and_metrics(self, tmp_path):
        trainer = ContrastiveMultiLabelTrainer(
            args=arguments(tmp_path, loss="reg"), eval_dataset=text_rows(8), model_init=lambda: text_model()
        )
        assert (trainer.args.lr_scheduler_type.value, trainer.compute_metrics) == ("cosine", None)
        trainer.args.loss = "zlpr"
        trainer.model = trainer.call_model_init()
        assert trainer.args.lr_scheduler_type.value == "linear"
        assert "eval_micro_f1" in trainer.evaluate()

    def test_heads_have_their_own_learning_rate_and_the_same_schedule(self, tmp_path):
        trainer = trainer_for(tmp_path, loss="reg", learning_rate=1e-4, head_learning_rate=1e-2, max_steps=10)
        trainer.create_optimizer_and_scheduler(10)
        heads = {id(p) for name, p in trainer.model.named_parameters() if not name.startswith("backbone")}
        seen = set()
        for group in trainer.optimizer.param_groups:
            for parameter in group["params"]:
                assert group["initial_lr"] == (1e-2 if id(parameter) in heads else 1e-4)
                seen.add(id(parameter))
        assert seen == {id(p) for p in trainer.model.parameters() if p.requires_grad}
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        shares = {group["lr"] / group["initial_lr"] for group in trainer.optimizer.param_groups}
        assert max(shares) == pytest.approx(min(shares))

    def test_normalisation_and_biases_do_not_decay(self, tmp_path):
        model = image_model()
        trainer = ContrastiveMultiLabelTrainer(model, arguments(tmp_path), train_dataset=image_rows(16))
        decaying = set(trainer.get_decay_parameter_names(model))
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                assert not {f"{name}.weight", f"{name}.bias"} & decaying
            if isinstance(module, torch.nn.Conv2d):
                assert f"{name}.weight" in decaying


class TestEvaluation:
    def test_logit_losses_report_the_metrics_of_the_study(self, tmp_path):
        metrics = trainer_for(tmp_path, loss="zlpr").evaluate()
        assert {"eval_loss", "eval_micro_f1", "eval_macro_f1", "eval_hamming_loss", "eval_mAP"} <= metrics.keys()

    @pytest.mark.parametrize("kind", ["knn", "ridge"])
    def test_a_probe_shows_that_contrastive_training_helps(self, tmp_path, kind):
        rows = text_rows(400)
        trainer = ContrastiveMultiLabelTrainer(
            text_model(),
            arguments(tmp_path, eval_probe=kind, max_steps=60, learning_rate=3e-3, per_device_train_batch_size=64),
            train_dataset=rows[:300],
            eval_dataset=rows[300:],
        )
        before = trainer.evaluate()["eval_probe_mAP"]
        trainer.train()
        assert trainer.evaluate()["eval_probe_mAP"] > before + 0.05

    def test_a_probe_learns_from_the_first_rows_of_a_stream(self, tmp_path):
        rows = text_rows(48)
        scores = []
        for data in (rows, Stream(rows * 2)):
            args = arguments(tmp_path, eval_probe="ridge", eval_probe_samples=48)
            trainer = ContrastiveMultiLabelTrainer(text_model(), args, train_dataset=data, eval_dataset=rows)
            scores.append(trainer.evaluate()["eval_probe_micro_f1"])
        assert scores[0] == pytest.approx(scores[1])

    def test_a_probe_without_training_rows_says_so(self, tmp_path):
        trainer = ContrastiveMultiLabelTrainer(
            text_model(), arguments(tmp_path, eval_probe="knn"), eval_dataset=text_rows(16)
        )
        with pytest.raises(ValueError, match="eval_probe='knn' learns from train_dataset"):
            trainer.evaluate()

    def test_evaluations_leave_no_workers_behind(self, tmp_path):
        settings = {"eval_probe": "knn", "dataloader_num_workers": 1, "dataloader_persistent_workers": True}
        trainer = trainer_for(tmp_path, **settings)
        trainer.evaluate()
        first = len(multiprocessing.active_children())
        trainer.evaluate()
        assert len(multiprocessing.active_children()) == first
        assert trainer.args.dataloader_persistent_workers

    def test_features_are_those_of_the_dataset_that_was_given(self, tmp_path):
        rows = text_rows(20)
        trainer = trainer_for(tmp_path, dataloader_persistent_workers=True, dataloader_num_workers=1)
        assert len(trainer.extract_features(rows)) == 20
        assert len(trainer.extract_features(rows[:7])) == 7

    def test_rows_without_labels_can_be_predicted(self, tmp_path):
        rows = [{k: v for k, v in row.items() if k != "labels"} for row in text_rows(5)]
        trainer = trainer_for(tmp_path, loss="zlpr")
        assert trainer.predict(rows).predictions.shape == (5, 4)
        assert trainer.extract_features(rows).shape == (5, 16)

    def test_features_come_in_the_order_of_the_rows(self, tmp_path):
        trainer = trainer_for(tmp_path, per_device_eval_batch_size=7)
        rows = text_rows(20)
        features = trainer.extract_features(rows)
        batch = {k: torch.stack([row[k] for row in rows]) for k in ("input_ids", "attention_mask")}
        with torch.no_grad():
            expected = trainer.model.eval()(**batch).features
        assert np.allclose(features, expected.numpy(), atol=1e-6)

    def test_texts_of_any_length_are_encoded_with_little_padding_and_come_in_the_order_of_the_rows(self, tmp_path):
        trainer = trainer_for(tmp_path, per_device_eval_batch_size=4)
        lengths = [3, 9, 4, 8, 3, 9, 4, 8, 5]
        rows = Dataset.from_list(
            [{"input_ids": list(range(1, n + 1)), "attention_mask": [1] * n, "labels": [n % 4]} for n in lengths]
        )
        seen = []
        trainer.data_collator = CountingCollator(seen)
        features, labels = trainer.features_and_labels(rows)
        with torch.no_grad():
            for row, got in zip(rows, features, strict=True):
                ids = torch.tensor([row["input_ids"]])
                alone = trainer.model.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).features
                assert np.allclose(got, alone.numpy(), atol=1e-5)
        assert labels.argmax(1).tolist() == [n % 4 for n in lengths]
        assert seen == sorted(lengths)


class CountingCollator:
    """Pads a batch, and notes the lengths of its rows."""

    def __init__(self, seen):
        self.seen = seen

    def __call__(self, rows):
        self.seen += [len(row["input_ids"]) for row in rows]
        width = max(len(row["input_ids"]) for row in rows)
        padded = {
            key: torch.tensor([[*row[key], *[0] * (width - len(row[key]))] for row in rows])
            for key in ("input_ids", "attention_mask")
        }
        return {**padded, "labels": torch.eye(4)[[row["labels"][0] for row in rows]]}


class TestPrecision:
    def test_bf16_trains_close_to_float32(self, tmp_path):
        losses = {}
        for bf16 in (False, True):
            trainer = trainer_for(tmp_path, bf16=bf16, max_steps=5)
            trainer.train()
            losses[bf16] = logged(trainer, "loss")
        assert losses[True] != losses[False], "bf16 was used"
        assert losses[True] == pytest.approx(losses[False], rel=0.05)

    @pytest.mark.parametrize("loss", ["reg", "msc", "base", "zlpr", "reg+zlpr"])
    def test_half_precision_under_autocast_gives_finite_losses_and_gradients(self, tmp_path, loss):
        """What fp16 does on a GPU: half inputs to the loss, a loss scaled by 2^16."""
        trainer = trainer_for(tmp_path, loss=loss)
        rows = text_rows(16)
        batch = {k: torch.stack([row[k] for row in rows]) for k in rows[0]}
        labels = batch.pop("labels")
        with torch.autocast("cpu", dtype=torch.float16):
            output = trainer.model.train()(**batch)
        halves = {k: v.half() for k, v in output.items()}
        from hf_mlcl.training.global_batch import global_loss

        class Halves:
            features, embeddings = halves["features"], halves["embeddings"]
            prototypes, logits = halves["prototypes"], halves.get("logits")

        value = global_loss(trainer.loss, Halves, labels).value
        assert value.dtype == torch.float32
        (value * 2**10).backward()
        gradients = [p.grad for p in trainer.model.parameters() if p.grad is not None]
        assert gradients
        assert value.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients)


class TestErrors:
    def test_wrong_settings_stop_before_any_work(self, tmp_path):
        for settings, message in [
            ({"loss": "regg"}, "There is no loss 'regg'"),
            ({"loss_kwargs": {"gamma": 1}}, "Unknown hyperparameter 'gamma'"),
            ({"temperature": -1.0}, "temperature must be a number above 0"),
            ({"embedding_chunk_size": 0}, "embedding_chunk_size must be at least 1"),
            ({"eval_probe": "svm"}, "eval_probe must be"),
            ({"dropout_by_row": True, "gradient_checkpointing": True}, "dropout_by_row and gradient_checkpointing"),
            ({"dropout_by_row": True, "torch_compile": True}, "dropout_by_row and torch_compile"),
            ({"label_aware_batches": True, "train_sampling_strategy": "group_by_length"}, "both decide the order"),
        ]:
            with pytest.raises(ValueError, match=message):
                arguments(tmp_path, **settings)

    def test_another_key_for_labels_says_where_their_column_is_named(self, tmp_path):
        with pytest.raises(ValueError, match=r"label_names is \['y'\], but .* label_column"):
            arguments(tmp_path, label_names=["y"])

    def test_other_arguments_and_models_are_refused(self, tmp_path):
        with pytest.raises(ValueError, match="args must be ContrastiveTrainingArguments"):
            ContrastiveMultiLabelTrainer(text_model(), TrainingArguments(tmp_path, report_to="none"))
        with pytest.raises(ValueError, match=r"Wrap the encoder: MLCLModel.from_backbone"):
            ContrastiveMultiLabelTrainer(torch.nn.Linear(2, 2), arguments(tmp_path))

    def test_dropout_by_row_refuses_attention_that_it_cannot_see_into(self, tmp_path):
        model = text_model()
        model.backbone.config._attn_implementation = "flash_attention_2"
        with pytest.raises(ValueError, match="dropout_by_row cannot see the dropout inside"):
            ContrastiveMultiLabelTrainer(model, arguments(tmp_path, dropout_by_row=True))

    def test_a_token_is_not_shown(self, tmp_path):
        assert "hf_secret" not in repr(arguments(tmp_path, hub_token="hf_secret"))

    def test_a_loss_function_says_how_to_register_it(self, tmp_path):
        with pytest.raises(ValueError, match="compute_loss_func is not used here"):
            ContrastiveMultiLabelTrainer(text_model(), arguments(tmp_path), compute_loss_func=lambda *_: 0.0)

    def test_an_empty_dataset_is_named(self, tmp_path):
        with pytest.raises(ValueError, match="train_dataset has no rows"):
            trainer_for(tmp_path, rows=[])

    def test_a_batch_without_labels_says_what_is_missing(self, tmp_path):
        rows = [{k: v for k, v in row.items() if k != "labels"} for row in text_rows(16)]
        with pytest.raises(ValueError, match="The batch has no labels"):
            trainer_for(tmp_path, rows=rows).train()

    def test_another_number_of_labels_is_named(self, tmp_path):
        with pytest.raises(ValueError, match="3 labels per row, but the model was made for 4"):
            trainer_for(tmp_path, rows=text_rows(16, num_labels=3)).train()

    def test_labels_outside_zero_and_one_are_named(self, tmp_path):
        rows = [row | {"labels": row["labels"] * 2} for row in text_rows(16)]
        with pytest.raises(ValueError, match="labels must be 0 or 1"):
            trainer_for(tmp_path, rows=rows).train()

    def test_inputs_of_another_kind_are_named(self, tmp_path):
        with pytest.raises(ValueError, match="input_ids is missing"):
            trainer_for(tmp_path, rows=image_rows(16)).train()


def test_frozen_embeddings_stay_as_they_are_while_the_rest_learns(tmp_path):
    trainer = trainer_for(tmp_path, freeze_embeddings=True, max_steps=2, learning_rate=0.1)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    changed = {name for name, value in trainer.model.state_dict().items() if not torch.equal(value, before[name])}
    assert any(name.startswith("backbone.") for name in changed)
    assert not any("word_embeddings" in name for name in changed)


def test_embeddings_that_a_backbone_does_not_have_cannot_be_frozen(tmp_path):
    with pytest.raises(ValueError, match=r"freeze_embeddings.*text encoders"):
        trainer_for(tmp_path, image_model(), image_rows(8), freeze_embeddings=True)


def test_cards_and_pushes_take_what_scripts_written_for_hfs_trainer_pass():
    ours, theirs = (
        list(inspect.signature(kind.create_model_card).parameters) for kind in (ContrastiveMultiLabelTrainer, Trainer)
    )
    assert ours[: len(theirs)] == theirs
