"""Where a training begins, whatever an interruption has left."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from hf_mlcl.experiments import ExperimentArguments
from hf_mlcl.experiments.checkpoints import StatisticsInCheckpoints, starting_checkpoint


class Rank(SimpleNamespace):
    """As much of the training's arguments as is needed to stand for one rank of several."""

    def __init__(self, folder, wanted=None, main=True):
        super().__init__(output_dir=str(folder), resume_from_checkpoint=wanted, should_save=main, entered=0)

    @contextmanager
    def main_process_first(self, desc):
        self.entered += 1
        yield


@pytest.fixture
def folder(tmp_path):
    """Of four checkpoints the newer two are half-written."""
    for step, state in ((9, "{}"), (10, "{}"), (100, '{"half'), (200, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_last_checkpoint_is_the_last_that_was_written_to_its_end(folder):
    assert starting_checkpoint(ExperimentArguments(), Rank(folder, "last")) == str(folder / "checkpoint-10")
    assert names(folder) == ["checkpoint-10", "checkpoint-9"]


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
    assert starting_checkpoint(ExperimentArguments(overwrite=overwrite), rank) is None
    assert rank.entered == 1


def test_overwriting_deletes_all_of_them(folder):
    assert starting_checkpoint(ExperimentArguments(overwrite=True), Rank(folder)) is None
    assert names(folder) == []


def test_a_checkpoint_by_name_must_be_whole(folder):
    assert starting_checkpoint(ExperimentArguments(), Rank(folder, str(folder / "checkpoint-9")))
    with pytest.raises(ValueError, match=r"checkpoint-100.* is not a checkpoint that was written to its end"):
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
