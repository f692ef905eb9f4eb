r"""The images of NUS-WIDE from their addresses at Flickr, for those who have the list of addresses only.

    python -m hf_mlcl.data.nuswide_images NUS-WIDE-urls.txt nuswide/

The list has a line per image: its name (``C:\ImageData\Flickr\actor\0001_2124494179.jpg``), the photo's id and up to
four addresses, ``null`` where there is none. Images get the names of the list below ``nuswide/Flickr/``, where
`load_corpus` finds them. Start it as often as you like: what is there stays, what is gone is not asked for again.
"""

from __future__ import annotations

import http.client
import io
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlparse

import typer
from datasets.utils import tqdm
from PIL import Image

from hf_mlcl.data.errors import CorpusFileError, CorpusFormatError, full_disk_named
from hf_mlcl.files import whole_file

LONGEST_SIDE = {"url_Middle": 500, "url_Large": 1024, "url_Small": 240, "url_Original": 20_000}
"""Columns of the list in the order in which they are tried, and the longest side that Flickr gives such a picture."""
COLUMNS = ["url_Large", "url_Middle", "url_Small", "url_Original"]
GONE_FILE = "gone.tsv"
UNAVAILABLE = "unavailable"
"""In the name of the picture that Flickr shows in place of one that is gone."""
MAX_BYTES = 32 << 20
TIMEOUT_SECONDS = 30
ATTEMPTS = 3
NAME = re.compile(r"(?:.*/)?((?!\.)[\w .&-]+/\d+_(\d+)\.jpg)", re.IGNORECASE)


class Photo(NamedTuple):
    """A line of the list: ``actor/0001_2124494179.jpg``, Flickr's id, and the addresses that there are by column."""

    name: str
    number: str
    addresses: dict[str, str]


@dataclass
class Outcome:
    """What came of a download; those that `failed`, by name with the reason, are tried again by another call."""

    there: int = 0
    fetched: int = 0
    gone: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.fetched:,} fetched, {self.there:,} there before, {self.gone:,} gone, {len(self.failed):,} failed"
        reasons = Counter(self.failed.values()).most_common(3)
        more = "; ".join(f"{count:,} x {reason}" for reason, count in reasons)
        return f"{text} ({more}). The same command tries them again." if more else f"{text}."


class GoneError(Exception):
    """The picture is not there any more."""


class UnclearError(OSError):
    """An address gives something else than a picture, such as the page of a hotel's network: the photo may be there."""


def download_images(
    url_list: str | Path,
    folder: str | Path,
    *,
    only: Collection[str] | None = None,
    workers: int = 8,
    per_second: float = 10.0,
) -> Outcome:
    """Fetch the images of a list that are not there yet.

    A picture counts only if it is one: a whole JPEG, no longer than pictures of its column are, at an address that has
    the photo's id in it, and not the picture that Flickr shows for one that is gone. Those that are gone are written
    down in ``gone.tsv`` with the reason; delete it to ask for them again. What may be the network's fault is not.

    Args:
        url_list: The official list, ``NUS-WIDE-urls.txt``.
        folder: Gets ``Flickr/`` and ``gone.tsv``.
        only: File names (``0001_2124494179.jpg``) of images to fetch, where not all are wanted.
        workers: Downloads at a time.
        per_second: Requests per second of all together.
    """
    if workers < 1 or not per_second > 0:
        raise ValueError(f"workers and per_second must be above 0; got {workers} and {per_second}.")
    root, outcome = Path(folder), Outcome()
    root.mkdir(parents=True, exist_ok=True)
    with open(root / GONE_FILE, "a+", encoding="utf-8") as gone:
        gone.seek(0)
        known_gone = {line.split("\t")[0] for line in gone}
        wanted = []
        for photo in read_list(url_list):
            if only is not None and photo.name.rpartition("/")[2] not in only:
                continue
            if (root / "Flickr" / photo.name).is_file():
                outcome.there += 1
            elif photo.name in known_gone:
                outcome.gone += 1
            else:
                wanted.append(photo)

        def failure(photo: Photo) -> Exception | None:
            try:
                _fetch(photo, root / "Flickr" / photo.name, workers / per_second)
            except (GoneError, OSError, http.client.HTTPException) as error:
                return error
            return None

        with ThreadPoolExecutor(workers) as pool:  # a full disk is raised, and cancels what has not begun
            results = tqdm(pool.map(failure, wanted), total=len(wanted), desc="Fetching images", unit="")
            for photo, error in zip(wanted, results, strict=True):
                if error is None:
                    outcome.fetched += 1
                elif isinstance(error, GoneError):
                    outcome.gone += 1
                    print(photo.name, error, sep="\t", file=gone, flush=True)
                else:
                    outcome.failed[photo.name] = f"{type(error).__name__}: {error}"
    return outcome


def read_list(url_list: str | Path) -> Iterator[Photo]:
    """The photos of a list, whose columns are separated by spaces or tabs; names may have backslashes or slashes."""
    path = Path(url_list)
    if not path.is_file():
        raise CorpusFileError(f"There is no list of addresses {str(path)!r}: expected the file NUS-WIDE-urls.txt.")
    columns = COLUMNS
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            # A folder's name may have a space in it: the name ends where the id begins.
            name, _, rest = line.strip().partition(".jpg")
            if number == 1 and not rest:
                columns = [word for word in line.split() if word.lower().startswith("url")] or COLUMNS
                continue
            if not line.strip():
                continue
            match = NAME.fullmatch(f"{name}.jpg".replace("\\", "/"))
            fields = rest.split()
            if match is None or len(fields) < 2 or fields[0] != match[2]:
                raise CorpusFormatError(
                    f"{path}, line {number}: {line.strip()[:80]!r}, expected an image's name, its number once more, "
                    f"and addresses."
                )
            addresses = dict(zip(columns, fields[1:], strict=False))
            yield Photo(match[1], match[2], {column: url for column, url in addresses.items() if url != "null"})


def _fetch(photo: Photo, target: Path, gap: float) -> None:
    """Try the addresses of a photo, with so many seconds before each, until one gives its picture."""
    reasons: list[str] = []
    unclear = None
    for column, longest in LONGEST_SIDE.items():
        if column not in photo.addresses:
            continue
        try:
            data = _receive(photo, photo.addresses[column], gap)
            check_picture(data, longest)
        except UnclearError as error:
            unclear = error
        except GoneError as error:
            reasons.append(f"{column}: {error}")
        else:
            with full_disk_named(target.parent), whole_file(target) as draft:
                draft.write_bytes(data)
            return
    raise unclear or GoneError("; ".join(reasons) or "the list has no address")


def _receive(photo: Photo, address: str, gap: float) -> bytes:
    """What an address gives, tried again where the server is busy or the line breaks."""
    if urlparse(address).scheme not in ("http", "https"):
        raise GoneError(f"{address[:60]!r} is no address")
    request = urllib.request.Request(address, headers={"User-Agent": "hf-mlcl (research; NUS-WIDE)"})
    for attempt in range(1, ATTEMPTS + 1):
        time.sleep(gap)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                where = urlparse(response.url)
                if UNAVAILABLE in where.path:
                    raise GoneError(f"leads to {where.path.rpartition('/')[2]}")
                if photo.number not in where.path:
                    raise UnclearError(f"an address leads to {where.netloc}{where.path}")
                data: bytes = response.read(MAX_BYTES + 1)
                missing = int(response.headers.get("Content-Length") or 0) - len(data)
            if missing > 0 and len(data) <= MAX_BYTES:
                raise http.client.IncompleteRead(data, missing)
            return data
        except UnclearError:
            raise
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                if error.code in (404, 410):
                    raise GoneError(f"HTTP {error.code}") from error
                if error.code != 429 and error.code < 500:
                    raise
                asked = error.headers.get("Retry-After", "")
                gap += float(asked) if asked.isdecimal() else 2.0**attempt
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def check_picture(data: bytes, longest: int) -> None:
    """Refuse what an address gave if it is not the picture that was meant, whose longest side is known."""
    if len(data) > MAX_BYTES:
        raise UnclearError("an address gives too many bytes for a picture")
    try:
        with Image.open(io.BytesIO(data)) as image:
            form, (width, height) = image.format, image.size
            if max(width, height) <= longest + 1:
                image.load()
    except Exception as error:  # decoders raise whatever the bytes lead to
        raise UnclearError("an address gives no picture, or half of one") from error
    if max(width, height) > longest + 1:
        raise GoneError(f"{width} x {height} pixels, at most {longest} expected")
    if form != "JPEG":
        raise GoneError(f"a {form}, not the JPEG that it was")


def main(url_list: Path, folder: Path, workers: int = 8, per_second: float = 10.0) -> None:
    """Fetch the images of NUS-WIDE-urls.txt that are not there yet into Flickr/ of a folder."""
    print(download_images(url_list, folder, workers=workers, per_second=per_second))


if __name__ == "__main__":
    typer.run(main)
