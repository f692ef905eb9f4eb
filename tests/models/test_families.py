"""What each family of backbones is: its inputs, its pooling, and what of it is refused."""

from __future__ import annotations

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoModel, BertConfig, BertModel, Gemma3TextConfig, GPT2Config, SwinConfig, XLNetConfig
from transformers.modeling_outputs import BaseModelOutput

from hf_mlcl import MLCLConfig, MLCLModel
from hf_mlcl.data import load_tokenizer
from hf_mlcl.inference import Encoder
from hf_mlcl.models.families import auto_pooling, is_causal, reads, represent
from models.tiny_backbones import (
    ALL,
    DECODERS,
    ENCODERS,
    END,
    IMAGES,
    PAIRS,
    VOCABULARY,
    WORDS,
    folder_of,
    sentence_files,
    tokenizer,
)

POOLING = {
    **dict.fromkeys(DECODERS, "last"),
    "BERT": "first",
    "RoBERTa": "first",
    "MPNet": "mean",
    "ModernBERT": "mean",
    **dict.fromkeys(IMAGES, "pooled"),
    "ViT": "first",
    **dict.fromkeys(PAIRS, "pooled"),
}


@pytest.mark.parametrize("name", ALL)
def test_pooling_and_inputs_follow_from_the_architecture(name):
    config = ALL[name]()
    assert auto_pooling(config) == POOLING[name]
    assert is_causal(config) == (name in DECODERS)
    assert reads(config) == (("text", "image") if name in PAIRS else ("image",) if name in IMAGES else ("text",))
    assert MLCLConfig(backbone_config=config, num_labels=2).pooling == POOLING[name]


def test_what_can_look_in_both_directions_is_not_causal():
    assert is_causal(Gemma3TextConfig())
    assert not is_causal(Gemma3TextConfig(use_bidirectional_attention=True))
    assert is_causal(BertConfig(is_decoder=True))
    assert not is_causal(BertConfig())
    assert not is_causal(XLNetConfig())
    assert auto_pooling(XLNetConfig()) == "last"


@pytest.mark.parametrize("name", ["GPT-2", "Qwen3"])
def test_a_causal_backbone_refuses_its_first_token_wherever_it_is_asked_for(name, tmp_path):
    """It sees nothing of the text; the weights need not be read to know it."""
    message = "sees nothing of the text: every text would get the same vector"
    with pytest.raises(ValueError, match=message):
        MLCLModel.from_backbone(folder_of(name, tmp_path), ["a", "b"], pooling="first")
    with pytest.raises(ValueError, match=message):
        MLCLModel.from_backbone(AutoModel.from_config(ALL[name]()), ["a", "b"], pooling="first")
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        MLCLConfig(backbone_config=ALL[name](), num_labels=2, pooling="first")


@pytest.mark.parametrize("name", ["Swin", "SigLIP images", "ConvNeXtV2", "ResNet"])
def test_the_corner_of_an_image_is_no_token_to_read(name):
    with pytest.raises(ValueError, match="would take a corner of the image for the whole"):
        MLCLModel.from_backbone(AutoModel.from_config(ALL[name]()), ["a", "b"], pooling="first")


@pytest.mark.parametrize("name", ["resnet10t", "CLIP"])
def test_a_pooling_that_would_do_nothing_is_refused(name):
    backbone = AutoModel.from_config(ALL[name]()) if name in ALL else name
    with pytest.raises(ValueError, match="gives one vector by itself"):
        MLCLModel.from_backbone(backbone, ["a", "b"], pooling="mean", **({} if name in ALL else {"pretrained": False}))


def test_the_last_token_is_found_whichever_side_is_padded():
    hidden = torch.arange(24.0).view(2, 4, 3)
    right, left = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]), torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    outputs = BaseModelOutput(last_hidden_state=hidden)
    assert torch.equal(represent(outputs, right, "last"), hidden[[0, 1], [1, 3]])
    assert torch.equal(represent(outputs, left, "last"), hidden[[0, 1], [3, 3]])
    assert torch.equal(represent(outputs, None, "last"), hidden[:, -1])


@pytest.mark.parametrize("name", DECODERS)
def test_features_of_a_decoder_do_not_depend_on_padding_or_its_side(name):
    """Against each text alone, whose last token needs no search. GPT-2 would count padding as positions."""
    torch.manual_seed(0)
    model = MLCLModel(MLCLConfig(backbone_config=DECODERS[name](), num_labels=2, projection_dim=4)).eval()
    texts = [[2, 5, 6, 7, 3], [2, 8, 3], [2, 9, 10, 3]]
    with torch.no_grad():
        alone = [model.backbone(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] for ids in texts]
        for side in ("right", "left"):
            fill = [[0] * (5 - len(ids)) for ids in texts]
            rows = [ids + more if side == "right" else more + ids for ids, more in zip(texts, fill, strict=True)]
            ids = torch.tensor(rows)
            found = model(input_ids=ids, attention_mask=(ids != 0).long()).features
            torch.testing.assert_close(found, torch.stack(alone), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_tells_texts_apart(name):
    torch.manual_seed(0)
    model = MLCLModel(MLCLConfig(backbone_config=DECODERS[name](), num_labels=2, projection_dim=4))
    words = tokenizer()
    random = torch.Generator().manual_seed(0)
    texts = [" ".join(WORDS[i] for i in torch.randint(len(WORDS), (8,), generator=random)) for _ in range(50)]
    features = Encoder(model, words).features(texts)
    assert float(features.std(0).mean()) > 1e-3


def test_pooled_is_what_the_class_itself_pools(tmp_path):
    """With the weights of its pooler, which other poolings leave out."""
    torch.manual_seed(0)
    whole = BertModel(ENCODERS["BERT"]()).eval()
    whole.save_pretrained(tmp_path / "bert")
    model = MLCLModel.from_backbone(tmp_path / "bert", ["a", "b"], pooling="pooled").eval()
    model.save_pretrained(tmp_path / "model")
    ids = torch.randint(4, VOCABULARY, (3, 6))
    with torch.no_grad():
        expected = whole(input_ids=ids).pooler_output
        for found in (model, MLCLModel.from_pretrained(tmp_path / "model").eval()):
            torch.testing.assert_close(found(input_ids=ids).features, expected)
    without = MLCLModel.from_backbone(tmp_path / "bert", ["a", "b"])
    assert without.config.pooling == "first"
    assert without.backbone.pooler is None
    with pytest.raises(ValueError, match="pools nothing by itself"):
        MLCLModel(MLCLConfig(backbone_config=GPT2Config(n_embd=8, n_layer=1, n_head=1), pooling="pooled"))(ids)


def test_configurations_saved_with_a_concrete_pooling_keep_it(tmp_path):
    config = MLCLConfig(backbone_config=SwinConfig(), num_labels=2, pooling="first")  # as models were trained before
    config.save_pretrained(tmp_path)
    assert MLCLConfig.from_pretrained(tmp_path).pooling == "first"


class TestSentenceTransformersFiles:
    def test_the_folder_of_the_pooling_is_the_one_that_modules_name(self, tmp_path):
        folder_of("Qwen3", tmp_path)
        sentence_files(tmp_path, {"pooling_mode_mean_tokens": True}, path="7_Pool")
        assert MLCLModel.from_backbone(tmp_path, ["a", "b"]).config.pooling == "mean"
        loaded = AutoModel.from_pretrained(tmp_path)  # which remembers where it is from
        assert MLCLModel.from_backbone(loaded, ["a", "b"]).config.pooling == "mean"

    @pytest.mark.parametrize(
        ("stated", "asked", "begins_with"),
        [
            ({"prompts": {"query": "query: ", "other": "the "}, "default_prompt_name": "query"}, None, ["query", ":"]),
            ({"prompts": {"Classification": "the ", "query": "query: "}, "default_prompt_name": None}, None, ["the"]),
            ({"prompts": {"query": "query: "}, "default_prompt_name": None}, None, []),
            ({"prompts": {"query": "query: "}, "default_prompt_name": None}, "query", ["query", ":"]),
            ({"prompts": {"query": "query: "}, "default_prompt_name": "query"}, "", []),
            ({}, "about: ", ["about", ":"]),
            ({}, None, []),
        ],
    )
    def test_prompts_are_built_into_the_tokenizer_and_saved_with_it(self, stated, asked, begins_with, tmp_path):
        folder_of("Qwen3", tmp_path / "model")
        sentence_files(tmp_path / "model", {"pooling_mode_lasttoken": True}, prompts=stated)
        found = load_tokenizer(tmp_path / "model", prompt=asked)
        found.save_pretrained(tmp_path / "saved")
        expected = [*begins_with, "red", "green"]
        for each in (found, load_tokenizer(tmp_path / "saved")):
            assert each.tokenize("red green") == expected
            assert each.convert_ids_to_tokens(each("red green")["input_ids"]) == ["<s>", *expected, "</s>"]

    def test_what_cannot_be_a_prompt_is_refused(self, tmp_path):
        with pytest.raises(ValueError, match="holds the special token '</s>'"):
            load_tokenizer(folder_of("Qwen3", tmp_path), prompt="x</s>")


def test_a_decoder_without_a_token_to_pad_with_takes_the_one_that_ends_texts(tmp_path):
    folder_of("GPT-2", tmp_path)
    found = load_tokenizer(tmp_path)
    assert found.pad_token_id == END
    model = MLCLModel.from_backbone(tmp_path, ["a", "b"]).eval()
    assert model.get_input_embeddings().num_embeddings == VOCABULARY  # no row was added
    one, two = Encoder(model, found).features(["red"]), Encoder(model, found).features(["red", "green blue red"])
    torch.testing.assert_close(one[0], two[0], atol=1e-5, rtol=1e-5)
