"""Adapters of PEFT: what they train, save and merge to, whichever way they came; and what is refused."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, BertConfig, BertModel

from hf_mlcl import (
    ContrastiveMultiLabelTrainer,
    ContrastiveTrainingArguments,
    MLCLForImageClassification,
    MLCLForSequenceClassification,
    MLCLModel,
)
from hf_mlcl.hub import export_encoder, export_onnx, intended_files
from hf_mlcl.models.adapters import has_adapter
from hf_mlcl.training.checkpoints import damage
from models.tiny_backbones import ALL, IMAGES, SIDE, TEXTS, adapter_of, folder_of
from training.tiny import NUM_LABELS, image_model, image_rows, text_rows

peft = pytest.importorskip("peft", reason="PEFT is an extra: pip install 'hf-mlcl[peft]'")
LoraConfig, get_peft_model = peft.LoraConfig, peft.get_peft_model

NAMES = [f"label {number}" for number in range(NUM_LABELS)]
ROWS = text_rows(24)
SAME = 1e-5
"""Merging adds the adapter's product to a weight before it meets the input: other sums, the same numbers."""


def save_base(folder, seed=0, **settings):
    torch.manual_seed(seed)
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 32}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    BertModel(BertConfig(**{**sizes, **settings}), add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_base(tmp_path_factory.mktemp("base") / "model")


def plain(base, **settings):
    torch.manual_seed(1)
    return MLCLModel.from_backbone(base, NAMES, projection_dim=8, **settings)


def by_method(base):
    model = plain(base)
    model.add_adapter(LoraConfig(r=4))
    return model


HEADS = ["projection", "prototypes"]
WAYS = {
    "peft_config": lambda base: plain(base, peft_config=LoraConfig(r=4)),
    "add_adapter": by_method,
    "get_peft_model": lambda base: get_peft_model(plain(base), LoraConfig(r=4, target_modules=["query", "value"])),
    "get_peft_model, all linear layers": lambda base: get_peft_model(
        plain(base), LoraConfig(target_modules="all-linear")
    ),
    "get_peft_model, heads to save": lambda base: get_peft_model(
        plain(base), LoraConfig(r=4, target_modules=r"backbone\..*\.query", modules_to_save=HEADS)
    ),
    "DoRA": lambda base: plain(base, peft_config=LoraConfig(r=4, use_dora=True)),
    "IA3": lambda base: plain(base, peft_config=peft.IA3Config(target_modules=["value"], feedforward_modules=[])),
    "a module to save": lambda base: plain(base, peft_config=LoraConfig(r=4, modules_to_save=["LayerNorm"])),
}


def arguments(folder, **settings):
    chosen = {
        "max_steps": 4,
        "per_device_train_batch_size": 8,
        "learning_rate": 0.02,
        "save_steps": 2,
        "loss": "reg+zlpr",
    }
    chosen |= {"report_to": "none", "use_cpu": True, "disable_tqdm": True, "max_grad_norm": 0.0}
    return ContrastiveTrainingArguments(str(folder), **{**chosen, **settings})


def trainer(model, folder, **settings):
    return ContrastiveMultiLabelTrainer(model, arguments(folder, **settings), train_dataset=ROWS, eval_dataset=ROWS)


@torch.no_grad()
def outputs(model):
    batch = {name: torch.stack([row[name] for row in ROWS]) for name in ("input_ids", "attention_mask")}
    found = model.eval()(**batch)
    return {name: found[name] for name in ("features", "embeddings", "logits", "prototypes") if name in found}


def assert_same(got, expected, tolerance=0.0):
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=tolerance, atol=tolerance, msg=name)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    """Of every way: the trainer after a training, and the folder of its model."""
    made = {}

    def train(way):
        if way not in made:
            folder = tmp_path_factory.mktemp("trained")
            one = trainer(WAYS[way](base), folder)
            one.train()
            one.save_model(str(folder / "saved"))
            made[way] = one, folder / "saved"
        return made[way]

    return train


@pytest.mark.parametrize("way", WAYS)
def test_adapter_and_heads_learn_and_the_backbone_stays(base, trained, way):
    before, after = plain(base).state_dict(), trained(way)[0].model
    got = after.merged().state_dict() if way == "a module to save" else after.state_dict()
    names = {name.replace(".base_layer.", ".").replace(".original_module.", "."): name for name in got}
    backbone = [name for name in before if name.startswith("backbone.") and "LayerNorm" not in name]
    if way != "a module to save":
        assert all(torch.equal(got[names[name]], before[name]) for name in backbone)
    assert not torch.equal(got["projection.out.weight"], before["projection.out.weight"])
    assert not torch.equal(got["prototypes.weight"], before["prototypes.weight"])
    assert (outputs(after)["features"] - outputs(plain(base))["features"]).abs().max() > 1e-4


@pytest.mark.parametrize("way", WAYS)
def test_files_hold_adapter_and_heads_alone_and_load_exactly(trained, way):
    one, folder = trained(way)
    stored = {path.name for path in folder.iterdir()} - {"training_args.bin"}
    assert stored == {"adapter_config.json", "adapter_model.safetensors", "heads.safetensors", "config.json"}
    assert stored == set(intended_files(folder))
    weights = load_file(folder / "adapter_model.safetensors") | load_file(folder / "heads.safetensors")
    assert not any("word_embeddings" in name for name in weights)
    assert_same(outputs(MLCLModel.from_pretrained(folder)), outputs(one.model))
    assert_same(outputs(AutoModel.from_pretrained(folder)), outputs(one.model))


@pytest.mark.parametrize("way", ["peft_config", "get_peft_model, all linear layers", "DoRA"])
def test_peft_itself_loads_the_adapter_onto_the_base_model(base, trained, way):
    one, folder = trained(way)
    theirs = peft.PeftModel.from_pretrained(BertModel.from_pretrained(base, add_pooling_layer=False), folder).eval()
    with torch.no_grad():
        hidden = theirs(torch.stack([row["input_ids"] for row in ROWS])).last_hidden_state
    assert_same({"features": hidden[:, 0]}, {"features": outputs(one.model)["features"]})


@pytest.mark.parametrize("way", WAYS)
def test_merged_it_computes_the_same_with_no_layer_of_peft(trained, way):
    model = trained(way)[0].model
    merged = model.merged()
    assert_same(outputs(merged), outputs(model), SAME)
    assert has_adapter(model)
    assert not has_adapter(merged)
    assert not any(type(module).__module__.startswith("peft") for module in merged.modules())
    assert merged.merged() is merged


def test_exports_and_classifiers_are_merged(trained, tmp_path, monkeypatch):
    model = trained("peft_config")[0].model
    expected = outputs(model)
    export_encoder(model, tmp_path / "encoder")
    plain_model = AutoModel.from_pretrained(tmp_path / "encoder", add_pooling_layer=False).eval()
    ids, mask = (torch.stack([row[name] for row in ROWS]) for name in ("input_ids", "attention_mask"))
    with torch.no_grad():
        assert_same(
            {"features": plain_model(ids, mask).last_hidden_state[:, 0]}, {"features": expected["features"]}, SAME
        )
    weight = torch.randn(1, NUM_LABELS, 16)
    MLCLForSequenceClassification.from_encoder(model, weight, torch.zeros(1, NUM_LABELS)).save_pretrained(
        tmp_path / "c"
    )
    monkeypatch.setitem(sys.modules, "peft", None)  # as where it is not installed
    logits = MLCLForSequenceClassification.from_pretrained(tmp_path / "c").eval()(ids, mask).logits
    assert_same({"logits": logits.detach()}, {"logits": expected["features"] @ weight[0].T}, 1e-4)


@pytest.mark.slow
def test_onnx_graphs_are_merged(trained, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = trained("peft_config")[0].model
    expected = outputs(model)
    ids, mask = (torch.stack([row[name] for row in ROWS]) for name in ("input_ids", "attention_mask"))
    session = onnxruntime.InferenceSession(export_onnx(model, tmp_path / "model.onnx"))
    inputs = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
    found = session.run(["features", "embeddings"], inputs)
    assert_same(
        dict(zip(("features", "embeddings"), map(torch.from_numpy, found), strict=True)),
        {name: expected[name] for name in ("features", "embeddings")},
        1e-4,
    )


@pytest.mark.parametrize("way", ["peft_config", "get_peft_model"])
def test_resumed_it_ends_with_the_weights_of_a_training_that_was_not_interrupted(base, trained, way, tmp_path):
    whole = trained(way)[0]
    again = trainer(WAYS[way](base), tmp_path)
    again.train(resume_from_checkpoint=str(whole.args.output_dir) + "/checkpoint-2")
    assert again.state.global_step == 4
    assert_same(outputs(again.model), outputs(whole.model), 1e-6)


def test_the_best_checkpoint_is_loaded_at_the_end(base, tmp_path):
    best = {"load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss"}
    one = trainer(WAYS["peft_config"](base), tmp_path, max_steps=6, **best)
    one.train()
    chosen = MLCLModel.from_pretrained(one.state.best_model_checkpoint)
    assert_same(outputs(one.model), outputs(chosen))


def test_an_adapter_of_a_trained_model_belongs_to_that_model(base, tmp_path):
    model = plain(base)
    with torch.no_grad():
        model.backbone.encoder.layer[0].output.dense.weight.mul_(1.5)
    model.save_pretrained(tmp_path / "first")
    again = MLCLModel.from_pretrained(tmp_path / "first")
    again.add_adapter(LoraConfig(r=2, init_lora_weights=False))
    again.save_pretrained(tmp_path / "second")
    assert_same(outputs(MLCLModel.from_pretrained(tmp_path / "second")), outputs(again))


def test_gradients_do_not_depend_on_checkpointing_and_chunks(base, tmp_path):
    found = []
    for settings in ({}, {"gradient_checkpointing": True}, {"embedding_chunk_size": 3}):
        one = trainer(
            plain(base, peft_config=LoraConfig(r=4, init_lora_weights=False)),
            tmp_path,
            max_steps=1,
            optim="sgd",
            **settings,
        )
        one.train()
        found.append({name: weight for name, weight in one.model.state_dict().items() if "lora" in name})
    assert_same(found[1], found[0], SAME)
    assert_same(found[2], found[0], SAME)


def test_of_images_statistics_of_batch_normalisation_stay_and_files_load_exactly(tmp_path):
    image_model("test_resnet").save_backbone(tmp_path / "base")
    config = LoraConfig(r=2, target_modules=r".*conv2", init_lora_weights=False)
    model = MLCLModel.from_backbone(tmp_path / "base", NAMES, projection_dim=8, peft_config=config)
    before = {name: value.clone() for name, value in model.named_buffers()}
    one = ContrastiveMultiLabelTrainer(model, arguments(tmp_path / "run", max_steps=2), train_dataset=image_rows(16))
    one.train()
    assert before
    assert all(torch.equal(value, before[name]) for name, value in one.model.named_buffers())
    one.save_model(str(tmp_path / "saved"))
    again, pixels = MLCLModel.from_pretrained(tmp_path / "saved"), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        expected = one.model.eval()(pixel_values=pixels).features
        assert torch.equal(again(pixel_values=pixels).features, expected)
        size = expected.shape[1]
        heads = torch.randn(1, NUM_LABELS, size), torch.zeros(1, NUM_LABELS)
        logits = MLCLForImageClassification.from_encoder(one.model, *heads)(pixels).logits
    torch.testing.assert_close(logits, expected @ heads[0][0].T, rtol=1e-4, atol=1e-4)


QUICK = ("GPT-2", "Qwen3", "SigLIP", "timm")


@pytest.mark.parametrize("name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in ALL])
def test_of_every_family_an_adapter_loads_exactly_and_merges(name, tmp_path):
    folder, config = folder_of(name, tmp_path / "base"), adapter_of(name)
    model = MLCLModel.from_backbone(folder, NAMES, projection_dim=4, peft_config=config)
    ids, pixels = torch.tensor([[2, 5, 6, 3], [2, 7, 8, 3]]), torch.randn(2, 3, SIDE, SIDE)
    inputs = {"pixel_values": pixels} if name not in TEXTS else {}
    inputs |= {"input_ids": ids, "attention_mask": torch.ones_like(ids)} if name not in IMAGES else {}
    model.save_pretrained(tmp_path / "saved")
    with torch.no_grad():
        expected = model.eval()(**inputs).features
        without = MLCLModel.from_backbone(tmp_path / "base", NAMES, projection_dim=4).eval()(**inputs).features
        assert torch.equal(MLCLModel.from_pretrained(tmp_path / "saved")(**inputs).features, expected)
        assert (expected - without).abs().max() > 1e-3 * without.abs().max()
        torch.testing.assert_close(model.merged()(**inputs).features, expected, rtol=1e-4, atol=1e-4)
        exact = {key: value.double() if key == "pixel_values" else value for key, value in inputs.items()}
        expected = model.double()(**exact).features  # where nothing but the rounding of float32 is left out
        torch.testing.assert_close(model.merged()(**exact).features, expected, rtol=1e-11, atol=1e-11)


# Refused --------------------------------------------------------------------------------------------------------------


def test_a_base_model_with_other_weights_is_refused_and_one_in_another_place_is_taken(base, trained, tmp_path):
    one, folder = trained("peft_config")
    other = save_base(tmp_path / "other", seed=5)
    with pytest.raises(ValueError, match=r"has other values in .*other: its vectors would be wrong"):
        MLCLModel.from_pretrained(folder, backbone=str(other))
    copied = tmp_path / "saved"
    copied.mkdir()
    for path in folder.iterdir():
        (copied / path.name).write_bytes(path.read_bytes().replace(str(base).encode(), b"?" * len(str(base))))
    with pytest.raises(ValueError, match=r"could not be loaded\. Give the base model, or its new place"):
        MLCLModel.from_pretrained(copied)
    assert_same(outputs(MLCLModel.from_pretrained(copied, backbone=base)), outputs(one.model))
    plain(base).save_pretrained(tmp_path / "whole")
    with pytest.raises(ValueError, match="backbone is for a model with an adapter"):
        MLCLModel.from_pretrained(tmp_path / "whole", backbone=base)


def test_what_an_adapter_cannot_be_saved_for_is_refused_before_training(base, tmp_path):
    with pytest.raises(ValueError, match="nobody could load this one again"):
        MLCLModel.from_backbone(base, NAMES, pretrained=False, peft_config=LoraConfig())
    with pytest.raises(ValueError, match="nobody could load this one again"):
        MLCLModel.from_features(4, NAMES, peft_config=LoraConfig(target_modules="all-linear"))
    moved = plain(base)
    with torch.no_grad():
        for weight in moved.backbone.parameters():
            weight.add_(0.5)
    with pytest.raises(ValueError, match=r"is not what .*model has"):
        trainer(get_peft_model(moved, LoraConfig(target_modules=["query"])), tmp_path)
    with pytest.raises(ValueError, match="init_lora_weights"):
        plain(base, peft_config=LoraConfig(r=4, init_lora_weights="pissa", target_modules="all-linear"))
    unfrozen = WAYS["peft_config"](base)
    unfrozen.backbone.embeddings.requires_grad_(True)
    with pytest.raises(ValueError, match=r"embeddings\S+ would be trained.*modules_to_save"):
        trainer(unfrozen, tmp_path)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"r": 4}, "peft_config must be a configuration of PEFT"),
        (peft.PromptTuningConfig(num_virtual_tokens=2), "has no weights to merge"),
        (LoraConfig(target_modules=["nothing"]), "does not fit the backbone BertModel"),
    ],
)
def test_a_peft_config_that_cannot_work_is_refused_with_the_reason(base, config, message):
    with pytest.raises(ValueError, match=message):
        plain(base, peft_config=config)


def test_where_there_is_no_linear_layer_the_error_says_how_to_name_others(tmp_path):
    with pytest.raises(ValueError, match=r"ResNetModel has none\. Name convolutions .* target_modules=r'\.\*conv2'"):
        plain(folder_of("ResNet", tmp_path / "base"), peft_config=LoraConfig())


def test_a_layer_that_is_never_called_is_refused(tmp_path):
    """Torch's attention takes the weights of its last layer: an adapter there would show in merged weights alone."""
    folder = folder_of("SigLIP images", tmp_path / "base")
    with pytest.raises(ValueError, match=r"head\.attention\.out_proj has no effect"):
        plain(folder, peft_config=LoraConfig(target_modules=["out_proj"]))
    with pytest.raises(ValueError, match="exclude_modules"):
        trainer(get_peft_model(plain(folder), LoraConfig(target_modules="all-linear")), tmp_path / "run")


def test_a_second_adapter_is_refused(base):
    model = WAYS["peft_config"](base)
    for add in (model.add_adapter, lambda config: model.add_adapter(config, "other")):
        with pytest.raises(ValueError, match="one"):
            add(LoraConfig())
    with pytest.raises(ValueError, match=r"MLCLModel\.from_pretrained"):
        model.load_adapter("folder")


def test_checkpoints_with_and_without_adapter_do_not_mix(base, trained, tmp_path):
    with_adapter = f"{trained('peft_config')[0].args.output_dir}/checkpoint-2"
    with pytest.raises(ValueError, match="the checkpoint has an adapter, the model has none"):
        trainer(plain(base), tmp_path / "plain").train(resume_from_checkpoint=with_adapter)
    whole = trainer(plain(base), tmp_path / "whole", max_steps=2)
    whole.train()
    with pytest.raises(ValueError, match="the model has an adapter, the checkpoint has none"):
        trainer(WAYS["peft_config"](base), tmp_path / "again").train(
            resume_from_checkpoint=f"{tmp_path}/whole/checkpoint-2"
        )


def test_damaged_files_are_named(trained, tmp_path):
    folder = tmp_path / "checkpoint-2"
    folder.mkdir()
    for path in (trained("peft_config")[1].parent / "checkpoint-2").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    assert damage(folder) is None
    (folder / "adapter_model.safetensors").write_bytes(b"cut off")
    assert "adapter_model.safetensors cannot be read" in str(damage(folder))
    with pytest.raises(ValueError, match=r"adapter_model\.safetensors cannot be read"):
        MLCLModel.from_pretrained(folder)
    (folder / "adapter_model.safetensors").unlink()
    assert damage(folder) is not None
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"megatron_config": {"a": 1}}))
    (folder / "adapter_model.safetensors").write_bytes(
        (trained("peft_config")[1] / "adapter_model.safetensors").read_bytes()
    )
    with pytest.raises(ValueError, match="megatron_config"):
        MLCLModel.from_pretrained(folder)


def test_without_peft_the_error_says_what_to_install(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(ImportError, match=r"pip install 'hf-mlcl\[peft\]'"):
        MLCLModel.from_pretrained(trained("peft_config")[1])


# Quantised ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "tolerance"), [(4, 1e-5), (8, 1e-2)], ids=["4 bits", "8 bits"])
def test_on_a_quantised_backbone_an_adapter_learns_loads_exactly_and_merges(tmp_path, bits, tolerance):
    """8 bits round what goes into a layer as well, which no merged model can repeat."""
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is an extra: pip install 'hf-mlcl[quantised]'")
    from transformers import BitsAndBytesConfig

    base = save_base(tmp_path / "base", hidden_size=64, intermediate_size=64)
    settings = {"bnb_4bit_compute_dtype": torch.float32} if bits == 4 else {}
    quantised = BitsAndBytesConfig(**{f"load_in_{bits}bit": True}, **settings)
    model = plain(base, quantization_config=quantised)
    with pytest.raises(ValueError, match="quantised, and such weights cannot be trained"):
        trainer(model, tmp_path / "run")
    model.add_adapter(LoraConfig(r=4, init_lora_weights=False))
    one = trainer(model, tmp_path / "run", max_steps=2)
    one.train()
    one.save_model(str(tmp_path / "saved"))
    again = MLCLModel.from_pretrained(tmp_path / "saved")
    assert_same(outputs(again), outputs(one.model))
    batch = {name: torch.stack([row[name] for row in ROWS]) for name in ("input_ids", "attention_mask")}
    expected = one.model.train()(**batch).features.detach()  # bitsandbytes rounds to bf16 when it evaluates on a CPU
    merged = one.model.merged()
    assert not merged.backbone.config.to_dict().get("quantization_config")
    torch.testing.assert_close(merged.eval()(**batch).features.detach(), expected, rtol=0, atol=tolerance)
