"""A model with an adapter on the Hub: merged for everybody, or as it is saved."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel

from hf_mlcl import MLCLModel
from hf_mlcl.data import load_tokenizer
from hf_mlcl.hub import export_encoder, export_onnx
from hf_mlcl.inference import Encoder
from hf_mlcl.models.adapters import lora
from hub.hub_server import USER
from models.tiny_backbones import folder_of_real

peft = pytest.importorskip("peft", reason="PEFT is an extra: pip install 'hf-mlcl[peft]'")


def test_pushed_it_is_merged_and_as_saved_the_adapter_alone_which_loads_exactly(server, tmp_path):
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(**sizes, intermediate_size=32), add_pooling_layer=False).save_pretrained(tmp_path / "base")
    lora = peft.LoraConfig(r=2, init_lora_weights=False)
    model = MLCLModel.from_backbone(tmp_path / "base", ["sport", "music"], peft_config=lora).eval()
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    with server.here(tmp_path / "cache"):
        model.push_to_hub("merged")
        plain = AutoModel.from_pretrained(f"{USER}/merged", add_pooling_layer=False)
        model.push_to_hub("adapted", as_saved=True)
        again = MLCLModel.from_pretrained(f"{USER}/adapted")
    files = server.repositories["model", f"{USER}/adapted"].files
    assert {"adapter_config.json", "adapter_model.safetensors", "heads.safetensors", "config.json"} <= files.keys()
    assert "model.safetensors" not in files
    with torch.no_grad():
        features = plain(ids).last_hidden_state[:, 0]
        torch.testing.assert_close(features, model(input_ids=ids).features, rtol=1e-5, atol=1e-5)
        assert torch.equal(again(input_ids=ids).embeddings, model(input_ids=ids).embeddings)


@pytest.mark.slow
def test_of_a_real_encoder_every_export_is_the_merged_model_to_a_millionth(tmp_path):
    """Of the largest feature. An adapter beside the weights differs by the rounding of its own sums, as much again."""
    sentence_transformers, onnxruntime = map(pytest.importorskip, ("sentence_transformers", "onnxruntime"))
    base = folder_of_real("real MiniLM", tmp_path / "base")
    tokenizer = load_tokenizer(base)
    model = MLCLModel.from_backbone(base, ["sport", "music"], peft_config=lora(16)).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)  # as large as a training makes it
    texts = ["boats and tides", "nothing but a much longer text about music, of all things", "a", "red and green"]
    expected = Encoder(model.merged(), tokenizer).features(texts)
    export_encoder(model, tmp_path / "plain", tokenizer)
    plain = AutoModel.from_pretrained(tmp_path / "plain").eval()
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    mask = batch["attention_mask"].unsqueeze(-1)
    session = onnxruntime.InferenceSession(export_onnx(model, tmp_path / "model.onnx"))
    with torch.no_grad():
        hidden = plain(**batch).last_hidden_state
        adapted = Encoder(model, tokenizer).features(texts)
    found = {
        "AutoModel": (hidden * mask).sum(1) / mask.sum(1),
        "SentenceTransformer": sentence_transformers.SentenceTransformer(str(tmp_path / "plain"), device="cpu").encode(
            texts, normalize_embeddings=False
        ),
        "ONNX": session.run(["features"], {key: batch[key].numpy() for key in ("input_ids", "attention_mask")})[0],
    }
    largest = float(expected.abs().max())
    for name, values in found.items():
        assert float((torch.as_tensor(values) - expected).abs().max()) < 1e-6 * largest, name
    assert float((adapted - expected).abs().max()) < 2e-6 * largest
    bare = Encoder(MLCLModel.from_backbone(base, ["sport", "music"]), tokenizer).features(texts)
    assert float((bare - expected).abs().max()) > 0.01 * largest
