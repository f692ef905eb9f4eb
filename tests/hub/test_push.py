"""Pushes over HTTP to a Hub on loopback: what arrives, who may see it, and what is left of an interrupted one."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub.utils import logging as hub_logging

from copies import HANGS
from hf_mlcl import ContrastiveMultiLabelTrainer, MLCLModel
from hf_mlcl.data import TextCollator
from hf_mlcl.evaluation.feature_cache import FeatureCache
from hf_mlcl.hub import export_encoder, intended_files, push_folder
from hf_mlcl.inference import ExampleIndex
from hub.cases import NAMES, arguments
from hub.fresh import SOURCE, run
from hub.hub_server import TOKEN, USER


@pytest.fixture
def encoder(text, tmp_path):
    """An exported encoder amid what must not leave the machine."""
    folder = export_encoder(text.model, tmp_path / "encoder", text.processor)
    for name in (
        "training_args.bin",
        "optimizer.pt",
        "trainer_state.json",
        ".env",
        "notes.txt",
        "model.safetensors.tmp",
    ):
        (folder / name).write_text(f"secret {TOKEN}")
    for name in ("checkpoint-3/model.safetensors", ".git/config", ".cache/huggingface/x.json", "figures/notes.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"secret {TOKEN}")
    return folder


def arrived(server, name="encoder"):
    files = dict(server.repositories["model", f"{USER}/{name}"].files)
    files.pop(".gitattributes")
    return files


def as_sent(folder):
    return {name: (folder / name).read_bytes() for name in intended_files(folder)}


def test_the_intended_files_arrive_and_no_others(server, encoder, tmp_path):
    with server.here(tmp_path / "cache"):
        push_folder(encoder, "encoder")
    assert arrived(server) == as_sent(encoder)
    expected = {"model.safetensors", "modules.json", "1_Pooling/config.json", "prototypes.safetensors"}
    assert expected <= arrived(server).keys()
    assert not any(TOKEN.encode() in content for content in arrived(server).values())


def test_a_new_repository_is_private_and_one_that_exists_keeps_its_visibility(server, encoder, tmp_path):
    with server.here(tmp_path / "cache"):
        push_folder(encoder, "first")
        push_folder(encoder, "second", private=False)
        push_folder(encoder, "second", private=True)
    assert server.repositories["model", f"{USER}/first"].private
    assert not server.repositories["model", f"{USER}/second"].private


def test_the_token_appears_in_no_log_and_no_error(server, encoder, tmp_path, caplog):
    """Of any library, at any level: in a push that goes well, one that is cut off, and one that is refused."""
    wrong = "hf_wrong" + "0" * 29
    said = []
    with server.here(tmp_path / "cache"), caplog.at_level(logging.DEBUG):
        hub_logging.set_verbosity_debug()
        hub_logging.enable_propagation()
        try:
            push_folder(encoder, "encoder", token=TOKEN)
            (encoder / "config.json").write_text('{"changed": true}')
            server.cut_commits = 1
            for token in (TOKEN, wrong):
                with pytest.raises(Exception, match=r"disconnected|401|closed|reset") as error:
                    push_folder(encoder, "encoder", token=token)
                said.append("".join(traceback.format_exception(error.value)))
        finally:
            hub_logging.disable_propagation()
            hub_logging.set_verbosity_warning()
    said.append(caplog.text)
    assert "Uploading" in caplog.text
    assert "huggingface_hub" in {record.name.split(".")[0] for record in caplog.records}
    assert not any(token in text for token in (TOKEN, wrong) for text in said)


def test_a_push_whose_commit_is_cut_off_changes_nothing_and_repeated_is_complete(server, encoder, tmp_path):
    with server.here(tmp_path / "cache"):
        server.cut_commits = 1
        with pytest.raises(Exception, match=r"disconnected|closed|reset"):
            push_folder(encoder, "encoder")
        assert arrived(server) == {}
        sent = [path for method, path in server.requests if method == "PUT"]
        assert len(sent) == 2
        push_folder(encoder, "encoder")
        assert arrived(server) == as_sent(encoder)
        again = [path for method, path in server.requests if method == "PUT"]
        assert again == sent, "what had arrived is not sent again"
        commits = len(server.repositories["model", f"{USER}/encoder"].commits)
        push_folder(encoder, "encoder")
    assert len(server.repositories["model", f"{USER}/encoder"].commits) == commits, "nothing new: no commit"


def test_a_push_that_is_killed_while_it_uploads_changes_nothing_and_repeated_is_complete(server, encoder, tmp_path):
    """In a process of its own, which knows of this Hub by HF_ENDPOINT."""
    code = "import sys; from hf_mlcl.hub import push_folder; push_folder(sys.argv[1], 'encoder')"
    variables = {**os.environ, "PYTHONPATH": str(SOURCE), **server.environment(tmp_path / "cache")}
    server.stall_upload.set()
    with subprocess.Popen([sys.executable, "-c", code, str(encoder)], env=variables) as pushing:
        assert server.stalled.wait(HANGS), "half of a file has arrived"
        pushing.kill()
    assert arrived(server) == {}
    server.stall_upload.clear()
    with server.here(tmp_path / "cache"):
        push_folder(encoder, "encoder")
    assert arrived(server) == as_sent(encoder)


def test_pushed_classifiers_run_in_another_process_with_the_probabilities_of_the_linear_evaluation(
    server, text, image, tmp_path
):
    """From a classifier's own push_to_hub, through download, to both kinds of pipeline."""
    for i, picture in enumerate(image.inputs):
        picture.save(tmp_path / f"{i}.png")
    (tmp_path / "texts.json").write_text(json.dumps(text.inputs))
    for case, name in ((text, "texts"), (image, "images")):
        case.result.classifier.calibrate([0.1, 0.4, 0.5])
        with server.here(tmp_path / "cache"):
            case.result.classifier.push_to_hub(f"{USER}/{name}")
        case.result.classifier.calibrate()
        repository = server.repositories["model", f"{USER}/{name}"]
        assert repository.private
        assert "README.md" in repository.files
    code = """
        import json, sys
        import hf_mlcl
        from transformers import pipeline

        root, owner = sys.argv[1:]
        texts, pictures = json.load(open(root + "/texts.json")), [f"{root}/{i}.png" for i in range(12)]
        found = {
            "texts": pipeline("text-classification", model=owner + "/texts", device="cpu")(texts, top_k=None),
            "images": pipeline("image-classification", model=owner + "/images", device="cpu")(pictures, top_k=3),
            "batches": pipeline("text-classification", model=owner + "/texts", batch_size=7)(texts, top_k=None),
            "decided": pipeline("multilabel-text-classification", model=owner + "/texts", device="cpu")(texts),
        }
        print(json.dumps(found))
    """
    found = json.loads(run(code, tmp_path, USER, **server.environment(tmp_path / "other cache")).stdout)
    for case, key in ((text, "texts"), (text, "batches"), (image, "images")):
        hits = [{hit["label"]: hit["score"] for hit in hits} for hits in found[key]]
        scores = np.array([[by_name[name] for name in NAMES] for by_name in hits])
        assert np.abs(scores - case.probabilities()).max() < 1e-6, key
    expected = text.probabilities() >= np.array([0.1, 0.4, 0.5], dtype=np.float32)
    decided = [{hit["label"] for hit in hits} for hits in found["decided"]]
    assert decided == [{NAMES[i] for i in np.flatnonzero(row)} for row in expected]


def test_a_model_that_is_pushed_again_keeps_the_card_that_its_owner_wrote(server, text, tmp_path):
    text.model.save_pretrained(tmp_path / "model")
    loaded = MLCLModel.from_pretrained(tmp_path / "model")
    with server.here(tmp_path / "cache"):
        loaded.push_to_hub("again", processor=text.processor)
        repository = server.repositories["model", f"{USER}/again"]
        assert b"# again" in repository.files["README.md"]
        repository.files["README.md"] = b"# Mine\n"
        loaded.push_to_hub("again", commit_message="Second", private=False)
    assert repository.files["README.md"] == b"# Mine\n"
    assert repository.private


def test_trainers_push_the_model_with_its_card_and_nothing_else(server, text, tmp_path):
    trainer = text.trainer
    trainer.args.hub_model_id, trainer.args.hub_token = "trained", TOKEN
    (tmp_path / "checkpoint-1").mkdir()
    before, trainer.args.output_dir = trainer.args.output_dir, str(tmp_path)
    try:
        with server.here(tmp_path.parent / "cache"):
            commit = trainer.push_to_hub(license="apache-2.0", dataset_tags=f"{USER}/colours")
            trainer.create_model_card()
            assert trainer.push_to_hub("Again", blocking=False).result(timeout=HANGS)
    finally:
        trainer.args.hub_model_id = trainer.args.hub_token = trainer.hub_model_id = None
        trainer.args.output_dir = before
    repository = server.repositories["model", f"{USER}/trained"]
    assert str(commit).startswith(f"{server.url}/{USER}/trained/commit/")
    assert repository.private
    assert (tmp_path / "training_args.bin").exists(), "the trainer keeps the token there, and the file at home"
    assert "training_args.bin" not in repository.files
    assert {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "figures/space.png",
    } <= repository.files.keys()
    assert f'Encoder.from_pretrained("{USER}/trained")'.encode() in repository.files["README.md"]
    assert ".eval_results/colours.yaml" in repository.files
    assert not any(TOKEN.encode() in content for content in repository.files.values())


@pytest.mark.parametrize("strategy", ["every_save", "all_checkpoints"])
def test_pushes_while_training_leave_the_token_at_home(server, text, tmp_path, strategy):
    settings = {
        "push_to_hub": True,
        "hub_model_id": "live",
        "hub_token": TOKEN,
        "hub_strategy": strategy,
    }
    with server.here(tmp_path / "cache"):
        trainer = ContrastiveMultiLabelTrainer(
            MLCLModel(text.model.config),
            arguments(tmp_path / "run", save_steps=2, **settings),
            TextCollator(text.processor, 3),
            text.trainer.train_dataset,
            processing_class=text.processor,
        )
        trainer.train()
        for job in trainer.push_in_progress.jobs:
            job.result(timeout=HANGS)
    repository = server.repositories["model", f"{USER}/live"]
    assert repository.private
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= repository.files.keys()
    assert ("checkpoint-2/optimizer.pt" in repository.files) == (strategy == "all_checkpoints")
    assert not any(name.endswith("training_args.bin") for name in repository.files)
    assert not any(TOKEN.encode() in content for content in repository.files.values())


def live_trainer(text, folder, **settings):
    hub = {"push_to_hub": True, "hub_model_id": "live", "hub_token": TOKEN, **settings}
    return ContrastiveMultiLabelTrainer(
        MLCLModel(text.model.config),
        arguments(folder, save_steps=1, **hub),
        TextCollator(text.processor, 3),
        text.trainer.train_dataset,
        processing_class=text.processor,
    )


@pytest.mark.parametrize("linked", [True, False])
def test_a_checkpoint_arrives_though_the_trainer_deletes_it_meanwhile(server, text, tmp_path, monkeypatch, linked):
    def no_links(*args):
        raise OSError("this disk knows no links")

    if not linked:
        monkeypatch.setattr(os, "link", no_links)
    with server.here(tmp_path / "cache"):
        trainer = live_trainer(text, tmp_path / "run", hub_strategy="all_checkpoints", hub_always_push=True)
        checkpoints = []
        for step in (1, 2):
            folder = tmp_path / "run" / f"checkpoint-{step}"
            trainer.save_model(str(folder), _internal_call=True)
            (folder / "optimizer.pt").write_text(f"step {step}")
            trainer.state.global_step = step
            gone = threading.Event()
            trainer._hub.run_as_future(gone.wait, HANGS)  # so that its turn comes when it is gone
            trainer._push_from_checkpoint(str(folder))
            shutil.rmtree(folder)
            gone.set()
            checkpoints.append(folder.name)
        for job in trainer.push_in_progress.jobs:
            job.result(timeout=HANGS)
        trainer._hub.run_as_future(int).result(timeout=HANGS)  # comes after all that belongs to those before it
    repository = server.repositories["model", f"{USER}/live"]
    for name in checkpoints:
        assert repository.files[f"{name}/optimizer.pt"] == f"step {name[-1]}".encode()
        assert f"{name}/model.safetensors" in repository.files
    assert not any(name.endswith("training_args.bin") for name in repository.files)
    first, *others = (f"Training in progress, step {step}{part}" for step in (1, 2) for part in ("", ", checkpoint"))
    assert repository.messages[1:] == [first, others[0], others[2]], "the second model is that of the first: no commit"
    assert not list((tmp_path / "run").glob(".push-*"))


def test_a_push_that_fails_while_training_is_reported_and_training_goes_on(server, text, tmp_path, caplog):
    with server.here(tmp_path / "cache"):
        trainer = live_trainer(text, tmp_path / "run")
        trainer.save_model(str(tmp_path / "run" / "checkpoint-1"), _internal_call=True)
        (tmp_path / "run" / "checkpoint-1" / "model.safetensors").unlink()
        trainer._push_from_checkpoint(str(tmp_path / "run" / "checkpoint-1"))
        (job,) = trainer.push_in_progress.jobs
        assert job.exception(timeout=HANGS) is not None
        trainer._hub.run_as_future(int).result(timeout=HANGS)  # comes after all that belongs to the one before it
    assert "The push 'Training in progress, step 0' has failed, and training goes on" in caplog.text
    assert TOKEN not in caplog.text
    assert not list((tmp_path / "run").glob(".push-*"))


@pytest.mark.slow
@pytest.mark.distributed
def test_several_ranks_write_one_card_and_push_once(server, tmp_path):
    worker = Path(__file__).with_name("distributed_push.py")
    variables = {**os.environ, **server.environment(tmp_path / "cache")}
    variables["PYTHONPATH"] = os.pathsep.join([str(SOURCE), str(worker.parents[1])])
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run([*command, str(worker), str(tmp_path / "run")], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-9000:]
    repository = server.repositories["model", f"{USER}/ranks"]
    assert repository.messages == ["initial commit", "End of training"]
    assert {
        "README.md",
        "model.safetensors",
        "figures/prr.png",
        ".eval_results/colours.yaml",
    } <= repository.files.keys()


def test_features_of_the_users_examples_stay_at_home(tmp_path):
    model = tmp_path / "model-00001-of-00002.safetensors"
    for path in (model, tmp_path / "model.safetensors", tmp_path / "prototypes.safetensors"):
        path.write_text("weights")
    ExampleIndex(np.eye(3)).save(tmp_path / "index.safetensors")
    FeatureCache(tmp_path).save("0123abcd", {"features": torch.eye(3)})
    assert intended_files(tmp_path) == [model.name, "model.safetensors", "prototypes.safetensors"]


VOCABULARIES = {
    "BERT": ["vocab.txt", "tokenizer.json"],
    "RoBERTa": ["vocab.json", "merges.txt"],
    "XLM-R, CamemBERT": ["sentencepiece.bpe.model"],
    "BARTpho": ["sentencepiece.bpe.model", "dict.txt"],
    "ALBERT, XLNet": ["spiece.model"],
    "DeBERTa": ["spm.model"],
    "RemBERT": ["sentencepiece.model"],
    "LLaMA": ["tokenizer.model"],
    "PhoBERT, BERTweet": ["vocab.txt", "bpe.codes"],
    "LUKE": ["vocab.json", "merges.txt", "entity_vocab.json"],
    "RoCBERT": ["vocab.txt", "word_shape.json", "word_pronunciation.json"],
}


@pytest.mark.parametrize("files", VOCABULARIES.values(), ids=VOCABULARIES.keys())
def test_every_tokenizer_goes_with_its_model(tmp_path, files):
    for file in files:
        (tmp_path / file).write_text("words")
    assert intended_files(tmp_path) == sorted(files)


def test_a_vocabulary_that_stays_behind_is_told(server, encoder, tmp_path, caplog):
    (encoder / "prophetnet.tokenizer").write_text("words")
    (encoder / "tokenizer_config.json").write_text('{"tokenizer_class": "ProphetNetTokenizer"}')
    with server.here(tmp_path / "cache"):
        push_folder(encoder, "encoder")
    assert "prophetnet.tokenizer of the tokenizer will not be pushed" in caplog.text


@pytest.mark.parametrize("kind", ["BartphoTokenizer", "NobodyKnowsIt", None])
def test_a_tokenizer_that_cannot_be_loaded_here_is_pushed_all_the_same(server, encoder, tmp_path, kind):
    (encoder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
    with server.here(tmp_path / "cache"):
        push_folder(encoder, "encoder")
    assert "tokenizer_config.json" in arrived(server)


class TestWrongInput:
    def test_a_folder_that_holds_models_in_folders_says_which(self, tmp_path):
        for name in ("encoder", "classifier", "checkpoint-4"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "config.json").write_text("{}")
        with pytest.raises(
            ValueError, match=r"holds no model.*Push one of the models in it: .*classifier, .*encoder\."
        ):
            push_folder(tmp_path, "anything")

    def test_no_folder(self, tmp_path):
        with pytest.raises(ValueError, match="is not a folder"):
            push_folder(tmp_path / "nothing", "anything")


def test_what_is_pushed_is_logged(server, encoder, tmp_path, caplog):
    with server.here(tmp_path / "cache"), caplog.at_level(logging.INFO, logger="hf_mlcl"):
        push_folder(encoder, "logged")
    assert "left behind: .cache, .env, .git, checkpoint-3, figures" in caplog.text
