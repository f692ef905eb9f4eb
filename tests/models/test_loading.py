"""Loading what others wrote: no code runs and no weight is drawn unless asked for, and fields are what they say."""

from __future__ import annotations

import ast
import json
import sys
import warnings
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    BertModel,
    TimmWrapperConfig,
    pipeline,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING

import hf_mlcl
from hf_mlcl import MLCLConfig, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.data import load_tokenizer
from hf_mlcl.experiments import ExperimentArguments, inputs
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.inference import Encoder, ExampleIndex
from hf_mlcl.models import FeatureBackboneConfig, loading
from models import saved

SOURCES = Path(hf_mlcl.__file__).parent


# Code -----------------------------------------------------------------------------------------------------------------


def test_every_load_in_the_package_says_whether_code_may_run():
    """But for our own models, whose ``from_pretrained`` never asks."""
    silent = []
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            function = ast.unparse(node.func)
            ours = function.startswith(("MLCL", "Encoder", "super()", "PreTrainedConfig"))
            loads = function.endswith((".from_pretrained", ".from_config")) or function == "pipeline"
            if loads and not ours and "trust_remote_code" not in {keyword.arg for keyword in node.keywords}:
                silent.append(f"{path.relative_to(SOURCES)}:{node.lineno} {function}")
    assert not silent


class TestCodeOfABackbone:
    @pytest.fixture(autouse=True)
    def nothing_is_known_from_before(self, monkeypatch, tmp_path):
        monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
        monkeypatch.setattr("builtins.input", lambda *_: "y")
        monkeypatch.setattr("sys.path", list(sys.path))
        yield
        self.forget()

    @staticmethod
    def forget():
        """As a new process would know it."""
        kind = CONFIG_MAPPING._extra_content.pop("new-kind", None)
        MODEL_MAPPING._extra_content.pop(kind, None)
        for name in [name for name in sys.modules if name.startswith("transformers_modules")]:
            del sys.modules[name]

    @pytest.fixture
    def marker(self, tmp_path):
        return tmp_path / "it-ran"

    @pytest.fixture
    def folder(self, tmp_path, marker):
        return saved.save_backbone_with_code(tmp_path / "backbone", marker)

    @pytest.mark.parametrize("pretrained", [True, False])
    def test_it_does_not_run_and_nobody_is_asked(self, folder, marker, pretrained):
        with pytest.raises(ValueError, match=r"could not be loaded.*trust_remote_code=True"):
            MLCLModel.from_backbone(folder, ["a", "b"], pretrained=pretrained)
        with pytest.raises(ValueError, match="trust_remote_code"):
            inputs._from_backbone(str(folder), ["a"], ExperimentArguments())
        assert not marker.exists()

    def test_code_of_a_tokenizer_does_not_run(self, folder, marker):
        saved.change_json(
            folder / "tokenizer_config.json", auto_map={"AutoTokenizer": [None, "code.X"]}, tokenizer_class="X"
        )
        with pytest.raises(ValueError, match="trust_remote_code"):
            load_tokenizer(folder)
        assert not marker.exists()

    def test_with_trust_it_is_trained_saved_and_loaded_again(self, folder, marker, tmp_path):
        arguments = ExperimentArguments(trust_remote_code=True)
        model = inputs._from_backbone(str(folder), ["a", "b"], arguments).eval()
        assert marker.exists()
        assert type(model.backbone).__name__ == "NewModel"
        words = load_tokenizer(folder, trust_remote_code=True)
        batch = words(["a red cat"], return_tensors="pt")
        expected = model(**batch).features
        classifier = MLCLForSequenceClassification.from_encoder(model, torch.ones(1, 2, 16), torch.zeros(1, 2))
        for part, where in ((model, tmp_path / "encoder"), (classifier, tmp_path / "classifier")):
            part.save_pretrained(where)
            words.save_pretrained(where)
        marker.unlink()
        self.forget()
        with pytest.raises(ValueError, match=r"model type 'new-kind'.*trust_remote_code=True"):
            MLCLModel.from_pretrained(tmp_path / "encoder")
        with pytest.raises(ValueError, match=r"needs Python code.*--trust_remote_code"):
            Predictor(tmp_path / "classifier")
        assert not marker.exists()
        again = Encoder.from_pretrained(tmp_path / "encoder", trust_remote_code=True)
        assert marker.exists()
        torch.testing.assert_close(again.features("a red cat"), expected.detach())
        self.forget()
        assert Predictor(tmp_path / "classifier", trust_remote_code=True).probabilities(["a red cat"]).shape == (1, 2)

    def test_code_under_the_name_of_a_model_of_transformers_is_refused(self, tmp_path, marker):
        folder = saved.save_backbone_with_code(tmp_path / "as-bert", marker, kind="bert")
        with pytest.raises(ValueError, match="redefines 'bert'"):
            MLCLModel.from_backbone(folder, ["a"], trust_remote_code=True)

    def test_without_trust_a_known_type_is_loaded_with_the_code_of_transformers(self, tmp_path, marker):
        folder = saved.save_backbone_with_code(tmp_path / "as-bert", marker, kind="bert")
        model = MLCLModel.from_backbone(folder, ["a"])
        assert type(model.backbone) is BertModel
        assert not hasattr(model.config.backbone_config, "auto_map")
        assert not marker.exists()


@pytest.mark.parametrize(
    ("architecture", "arguments", "message"),
    [
        ("hf-hub:somebody/model", None, "architecture must be the name of a timm model"),
        ("test_resnet", {"checkpoint_path": "weights.pth"}, "model_args must describe the architecture only"),
    ],
)
def test_a_timm_backbone_that_would_open_files_is_refused(architecture, arguments, message):
    backbone = TimmWrapperConfig(architecture=architecture, model_args=arguments)
    with pytest.raises(StrictDataclassError, match=message):
        MLCLConfig(backbone_config=backbone, num_labels=2)


@pytest.mark.parametrize("key", ["_attn_implementation", "attn_implementation"])
def test_attention_of_somebodys_repository_is_refused_unless_trusted(key, tmp_path):
    folders = {"classifier": saved.save_classifier(tmp_path / "classifier"), "backbone": tmp_path / "backbone"}
    BertModel(saved.backbone_config()).save_pretrained(folders["backbone"])
    for name, folder in folders.items():
        config = json.loads((folder / "config.json").read_text())
        (config if name == "backbone" else config["backbone_config"])[key] = "owner/kernel"
        (folder / "config.json").write_text(json.dumps(config))
    for call in (
        lambda: Predictor(folders["classifier"]),
        lambda: MLCLForSequenceClassification.from_pretrained(folders["classifier"]),
        lambda: MLCLModel.from_backbone(folders["backbone"], ["a", "b"]),
    ):
        with pytest.raises(ValueError, match=r"needs code of 'owner/kernel'.*trust_remote_code=True"):
            call()
    assert loading.load(AutoConfig, folders["backbone"], trust_remote_code=True).model_type == "bert"


# Weights --------------------------------------------------------------------------------------------------------------

DAMAGES = {
    "no heads": (saved.without("heads."), "heads.bias, heads.weight missing"),
    "no layer": (saved.without("backbone.encoder.layer.0."), r"backbone\.encoder\.layer\.0.* and \d+ more missing"),
    "another size": (saved.of_another_size("heads.bias"), r"heads.bias \[2, 3\] for \[1, 3\] of another size"),
    "another weight": (saved.with_another, "other.weight not of this model"),
}


class TestDamagedWeights:
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_they_are_named_wherever_a_classifier_is_loaded(self, damage, tmp_path):
        change, message = DAMAGES[damage]
        saved.change_weights(saved.save_classifier(tmp_path), change)
        for load in (
            MLCLForSequenceClassification.from_pretrained,
            AutoModelForSequenceClassification.from_pretrained,
            Predictor,
            lambda folder: pipeline("multilabel-text-classification", model=str(folder)),
        ):
            with pytest.raises(ValueError, match=message):
                load(tmp_path)

    def test_they_are_named_where_an_encoder_is_loaded(self, tmp_path):
        saved.change_weights(saved.save_encoder(tmp_path), saved.without("projection."))
        for load in (MLCLModel.from_pretrained, AutoModel.from_pretrained, Encoder.from_pretrained):
            with pytest.raises(ValueError, match=r"projection\.hidden\.weight, projection\.out\.weight missing"):
                load(tmp_path)

    def test_a_classifier_of_another_library_must_be_whole_too(self, tmp_path):
        BertForSequenceClassification(saved.backbone_config(num_labels=3)).save_pretrained(tmp_path)
        saved.tokenizer().save_pretrained(tmp_path)
        saved.change_weights(tmp_path, saved.with_another)  # often there are more weights, and no harm done
        assert Predictor(tmp_path).probabilities(["a cat"]).shape == (1, 3)
        saved.change_weights(tmp_path, saved.without("classifier."))
        with pytest.raises(ValueError, match=r"classifier\.bias, classifier\.weight missing"):
            Predictor(tmp_path)

    def test_weights_that_are_no_numbers_are_refused(self, tmp_path):
        saved.change_weights(saved.save_classifier(tmp_path), saved.with_nan)
        with pytest.raises(ValueError, match=r"NaN or infinite values \(heads\.weight\)"):
            Predictor(tmp_path)
        classify = pipeline("multilabel-text-classification", model=str(tmp_path))
        with pytest.raises(ValueError, match="scores of the model are not finite"):
            classify("a cat")

    def test_features_that_are_no_numbers_are_refused(self, tmp_path):
        model = saved.text_encoder()
        with torch.no_grad():
            model.backbone.embeddings.word_embeddings.weight.mul_(float("nan"))
        with pytest.raises(ValueError, match="features of 1 of 1 inputs are not finite"):
            Encoder(model, saved.tokenizer()).features("a cat")
        model.save_pretrained(tmp_path)
        saved.tokenizer().save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="NaN or infinite"):
            Encoder.from_pretrained(tmp_path)

    @pytest.mark.parametrize("kept", [0, 4, 300])
    def test_a_file_that_was_not_written_to_its_end_is_named(self, kept, tmp_path):
        for folder, load in (
            (saved.save_classifier(tmp_path / "classifier"), MLCLForSequenceClassification.from_pretrained),
            (saved.save_classifier(tmp_path / "predicted"), Predictor),
            (saved.save_encoder(tmp_path / "encoder"), Encoder.from_pretrained),
            (self.backbone(tmp_path / "backbone"), lambda folder: MLCLModel.from_backbone(folder, ["a"])),
        ):
            file = folder / "model.safetensors"
            file.write_bytes(file.read_bytes()[:kept])
            with pytest.raises(ValueError, match=f"{file} cannot be read"):
                load(folder)
        (tmp_path / "index.safetensors").write_bytes(file.read_bytes()[:kept])
        with pytest.raises(ValueError, match=r"index\.safetensors cannot be read"):
            ExampleIndex.load(tmp_path / "index.safetensors")

    @staticmethod
    def backbone(folder):
        BertModel(saved.backbone_config()).save_pretrained(folder)
        return folder

    def test_what_is_asked_for_anew_may_be_missing_or_of_another_size(self, tmp_path):
        saved.save_encoder(tmp_path)
        assert MLCLModel.from_pretrained(tmp_path, classifier=True).classifier.weight.isfinite().all()
        other = MLCLModel.from_pretrained(tmp_path, num_labels=5, ignore_mismatched_sizes=True)
        assert other.prototypes.weight.shape == (5, 8)
        model, found = MLCLModel.from_pretrained(tmp_path, output_loading_info=True)
        assert type(model) is MLCLModel
        assert not found["missing_keys"]

    def test_a_backbone_that_lacks_weights_is_told_but_taken(self, tmp_path, caplog):
        saved.change_weights(self.backbone(tmp_path), saved.without("encoder.layer.0.output"))
        MLCLModel.from_backbone(tmp_path, ["a", "b"])
        assert any("encoder.layer.0.output" in r.getMessage() for r in caplog.records if r.name.startswith("hf_mlcl"))


def test_large_logits_give_probabilities_without_a_warning(tmp_path):
    saved.save_classifier(tmp_path, scale=1e4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        probabilities = Predictor(tmp_path).probabilities(["a red cat"])[0]
        found = pipeline("multilabel-text-classification", model=str(tmp_path), device="cpu")("a red cat")
    assert set(probabilities.tolist()) <= {0.0, 1.0}
    assert sorted(one["label"] for one in found) == [f"label {i}" for i in range(3) if probabilities[i] >= 0.5]


# Fields of configurations ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"pooling": "max"}, "pooling must be one of first, mean, last, pooled, but is 'max'"),
        ({"pooling": None}, "pooling must be one of first, mean, last, pooled, but is None"),
        ({"projection_dim": -3}, "projection_dim must be a whole number of at least 1, but is -3"),
        ({"projection_dim": "abc"}, "projection_dim must be a whole number of at least 1, but is 'abc'"),
        ({"projection_dim": 2.5}, "projection_dim must be a whole number"),
        ({"projection_dim": True}, "projection_dim must be a whole number"),
        ({"num_heads": 0}, "num_heads must be a whole number of at least 1, but is 0"),
        ({"classifier": "yes"}, "classifier must be True or False, but is 'yes'"),
        ({"thresholds": "abc"}, "thresholds must be a list of one number per label, or None; got 'abc'"),
        ({"thresholds": [0.5, None]}, "thresholds must be one number or a list of one per label"),
        ({"thresholds": [0.5]}, "one number for each of the 2 labels, but has 1"),
        ({"thresholds": [0.5, 2]}, "between 0 and 1, but one is 2"),
        ({"logit_temperature": "1"}, r"logit_temperature\) must be a positive number, but is '1'"),
        ({"logit_temperature": 0}, r"logit_temperature\) must be a positive number, but is 0"),
        ({"backbone_config": 3}, "backbone_config must be a configuration or its dictionary, but is 3"),
        ({"backbone_config": {"model_type": "no-such"}}, "model type 'no-such', which transformers does not know"),
        ({"backbone_config": {"model_type": ["bert"]}}, r"model type \['bert'\]"),
        ({"id2label": {0: "a", 2: "b"}}, "id2label must have the ids from 0 on"),
        ({"id2label": {0: "a", 1: "a"}}, "two labels of one name"),
        ({"id2label": {0: "a", 1: None}, "label2id": {}}, "id2label"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_may_be(wrong, message):
    settings = {"num_labels": 2, **wrong} if "id2label" not in wrong else wrong
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        MLCLConfig(**settings)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"feature_dim": 0}, "feature_dim must be a whole number of at least 1, but is 0"),
        ({"num_layers": -1}, "num_layers must be a whole number of at least 0, but is -1"),
        ({"dropout": 1.0}, "dropout must be a number from 0 to below 1, but is 1.0"),
        ({"dropout": "much"}, "dropout must be a number"),
    ],
)
def test_a_wrong_field_of_a_feature_backbone_is_named(wrong, message):
    with pytest.raises(StrictDataclassError, match=message):
        FeatureBackboneConfig(**wrong)


# Backbones as objects -------------------------------------------------------------------------------------------------


class TestGivenBackbone:
    @pytest.mark.parametrize("pooler", [True, False])
    def test_it_is_wrapped_as_it_is_and_survives_saving(self, pooler, tmp_path):
        torch.manual_seed(0)
        backbone = BertModel(saved.backbone_config(), add_pooling_layer=pooler).eval()
        model = MLCLModel.from_backbone(backbone, ["a", "b"]).eval()
        assert model.backbone is backbone
        batch = saved.tokenizer()(["a red cat"], return_tensors="pt")
        torch.testing.assert_close(model(**batch).features, backbone(**batch).last_hidden_state[:, 0])
        model.save_pretrained(tmp_path)
        torch.testing.assert_close(MLCLModel.from_pretrained(tmp_path)(**batch).features, model(**batch).features)
        classifier = MLCLForSequenceClassification.from_encoder(model, torch.ones(1, 2, 16), torch.zeros(1, 2))
        expected = model(**batch).features.sum(1, keepdim=True).expand(1, 2)
        torch.testing.assert_close(classifier(**batch).logits, expected)

    @pytest.mark.parametrize(
        ("given", "settings", "message"),
        [
            (lambda: torch.nn.Linear(2, 2), {}, "name must be a Hub id, .*; got Linear"),
            (lambda: 3, {}, "got int"),
            (
                lambda: BertForSequenceClassification(saved.backbone_config()),
                {},
                r"Give the encoder .*model\.base_model",
            ),
            (saved.text_encoder, {}, r"of an MLCLModel, model\.backbone"),
            (lambda: BertModel(saved.backbone_config()), {"pretrained": False}, "got pretrained as well"),
            (lambda: BertModel(saved.backbone_config()), {"revision": "x"}, "got revision as well"),
        ],
    )
    def test_what_is_no_backbone_is_refused(self, given, settings, message):
        with pytest.raises(ValueError, match=message):
            MLCLModel.from_backbone(given(), ["a", "b"], **settings)
