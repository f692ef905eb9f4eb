import multiprocessing
from pathlib import Path

import pytest
import torch

from hf_mlcl.evaluation import FeatureCache, feature_key

WEIGHTS = {"a.weight": torch.arange(6.0).view(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
FEATURES = {"features": torch.randn(5, 3), "labels": torch.ones(5, 2, dtype=torch.bool)}


def test_the_key_changes_with_weights_data_and_processing_and_with_nothing_else():
    key = feature_key(WEIGHTS, "rows", {"max_length": 48})
    assert key == feature_key(dict(reversed(WEIGHTS.items())), "rows", {"max_length": 48})
    one_bit = WEIGHTS["a.weight"].clone()
    one_bit[1, 2] = torch.nextafter(one_bit[1, 2], torch.tensor(9.0))
    others = [
        feature_key({**WEIGHTS, "a.weight": one_bit}, "rows", {"max_length": 48}),
        feature_key({**WEIGHTS, "a.weight": WEIGHTS["a.weight"].view(3, 2)}, "rows", {"max_length": 48}),
        feature_key({**WEIGHTS, "b": torch.ones(2, dtype=torch.float16)}, "rows", {"max_length": 48}),
        feature_key({"renamed": WEIGHTS["a.weight"], "b": WEIGHTS["b"]}, "rows", {"max_length": 48}),
        feature_key(WEIGHTS, "other rows", {"max_length": 48}),
        feature_key(WEIGHTS, "rows", {"max_length": 49}),
    ]
    assert len({key, *others}) == 7


def test_what_was_saved_comes_back_bit_for_bit(tmp_path):
    cache = FeatureCache(tmp_path / "new folder")
    assert cache.load("k") is None
    cache.save("k", FEATURES)
    loaded = cache.load("k")
    assert loaded.keys() == FEATURES.keys()
    assert all(torch.equal(loaded[name], FEATURES[name]) for name in FEATURES)


def test_features_are_computed_once(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return FEATURES

    cache = FeatureCache(tmp_path)
    for _ in range(3):
        assert torch.equal(cache.get_or_compute("k", compute)["features"], FEATURES["features"])
    assert len(calls) == 1


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "garbage"])
def test_a_damaged_file_is_not_trusted_and_is_replaced(tmp_path, damage):
    cache = FeatureCache(tmp_path)
    path = cache.save("k", FEATURES)
    content = bytearray(path.read_bytes())
    if damage == "truncate":
        content = content[:-7]
    elif damage == "flip":
        content[-3] ^= 0x40  # inside a tensor: still a well-formed file
    else:
        content = b"" if damage == "empty" else b"not a file of tensors" * 9
    path.write_bytes(content)
    assert cache.load("k") is None
    assert torch.equal(cache.get_or_compute("k", lambda: FEATURES)["features"], FEATURES["features"])
    assert cache.load("k") is not None


def test_a_file_under_the_wrong_key_is_not_trusted(tmp_path):
    cache = FeatureCache(tmp_path)
    cache.save("one", FEATURES).rename(cache.path("two"))
    assert cache.load("two") is None


def test_nothing_is_left_behind_when_writing_fails(tmp_path, monkeypatch):
    def fail(*_args, **_kwargs):
        raise OSError("disk full")

    monkeypatch.setattr("hf_mlcl.evaluation.feature_cache.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        FeatureCache(tmp_path).save("k", FEATURES)
    assert list(tmp_path.iterdir()) == []


def _write(folder, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(20):
        FeatureCache(folder).save("k", {"features": torch.rand(2000, generator=generator)})


def test_readers_never_see_half_of_what_two_processes_write_at_once(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, seed)) for seed in range(2)]
    for writer in writers:
        writer.start()
    cache, seen = FeatureCache(tmp_path), 0
    while any(writer.is_alive() for writer in writers) or not seen:
        if cache.path("k").exists():
            assert cache.load("k") is not None
            seen += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["k.safetensors"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_what_is_loaded_stays_on_the_disk_and_takes_no_memory_of_its_own(tmp_path):
    def own_megabytes():
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
        return int(line.split()[1]) / 1024

    FeatureCache(tmp_path).save("k", {"features": torch.ones(25_000_000)})
    before = own_megabytes()
    loaded = FeatureCache(tmp_path).load("k")
    assert float(loaded["features"].sum()) == 25_000_000
    assert own_megabytes() - before < 30  # of 100


def test_a_key_that_would_leave_the_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`key` must consist of letters"):
        FeatureCache(tmp_path).path("../elsewhere")
