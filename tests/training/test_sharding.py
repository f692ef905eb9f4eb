"""FSDP2 on two ranks against one process with the same rows; and launches that would not do what they were told."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from copies import all_went_well, run_ranks
from hf_mlcl import ContrastiveTrainingArguments, MLCLModel
from hf_mlcl.training.sharding import check_gatherable
from training import sharding_worker
from training.test_distributed import assert_same_gradients
from training.tiny import text_rows

SAME = {"rtol": 1e-5, "atol": 1e-6}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What one process and two ranks recorded, and the folder of the latter."""
    folder = tmp_path_factory.mktemp("sharded")
    for ranks in (1, 2):
        assert all_went_well(run_ranks(sharding_worker.main, str(folder / f"{ranks}.pt"), ranks=ranks, folder=folder))
    return torch.load(folder / "1.pt"), torch.load(folder / "2.pt"), folder / "2"


@pytest.mark.distributed
def test_sharded_gradients_weights_and_features_equal_those_of_one_process(results):
    one, two, _ = results
    assert two["is_sharded"]
    assert not one["is_sharded"]
    assert len(two["gradients"]) == len(one["gradients"]) == sharding_worker.STEPS
    assert_same_gradients(two["gradients"][0], one["gradients"][0])
    for name in ("gathered", "resumed"):
        assert two[name].keys() == one[name].keys()
        for weight, value in one[name].items():
            torch.testing.assert_close(two[name][weight], value, **SAME)
    torch.testing.assert_close(two["features"], one["features"], **SAME)


@pytest.mark.distributed
def test_resumed_from_a_sharded_checkpoint_it_ends_with_the_same_weights(results):
    _, two, folder = results
    assert (folder / "checkpoint-2" / "pytorch_model_fsdp_0").is_dir()
    for name, value in two["gathered"].items():
        torch.testing.assert_close(two["resumed"][name], value, **SAME)


@pytest.mark.distributed
def test_a_gathered_model_is_saved_whole_and_loads_in_one_process(results):
    _, two, folder = results
    batch = {name: torch.stack([row[name] for row in text_rows(10)]) for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        features = MLCLModel.from_pretrained(folder / "whole").eval()(**batch).features
    torch.testing.assert_close(features, two["features"], **SAME)


@pytest.mark.distributed
@pytest.mark.skipif(find_spec("deepspeed") is None, reason="DeepSpeed is not installed, and no dependency of ours")
def test_with_zero_3_it_trains_saves_and_resumes_as_without(results, tmp_path, monkeypatch):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert all_went_well(run_ranks(sharding_worker.zero_3, str(tmp_path / "zero.pt"), ranks=1, folder=tmp_path))
    found, (one, *_) = torch.load(tmp_path / "zero.pt"), results
    assert found["enabled"]
    for name in ("features", "resumed"):
        torch.testing.assert_close(found[name], one["features"], **SAME)
    saved = MLCLModel.from_pretrained(tmp_path / "zero" / "whole").state_dict()
    for name, value in one["gathered"].items():
        torch.testing.assert_close(saved[name], value, **SAME)


class Sharded:
    """A trainer as far as `check_gatherable` looks at it."""

    def __init__(self, fsdp=None, zero=None):
        self.is_fsdp_enabled, self.is_deepspeed_enabled = fsdp is not None, zero is not None
        plugins = {
            "fsdp_plugin": type("P", (), {"fsdp_version": fsdp}),
            "deepspeed_plugin": type("P", (), {"zero_stage": zero}),
        }
        self.accelerator = type("A", (), {"state": type("S", (), plugins)})
        self.model = type("M", (), {"backbone": type("B", (), {"_hf_peft_config_loaded": False})})()


def test_what_could_not_be_saved_in_the_end_is_refused_at_the_beginning():
    for kind in ({"zero": 3}, {"fsdp": 1}):
        with pytest.raises(ValueError, match=r"recipes and `hf-mlcl train` cannot .* docs/scaling\.md"):
            check_gatherable(Sharded(**kind))
    for kind in ({"zero": 2}, {"fsdp": 2}, {}):
        check_gatherable(Sharded(**kind))


@pytest.mark.parametrize("given", [{"fsdp": "full_shard"}, {}], ids=["fsdp=", "by accelerate launch"])
def test_fsdp_on_cpus_is_refused_because_accelerate_would_not_shard(monkeypatch, given):
    monkeypatch.setattr(ContrastiveTrainingArguments, "world_size", 2)
    if not given:
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ValueError, match="FSDP is not possible on CPUs"):
        ContrastiveTrainingArguments("outputs", use_cpu=True, report_to="none", **given)


def test_accelerate_launch_that_starts_one_process_for_several_is_told(monkeypatch):
    settings = {"use_cpu": True, "report_to": "none"}
    for name, value in {"ACCELERATE_MIXED_PRECISION": "no", "MASTER_ADDR": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.warns(UserWarning, match="starts one: .* Use torchrun --nproc_per_node N"):
        ContrastiveTrainingArguments("outputs", **settings)
