"""Dropout by row: right shares, independent rows, and the backbones it works for."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers import BertConfig, ModernBertConfig, MPNetConfig, RobertaConfig

from hf_mlcl import MLCLConfig, MLCLModel
from hf_mlcl.models.row_dropout import RowDropout

SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def test_the_dropped_share_is_p_and_the_mean_stays():
    with RowDropout(seed=3, rows=range(64)):
        dropped = F.dropout(torch.ones(64, 4096), 0.3)
    assert (dropped == 0).float().mean() == pytest.approx(0.3, abs=0.005)
    assert dropped.mean() == pytest.approx(1.0, abs=0.01)
    assert dropped.max() == pytest.approx(1 / 0.7)


def test_rows_calls_and_seeds_have_unrelated_masks():
    x = torch.ones(8, 4096)
    with RowDropout(seed=0, rows=range(8)):
        masks = [F.dropout(x, 0.5) > 0, F.dropout(x, 0.5) > 0]
    with RowDropout(seed=1, rows=range(8)):
        masks.append(F.dropout(x, 0.5) > 0)
    rows = torch.cat(masks).float() - 0.5
    correlations = rows @ rows.T / 1024  # a half squared, 4096 times
    correlations.fill_diagonal_(0.0)
    assert correlations.abs().max() < 0.08  # 5 deviations of 4096 coins


def test_attention_without_dropout_is_torchs_own():
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    with RowDropout(seed=0, rows=range(2)):
        ours = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "added"])
def test_attention_in_the_open_equals_the_fused_one_as_p_goes_to_zero(mask):
    q, k, v = (torch.randn(2, 4, 5, 8, dtype=torch.float64) for _ in range(3))
    k, v = k[:, :2], v[:, :2]  # grouped queries
    settings = {"enable_gqa": True, "is_causal": mask == "causal", "scale": 0.3}
    if mask == "boolean":
        settings["attn_mask"] = torch.rand(2, 1, 5, 5) < 0.7
        settings["attn_mask"][..., 0] = True
    if mask == "added":
        settings["attn_mask"] = torch.randn(2, 1, 5, 5, dtype=torch.float64)
    with RowDropout(seed=0, rows=range(2)):
        ours = F.scaled_dot_product_attention(q, k, v, dropout_p=1e-12, **settings)
    assert torch.allclose(ours, F.scaled_dot_product_attention(q, k, v, **settings), atol=1e-9)


BACKBONES = {
    "bert": BertConfig(**SMALL),
    "roberta": RobertaConfig(**SMALL),
    "mpnet": MPNetConfig(**SMALL),
    "modernbert": ModernBertConfig(
        **SMALL, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, embedding_dropout=0.2
    ),
}


@pytest.mark.parametrize("name", BACKBONES)
def test_a_part_of_a_batch_is_encoded_as_it_is_in_the_whole(name):
    model = MLCLModel(MLCLConfig(backbone_config=BACKBONES[name], num_labels=3, projection_dim=8)).train()
    inputs = {"input_ids": torch.randint(5, 60, (6, 7)), "attention_mask": torch.ones(6, 7, dtype=torch.long)}
    with RowDropout(seed=1, rows=range(6)):
        whole = model(**inputs).features
    with RowDropout(seed=1, rows=range(2, 5)):
        part = model(**{k: v[2:5] for k, v in inputs.items()}).features
    assert torch.allclose(part, whole[2:5], atol=1e-6)
    assert not torch.allclose(whole, model.eval()(**inputs).features, atol=1e-2)  # something was dropped


def test_stochastic_depth_of_images_belongs_to_rows():
    names = ["a", "b"]
    torch.manual_seed(0)
    model = MLCLModel.from_backbone("convnext_atto", names, pretrained=False, projection_dim=8)
    from timm.layers import DropPath

    stage = model.backbone.timm_model.stages[0].blocks
    for block in stage:
        block.drop_path = DropPath(0.5)
    model.train()
    pixels = torch.randn(6, 3, 32, 32)
    with RowDropout(seed=1, rows=range(6)):
        whole = model(pixel_values=pixels).features
    with RowDropout(seed=1, rows=range(4, 6)):
        part = model(pixel_values=pixels[4:]).features
    assert torch.allclose(part, whole[4:], atol=1e-5)


def test_masks_that_are_not_of_rows_are_refused():
    attention = torch.nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)
    x = torch.randn(3, 4, 8)
    with RowDropout(seed=0, rows=range(3)), pytest.raises(ValueError, match=r"inside torch\.nn\.MultiheadAttention"):
        attention(x, x, x)
    with RowDropout(seed=0, rows=range(3)), pytest.raises(ValueError, match=r"shape \(5, 8\)"):
        F.dropout(torch.ones(5, 8))
