"""`export_model` and the file of code that goes along: what is written, and what is refused."""

from __future__ import annotations

import ast
import json

import numpy as np
import pytest
import torch
from transformers import BertConfig, GPT2Config

from hf_mlcl import MLCLConfig, MLCLForSequenceClassification, MLCLModel
from hf_mlcl.data import image_processor, word_tokenizer
from hf_mlcl.hub import export_classifier, export_model, modeling_mlcl, push_folder
from hf_mlcl.hub.exporting import CODE
from hub.cases import NAMES, SMALL, labelled
from hub.hub_server import USER

TEXTS = ["red and green", "nothing but a longer text about blue and red"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder as a training leaves it: an encoder and a classifier of texts."""
    torch.manual_seed(0)
    folder, tokenizer = tmp_path_factory.mktemp("runs") / "colours", word_tokenizer(TEXTS)
    backbone = BertConfig(vocab_size=len(tokenizer), pad_token_id=0, **SMALL)
    encoder = MLCLModel(MLCLConfig(backbone_config=backbone, pooling="mean", **labelled()))
    classifier = MLCLForSequenceClassification.from_encoder(encoder, torch.randn(2, 3, 16), torch.randn(2, 3))
    classifier.calibrate([0.1, 0.2, 0.3], temperature=1.5)
    for name, model in (("encoder", encoder), ("classifier", classifier)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    (folder / "classifier" / "README.md").write_text(CARD)
    return folder


CARD = """---
library_name: transformers
license: mit
tags:
- mine
---

# Colours

Written by hand.

## How to use it

Ask me.

## Data

My own.
"""


def test_the_file_that_goes_along_is_short_and_needs_torch_and_transformers_only():
    source = CODE.read_text()
    assert len(source.splitlines()) <= 150
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported == {"__future__", "inspect", "typing", "torch", "transformers"}


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_last_token_is_found_with_padding_on_either_side(side):
    config = modeling_mlcl.MLCLConfig(BertConfig(vocab_size=9, **SMALL), "last", feature_size=16, num_labels=2)
    model = modeling_mlcl.MLCLForSequenceClassification(config)
    hidden = torch.arange(8.0).view(2, 4, 1)
    mask = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]] if side == "left" else [[1, 1, 0, 0], [1, 1, 1, 0]])
    output = type("Output", (), {"last_hidden_state": hidden})
    assert model._represent(output, mask).flatten().tolist() == ([3, 7] if side == "left" else [1, 6])


def test_a_decoder_counts_positions_from_its_first_token_whichever_side_is_padded(tmp_path):
    """GPT-2 alone would count padding, and give a text padded on the left other features than the text itself."""
    torch.manual_seed(0)
    backbone = GPT2Config(vocab_size=30, n_embd=16, n_layer=1, n_head=2)
    encoder = MLCLModel(MLCLConfig(backbone_config=backbone, pooling="last", **labelled()))
    ours = MLCLForSequenceClassification.from_encoder(encoder, torch.randn(1, 3, 16), torch.randn(1, 3)).eval()
    export_classifier(ours, tmp_path)
    theirs = modeling_mlcl.MLCLForSequenceClassification.from_pretrained(tmp_path).eval()
    alone = theirs(torch.tensor([[5, 6, 7]]), torch.ones(1, 3)).logits
    for ids, mask in (([[0, 0, 5, 6, 7]], [[0, 0, 1, 1, 1]]), ([[5, 6, 7, 0, 0]], [[1, 1, 1, 0, 0]])):
        padded = torch.tensor(ids), torch.tensor(mask)
        torch.testing.assert_close(theirs(*padded).logits, alone, atol=1e-5, rtol=0)
        torch.testing.assert_close(ours(*padded).logits, alone, atol=1e-5, rtol=0)


def test_a_card_keeps_what_its_owner_wrote_and_gets_the_lines_for_what_was_written(run, tmp_path):
    content = (export_model(run, tmp_path / "out") / "README.md").read_text()
    assert "Written by hand." in content
    assert "My own." in content
    assert "license: mit" in content
    assert "- mine" in content
    assert "- custom_code" in content
    assert "pipeline_tag: text-classification" in content
    assert "Ask me." not in content
    assert "trust_remote_code=True" in content


def test_a_graph_lies_where_others_look_for_it_and_has_the_outputs_they_ask_for(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs hf-mlcl[onnx]")
    from transformers import AutoConfig, AutoTokenizer

    folder = export_model(run, tmp_path / "classifier", "onnx")
    config = AutoConfig.from_pretrained(folder)
    assert config.model_type == "bert", "a type that libraries know"
    assert config.id2label == dict(enumerate(NAMES))
    ours = MLCLForSequenceClassification.from_pretrained(run / "classifier").eval()
    assert config.thresholds == ours.config.thresholds
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
    tokens = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="np")
    (logits,) = session.run(["logits"], {item.name: tokens[item.name] for item in session.get_inputs()})
    with torch.no_grad():
        expected = ours(**{name: torch.from_numpy(tokens[name]) for name in ("input_ids", "attention_mask")}).logits
    assert np.abs(logits - expected.numpy()).max() < 1e-4
    assert session.get_outputs()[0].name == "logits", "which optimum reads"
    assert "pipeline_tag: text-classification" in (folder / "README.md").read_text()


def test_an_encoders_graph_has_the_states_that_sentence_transformers_pools(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs hf-mlcl[onnx]")
    folder = export_model(run / "encoder", tmp_path / "encoder", "onnx")
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
    assert session.get_outputs()[0].name == "last_hidden_state"
    assert json.loads((folder / "1_Pooling" / "config.json").read_text())["pooling_mode_mean_tokens"]
    assert (folder / "modules.json").is_file()
    assert "# encoder" in (folder / "README.md").read_text()


def test_what_another_library_cannot_have_is_refused_with_the_way_out(run, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match=r"is a classifier, and sentence-transformers loads encoders.*MODEL/encoder"):
        export_model(run / "classifier", out, "sentence-transformers")
    with pytest.raises(ValueError, match=r"is BertModel, no model of timm\. Use transformers or onnx"):
        export_model(run, out, "timm")
    with pytest.raises(ValueError, match=r"no library to export to, 'keras'\. Known, nearest first: transformers"):
        export_model(run, out, "keras")
    MLCLModel.from_pretrained(run / "encoder").save_backbone(tmp_path / "plain")
    with pytest.raises(ValueError, match="it is what others load already"):
        export_model(tmp_path / "plain", out)
    with pytest.raises(ValueError, match="cannot be exported"):
        export_model(tmp_path, out)
    images = MLCLModel.from_backbone("test_resnet", NAMES, pretrained=False)
    images.save_pretrained(tmp_path / "images")
    with pytest.raises(ValueError, match=r"a model of images, and sentence-transformers .* Use timm"):
        export_model(tmp_path / "images", out, "sentence-transformers")
    assert not out.exists()


def test_a_push_sends_the_plain_form_unless_told_otherwise(run, server, tmp_path):
    with server.here(tmp_path / "cache"):
        push_folder(run / "classifier", "plain")
        push_folder(run / "classifier", "own", as_saved=True)
        push_folder(run / "encoder", "encoder")
    files = {name: server.repositories["model", f"{USER}/{name}"].files for name in ("plain", "own", "encoder")}
    assert "modeling_mlcl.py" in files["plain"]
    assert f"{USER}/plain".encode() in files["plain"]["README.md"]
    assert "modeling_mlcl.py" not in files["own"]
    assert files["own"]["README.md"].decode() == CARD
    assert {"modules.json", "prototypes.safetensors", "README.md"} <= files["encoder"].keys()
    assert (run / "classifier" / "README.md").read_text() == CARD, "at home, nothing changes"


def test_models_of_features_are_pushed_as_they_are(server, tmp_path):
    MLCLModel.from_features(4, NAMES).save_pretrained(tmp_path / "vectors")
    with server.here(tmp_path / "cache"):
        push_folder(tmp_path / "vectors", "vectors")
    sent = json.loads(server.repositories["model", f"{USER}/vectors"].files["config.json"])
    assert sent["model_type"] == "mlcl"


def test_an_exported_encoder_that_lost_a_part_is_refused(run, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = export_model(run / "encoder", tmp_path / "out")
    assert MLCLModel.from_pretrained(folder).config.pooling == "mean"
    file = folder / "prototypes.safetensors"
    tensors = load_file(file)
    del tensors["projection_out"]
    save_file(tensors, file, {"labels": json.dumps(NAMES), "config": "{}"})
    with pytest.raises(ValueError, match=r"do not fit.*projection\.out\.weight missing"):
        MLCLModel.from_pretrained(folder)


def test_image_processors_go_along(tmp_path):
    MLCLModel.from_backbone("test_resnet", NAMES, pretrained=False).save_pretrained(tmp_path / "images")
    image_processor(32).save_pretrained(tmp_path / "images")
    assert (export_model(tmp_path / "images", tmp_path / "out", "timm") / "preprocessor_config.json").is_file()
