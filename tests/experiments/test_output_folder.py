"""The folder of an experiment: whose it is, what may be replaced, and what an interruption leaves."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import threading

import pytest
import torch
from safetensors import SafetensorError

import hf_mlcl.experiments.output_folder as output_folder
import hf_mlcl.experiments.running as running
import hf_mlcl.files as files
from experiments.toy import build, contents, run
from hf_mlcl import MLCLForSequenceClassification, MLCLModel, load_corpus
from hf_mlcl.experiments import ExperimentResult, run_experiment
from hf_mlcl.experiments.output_folder import OutputFolder
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.files import FullDiskError

FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that nothing has disturbed."""
    return run(tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def earlier(finished, tmp_path):
    """A copy of its folder."""
    shutil.copytree(finished.folder, tmp_path / "earlier")
    return tmp_path / "earlier"


class TestWhatIsNotOurs:
    @pytest.mark.parametrize(
        "name",
        ["classifier/notes.txt", "encoder/config.json", "backbone/sub/weights.bin", "encoder", "metrics.json"],
    )
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_what_no_training_wrote_is_refused_before_training_and_stays(self, name, overwrite, tmp_path, monkeypatch):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("mine")
        monkeypatch.setattr(running, "load_data", lambda *_: pytest.fail("it has begun"))
        with pytest.raises(ValueError, match=rf"has {name}, which no training is known to have written there"):
            run(tmp_path, overwrite=overwrite)
        assert contents(tmp_path) == {name: b"mine"}

    def test_a_file_that_was_added_to_a_model_of_ours_is_refused_and_stays(self, earlier):
        (earlier / "classifier" / "notes.txt").write_text("mine")
        before = contents(earlier)
        with pytest.raises(ValueError, match=r"has classifier/notes.txt"):
            run(earlier, overwrite=True)
        assert contents(earlier) == before

    def test_a_file_by_the_name_of_a_draft_neither_goes_nor_becomes_the_model(self, tmp_path):
        (tmp_path / "encoder.part").write_text("mine")
        run(tmp_path)
        assert (tmp_path / "encoder.part").read_text() == "mine"
        assert MLCLModel.from_pretrained(tmp_path / "encoder").config.num_labels == 28

    @pytest.mark.parametrize("name", ["classifier/README.md", "classifier/model.safetensors", "metrics.json"])
    def test_what_was_changed_since_is_refused_and_stays(self, name, earlier):
        with (earlier / name).open("ab") as file:
            file.write(b"mine")
        before = contents(earlier)
        with pytest.raises(ValueError, match=rf"has {name}, which was changed after a training wrote it"):
            run(earlier, overwrite=True)
        assert contents(earlier) == before

    def test_a_file_in_place_of_a_model_that_is_gone_is_not_taken_for_it(self, tmp_path):
        output = OutputFolder(tmp_path)
        _publish(output, "old")
        with output.owned():
            output.remove("encoder")
        (tmp_path / "encoder").mkdir()
        (tmp_path / "encoder" / "old").write_text("old")
        with pytest.raises(ValueError, match=r"has encoder/old, which no training is known"):
            output.check_replaceable("encoder")

    def test_a_large_file_is_known_by_its_size_and_time(self, tmp_path, monkeypatch):
        monkeypatch.setattr(output_folder, "HASHED", 0)
        _publish(OutputFolder(tmp_path), "old")
        OutputFolder(tmp_path).check_replaceable("encoder")
        os.utime(tmp_path / "encoder" / "old", ns=(0, 0))
        with pytest.raises(ValueError, match=r"has encoder/old, which was changed"):
            OutputFolder(tmp_path).check_replaceable("encoder")

    def test_a_card_that_a_push_has_changed_stays_ours(self, earlier, finished):
        from hf_mlcl.hub.push import _name_repository

        card = earlier / "classifier" / "README.md"
        _name_repository(card, "owner/name")
        assert card.read_text() != (finished.folder / "classifier" / "README.md").read_text()
        OutputFolder(earlier).check_replaceable("classifier")

    def test_what_a_training_wrote_is_replaced(self, earlier):
        result = run(earlier, seed=3, overwrite=True)
        assert Predictor(result.folder).probabilities(["a text"]).shape == (1, 28)
        assert ExperimentResult.load(earlier).settings["seed"] == 3

    def test_overwriting_deletes_checkpoints_and_nothing_that_is_only_called_so(self, earlier):
        (earlier / "checkpoint-7").mkdir()
        (earlier / "checkpoint-7" / "thesis.tex").write_text("mine")
        (earlier / "checkpoint-best").mkdir()
        with pytest.raises(ValueError, match=r"--overwrite would delete .*checkpoint-7, but there is no checkpoint in"):
            run(earlier, overwrite=True)
        shutil.rmtree(earlier / "checkpoint-7")
        run(earlier, overwrite=True, save_strategy="no")
        assert [path.name for path in earlier.glob("checkpoint-*")] == ["checkpoint-best"]

    def test_the_demo_keeps_a_classifier_that_is_not_its_own(self, tmp_path, finished):
        from hf_mlcl.recipes.quickstart import compare, keep_best

        assert keep_best([finished], str(tmp_path / "ours"))[1] == tmp_path / "ours" / "classifier"
        keep_best([finished], str(tmp_path / "ours"))
        (tmp_path / "classifier").mkdir()
        (tmp_path / "classifier" / "mine").write_text("mine")
        with pytest.raises(ValueError, match="has classifier/mine"):
            next(compare("toy_text", ["reg"], {}, str(tmp_path)))
        with pytest.raises(ValueError, match="has classifier/mine"):
            keep_best([finished], str(tmp_path))
        assert (tmp_path / "classifier" / "mine").read_text() == "mine"


class TestDamagedNotes:
    """What is kept about a folder is as good as not there when it is damaged."""

    @pytest.mark.parametrize(
        "content", ["[]", "{}", "3", "{", "[" * 100_000, '{"encoder": 1, "settings": 1, "finished": 0, "host": 1}']
    )
    def test_they_stop_nobody_and_give_nothing_away(self, content, tmp_path):
        output = OutputFolder(tmp_path)
        _publish(output, "old")
        for name in ("run.json", "written.json", "owner.json"):
            (output.hidden / name).write_text(content)
        assert output.interrupted() is None
        with pytest.raises(ValueError, match="no training is known"):
            output.check_replaceable("encoder")
        with output.owned():
            (output.hidden / "owner.json").write_text(content)
            with pytest.raises(ValueError, match="in use by another process"), OutputFolder(tmp_path).owned():
                pass

    @pytest.mark.parametrize("wrong", [{"pid": -1}, {"pid": 10**30}, {"since": 1e300}])
    def test_an_owner_that_cannot_be_is_no_traceback(self, wrong, tmp_path, monkeypatch):
        monkeypatch.setattr(output_folder, "SECONDS_FOR_CHILDREN", 0)
        output = OutputFolder(tmp_path)
        with output.owned():
            path = output.hidden / "owner.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | wrong))
            with pytest.raises(ValueError, match="in use by process"), OutputFolder(tmp_path).owned():
                pass

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path):
        (tmp_path / "file").touch()
        with (
            pytest.raises(ValueError, match=r"output_dir .*run.* cannot be written: "),
            OutputFolder(tmp_path / "file" / "run").owned(),
        ):
            pass


class TestOneAtATime:
    def test_a_folder_in_use_is_refused_by_the_name_of_its_owner(self, tmp_path):
        who = rf"in use by process {os.getpid()} on {socket.gethostname()} since \d{{4}}-\d\d-\d\d \d\d:\d\d"
        with OutputFolder(tmp_path).owned(), pytest.raises(ValueError, match=who):
            run(tmp_path)
        run(tmp_path)

    def test_the_lock_of_a_killed_process_does_not_block_even_if_its_workers_outlive_it(self, tmp_path):
        mine, theirs = FORK.Pipe()
        owner = FORK.Process(target=_own_and_wait, args=(tmp_path, theirs, mine))
        owner.start()
        theirs.close()
        assert mine.recv() == "owned"
        owner.kill()
        owner.join()
        threading.Timer(0.3, mine.send, ["end"]).start()  # until then the worker holds the lock
        with OutputFolder(tmp_path).owned():
            assert json.loads((tmp_path / ".hf-mlcl" / "owner.json").read_text())["pid"] == os.getpid()

    def test_it_is_free_after_a_failure(self, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(running, "load_data", _failing(ValueError("no data today")))
            with pytest.raises(ValueError, match="no data today"):
                run(tmp_path)
        run(tmp_path)


def _own_and_wait(folder, pipe, unused):
    unused.close()
    with OutputFolder(folder).owned():
        worker = FORK.Process(target=pipe.recv)  # a copy with the lock's descriptor, as the workers of a loader are
        worker.start()
        pipe.send("owned")
        worker.join()


class TestPublishing:
    @pytest.mark.parametrize("in_one_step", [True, False])
    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_killed_at_any_step_the_old_or_the_new_model_is_there_whole(self, in_one_step, step, tmp_path):
        output = OutputFolder(tmp_path)
        _publish(output, "old")
        process = FORK.Process(target=_publish_and_die, args=(output, in_one_step, step))
        process.start()
        process.join()
        assert process.exitcode in (0, 9)
        if in_one_step:
            assert _published(tmp_path) in ({"old"}, {"new"}), "at once, for whoever looks"
        with output.owned():
            assert _published(tmp_path) in ({"old"}, {"new"})
            output.check_replaceable("encoder")
        _publish(output, "newer")
        assert _published(tmp_path) == {"newer"}
        assert {path.name for path in (tmp_path / ".hf-mlcl").iterdir()} == {"lock", "written.json"}


def _publish(output, what):
    with output.owned(), output.staging("encoder") as stage:
        for name in ("config.json", "model.safetensors", what):
            (stage / name).write_text(what)
        output.publish(encoder=stage)


def _publish_and_die(output, in_one_step, step):
    steps, rename, exchange = [], os.rename, files._exchange

    def counted(act):
        def call(*paths):
            steps.append(paths)
            if len(steps) == step:
                os._exit(9)
            return act(*paths)

        return call

    os.rename = counted(rename)
    files._exchange = counted(exchange) if in_one_step else lambda *_: False
    _publish(output, "new")
    os._exit(0)


def _published(folder):
    """What the files of the model say; all of them are there."""
    model = folder / "encoder"
    found = {path.read_text() for path in model.iterdir()}
    assert {path.name for path in model.iterdir()} == {"config.json", "model.safetensors", *found}
    return found


STAGES = {
    "data": (running, "load_data"),
    "inputs": (running, "prepare_inputs"),
    "training": (running.ContrastiveMultiLabelTrainer, "training_step"),
    "checkpoint": (running.ContrastiveMultiLabelTrainer, "_save_rng_state"),
    "evaluation": (running, "evaluate_study"),
    "encoder": (MLCLModel, "save_pretrained"),
    "classifier": (MLCLForSequenceClassification, "save_pretrained"),
    "putting in place": (output_folder, "swap_folder"),
    "decisions": (running, "save_decisions"),
    "metrics": (ExperimentResult, "save"),
}


class TestInterruptions:
    @pytest.mark.parametrize("stage", STAGES)
    def test_after_a_failure_in_any_stage_the_same_command_ends_as_if_nothing_had_been(
        self, stage, finished, tmp_path, monkeypatch
    ):
        where, name = STAGES[stage]
        act, calls = getattr(where, name), []
        fatal = {"training": 4, "checkpoint": 2}.get(stage, 1)  # training: after a checkpoint

        def fail(*args, **kwargs):
            calls.append(1)
            if len(calls) == fatal:
                raise RuntimeError("out of luck")
            return act(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(where, name, fail)
            with pytest.raises(RuntimeError, match="out of luck"):
                run(tmp_path / "run")
        _assert_same(run(tmp_path / "run"), finished)

    def test_another_command_is_refused_and_data_that_have_changed_too(self, tmp_path, monkeypatch):
        rows = load_corpus("toy_text")
        experiment, training = build(tmp_path)
        experiment.corpus = "mine"
        with monkeypatch.context() as patch:
            patch.setattr(running, "evaluate_study", _failing(ValueError("no luck")))
            with pytest.raises(ValueError, match="no luck"):
                run_experiment(experiment, training, rows, quiet=True)
        with pytest.raises(ValueError, match="has checkpoints of an earlier run"):
            run(tmp_path, seed=9)
        rows["train"] = rows["train"].select(range(100))
        with pytest.raises(ValueError, match="The data have changed since the training in output_dir was interrupted"):
            run_experiment(experiment, training, rows, quiet=True)

    @pytest.mark.slow
    def test_killed_at_random_again_and_again_the_same_command_ends_as_if_nothing_had_been(self, finished, tmp_path):
        for stage in random.sample(sorted(STAGES), len(STAGES)):
            process = FORK.Process(target=_run_and_die, args=(tmp_path / "run", stage))
            process.start()
            process.join()
            assert process.exitcode in (0, -signal.SIGKILL)
            if process.exitcode == 0:  # resumed after that stage, it has come to its end
                shutil.rmtree(tmp_path / "run")
        _assert_same(run(tmp_path / "run"), finished)


def _run_and_die(folder, stage):
    """A run that is killed when a stage has begun; at a random one of its calls, where there are many."""
    where, name = STAGES[stage]
    act, calls = getattr(where, name), []
    fatal = random.randint(1, {"training": 4, "checkpoint": 2, "putting in place": 3}.get(stage, 1))

    def die(*args, **kwargs):
        calls.append(1)
        if len(calls) == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        return act(*args, **kwargs)

    setattr(where, name, die)
    run(folder)


def _assert_same(result, expected):
    for name, value in expected.metrics.items():
        if name != "train_loss":  # HF counts it from where a training was resumed
            assert result.metrics[name] == pytest.approx(value, abs=1e-6, nan_ok=True), name
    assert contents(result.folder).keys() == contents(expected.folder).keys()
    hidden = {path.name for path in (result.folder / ".hf-mlcl").iterdir()}
    assert hidden == {"lock", "run.json", "written.json"}, "nothing half-written is left"
    Predictor(result.folder)


class TestFullDisk:
    @pytest.mark.parametrize(
        "error",
        [
            OSError(errno.ENOSPC, "No space left on device"),
            SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        ],
    )
    @pytest.mark.parametrize("stage", ["classifier", "decisions"])
    def test_earlier_results_stay_and_the_message_names_the_path(self, stage, error, earlier, monkeypatch):
        before = {name: content for name, content in contents(earlier).items() if "checkpoint" not in name}
        monkeypatch.setattr(*STAGES[stage], _failing(error))
        with pytest.raises(FullDiskError, match=r"^[^\n]*No space left[^\n]*'[^\n]*earlier[^\n]*'$"):
            run(earlier, seed=4, overwrite=True, save_strategy="no")
        assert contents(earlier) == before
        assert not list(earlier.rglob("*.part")) + list(earlier.rglob("staged"))

    @pytest.mark.parametrize("name", ["_save_optimizer_and_scheduler", "_save_rng_state"])
    def test_no_half_checkpoint_is_left_and_earlier_ones_stay(self, name, tmp_path, monkeypatch):
        save = getattr(running.ContrastiveMultiLabelTrainer, name)
        error = RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos 576 vs 534")
        monkeypatch.setattr(files.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 100, 0))

        def fails_at_step_4(self, folder):
            if self.state.global_step == 4:
                raise error
            save(self, folder)

        monkeypatch.setattr(running.ContrastiveMultiLabelTrainer, name, fails_at_step_4)
        with pytest.raises(FullDiskError, match=r"No space left.*checkpoint-4"):
            run(tmp_path)
        assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]

    def test_other_errors_pass_as_they_are(self, tmp_path):
        error = RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos 576 vs 534")
        with pytest.raises(RuntimeError, match="unexpected pos"), files.whole_file(tmp_path / "file"):
            raise error


def _failing(error):
    def fail(*_, **__):
        raise error

    return fail


SECRET = "hf_abcdefghijklmnopqrstuvwxyz"


def test_a_token_is_in_no_file_and_the_callers_arguments_stay_as_they_were(tmp_path):
    experiment, training = build(tmp_path, hub_token=SECRET, dataloader_pin_memory=True)
    before = dict(vars(training))
    run_experiment(experiment, training, quiet=True)
    assert vars(training) == before
    assert any(name.endswith("training_args.bin") for name in contents(tmp_path))
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes(), path
    saved = torch.load(next(tmp_path.rglob("training_args.bin")), weights_only=False)
    assert (saved.hub_token, saved.learning_rate) == (None, training.learning_rate)


def test_a_push_that_is_wanted_stays_wanted_and_takes_the_revision(tmp_path, monkeypatch):
    pushed = []
    monkeypatch.setattr(running, "check_push", lambda *_: None)
    monkeypatch.setattr(running, "push_folder", lambda *_, **kwargs: pushed.append(kwargs))
    experiment, training = build(tmp_path, push_to_hub=True, hub_revision="branch", hub_token=SECRET)
    run_experiment(experiment, training, quiet=True)
    assert training.push_to_hub
    assert [(each["revision"], each["token"]) for each in pushed] == [("branch", SECRET)] * 2  # encoder, classifier


def test_damaged_metrics_are_named(tmp_path):
    (tmp_path / "metrics.json").write_text('{"metr')
    with pytest.raises(ValueError, match=r"metrics\.json is damaged"):
        ExperimentResult.load(tmp_path)
