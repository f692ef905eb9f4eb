"""A training that has become NaN ends soon, tells why, and leaves the checkpoints that are good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from copies import HANGS
from hf_mlcl import ContrastiveMultiLabelTrainer
from hf_mlcl.training.divergence import CHECKED_EVERY, IN_A_ROW, DivergenceWatch, TrainingDivergedError
from training.test_trainer import arguments, logged
from training.tiny import text_model, text_rows

TESTS = Path(__file__).parents[1]


class Poison(TrainerCallback):
    """From some step on the weights are NaN, as after a step that was too large."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))


def trainer_for(folder, poisoned=None, **settings):
    callbacks = [] if poisoned is None else [Poison(poisoned)]
    chosen = {"max_steps": 60, "save_strategy": "steps", "save_steps": 4, "save_total_limit": 1, **settings}
    return ContrastiveMultiLabelTrainer(
        text_model(), arguments(folder, **chosen), train_dataset=text_rows(48), callbacks=callbacks
    )


@pytest.mark.parametrize("loss", ["reg", "zlpr", "reg+bce"])
def test_it_stops_within_a_few_steps_and_keeps_the_last_good_checkpoint(loss, tmp_path):
    trainer = trainer_for(tmp_path, poisoned=5, loss=loss)
    message = r"stopped: .* step \d+ \(learning rate [\d.e-]+\).*checkpoint-4.*learning_rate.*bf16.*max_grad_norm.*temp"
    with pytest.raises(TrainingDivergedError, match=message):
        trainer.train()
    assert trainer.state.global_step <= 5 + IN_A_ROW + CHECKED_EVERY
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
    weights = load_file(tmp_path / "checkpoint-4" / "model.safetensors")
    assert all(torch.isfinite(each).all() for each in weights.values())


def test_a_rate_that_is_far_too_large_ends_it_by_itself(tmp_path):
    trainer = trainer_for(tmp_path, loss="zlpr", learning_rate=1e38, max_grad_norm=0.0, save_strategy="no")
    with pytest.raises(TrainingDivergedError, match="There is no whole checkpoint of it"):
        trainer.train()
    assert trainer.state.global_step < 20


@pytest.mark.parametrize("spoiled", ["optimizer.pt", "model.safetensors"])
def test_a_checkpoint_that_is_not_good_is_not_named_as_the_last_good_one(spoiled, tmp_path):
    class Spoil(TrainerCallback):
        def on_save(self, args, state, control, **kwargs):
            if state.global_step == 8:
                path = tmp_path / "checkpoint-8" / spoiled
                path.write_bytes(path.read_bytes()[:-9])

    trainer = trainer_for(tmp_path, poisoned=9, save_total_limit=None)
    trainer.add_callback(Spoil())
    with pytest.raises(TrainingDivergedError, match=r"good weights is \S*checkpoint-4\."):
        trainer.train()


def test_the_rate_that_is_named_is_that_of_the_first_bad_step(tmp_path):
    rates = {}

    class Note(TrainerCallback):
        def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
            rates[state.global_step + 1] = optimizer.param_groups[0]["lr"]

    trainer = trainer_for(tmp_path, poisoned=2, max_steps=20, lr_scheduler_type="linear", save_strategy="no")
    trainer.add_callback(Note())
    with pytest.raises(TrainingDivergedError) as raised:
        trainer.train()
    assert f"since step 3 (learning rate {rates[3]:.3g})" in str(raised.value)
    assert f"{rates[3]:.3g}" != f"{rates[4]:.3g}"


def test_no_checkpoint_of_weights_that_are_no_numbers_is_written_even_right_after(tmp_path):
    trainer = trainer_for(tmp_path, poisoned=8)
    with pytest.raises(TrainingDivergedError, match="weights are not numbers after step 8"):
        trainer.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]


def test_weights_that_become_nan_at_the_very_end_are_not_taken_for_a_result(tmp_path):
    with pytest.raises(TrainingDivergedError, match="after step 3"):
        trainer_for(tmp_path, poisoned=3, max_steps=3, save_strategy="no").train()


def test_a_log_says_how_many_losses_were_no_numbers(tmp_path):
    trainer = trainer_for(tmp_path, poisoned=2, logging_steps=1, save_strategy="no")
    with pytest.raises(TrainingDivergedError):
        trainer.train()
    assert set(logged(trainer, "not_finite_losses")) == {1.0}


def test_a_training_that_goes_well_is_left_alone_and_its_logs_as_they_are(tmp_path):
    trainer = trainer_for(tmp_path, max_steps=9)
    trainer.train()
    assert not logged(trainer, "not_finite_losses")


class TestMixedPrecision:
    """Steps that a scaler leaves out do not end a training."""

    def watch(self, losses):
        watch = DivergenceWatch()
        state = type("State", (), {"global_step": 0})
        args = type("Arguments", (), {"output_dir": "nowhere"})
        for step, loss in enumerate(losses, 1):
            watch.add(torch.tensor(loss), step)
            state.global_step = step
            watch.on_step_end(args, state, None)
        return watch

    def test_a_loss_that_is_no_number_now_and_then_does_not_end_it(self):
        nan, inf = float("nan"), float("inf")
        watch = self.watch([1.0, nan, 1.0, inf, nan, 1.0] * 10)
        assert watch.flush() == {"not_finite_losses": 30.0}
        assert watch.flush() == {}

    @pytest.mark.parametrize("before", range(5))
    def test_several_in_a_row_do_wherever_they_begin(self, before):
        losses = [1.0] * before + [float("nan")] * IN_A_ROW + [1.0] * CHECKED_EVERY
        with pytest.raises(TrainingDivergedError, match=f"since step {before + 1}"):
            self.watch(losses)

    def test_infinite_gradients_of_a_finite_loss_that_are_left_out_do_not_end_it(self, tmp_path):
        class Overflow(TrainerCallback):
            """What GradScaler does: gradients overflow, and the step is left out."""

            def on_pre_optimizer_step(self, args, state, control, model=None, optimizer=None, **kwargs):
                for parameter in model.parameters():
                    if parameter.grad is not None and state.global_step % 2:
                        parameter.grad.fill_(float("inf"))
                        parameter.grad = None

        trainer = trainer_for(tmp_path, max_steps=12)
        trainer.add_callback(Overflow())
        assert trainer.train().global_step == 12


@pytest.mark.slow
@pytest.mark.distributed
def test_all_ranks_stop_together_when_one_has_diverged(tmp_path):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone"]
    command += ["-m", "training.divergence_worker", str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr[-9000:]
    steps = [int((tmp_path / f"rank-{rank}").read_text()) for rank in (0, 1)]
    assert steps[0] == steps[1] <= 5 + IN_A_ROW + CHECKED_EVERY
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-4"]
