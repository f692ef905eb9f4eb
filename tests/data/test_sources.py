"""Damaged and hostile files: they are named, nothing is written, and no cache stays that a second call would trust."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from data import official
from hf_mlcl.data import CorpusError, CorpusFileError, load_corpus, sources
from hf_mlcl.data.sources import SourceTree, safe_name

FILES = official.aapd_csv()


def packed(kind: str) -> tuple[str, bytes]:
    """A whole AAPD in one file of this kind."""
    with tempfile.TemporaryDirectory() as folder:
        name = {"zip": "aapd.zip", "gz": "aapd.tar.gz", "tar": "aapd.tar"}[kind]
        path = Path(folder) / name
        if kind == "zip":
            official.write_zip(path, FILES)
        else:
            official.write_tar(path, FILES, "w:gz" if kind == "gz" else "w")
        return name, path.read_bytes()


def contents(corpus):
    return {split: (data["text"][:], data["labels"][:]) for split, data in corpus.items()}


def tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def load_twice(root: Path):
    """Load strictly, two times, in a folder of its own; give both outcomes and check that nothing else was touched."""
    before = tree(root)
    outcomes, messages = [], []
    for _ in range(2):
        try:
            corpus = load_corpus("aapd", data_dir=root / "data", cache_dir=root / "cache", strict=True)
            outcomes.append(contents(corpus))
        except CorpusError as error:
            outcomes.append("refused")
            messages.append(str(error))
    assert all(str(root / "data") in message for message in messages)
    assert {path for path in tree(root) - before if not path.startswith("cache")} == set()
    assert not list(root.rglob("*.incomplete"))
    return outcomes


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    return contents(load_corpus("aapd", data_dir=official.write_files(root / "data", FILES), cache_dir=root / "cache"))


@pytest.mark.parametrize("kind", ["zip", "gz", "tar"])
@given(data=st.data())
def test_a_truncated_archive_is_refused_both_times(whole, kind, data):
    name, archive = packed(kind)
    # The padding after a tar's end mark may go: nothing is lost with it.
    end = len(archive.rstrip(b"\0")) if kind == "tar" else len(archive) - 1
    cut = data.draw(st.integers(0, end), label="cut")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        official.write_files(root / "data", {name: archive[:cut]})
        assert load_twice(root) == ["refused", "refused"]


@pytest.mark.parametrize("kind", ["zip", "gz"])
@given(data=st.data())
def test_a_corrupt_archive_is_refused_or_gives_every_row_unchanged(whole, kind, data):
    name, archive = packed(kind)
    damaged = bytearray(archive)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(archive) - 1))
        damaged[place] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        official.write_files(root / "data", {name: bytes(damaged)})
        first, second = load_twice(root)
        assert first == second
        assert first in ("refused", whole)


@settings(max_examples=150)
@given(
    parts=st.lists(
        st.sampled_from(["..", ".", "", "a", "C:", "~", "train.csv", "\\", "\n", "\x7f", "é"]), min_size=1, max_size=5
    ),
    separator=st.sampled_from(["/", "\\"]),
    kind=st.sampled_from(["zip", "tar"]),
)
@example(parts=["..", "..", "escaped.csv"], separator="/", kind="tar")
@example(parts=["", "etc", "passwd"], separator="/", kind="zip")
def test_hostile_member_names_write_nothing_outside_the_cache(whole, parts, separator, kind):
    name = separator.join(parts)
    assume(name)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "deep" / "er"
        write = official.write_zip if kind == "zip" else official.write_tar
        write(root / "data" / f"aapd.{kind}", {**{f"aapd/{k}": v for k, v in FILES.items()}, name: b"x"})
        outside = tree(Path(folder)) - {f"deep/er/{path}" for path in tree(root)}
        first, second = load_twice(root)
        assert tree(Path(folder)) - {f"deep/er/{path}" for path in tree(root)} == outside
        assert first == second
        assert first in ("refused", whole)


@given(st.text(min_size=1))
def test_a_safe_name_stays_in_its_folder(name):
    try:
        safe = safe_name(name, "archive")
    except CorpusFileError:
        return
    assert not safe.startswith("/")
    assert ".." not in safe.split("/")
    assert "\\" not in safe
    assert (Path("/some/folder") / safe).resolve().is_relative_to("/some/folder")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused(tmp_path, kind):
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        info = tarfile.TarInfo("train.csv")
        info.type, info.linkname = kind, "/etc/passwd"
        archive.addfile(info)
    with pytest.raises(CorpusFileError, match=r"evil\.tar holds 'train\.csv', which is a link or a device"):
        list(SourceTree([str(tmp_path)]).walk())


def test_links_in_a_zip_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        info = zipfile.ZipInfo("train.csv")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(CorpusFileError, match="link or a device"):
        list(SourceTree([str(tmp_path)]).walk())


@pytest.mark.parametrize("kind", ["zip", "gz"])
def test_an_archive_bomb_is_stopped_by_what_it_unpacks_to_not_by_what_it_claims(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(sources, "FREE_BYTES", 1000)
    bomb = bytes(4 << 20)
    if kind == "zip":
        official.write_zip(tmp_path / "bomb.zip", {"train.csv": bomb})
    else:
        (tmp_path / "train.csv.gz").write_bytes(gzip.compress(bomb))
    with pytest.raises(CorpusFileError, match="archive bomb"):
        [member.read() for member in SourceTree([str(tmp_path)]).walk()]


def test_an_encrypted_member_names_its_archive(tmp_path):
    path = official.write_zip(tmp_path / "locked.zip", {"train.csv": "x"})
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the flag of an encrypted member
    data[6] |= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CorpusFileError, match=r"locked\.zip: train\.csv"):
        next(SourceTree([str(tmp_path)]).walk()).read()


def test_lines_end_at_line_feeds_only_and_lose_the_byte_order_mark(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\x0btwo\r\nthr\xe9e\r\n\xe2\x80\xa8four")
    (member,) = SourceTree([str(tmp_path)]).walk()
    assert list(member.lines()) == [(1, "one\x0btwo"), (2, "thrée"), (3, "\u2028four")]


def test_a_loop_of_links_is_walked_once(tmp_path):
    official.write_files(tmp_path, {"a/b.txt": "x"})
    (tmp_path / "a" / "again").symlink_to(tmp_path, target_is_directory=True)
    assert [member.name for member in SourceTree([str(tmp_path)]).walk()] == ["a/b.txt"]


def test_members_that_are_not_wanted_are_not_unpacked(tmp_path):
    broken = bytearray(official.write_zip(tmp_path / "a.zip", {"bad.txt": "x" * 500, "good.txt": "fine"}).read_bytes())
    broken[38] ^= 255
    (tmp_path / "a.zip").write_bytes(bytes(broken))
    walked = [member.read() for member in SourceTree([str(tmp_path)]).walk(lambda name: name == "good.txt")]
    assert walked == [b"fine"]
    with pytest.raises(CorpusFileError, match=r"a\.zip: bad\.txt is truncated or corrupt"):
        [member.read() for member in SourceTree([str(tmp_path)]).walk()]


def test_reading_a_large_member_as_a_stream_gives_the_same_lines(tmp_path):
    text = "".join(f"line {number}\n" for number in range(50_000))
    official.write_tar(tmp_path / "a.tar.gz", {"lines.txt": text}, "w:gz")
    (lines,) = ([line for _, line in member.lines()] for member in SourceTree([str(tmp_path)]).walk())
    assert lines == list(map(str.rstrip, io.StringIO(text)))
