"""Downloads against a local server: they resume, prove their checksum, and say what to do when they fail."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from data import official
from hf_mlcl.data import CorpusDownloadError, CorpusFileError, corpus_facts, download, load_corpus
from hf_mlcl.data.corpora import semeval2018
from hf_mlcl.data.download import fetch
from hf_mlcl.data.facts import RemoteFile

CONTENT = bytes(range(256)) * 4000


class Server(ThreadingHTTPServer):
    """Serves `content`; breaks the first `breaks` answers off half-way; notes the ranges it was asked for."""

    content, etag, breaks, status = CONTENT, '"v1"', 0, 200

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges: list[str | None] = []
        self.url = f"http://127.0.0.1:{self.server_port}/file.bin"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        wanted = self.headers.get("Range")
        server.ranges.append(wanted)
        if server.status != 200:
            self.send_error(server.status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if self.headers.get("If-Range") not in (None, server.etag):
            start = 0
        body = server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", server.etag)
        self.end_headers()
        if server.breaks:
            server.breaks -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path):
    server.breaks = 2
    path = fetch(RemoteFile("file.bin", server.url), tmp_path, "")
    assert Path(path).read_bytes() == CONTENT
    assert server.ranges == [None, f"bytes={len(CONTENT) // 2}-", f"bytes={len(CONTENT) * 3 // 4}-"]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        *("file.bin", "file.bin.first_use.json", "file.bin.lock")
    ]


def test_a_later_call_goes_on_too_but_not_with_another_version(server, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 1)
    server.breaks = 1
    with pytest.raises(CorpusDownloadError, match=r"file\.bin could not be downloaded from http://127"):
        fetch(RemoteFile("file.bin", server.url), tmp_path, "")
    assert not (tmp_path / "file.bin").exists()
    server.content, server.etag = CONTENT[::-1], '"v2"'
    assert Path(fetch(RemoteFile("file.bin", server.url), tmp_path, "")).read_bytes() == CONTENT[::-1]


def test_a_file_is_fetched_once(server, tmp_path):
    for _ in range(2):
        fetch(RemoteFile("file.bin", server.url), tmp_path, "")
    assert len(server.ranges) == 1


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_a_wrong_checksum_is_an_error_and_leaves_no_file(server, tmp_path, algorithm):
    right = hashlib.new(algorithm, CONTENT).hexdigest()
    with pytest.raises(CorpusDownloadError, match=f"its {algorithm} is {right}, expected 0000"):
        fetch(RemoteFile("file.bin", server.url, **{algorithm: "0000"}), tmp_path, "")
    assert not list(tmp_path.glob("*.bin")) + list(tmp_path.glob("*.part"))
    fetch(RemoteFile("file.bin", server.url, **{algorithm: right}), tmp_path, "")


def test_a_checksum_that_nobody_states_is_that_of_the_first_use(server, tmp_path):
    file = RemoteFile("file.bin", server.url)
    path = Path(fetch(file, tmp_path, ""))
    record = tmp_path / "file.bin.first_use.json"
    assert json.loads(record.read_text())["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    path.unlink()
    fetch(file, tmp_path, "")  # the same once more
    path.unlink()
    server.content = CONTENT[::-1]
    with pytest.raises(CorpusDownloadError, match=rf"at its first use on \d+-\d+-\d+\..* delete {record}"):
        fetch(file, tmp_path, "")
    assert not path.exists()
    record.unlink()
    assert Path(fetch(file, tmp_path, "")).read_bytes() == CONTENT[::-1]


def test_a_file_that_has_changed_on_the_disk_is_not_taken_and_not_deleted(server, tmp_path):
    for name, sums in (("a", {}), ("b", {"md5": hashlib.md5(CONTENT).hexdigest()})):
        file = RemoteFile(name, server.url, **sums)
        path = Path(fetch(file, tmp_path, ""))
        path.write_bytes(b"something else")
        with pytest.raises(CorpusFileError, match=rf"{path} is not the file that .* gave: its (sha256|md5) is"):
            fetch(file, tmp_path, "")
        assert path.read_bytes() == b"something else"


def test_a_file_that_is_untouched_is_not_read_again(server, tmp_path, monkeypatch):
    fetch(RemoteFile("file.bin", server.url), tmp_path, "")
    monkeypatch.setattr(download, "_mismatch", None)  # what reads it
    asked = len(server.ranges)
    assert Path(fetch(RemoteFile("file.bin", server.url), tmp_path, "")).read_bytes() == CONTENT
    assert len(server.ranges) == asked


def test_a_file_from_before_is_written_down_at_its_first_use(server, tmp_path):
    (tmp_path / "file.bin").write_bytes(CONTENT)
    fetch(RemoteFile("file.bin", server.url), tmp_path, "")
    (tmp_path / "file.bin").write_bytes(CONTENT[:-1])
    with pytest.raises(CorpusFileError, match="at its first use"):
        fetch(RemoteFile("file.bin", server.url), tmp_path, "")
    assert not server.ranges


def test_an_address_that_fails_is_named_with_the_manual_way(server, tmp_path):
    server.status = 404
    with pytest.raises(CorpusDownloadError, match=rf"{server.url}: HTTPError: .*404(.|\n)*put it there by hand"):
        fetch(RemoteFile("file.bin", server.url), tmp_path, "put it there by hand")
    assert len(server.ranges) == 1  # it will not appear by asking again


def test_a_full_disk_is_named_at_once_and_the_download_goes_on_when_there_is_room(server, tmp_path, monkeypatch):
    class Full(io.FileIO):
        """A file on a disk with room for a thousand bytes."""

        def write(self, data):
            super().write(data[:1000])
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(download, "open", lambda path, mode: Full(path, mode), raising=False)
        with pytest.raises(CorpusFileError, match=rf"The disk of {tmp_path} is full"):
            fetch(RemoteFile("file.bin", server.url), tmp_path, "")
    assert not (tmp_path / "file.bin").exists()
    assert Path(fetch(RemoteFile("file.bin", server.url), tmp_path, "")).read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=1000-"]  # to try again at once would not have helped


def test_a_note_that_cannot_be_written_whole_is_not_there_for_the_next_attempt(server, tmp_path, monkeypatch):
    def half(path, text):
        path.write_bytes(text[:2].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", half)
        with pytest.raises(CorpusFileError, match=rf"The disk of {tmp_path} is full"):
            fetch(RemoteFile("file.bin", server.url), tmp_path, "")
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:10])
    assert Path(fetch(RemoteFile("file.bin", server.url), tmp_path, "")).read_bytes() == CONTENT


@pytest.fixture
def semeval_server(server, monkeypatch):
    """SemEval's zip from the local server."""
    body = "ID\tTweet\tanger\tjoy\n1\thm\t1\t0\n"
    server.files = {f"E-c/2018-E-c-En-{part}.txt": body for part in ("train", "dev", "test-gold")}
    remote = (RemoteFile("SemEval2018-Task1-all-data.zip", server.url),)
    monkeypatch.setattr(semeval2018.Semeval2018, "FACTS", replace(corpus_facts("semeval2018"), files=remote))
    return server


def test_a_corpus_downloads_itself(semeval_server, tmp_path):
    semeval_server.content = official.write_zip(tmp_path / "a.zip", semeval_server.files).read_bytes()
    corpus = load_corpus("semeval2018", cache_dir=tmp_path / "cache")
    assert [len(data) for data in corpus.values()] == [1, 1, 1]


def test_a_download_that_proves_corrupt_is_thrown_away_and_fetched_anew(semeval_server, tmp_path):
    whole = official.write_zip(tmp_path / "a.zip", semeval_server.files).read_bytes()
    semeval_server.content = whole[:-30]
    with pytest.raises(
        CorpusFileError, match=r"all-data\.zip is truncated or corrupt(.|\n)*has been deleted: call again"
    ):
        load_corpus("semeval2018", cache_dir=tmp_path / "cache")
    semeval_server.content = whole
    assert len(load_corpus("semeval2018", cache_dir=tmp_path / "cache")["train"]) == 1


def test_no_network_names_the_address_and_the_manual_way(semeval_server, tmp_path):
    semeval_server.shutdown()
    semeval_server.server_close()
    with pytest.raises(CorpusDownloadError, match=r"http://127(.|\n)*To get semeval2018 by hand: put SemEval2018"):
        load_corpus("semeval2018", cache_dir=tmp_path / "cache")
