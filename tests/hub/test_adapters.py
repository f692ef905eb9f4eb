"""A model with an adapter on the Hub: merged for everybody, or as it is saved."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel

from hf_mlcl import MLCLModel
from hub.hub_server import USER

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
