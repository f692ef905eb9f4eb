"""Texts of about one length computed together: the same features and gradients, with less to compute."""

from __future__ import annotations

import pytest
import torch
from transformers import BertConfig, FNetConfig, GPT2Config, ModernBertConfig, RobertaConfig

from hf_mlcl import MLCLConfig, MLCLModel
from hf_mlcl.models import padding
from hf_mlcl.models.padding import groups_by_length

SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SMALL = {
    "bert": BertConfig(**SIZES, **NO_DROPOUT, intermediate_size=64),
    "roberta": RobertaConfig(**SIZES, **NO_DROPOUT, intermediate_size=64, pad_token_id=1),
    "modernbert": ModernBertConfig(
        **SIZES, intermediate_size=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2
    ),
    "gpt2": GPT2Config(vocab_size=60, n_embd=32, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0),
}
POOLING = {"bert": "mean", "roberta": "first", "modernbert": "mean", "gpt2": "last"}


def batch(rows=40, longest=30, pad=0, left=False):
    """Texts of 2 to `longest` tokens, padded."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, longest + 1, (rows, 1), generator=generator)
    lengths[rows // 2] = longest
    mask = (torch.arange(longest) < lengths).long()
    mask = mask.flip(1) if left else mask
    ids = torch.randint(5, 60, (rows, longest), generator=generator)
    return {"input_ids": torch.where(mask.bool(), ids, pad), "attention_mask": mask}


def computed(model, inputs):
    """Features and the gradient of every parameter that has one."""
    model.zero_grad()
    output = model(**inputs)
    weights = torch.linspace(-1, 1, output.embeddings.numel()).view_as(output.embeddings)
    (output.embeddings * weights).sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return output.features.detach(), gradients


@pytest.mark.parametrize("kind", SMALL)
def test_groups_give_the_features_and_gradients_of_the_padded_batch(kind, monkeypatch):
    torch.manual_seed(0)
    model = MLCLModel(MLCLConfig(backbone_config=SMALL[kind], num_labels=3, projection_dim=8, pooling=POOLING[kind]))
    model.train()
    inputs, tokens = batch(pad=1 if kind == "roberta" else 0), []
    model.backbone.register_forward_pre_hook(
        lambda _, args, given: tokens.append(given["input_ids"].numel()), with_kwargs=True
    )
    features, gradients = computed(model, inputs)
    assert len(tokens) == 3
    assert sum(tokens) < 0.8 * inputs["input_ids"].numel()
    monkeypatch.setattr(padding, "GROUP_ROWS", 1000)
    expected, expected_gradients = computed(model, inputs)
    assert tokens[3:] == [inputs["input_ids"].numel()]
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        assert torch.allclose(gradient, expected_gradients[name], rtol=1e-3, atol=1e-4), name


def test_all_groups_share_one_gradient_of_the_embeddings():
    model = MLCLModel(MLCLConfig(backbone_config=SMALL["bert"], num_labels=3, projection_dim=8, pooling="mean")).train()
    words, todo, seen = model.get_input_embeddings().weight, [model(**batch()).features.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [after for after, _ in node.next_functions]
    lookups = [
        node for node in seen if any(getattr(after, "variable", None) is words for after, _ in node.next_functions)
    ]
    assert len(lookups) == 1


def test_hooks_of_the_embeddings_see_the_groups():
    """Such as the noise of `neftune_noise_alpha`, which depends on the length of the texts."""
    model = MLCLModel(MLCLConfig(backbone_config=SMALL["bert"], num_labels=3, projection_dim=8, pooling="mean")).train()
    shapes = []
    model.get_input_embeddings().register_forward_hook(lambda module, args, output: shapes.append(output.shape))
    model(**batch())
    assert [len(shape) for shape in shapes] == [3, 3, 3]


def test_a_batch_stays_whole_where_groups_would_change_something_or_save_nothing():
    assert groups_by_length(batch()) is not None
    assert groups_by_length(batch(left=True)) is None
    assert groups_by_length(batch(rows=31)) is None
    assert groups_by_length(batch(longest=2)) is None
    assert groups_by_length({**batch(), "position_ids": torch.arange(30).expand(40, -1)}) is None
    assert groups_by_length({"input_ids": batch()["input_ids"]}) is None


def test_texts_without_a_single_token_are_computed_too():
    inputs = batch()
    inputs["attention_mask"][:20] = 0
    parts, places = groups_by_length(inputs)
    assert sorted(places.tolist()) == list(range(40))
    assert min(part["input_ids"].shape[1] for part in parts) == 1


def calls(model, inputs=None):
    """How often the backbone is called for a batch."""
    made = []
    hook = model.backbone.register_forward_pre_hook(lambda *_: made.append(None))
    model(**(inputs or batch()))
    hook.remove()
    return len(made)


def encoder(config):
    """A model around it."""
    return MLCLModel(MLCLConfig(backbone_config=config, num_labels=3, projection_dim=8)).train()


def test_encoders_that_heed_padding_compute_the_batch_as_it_is():
    fourier = FNetConfig(vocab_size=60, hidden_size=32, num_hidden_layers=1, intermediate_size=64)
    assert [calls(encoder(config)) for config in (SMALL["bert"], fourier)] == [3, 1]


def test_masks_of_dropout_by_row_are_those_of_the_batch():
    model = encoder(SMALL["bert"])
    model.dropout_by_row = True
    assert (calls(model), calls(model.eval())) == (1, 3)


def test_chunks_with_dropout_are_grouped_alike_when_they_are_computed_again():
    """The loss of chunks that were computed anew in the backward pass has the gradient that finite differences have."""
    config = BertConfig(**SIZES, intermediate_size=64)
    model, inputs = encoder(config), batch(rows=80)
    model.embedding_chunk_size = 40
    weight = model.projection.out.weight

    def loss():
        torch.manual_seed(0)
        return model(**inputs).embeddings.square().sum()

    loss().backward()
    with torch.no_grad():
        step = 1e-2 * torch.nn.functional.normalize(weight.grad, dim=None)
        weight += step
    ahead = loss().item()
    with torch.no_grad():
        weight -= 2 * step
    assert (ahead - loss().item()) / 2 == pytest.approx(float((weight.grad * step).sum()), rel=1e-2)


def test_replicas_without_parameters_of_their_own_compute_groups_too(monkeypatch):
    """As nn.DataParallel makes them."""
    model = encoder(SMALL["bert"])
    monkeypatch.setattr(type(model), "device", property(lambda self: next(iter(()))))
    assert calls(model) == 3
