"""The downloader of NUS-WIDE's images against a local server that behaves as Flickr does."""

from __future__ import annotations

import io
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from PIL import Image

from data import official
from hf_mlcl.data import CorpusFileError, CorpusFormatError, nuswide_images
from hf_mlcl.data.nuswide_images import UnclearError, check_picture, download_images, read_list


def picture(side=60, kind="JPEG"):
    encoded = io.BytesIO()
    Image.new("RGB", (side, side // 2), (side % 256, 90, 160)).save(encoded, kind)
    return encoded.getvalue()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, path = self.server, self.path
        with server.lock:
            server.asked[path] += 1
            times = server.asked[path]
        answer = server.answers.get(path, 404)
        if isinstance(answer, list):  # one after the other
            answer = answer[min(times, len(answer)) - 1]
        if isinstance(answer, str):
            self.send_response(302)
            self.send_header("Location", answer)
            self.end_headers()
        elif isinstance(answer, int):
            self.send_response(answer)
            self.send_header("Retry-After", "0")
            self.end_headers()
        else:
            self.send_response(200)
            cut = path.endswith("_cut.jpg") and times == 1
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[: len(answer) // 2] if cut else answer)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.answers, server.asked, server.lock = {}, Counter(), threading.Lock()
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def line(server, number, middle="null", large="null", small="null", folder="actor"):
    name = f"C:\\ImageData\\Flickr\\{folder}\\{number:04d}_{1000 + number}.jpg"
    addresses = [address if address == "null" else f"{server.url}/{address}" for address in (large, middle, small)]
    return f"{name}    {1000 + number} {' '.join(addresses)} null"


def write_list(folder, lines):
    path = folder / "NUS-WIDE-urls.txt"
    header = "Photo_file      Photo_id        url_Large       url_Middle      url_Small       url_Original"
    path.write_text("\r\n".join([header, *lines, ""]))
    return path


def test_pictures_come_and_what_is_gone_is_counted_and_not_asked_for_again(server, tmp_path):
    whole, gone = picture(), "/images/photo_unavailable.gif"
    server.answers |= {
        "/1001_m.jpg": whole,
        "/1002_m.jpg": gone,
        "/1003_b.jpg": whole,  # the middle one is gone, the large one is there
        "/1003_m.jpg": gone,
        "/1005_m.jpg": b"<html>not found</html>",
        "/1006_m.jpg": picture(900),  # larger than pictures of this column are
        "/1007_m.jpg": picture(kind="GIF"),
        "/1008_m.jpg": "/9999_m.jpg",  # another photo
        "/9999_m.jpg": whole,
        gone: picture(kind="GIF"),
    }
    lines = [line(server, n, f"{1000 + n}_m.jpg", f"{1000 + n}_b.jpg") for n in range(1, 9)]
    lines.append(line(server, 9))  # without any address
    urls = write_list(tmp_path, lines)
    outcome = download_images(urls, tmp_path, per_second=1000)
    assert (outcome.fetched, outcome.gone) == (2, 5)
    # What may be the page of a network in between says nothing of a picture.
    assert sorted(outcome.failed) == ["actor/0005_1005.jpg", "actor/0008_1008.jpg"]
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.jpg"))
    assert found == ["Flickr/actor/0001_1001.jpg", "Flickr/actor/0003_1003.jpg"]
    assert (tmp_path / found[0]).read_bytes() == whole
    reasons = (tmp_path / "gone.tsv").read_text()
    for part in ("photo_unavailable.gif", "HTTP 404", "at most 500 expected", "a GIF"):
        assert part in reasons
    server.asked.clear()
    server.answers |= {"/1005_m.jpg": whole, "/1008_m.jpg": whole}
    again = download_images(urls, tmp_path, per_second=1000)
    assert (again.there, again.fetched, again.gone, again.failed) == (2, 2, 5, {})
    assert server.asked == {"/1005_m.jpg": 1, "/1008_m.jpg": 1}


def test_a_busy_server_and_a_broken_line_are_tried_again_and_what_fails_stays_for_the_next_call(server, tmp_path):
    server.answers |= {
        "/1001_m.jpg": [429, 503, picture()],
        "/1002_cut.jpg": picture(),
        "/1003_m.jpg": [503, 503, 503, picture()],
    }
    urls = write_list(
        tmp_path, [line(server, 1, "1001_m.jpg"), line(server, 2, "1002_cut.jpg"), line(server, 3, "1003_m.jpg")]
    )
    first = download_images(urls, tmp_path, per_second=1000)
    assert first.fetched == 2
    assert list(first.failed) == ["actor/0003_1003.jpg"]
    assert "1 x HTTPError: HTTP Error 503" in str(first)
    assert not list((tmp_path / "Flickr").rglob("*.part"))
    second = download_images(urls, tmp_path, per_second=1000)
    assert (second.there, second.fetched, second.failed) == (2, 1, {})


def test_only_what_is_wanted_is_fetched_and_load_corpus_finds_it(server, tmp_path, load):
    lines = [line(server, n, f"{1000 + n}_m.jpg") for n in range(20)]
    server.answers |= {f"/{1000 + n}_m.jpg": official.jpeg(n) for n in range(20)}
    official.write_files(tmp_path, official.nus_lists())
    urls = write_list(tmp_path, lines)
    assert download_images(urls, tmp_path, only={"0000_1000.jpg"}, per_second=1000).fetched == 1
    assert sum(server.asked.values()) == 1
    assert download_images(urls, tmp_path, per_second=1000).fetched == 19
    corpus = load("nuswide", data_dir=tmp_path)
    assert [len(data) for data in corpus.values()] == [10, 4, 4]


def test_requests_keep_their_distance_whatever_the_number_of_workers(server, tmp_path, monkeypatch):
    waits = []
    monkeypatch.setattr(nuswide_images.time, "sleep", waits.append)
    server.answers |= {f"/{1000 + n}_m.jpg": picture() for n in range(5)} | {"/1005_m.jpg": [429, picture()]}
    urls = write_list(tmp_path, [line(server, n, f"{1000 + n}_m.jpg") for n in range(6)])
    assert download_images(urls, tmp_path, workers=3, per_second=10).fetched == 6
    assert waits == [pytest.approx(0.3)] * 7  # three workers, each of which asks every 0.3 seconds


def test_names_with_spaces_slashes_and_either_order_of_columns_are_read(tmp_path):
    path = tmp_path / "urls.txt"
    path.write_text(
        "Photo_file Photo_id url_Small url_Middle\n"
        "C:\\ImageData\\Flickr\\new york\\0001_77.jpg 77 http://a/77_m.jpg http://a/77.jpg\n"
        "Flickr/zoo/0002_78.jpg\t78\tnull\thttp://a/78.jpg\n"
    )
    first, second = read_list(path)
    assert (first.name, first.addresses["url_Small"]) == ("new york/0001_77.jpg", "http://a/77_m.jpg")
    assert (second.name, second.addresses) == ("zoo/0002_78.jpg", {"url_Middle": "http://a/78.jpg"})


@pytest.mark.parametrize(
    "wrong",
    [
        "C:\\a\\0001_77.jpg 78 http://a/b.jpg",
        "Flickr\\..\\0001_77.jpg 77 http://a/77.jpg",
        "..\\..\\etc\\passwd 1 2",
        "actor\\0001_77.jpg",
    ],
)
def test_a_malformed_line_is_named_and_nothing_is_written_elsewhere(tmp_path, wrong):
    path = tmp_path / "urls.txt"
    path.write_text(f"Photo_file Photo_id\n{wrong}\n")
    with pytest.raises(CorpusFormatError, match=r"urls\.txt, line 2: .* expected an image.s name"):
        download_images(path, tmp_path / "out")
    with pytest.raises(CorpusFileError, match=r"expected the file NUS-WIDE-urls\.txt"):
        download_images(tmp_path / "nothing.txt", tmp_path / "out")


def test_a_truncated_picture_is_none():
    with pytest.raises(UnclearError, match="no picture, or half of one"):
        check_picture(picture()[:-200], 500)
    check_picture(picture(), 500)
