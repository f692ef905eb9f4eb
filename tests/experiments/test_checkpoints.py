"""Where a training begins, whatever an interruption has left."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from experiments.toy import run
from hf_mlcl.experiments import ExperimentArguments
from hf_mlcl.experiments.checkpoints import StatisticsInCheckpoints, damage, starting_checkpoint


class Rank(SimpleNamespace):
    """As much of the training's arguments as is needed to stand for one rank of several."""

    def __init__(self, folder, wanted=None, main=True):
        super().__init__(output_dir=str(folder), resume_from_checkpoint=wanted, should_save=main, entered=0)

    @contextmanager
    def main_process_first(self, desc):
        self.entered += 1
        yield


def state_at(step, **changes):
    """As much of a trainer's state as a training goes on with."""
    state = {"global_step": step, "max_steps": 500, "epoch": 1.0, "log_history": [], "stateful_callbacks": {}}
    return json.dumps({name: value for name, value in (state | changes).items() if value is not None})


@pytest.fixture
def folder(tmp_path):
    """Of four checkpoints the newer two are half-written."""
    for step, state in ((9, state_at(9)), (10, state_at(10)), (100, '{"half'), (200, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        save_file({"weight": torch.zeros(100)}, tmp_path / f"checkpoint-{step}" / "model.safetensors")
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_last_checkpoint_is_the_last_that_was_written_to_its_end(folder):
    assert starting_checkpoint(ExperimentArguments(), Rank(folder, "last")) == str(folder / "checkpoint-10")
    assert names(folder) == ["checkpoint-10", "checkpoint-9", "damaged-checkpoint-100"]


@pytest.mark.parametrize(("wanted", "overwrite"), [("last", False), (None, True)])
def test_only_the_first_rank_deletes(wanted, overwrite, folder):
    before = names(folder)
    other = Rank(folder, wanted, main=False)
    found = starting_checkpoint(ExperimentArguments(overwrite=overwrite), other)
    assert found == (str(folder / "checkpoint-10") if wanted else None)
    assert names(folder) == before


@pytest.mark.parametrize(("wanted", "overwrite"), [("last", False), (None, True)])
@pytest.mark.parametrize("main", [True, False])
def test_every_rank_waits_for_the_first_also_if_it_sees_nothing_left(wanted, overwrite, main, tmp_path):
    rank = Rank(tmp_path / "nothing", wanted, main)
    with pytest.raises(ValueError, match="has no whole checkpoint") if wanted else nullcontext():
        assert starting_checkpoint(ExperimentArguments(overwrite=overwrite), rank) is None
    assert rank.entered == 1


def test_going_on_where_there_is_no_whole_checkpoint_is_refused(folder):
    for step in (9, 10):
        shutil.rmtree(folder / f"checkpoint-{step}")
    with pytest.raises(
        ValueError, match=r"resume_from_checkpoint is 'last', but output_dir .* has no whole checkpoint"
    ):
        starting_checkpoint(ExperimentArguments(), Rank(folder, "last"))


def test_overwriting_deletes_all_of_them(folder):
    assert starting_checkpoint(ExperimentArguments(overwrite=True), Rank(folder)) is None
    assert names(folder) == []


def test_a_checkpoint_by_name_must_be_whole(folder):
    assert starting_checkpoint(ExperimentArguments(), Rank(folder, str(folder / "checkpoint-9")))
    with pytest.raises(ValueError, match=r"checkpoint-100.* not a whole checkpoint: trainer_state.json cannot be read"):
        starting_checkpoint(ExperimentArguments(), Rank(folder, str(folder / "checkpoint-100")))


def test_each_rank_gets_back_its_own_sums_unless_their_number_has_changed(tmp_path):
    (tmp_path / "checkpoint-2").mkdir()

    def rank(number, count=2):
        device = torch.device("cpu:0")  # as HF calls it where several ranks share a processor
        return SimpleNamespace(output_dir=str(tmp_path), process_index=number, world_size=count, device=device)

    for number in (0, 1):
        sums = SimpleNamespace(_sums={"norm": torch.tensor(10.0 + number)}, _anchors=3, _steps=number)
        StatisticsInCheckpoints(sums).on_save(rank(number), SimpleNamespace(global_step=2))
    for number, count, expected in ((0, 2, 10.0), (1, 2, 11.0), (0, 1, None)):
        sums = SimpleNamespace(_sums={}, _anchors=0, _steps=0)
        StatisticsInCheckpoints(sums, str(tmp_path / "checkpoint-2")).on_train_begin(rank(number, count))
        assert sums._sums.get("norm") == expected
        assert sums._anchors == (0 if expected is None else 3)
    assert not list(tmp_path.rglob("*.part"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with two checkpoints that are whole."""
    return run(tmp_path_factory.mktemp("trained") / "run")


@pytest.fixture
def copied(trained, tmp_path):
    shutil.copytree(trained.folder, tmp_path / "run")
    return tmp_path / "run"


FILES = (
    *("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"),
    *("statistics_0_of_1.pt", "config.json"),
)


def truncate(path, share):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def test_what_the_trainer_writes_is_whole(trained):
    checkpoint = trained.folder / "checkpoint-4"
    assert damage(checkpoint) is None
    assert {path.name for path in checkpoint.iterdir()} >= set(FILES)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_newest_checkpoint_is_told_of_and_passed_over(name, share, copied, caplog):
    truncate(copied / "checkpoint-4" / name, share)
    found = starting_checkpoint(ExperimentArguments(), Rank(copied, "last"))
    assert found == str(copied / "checkpoint-2")
    assert name in caplog.text
    assert not (copied / "checkpoint-4").exists(), "the trainer would count it when it makes room"
    assert (copied / "damaged-checkpoint-4").exists(), "nothing is lost"


def zero_the_middle(path):
    content = bytearray(path.read_bytes())
    third = len(content) // 3
    content[third : 2 * third] = bytes(third)
    path.write_bytes(content)


def nan_weights(path):
    weights = load_file(path)
    next(weight for weight in weights.values() if weight.is_floating_point()).fill_(float("nan"))
    save_file(weights, path)


@pytest.mark.parametrize(
    ("name", "spoil", "why"),
    [
        ("optimizer.pt", zero_the_middle, "its part .* is damaged|it is empty or cut off"),
        ("optimizer.pt", lambda path: path.write_bytes(b""), "it is empty or cut off"),
        ("optimizer.pt", lambda path: torch.save({"weight": torch.zeros(3)}, path), "not the state of an optimizer"),
        ("model.safetensors", nan_weights, "is not finite"),
        ("trainer_state.json", lambda path: path.write_text(state_at(4, log_history=None)), "it has no log_history"),
        ("trainer_state.json", lambda path: path.write_text("[]"), "no attribute"),
    ],
)
def test_a_file_that_opens_but_holds_something_else_is_damaged(name, spoil, why, copied):
    spoil(copied / "checkpoint-4" / name)
    assert re.match(rf"{name} cannot be read \(.*({why})", damage(copied / "checkpoint-4"))
    assert starting_checkpoint(ExperimentArguments(), Rank(copied, "last")) == str(copied / "checkpoint-2")


def renamed_weights(weights):
    return {f"other.{name}": weight for name, weight in weights.items()}


def longer_weights(weights):
    return {name: torch.cat([weight, weight]) if weight.ndim else weight for name, weight in weights.items()}


@pytest.mark.parametrize("change", [renamed_weights, longer_weights])
def test_weights_of_another_model_are_refused_and_not_drawn_at_random(change, copied):
    before = (copied / "classifier" / "model.safetensors").read_bytes()
    path = copied / "checkpoint-4" / "model.safetensors"
    save_file(change(load_file(path)), path)
    with pytest.raises(ValueError, match="do not fit the model"):
        run(copied, resume_from_checkpoint="last")
    assert (copied / "classifier" / "model.safetensors").read_bytes() == before


def test_an_earlier_damaged_checkpoint_is_not_overwritten(copied):
    (copied / "damaged-checkpoint-4").mkdir()
    (copied / "damaged-checkpoint-4" / "mine").write_text("mine")
    truncate(copied / "checkpoint-4" / "optimizer.pt", 0.5)
    starting_checkpoint(ExperimentArguments(), Rank(copied, "last"))
    assert (copied / "damaged-checkpoint-4" / "mine").read_text() == "mine"
    assert (copied / "damaged-checkpoint-4-2" / "model.safetensors").exists()


def test_a_folder_with_anything_else_in_it_is_put_aside_and_never_deleted(copied):
    (copied / "checkpoint-7").mkdir()
    for name in ("config.json", "thesis.tex"):
        (copied / "checkpoint-7" / name).write_text("mine")
    assert starting_checkpoint(ExperimentArguments(), Rank(copied, "last")) == str(copied / "checkpoint-4")
    assert (copied / "damaged-checkpoint-7" / "thesis.tex").read_text() == "mine"


def test_the_beginning_of_a_checkpoint_is_deleted(copied):
    (copied / "checkpoint-4" / "trainer_state.json").unlink()
    assert starting_checkpoint(ExperimentArguments(), Rank(copied, "last")) == str(copied / "checkpoint-2")
    assert not list(copied.glob("*checkpoint-4*"))


@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_by_name_is_refused_and_the_file_named(name, copied):
    truncate(copied / "checkpoint-4" / name, 0.5)
    with pytest.raises(ValueError, match=rf"checkpoint-4.* not a whole checkpoint: {name} cannot be read"):
        starting_checkpoint(ExperimentArguments(), Rank(copied, str(copied / "checkpoint-4")))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_file_that_is_missing_is_named(name, copied):
    (copied / "checkpoint-4" / name).unlink()
    assert damage(copied / "checkpoint-4") == f"{name} is missing"


def test_a_part_of_the_weights_that_is_missing_is_named(copied):
    checkpoint = copied / "checkpoint-4"
    (checkpoint / "model.safetensors").rename(checkpoint / "model-00001-of-00002.safetensors")
    parts = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    assert damage(checkpoint) == "model-00002-of-00002.safetensors is missing"


def test_a_checkpoint_of_the_model_alone_is_whole(copied):
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (copied / "checkpoint-4" / name).unlink()
    assert damage(copied / "checkpoint-4") is None


def test_something_of_the_users_by_the_name_of_a_checkpoint_stays(copied):
    (copied / "checkpoint-9").mkdir()
    (copied / "checkpoint-9" / "notes.txt").write_text("mine")
    assert starting_checkpoint(ExperimentArguments(), Rank(copied, "last")) == str(copied / "checkpoint-4")
    assert (copied / "checkpoint-9" / "notes.txt").read_text() == "mine"


def test_a_training_whose_newest_checkpoint_is_damaged_ends_as_if_it_were_not(trained, copied):
    shutil.rmtree(copied / "classifier")
    truncate(copied / "checkpoint-4" / "optimizer.pt", 0.5)
    resumed = run(copied, resume_from_checkpoint="last")
    for name, value in trained.metrics.items():
        if name != "train_loss":
            assert resumed.metrics[name] == pytest.approx(value, abs=1e-6, nan_ok=True), name
