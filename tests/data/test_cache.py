"""What a second call may trust."""

from __future__ import annotations

import errno
import os
import signal

import datasets
import pytest

from copies import Copy
from data import official
from hf_mlcl.data import CorpusFileError, load_corpus
from hf_mlcl.data.builder import CorpusBuilder


@pytest.fixture
def folder(tmp_path):
    return official.write_files(tmp_path / "data", official.aapd_csv())


def sizes(corpus):
    return [len(data) for data in corpus.values()]


def test_two_folders_never_share_a_cache(folder, tmp_path):
    other = official.write_files(
        tmp_path / "other", official.aapd_csv({k: v[:1] for k, v in official.AAPD_ROWS.items()})
    )
    cache = tmp_path / "cache"
    assert sizes(load_corpus("aapd", data_dir=folder, cache_dir=cache)) == [25, 2, 2]
    assert sizes(load_corpus("aapd", data_dir=other, cache_dir=cache)) == [1, 1, 1]
    assert sizes(load_corpus("aapd", data_dir=folder, cache_dir=cache)) == [25, 2, 2]


def test_two_corpora_sizes_and_strictness_never_share_a_cache(folder, tmp_path):
    official.write_files(folder, official.bgc_files())
    cache = tmp_path / "cache"
    builds = [
        load_corpus(name, size=size, data_dir=folder, cache_dir=cache, strict=strict)
        for name in ("aapd", "bgc")
        for size in ("full", "small")
        for strict in (False, True)
    ]
    places = {data.cache_files[0]["filename"] for corpus in builds for data in corpus.values()}
    assert len(places) == 8 * 3


def test_a_changed_file_is_read_again(folder, tmp_path):
    cache = tmp_path / "cache"
    load_corpus("aapd", data_dir=folder, cache_dir=cache)
    with open(folder / "dev.csv", "a") as file:
        file.write("new,0,0,0,1\r\n")
    assert sizes(load_corpus("aapd", data_dir=folder, cache_dir=cache)) == [25, 3, 2]


def test_the_second_call_reads_no_source_file(folder, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    first = load_corpus("aapd", data_dir=folder, cache_dir=cache)
    monkeypatch.setattr(CorpusBuilder, "_split_generators", None)
    again = load_corpus("aapd", data_dir=os.path.relpath(folder), cache_dir=cache)
    assert again["train"][:] == first["train"][:]


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, OSError("disk full")])
def test_a_build_that_breaks_off_leaves_nothing_that_is_trusted(folder, tmp_path, monkeypatch, error):
    cache = tmp_path / "cache"
    row = CorpusBuilder._row
    calls = iter(range(100))

    def breaks(self, example):
        if next(calls) == 26:  # in the second split: the first is on disk already
            raise error
        return row(self, example)

    with monkeypatch.context() as patch:
        patch.setattr(CorpusBuilder, "_row", breaks)
        with pytest.raises(BaseException):  # noqa: B017, PT011  (datasets wraps some of them)
            load_corpus("aapd", data_dir=folder, cache_dir=cache)
    assert not list(cache.rglob("dataset_info.json"))
    assert sizes(load_corpus("aapd", data_dir=folder, cache_dir=cache)) == [25, 2, 2]


def load_until_killed(folder, cache):
    row, calls = CorpusBuilder._row, iter(range(100))

    def dying(self, example):
        if next(calls) == 26:
            os.kill(os.getpid(), signal.SIGKILL)
        return row(self, example)

    CorpusBuilder._row = dying
    load_corpus("aapd", data_dir=folder, cache_dir=cache)


def test_a_process_that_is_killed_leaves_nothing_that_is_trusted(folder, tmp_path):
    cache = tmp_path / "cache"
    killed = Copy(load_until_killed, folder, cache, output=tmp_path / "printed.txt")
    assert killed.end() == -signal.SIGKILL, killed.printed()
    assert list(cache.rglob("*.incomplete"))  # it was in the middle of it
    assert sizes(load_corpus("aapd", data_dir=folder, cache_dir=cache)) == [25, 2, 2]


@pytest.mark.parametrize("damage", ["remove", "truncate", "empty", "problems"])
def test_a_cache_that_was_damaged_later_is_built_again(folder, tmp_path, damage):
    cache = tmp_path / "cache"
    load_corpus("aapd", data_dir=folder, cache_dir=cache)
    (arrow,) = cache.rglob("*train.arrow")
    if damage == "remove":
        arrow.unlink()
    elif damage == "problems":
        (arrow.parent / "problems.json").unlink()
    else:
        arrow.write_bytes(arrow.read_bytes()[: 300 if damage == "truncate" else 0])
    corpus = load_corpus("aapd", data_dir=folder, cache_dir=cache)
    assert corpus["train"]["text"][0] == 'He said "no", twice.'
    assert sizes(corpus) == [25, 2, 2]


def closed(*args, **kwargs):
    raise PermissionError(errno.EACCES, "Permission denied")


@pytest.fixture
def read_only(monkeypatch):
    """As where the cache may only be read: no lock can be made in it. Root may write anywhere, whatever modes say."""

    def close(cache):
        lock = datasets.builder.FileLock
        monkeypatch.setattr(
            datasets.builder, "FileLock", lambda path: (closed if str(path).startswith(str(cache)) else lock)(path)
        )

    return close


def test_a_corpus_that_is_built_loads_from_a_cache_that_cannot_be_written(folder, tmp_path, read_only):
    cache = tmp_path / "cache"
    first = load_corpus("aapd", data_dir=folder, cache_dir=cache)
    before = sorted(cache.rglob("*"))
    read_only(cache)
    again = load_corpus("aapd", data_dir=folder, cache_dir=cache)
    assert again["train"][:] == first["train"][:]
    assert again["train"].features == first["train"].features
    assert again["train"]._fingerprint == first["train"]._fingerprint  # so that tokens are found again too
    assert sorted(cache.rglob("*")) == before


def test_a_corpus_that_is_not_built_says_which_folder_cannot_be_written(folder, tmp_path, read_only):
    cache = tmp_path / "cache"
    read_only(cache)
    with pytest.raises(CorpusFileError, match=rf"aapd is not built yet, and its cache {cache} cannot be written"):
        load_corpus("aapd", data_dir=folder, cache_dir=cache)


@pytest.mark.parametrize("method", ["__init__", "write_examples_on_file", "finalize"])
def test_a_full_disk_is_named_and_nothing_half_written_is_trusted(folder, tmp_path, monkeypatch, method):
    cache = tmp_path / "cache"

    def fails(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(datasets.arrow_writer.ArrowWriter, method, fails)
        with pytest.raises(CorpusFileError, match=rf"The disk of {cache} is full"):
            load_corpus("aapd", data_dir=folder, cache_dir=cache)
    assert not list(cache.rglob("dataset_info.json"))
    assert sizes(load_corpus("aapd", data_dir=folder, cache_dir=cache)) == [25, 2, 2]


def test_a_full_disk_is_named_when_what_was_left_out_is_noted(folder, tmp_path, monkeypatch):
    cache = tmp_path / "cache"

    def fails(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hf_mlcl.data.builder.json.dump", fails)
        with pytest.raises(CorpusFileError, match=rf"The disk of {cache} is full"):
            load_corpus("aapd", data_dir=folder, cache_dir=cache)
    assert not list(cache.rglob("dataset_info.json"))
    assert sizes(load_corpus("aapd", data_dir=folder, cache_dir=cache)) == [25, 2, 2]
