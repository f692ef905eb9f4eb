"""The encoder: shapes, initialisation, saving and loading, chunked encoding."""

from __future__ import annotations

import pytest
import torch
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    CLIPConfig,
    DebertaV2Config,
    DistilBertConfig,
    ModernBertConfig,
    MPNetConfig,
    RobertaConfig,
)

from copies import Copy, all_went_well
from hf_mlcl import MLCLConfig, MLCLModel
from training.tiny import image_model, roberta_model, text_model

SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TEXT_CONFIGS = {
    "bert": BertConfig(**SMALL),
    "roberta": RobertaConfig(**SMALL),
    "mpnet": MPNetConfig(**SMALL),
    "deberta": DebertaV2Config(**SMALL),
    "modernbert": ModernBertConfig(
        **SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
    "distilbert": DistilBertConfig(vocab_size=60, dim=16, n_layers=1, n_heads=2, hidden_dim=32),
}
IDS = {
    "input_ids": torch.randint(5, 60, (3, 7)),
    "attention_mask": torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] * 6 + [0]]),
}


@pytest.mark.parametrize("name", TEXT_CONFIGS)
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_any_text_encoder_gives_features_embeddings_and_prototypes(name, pooling):
    model = MLCLModel(
        MLCLConfig(backbone_config=TEXT_CONFIGS[name], num_labels=5, projection_dim=8, pooling=pooling)
    ).eval()
    output = model(**IDS)
    assert output.features.shape == (3, 16)
    assert output.embeddings.shape == (3, 8)
    assert output.prototypes.shape == (5, 8)
    assert output.logits is None
    hidden = model.backbone(**IDS).last_hidden_state
    expected = (
        hidden[:, 0]
        if pooling == "first"
        else torch.stack([h[m.bool()].mean(0) for h, m in zip(hidden, IDS["attention_mask"], strict=True)])
    )
    assert torch.allclose(output.features, expected, atol=1e-6)
    loss = output.embeddings.sum() + output.prototypes.sum()
    loss.backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without, "every parameter takes part, so that several devices can train it"


@pytest.mark.parametrize(
    ("name", "hidden"), [("resnet10t", 512), ("mobilenetv3_small_050", 1024), ("vit_tiny_patch16_224", 192)]
)
def test_any_timm_model_gives_pooled_features(name, hidden):
    model = MLCLModel.from_backbone(name, ["a", "b"], pretrained=False).eval()
    size = 224 if name.startswith("vit") else 64
    assert model(pixel_values=torch.randn(2, 3, size, size)).features.shape == (2, hidden)


@pytest.mark.parametrize(("name", "channels_last"), [("mobilenetv3_small_050", True), ("test_vit", False)])
def test_convolutional_networks_get_channels_last_on_cpus_with_the_features_and_weights_as_they_were(
    name, channels_last
):
    model = MLCLModel.from_backbone(name, ["a"], pretrained=False).eval()
    layouts = {key: weight.stride() for key, weight in model.state_dict().items()}
    seen = []
    model.backbone.register_forward_pre_hook(
        lambda backbone, args, inputs: seen.append(inputs["pixel_values"]), with_kwargs=True
    )
    pixels = torch.randn(2, 3, 160, 160)
    with torch.no_grad():
        features = model(pixel_values=pixels).features
        expected = model.backbone(pixel_values=pixels).pooler_output
    assert seen[0].is_contiguous(memory_format=torch.channels_last) == channels_last
    assert seen[1].is_contiguous()
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    assert layouts == {key: weight.stride() for key, weight in model.state_dict().items()}


def test_new_parameters_start_as_the_study_says_and_the_backbone_as_it_was():
    model = text_model(classifier=True)
    for weight in (
        model.projection.hidden.weight,
        model.projection.out.weight,
        model.prototypes.weight,
        model.classifier.weight,
    ):
        bound = (6 / sum(weight.shape)) ** 0.5  # Xavier
        assert 0.8 * bound < weight.abs().max() <= bound
    assert (model.classifier.bias == 0).all()
    assert model.projection.hidden.bias is None


def test_a_resnet_without_weights_starts_as_timm_starts_it():
    model = MLCLModel.from_backbone("resnet18", ["a"], pretrained=False)
    weight = model.backbone.timm_model.conv1.weight
    assert weight.std().item() == pytest.approx((2 / (7 * 7 * 64)) ** 0.5, rel=0.05)  # He, fan out


def encode_inputs(folder):
    model = AutoModel.from_pretrained(folder / "model").eval()
    with torch.no_grad():
        torch.save(dict(model(**torch.load(folder / "inputs.pt"))), folder / "outputs.pt")


@pytest.mark.parametrize("make", [roberta_model, image_model], ids=["roberta", "resnet"])
def test_saved_and_loaded_in_another_process_features_are_the_same(make, tmp_path):
    model = make().eval()
    inputs = IDS if model.main_input_name == "input_ids" else {"pixel_values": torch.randn(2, 3, 32, 32)}
    inputs = {k: v % 50 if k == "input_ids" else v for k, v in inputs.items()}
    model.save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").exists()
    torch.save(inputs, tmp_path / "inputs.pt")
    assert all_went_well([Copy(encode_inputs, tmp_path, output=tmp_path / "printed.txt")])
    with torch.no_grad():
        expected = model(**inputs)
    loaded = torch.load(tmp_path / "outputs.pt")
    assert loaded.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(loaded[name], value, rtol=1e-5, atol=1e-6, msg=name)


def test_labels_and_settings_survive_saving(tmp_path):
    model = MLCLModel.from_features(8, ["sport", "art"], projection_dim=4, classifier=True)
    model.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert config.id2label == {0: "sport", 1: "art"}
    assert config.label2id == {"sport": 0, "art": 1}
    assert (config.projection_dim, config.classifier, config.pooling) == (4, True, "pooled")
    assert torch.equal(AutoModel.from_pretrained(tmp_path).classifier.weight, model.classifier.weight)


def test_attention_implementation_and_gradient_checkpointing_reach_the_backbone(tmp_path):
    text_model().backbone.save_pretrained(tmp_path)
    model = MLCLModel.from_backbone(str(tmp_path), ["a"], attn_implementation="eager")
    assert model.backbone.config._attn_implementation == "eager"
    assert MLCLModel.from_backbone(str(tmp_path), ["a"]).backbone.config._attn_implementation == "sdpa"
    model.gradient_checkpointing_enable()
    assert any(getattr(module, "gradient_checkpointing", False) for module in model.backbone.modules())


def test_gradient_checkpointing_works_for_images_and_features():
    for model in (image_model(), MLCLModel.from_features(8, ["a"])):
        model.gradient_checkpointing_enable()
        model.train()
        inputs = {"pixel_values": torch.randn(2, 3, 32, 32), "feature_values": torch.randn(2, 8)}
        output = model(**{model.main_input_name: inputs[model.main_input_name]})
        output.embeddings.sum().backward()
        assert model.projection.out.weight.grad is not None


def test_a_larger_vocabulary_works_at_once_and_once_saved(tmp_path):
    model = text_model().eval()
    known = {"input_ids": IDS["input_ids"] % 50}
    before = model(**known).features
    model.resize_token_embeddings(60)
    torch.testing.assert_close(model(**known).features, before, rtol=1e-5, atol=1e-6)
    assert model.get_input_embeddings().num_embeddings == model.config.backbone_config.vocab_size == 60
    model.save_pretrained(tmp_path)
    loaded = MLCLModel.from_pretrained(tmp_path).eval()
    assert loaded.config.backbone_config.vocab_size == 60
    new = {"input_ids": torch.tensor([[1, 59]])}
    torch.testing.assert_close(loaded(**new).features, model(**new).features, rtol=1e-5, atol=1e-6)


def test_compiled_with_chunks_it_gives_the_same():
    model = text_model().train()
    inputs = {"input_ids": torch.randint(1, 50, (6, 5))}
    expected = model(**inputs).embeddings
    model.embedding_chunk_size = 2
    torch.compiler.reset()
    assert torch.allclose(torch.compile(model, backend="eager")(**inputs).embeddings, expected, atol=1e-6)


def test_compiled_it_gives_the_same():
    model = text_model().eval()
    inputs = {"input_ids": IDS["input_ids"] % 50}
    torch.compiler.reset()
    compiled = torch.compile(model, backend="aot_eager")
    assert torch.allclose(compiled(**inputs).embeddings, model(**inputs).embeddings, atol=1e-6)


class TestDtype:
    """Of a backbone that is stored in half precision, as many on the Hub are."""

    INPUTS = {"input_ids": IDS["input_ids"] % 50, "pixel_values": torch.randn(2, 3, 32, 32)}  # noqa: RUF012

    @pytest.fixture(params=[text_model, image_model], ids=["text", "timm"])
    def stored(self, request, tmp_path):
        request.param().backbone.bfloat16().save_pretrained(tmp_path)
        return str(tmp_path)

    def loss(self, model):
        output = model.train()(**{model.main_input_name: self.INPUTS[model.main_input_name]})
        return output.embeddings.sum() + output.prototypes.sum() + output.logits.sum()

    @pytest.mark.parametrize("pretrained", [True, False])
    def test_without_a_dtype_all_weights_are_float32_whatever_they_are_stored_in(self, stored, pretrained):
        model = MLCLModel.from_backbone(stored, ["a", "b"], classifier=True, pretrained=pretrained)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        self.loss(model).backward()

    @pytest.mark.parametrize("settings", [{"dtype": torch.bfloat16}, {"dtype": "auto"}, {"torch_dtype": "bfloat16"}])
    @pytest.mark.parametrize("pretrained", [True, False])
    def test_with_a_dtype_the_new_parts_have_the_backbones_also_once_saved(
        self, stored, pretrained, settings, tmp_path
    ):
        model = MLCLModel.from_backbone(stored, ["a", "b"], classifier=True, pretrained=pretrained, **settings)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
        self.loss(model).backward()
        model.save_pretrained(tmp_path / "model")
        loaded = MLCLModel.from_pretrained(tmp_path / "model")
        assert {parameter.dtype for parameter in loaded.parameters()} == {torch.bfloat16}

    def test_a_configuration_that_names_a_dtype_gives_all_parts_this_dtype(self, stored):
        config = MLCLConfig(backbone_config=AutoConfig.from_pretrained(stored), num_labels=2, classifier=True)
        model = MLCLModel(config)
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
        self.loss(model).backward()


class TestChunks:
    @staticmethod
    def gradients(model, inputs, chunk, seed=0):
        model.embedding_chunk_size = chunk
        model.train()
        model.zero_grad()
        torch.manual_seed(seed)
        output = model(**inputs)
        (output.embeddings.square().sum() + output.prototypes.sum()).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    @pytest.mark.parametrize("chunk", [1, 8, 32, 100])
    def test_any_chunk_size_gives_the_gradient_of_the_whole_batch(self, chunk):
        model = text_model(dropout=0.0)
        inputs = {"input_ids": torch.randint(1, 50, (40, 6))}
        whole, chunked = self.gradients(model, inputs, None), self.gradients(model, inputs, chunk)
        for name, expected in whole.items():
            assert torch.allclose(chunked[name], expected, rtol=1e-4, atol=1e-6), name

    @pytest.mark.parametrize("chunk", [8, 32])
    def test_dropout_is_replayed_exactly_when_a_chunk_is_computed_again(self, chunk):
        """Against the same chunks with all their activations kept, which is what a large enough device would do."""
        model = text_model(dropout=0.3)
        inputs = {"input_ids": torch.randint(1, 50, (64, 6))}
        replayed = self.gradients(model, inputs, chunk)
        model.zero_grad()
        torch.manual_seed(0)
        parts = [model._encode({"input_ids": inputs["input_ids"][i : i + chunk]}) for i in range(0, 64, chunk)]
        (torch.cat([embeddings for _, embeddings, _ in parts]).square().sum() + model.prototypes().sum()).backward()
        for name, parameter in model.named_parameters():
            if name in replayed:
                assert torch.allclose(replayed[name], parameter.grad, rtol=1e-5, atol=1e-6), name

    @pytest.mark.parametrize("attention", ["sdpa", "eager"])
    def test_with_dropout_by_row_every_chunk_size_gives_the_same_gradients(self, attention):
        model = text_model(dropout=0.3)
        model.set_attn_implementation(attention)
        model.dropout_by_row = True
        inputs = {"input_ids": torch.randint(1, 50, (64, 6)), "attention_mask": torch.ones(64, 6, dtype=torch.long)}
        inputs["attention_mask"][::3, 4:] = 0
        whole = self.gradients(model, inputs, None)
        for chunk in (8, 32):
            for name, gradient in self.gradients(model, inputs, chunk).items():
                scale = whole[name].abs().max()
                assert (gradient - whole[name]).abs().max() <= 1e-6 * scale + 1e-6, (chunk, name)
        assert any(
            not torch.allclose(whole[name], other, rtol=1e-2)
            for name, other in self.gradients(model, inputs, None, seed=1).items()
        )

    def test_batch_normalisation_counts_every_chunk_once(self):
        model = image_model()
        inputs = {"pixel_values": torch.randn(8, 3, 32, 32)}
        norm = next(m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d))
        before = norm.running_mean.clone()
        self.gradients(model, inputs, 4)
        assert norm.num_batches_tracked == 2
        after = norm.running_mean.clone()
        other = image_model()
        other.train()
        with torch.no_grad():
            for i in (0, 4):
                other(pixel_values=inputs["pixel_values"][i : i + 4])
        expected = next(m for m in other.modules() if isinstance(m, torch.nn.BatchNorm2d)).running_mean
        assert not torch.equal(after, before)
        assert torch.allclose(after, expected, atol=1e-6)
        assert norm.momentum == 0.1

    def test_evaluation_is_never_cut(self):
        model = text_model().eval()
        model.embedding_chunk_size = 2
        seen = []
        model.backbone.register_forward_hook(lambda module, args, output: seen.append(len(output[0])))
        assert len(model(input_ids=torch.randint(1, 50, (7, 6))).features) == 7
        assert seen == [7]
        model.train()(input_ids=torch.randint(1, 50, (7, 6)))
        assert seen == [7, 2, 2, 2, 1]


class TestWrongInput:
    def test_a_backbone_that_is_nowhere_says_what_may_be_given(self, tmp_path):
        with pytest.raises(ValueError, match=r"could not be loaded\. Expected: a model id of the Hub"):
            MLCLModel.from_backbone(str(tmp_path), ["a"])

    @pytest.mark.parametrize("names", [[], ["a", "a"], "ab"])
    def test_label_names_must_be_different_names(self, names):
        with pytest.raises(ValueError, match="label_names must be a list of different names"):
            MLCLModel.from_features(4, names)

    def test_weights_are_for_timm(self, tmp_path):
        text_model().backbone.save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="weights is for a timm architecture"):
            MLCLModel.from_backbone(str(tmp_path), ["a"], weights="some.safetensors")
        with pytest.raises(ValueError, match=r"could not be loaded from .*none\.safetensors"):
            MLCLModel.from_backbone("resnet10t", ["a"], weights=tmp_path / "none.safetensors")

    def test_missing_inputs_are_named(self):
        with pytest.raises(ValueError, match="input_ids is missing: this model's backbone is BertModel"):
            text_model()(pixel_values=torch.zeros(1, 3, 8, 8))

    def test_weights_of_another_number_of_labels_are_refused(self, tmp_path):
        text_model(num_labels=3).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=r"prototypes\.weight \[3, 8\] for \[5, 8\] of another size"):
            MLCLModel.from_pretrained(tmp_path, num_labels=5)

    def test_new_weights_are_drawn_not_left_as_raw_memory(self, tmp_path):
        text_model().save_pretrained(tmp_path)
        for model in (MLCLModel.from_pretrained(tmp_path, classifier=True), text_model()):
            model.add_classifier()
            for weight in (model.classifier.weight, model.prototypes.weight, model.projection.hidden.weight):
                bound = (6 / sum(weight.shape)) ** 0.5
                assert 0.8 * bound < weight.abs().max() <= bound


def test_frozen_batch_norm_keeps_its_statistics_in_training_and_nothing_else_changes():
    torch.manual_seed(0)
    model = MLCLModel.from_backbone("resnet10t", ["a", "b"], pretrained=False)
    model.freeze_batch_norm = True
    before = {name: value.clone() for name, value in model.named_buffers()}
    images = torch.randn(4, 3, 32, 32)
    model.train()(pixel_values=images).embeddings.sum().backward()
    for name, value in model.named_buffers():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, msg=name)
    norms = [m for m in model.backbone.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    assert norms
    assert all(norm.weight.grad is not None for norm in norms)
    model.freeze_batch_norm = False
    model.train()(pixel_values=images)
    assert any(not torch.equal(value, before[name]) for name, value in model.named_buffers())


def test_projection_biases_are_those_of_the_paper_unless_asked_for_and_survive_saving(tmp_path):
    plain, biased = (
        MLCLModel.from_backbone("test_resnet", ["a", "b"], pretrained=False, projection_bias=bias)
        for bias in (False, True)
    )
    assert plain.projection.hidden.bias is None
    assert plain.projection.out.bias is None
    assert not biased.projection.hidden.bias.any()  # they start at zero
    torch.nn.init.ones_(biased.projection.out.bias)
    biased.save_pretrained(tmp_path)
    loaded = MLCLModel.from_pretrained(tmp_path)
    torch.testing.assert_close(loaded.projection.out.bias, biased.projection.out.bias)
    assert loaded.config.projection_bias is True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_normalised_features_have_the_direction_of_the_others_and_length_one(dtype, tmp_path):
    plain = MLCLModel(MLCLConfig(backbone_config=TEXT_CONFIGS["bert"], num_labels=2, pooling="mean")).to(dtype).eval()
    plain.save_pretrained(tmp_path)
    unit = MLCLModel.from_pretrained(tmp_path, normalize_features=True, dtype=dtype).eval()
    ids = torch.randint(5, 50, (4, 7))
    with torch.no_grad():
        expected, found = plain(input_ids=ids), unit(input_ids=ids)
    exact = torch.nn.functional.normalize(expected.features.double(), dim=1)
    torch.testing.assert_close(found.features.double(), exact, rtol=0, atol=1e-6 if dtype == torch.float32 else 1e-3)
    # Contrastive losses see angles, which a projection without biases does not change with the length of its input.
    angles = torch.cosine_similarity(expected.embeddings.float(), found.embeddings.float(), dim=1)
    torch.testing.assert_close(angles, torch.ones(4), rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("backbone", "settings", "expected"),
    [
        ("bert", {"pooling": "mean"}, True),
        ("bert", {"pooling": "first"}, False),  # of one token, whose last layer gives it one length
        ("test_resnet", {"pretrained": False}, True),
        ("bert", {"pooling": "mean", "normalize_features": False}, False),
        ("bert", {"pooling": "first", "normalize_features": True}, True),
    ],
)
def test_features_that_stand_for_all_tokens_or_patches_are_normalised_by_auto(backbone, settings, expected):
    given = AutoModel.from_config(TEXT_CONFIGS[backbone]) if backbone in TEXT_CONFIGS else backbone
    model = MLCLModel.from_backbone(given, ["a", "b"], **{"normalize_features": "auto", **settings})
    assert model.config.normalize_features is expected


def test_classifier_dropout_reaches_logits_alone_and_in_training_alone():
    model = MLCLModel.from_features(16, ["a", "b"], num_layers=0, classifier=True)
    model.config.classifier_dropout = 0.5
    inputs = torch.ones(64, 16)
    torch.manual_seed(0)
    training, evaluation = model.train()(feature_values=inputs), model.eval()(feature_values=inputs)
    assert len(training.logits.unique(dim=0)) > 1
    assert len(evaluation.logits.unique(dim=0)) == 1
    torch.testing.assert_close(training.embeddings, evaluation.embeddings)
    model.config.classifier_dropout = 0.0
    torch.testing.assert_close(model.train()(feature_values=inputs).logits, evaluation.logits)


def test_classifier_dropout_by_row_does_not_change_with_chunks():
    model = MLCLModel.from_features(16, ["a", "b"], num_layers=0, classifier=True)  # no other dropout
    model.config.classifier_dropout = 0.5
    model.dropout_by_row = True
    outputs = []
    for chunk in (None, 3):
        model.embedding_chunk_size = chunk
        torch.manual_seed(0)
        outputs.append(model.train()(feature_values=torch.ones(8, 16)).logits)
    torch.testing.assert_close(*outputs)
    assert len(outputs[0].unique(dim=0)) == 8


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"classifier_dropout": 1.0}, r"classifier_dropout must be a number from 0 to below 1, but is 1\.0"),
        ({"projection_bias": "yes"}, "projection_bias must be True or False"),
        ({"normalize_features": "yes"}, "normalize_features must be True or False"),
        ({"normalize_features": True, "backbone_config": CLIPConfig()}, "not for a pair of towers"),
    ],
)
def test_settings_of_the_heads_are_checked(setting, reason):
    with pytest.raises(StrictDataclassClassValidationError, match=reason):
        MLCLConfig(num_labels=2, **setting)
