"""Model folders that somebody else wrote: whatever is in them, nothing runs, and one line says what is wrong."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys

import pytest
from typer.testing import CliRunner

from hf_mlcl.cli.app import app
from models import saved

CODE = "from pathlib import Path\nPath({!r}).touch()\nclass Any:\n    pass\n"
CODE_FOR_ALL = {
    "AutoConfig": "code.Any",
    "AutoModel": "code.Any",
    "AutoModelForSequenceClassification": "code.Any",
    "AutoTokenizer": [None, "code.Any"],
    "AutoImageProcessor": "code.Any",
}


class Pickled:
    """Runs a command when it is unpickled."""

    def __init__(self, marker):
        self.marker = str(marker)

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def nested(depth):
    return '{"model_type": "mlcl", "a": ' + '{"a": ' * depth + "1" + "}" * depth + "}"


def config(**changes):
    return lambda folder, marker: saved.change_json(folder / "config.json", **changes)


def backbone(**changes):
    def change(folder, marker):
        content = json.loads((folder / "config.json").read_text())
        saved.change_json(folder / "config.json", backbone_config={**content["backbone_config"], **changes})

    return change


def content(name, text):
    return lambda folder, marker: (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)


def removed(*names):
    return lambda folder, marker: [(folder / name).unlink() for name in names]


def replaced(name, make):
    def change(folder, marker):
        (folder / name).unlink()
        make(folder / name)

    return change


def both(*changes):
    return lambda folder, marker: [change(folder, marker) for change in changes]


def of_timm_with_a_pickle(folder, marker):
    shutil.rmtree(folder)
    saved.save_image_classifier(folder)
    (folder / "weights.pth").write_bytes(pickle.dumps(Pickled(marker)))
    backbone(model_args={"checkpoint_path": str(folder / "weights.pth")})(folder, marker)


def weights_that_are_a_pickle(folder, marker):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"heads.weight": Pickled(marker)}))


HOSTILE = {
    # Code
    "code for an unknown type": config(model_type="unheard", auto_map=CODE_FOR_ALL),
    "code for the tokenizer": both(
        content("tokenizer_config.json", json.dumps({"auto_map": CODE_FOR_ALL, "tokenizer_class": "Any"})),
    ),
    "code for the backbone": backbone(model_type="unheard", auto_map=CODE_FOR_ALL),
    "code for a backbone without a model": backbone(
        model_type="encoder-decoder",
        encoder={"model_type": "bert"},
        decoder={"model_type": "bert"},
        auto_map=CODE_FOR_ALL,
        _name_or_path=".",
    ),
    "a pickle that timm would open": of_timm_with_a_pickle,
    "weights that are a pickle": weights_that_are_a_pickle,
    # config.json
    "config is empty": content("config.json", ""),
    "config is no JSON": content("config.json", "{'model_type': mlcl"),
    "config is binary": content("config.json", bytes(range(256))),
    "config is a list": content("config.json", "[]"),
    "config is a number": content("config.json", "3"),
    "config is null": content("config.json", "null"),
    "config is nested deeply": content("config.json", nested(100_000)),
    "config is a deep list": content("config.json", "[" * 100_000),
    "config is a folder": replaced("config.json", lambda path: path.mkdir()),
    "config is a link to itself": replaced("config.json", lambda path: path.symlink_to(path)),
    "config is missing": removed("config.json"),
    "auto_map is a number": config(auto_map=3),
    "model_type is a list": config(model_type=["mlcl"]),
    "model_type is missing": config(model_type=None),
    "architectures is a number": config(architectures=3),
    "architectures is a dictionary": config(architectures={"a": 1}),
    "an encoder": config(architectures=["MLCLModel"]),
    "id2label is a list": config(id2label=["a", "b", "c"]),
    "id2label has no numbers": config(id2label={"x": "a", "y": "b"}),
    "id2label has gaps": config(id2label={"0": "a", "7": "b"}),
    "labels are many": config(id2label={str(number): str(number) for number in range(20_000)}),
    "thresholds are a word": config(thresholds="abc"),
    "thresholds are too few": config(thresholds=[0.5]),
    "thresholds are words": config(thresholds=["a", "b", "c"]),
    "thresholds are out of range": config(thresholds=[0.5, 0.5, 7]),
    "pooling is unknown": config(pooling="max"),
    "projection is a word": config(projection_dim="abc"),
    "projection is negative": config(projection_dim=-3),
    "heads are none": config(num_heads=0),
    "temperature is zero": config(logit_temperature=0),
    "backbone is a number": config(backbone_config=3),
    "backbone is of no type": backbone(model_type=[]),
    "backbone is ourselves": backbone(model_type="mlcl"),
    "backbone has a word for a size": backbone(hidden_size="abc"),
    "backbone has a negative size": backbone(hidden_size=-16),
    "backbone has no heads": backbone(num_attention_heads=0),
    "backbone is larger than its weights": backbone(num_hidden_layers=3),
    # Weights
    "weights are missing": removed("model.safetensors"),
    "weights are empty": content("model.safetensors", b""),
    "weights are garbage": content("model.safetensors", bytes(range(256)) * 10),
    "weights are a folder": replaced("model.safetensors", lambda path: path.mkdir()),
    "weights are a link to itself": replaced("model.safetensors", lambda path: path.symlink_to(path)),
    "weights without heads": lambda folder, _: saved.change_weights(folder, saved.without("heads.")),
    "weights without a layer": lambda folder, _: saved.change_weights(folder, saved.without("backbone.encoder")),
    "weights that are NaN": lambda folder, _: saved.change_weights(folder, saved.with_nan),
    "weights of another size": lambda folder, _: saved.change_weights(folder, saved.of_another_size("heads.bias")),
    "weights of another model": lambda folder, _: saved.change_weights(folder, saved.with_another),
    "an index of weights elsewhere": both(
        removed("model.safetensors"),
        content("model.safetensors.index.json", json.dumps({"metadata": {}, "weight_map": {"a": "../../nowhere"}})),
    ),
    # Tokenizer
    "tokenizer is missing": removed("tokenizer.json", "tokenizer_config.json"),
    "tokenizer is no JSON": content("tokenizer.json", "{"),
    "tokenizer is a list": content("tokenizer.json", "[]"),
    "tokenizer_config is a list": content("tokenizer_config.json", "[]"),
    "tokenizer_config has wrong types": content(
        "tokenizer_config.json", json.dumps({"tokenizer_class": 3, "auto_map": 3})
    ),
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    return saved.save_classifier(tmp_path_factory.mktemp("healthy"))


@pytest.fixture
def folder(healthy, tmp_path):
    shutil.copytree(healthy, tmp_path / "model")
    (tmp_path / "model" / "code.py").write_text(CODE.format(str(tmp_path / "it-ran")))
    return tmp_path / "model"


@pytest.fixture(autouse=True)
def away_from_the_users_files(tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("hf_mlcl.data.download.hub_is_reachable", lambda: False)


class TestHostileFolders:
    def test_the_folder_is_fine_before_it_is_changed(self, folder):
        result = CliRunner().invoke(app, ["predict", "-", "--model", str(folder)], input="a cat\n")
        assert result.exit_code == 0, result.stderr

    @pytest.mark.parametrize("case", HOSTILE)
    def test_one_line_says_what_is_wrong_and_nothing_runs(self, case, folder, tmp_path):
        marker = tmp_path / "it-ran"
        HOSTILE[case](folder, marker)
        result = CliRunner().invoke(app, ["predict", "-", "--model", str(folder)], input="y\nw01\n")
        assert not marker.exists(), "code of the folder has run"
        assert isinstance(result.exception, SystemExit), repr(result.exception)  # and no other, with a traceback
        assert result.exit_code == 1
        assert result.stdout == ""
        lines = result.stderr.strip().splitlines()
        assert len(lines) == 1, result.stderr
        assert lines[0].startswith("hf-mlcl: ")
        assert str(folder) in lines[0]
        assert len(lines[0]) < 1500

    @pytest.mark.parametrize("case", ["code for an unknown type", "weights without heads", "thresholds are too few"])
    def test_evaluation_refuses_them_as_well(self, case, folder, tmp_path):
        marker = tmp_path / "it-ran"
        HOSTILE[case](folder, marker)
        (tmp_path / "data.csv").write_text("text,labels\n" + "a cat,label 0|label 1\na dog,label 2\n" * 6)
        command = ["evaluate", str(tmp_path / "data.csv"), "--split", "all", "--model", str(folder)]
        result = CliRunner().invoke(app, command, input="y\ny\n")
        assert not marker.exists()
        assert (result.exit_code, type(result.exception)) == (1, SystemExit)
        assert result.stderr.startswith(f"hf-mlcl: '{folder}' is not a classifier that can be loaded")

    def test_a_folder_that_is_a_link_to_itself_is_no_model(self, tmp_path):
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        result = CliRunner().invoke(app, ["predict", "a cat", "--model", str(tmp_path / "loop")])
        assert (result.exit_code, type(result.exception)) == (1, SystemExit)
        assert "is not a classifier that can be loaded" in result.stderr

    def test_a_broken_link_is_not_the_newest_classifier(self, healthy, tmp_path, monkeypatch):
        shutil.copytree(healthy, tmp_path / "outputs" / "good" / "classifier")
        broken = tmp_path / "outputs" / "broken" / "classifier"
        broken.mkdir(parents=True)
        (broken / "config.json").symlink_to(broken / "config.json")
        monkeypatch.chdir(tmp_path)
        result = CliRunner().invoke(app, ["predict", "a cat"])
        assert result.exit_code == 0, result.stderr
        assert "Using outputs/good/classifier" in result.stderr

    def test_with_trust_the_code_runs(self, folder, tmp_path):
        HOSTILE["code for an unknown type"](folder, tmp_path / "it-ran")
        command = ["predict", "-", "--trust-remote-code", "--model", str(folder)]
        assert CliRunner().invoke(app, command, input="a cat\n").exit_code == 1  # since that code makes no model
        assert (tmp_path / "it-ran").exists()


@pytest.mark.parametrize("damage", ["{", "[]", '{"metrics": 3}', json.dumps({"metrics": {}, "settings": 3}), "\x00"])
def test_a_result_beside_the_classifier_that_cannot_be_read_is_named(damage, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run" / "classifier")
    (tmp_path / "run" / "metrics.json").write_text(damage)
    (tmp_path / "data.csv").write_text("text,labels\n" + "a cat,label 0|label 1\na dog,label 2\n" * 6)
    command = ["evaluate", str(tmp_path / "data.csv"), "--model", str(tmp_path / "run")]
    result = CliRunner().invoke(app, command)
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert f"{tmp_path / 'run' / 'metrics.json'}, which says what the classifier was trained on" in result.stderr
    predicted = CliRunner().invoke(app, ["predict", "a cat", "--model", str(tmp_path / "run")])
    assert predicted.exit_code == 0  # it needs no more than the classifier
