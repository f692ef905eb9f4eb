r"""The images of NUS-WIDE from their addresses at Flickr, for those who have the list of addresses only.

    python -m hf_mlcl.data.nuswide_images NUS-WIDE-urls.txt nuswide/

The list has a line per image: its name (``C:\ImageData\Flickr\actor\0001_2124494179.jpg``), the photo's id and up to
four addresses, ``null`` where there is none. Images get the names of the list below ``nuswide/Flickr/``, where
`load_corpus` finds them. Start it as often as you like: what is there stays, what is gone is not asked for again.
"""

from __future__ import annotations

import argparse
import http.client
import io
import re
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlparse

from datasets.utils import tqdm
from PIL import Image

from hf_mlcl.data.errors import CorpusFileError, CorpusFormatError, full_disk_named
from hf_mlcl.files import whole_file

LONGEST_SIDE = {"url_Middle": 500, "url_Large": 1024, "url_Small": 240, "url_Original": 20_000}
"""Columns of the list in the order in which they are tried, and the longest side that Flickr gives such a picture."""
COLUMNS = ("url_Large", "url_Middle", "url_Small", "url_Original")
GONE_FILE = "gone.tsv"
UNAVAILABLE = "unavailable"
"""In the name of the picture that Flickr shows in place of one that is gone."""
MAX_BYTES = 32 << 20
TIMEOUT_SECONDS = 30
ATTEMPTS = 3
NAME = re.compile(r"(?:.*/)?((?!\.)[\w .&-]+/\d+_(\d+)\.jpg)", re.IGNORECASE)


@dataclass(frozen=True)
class Photo:
    """A line of the list.

    Attributes:
        name: ``actor/0001_2124494179.jpg``.
        number: Flickr's id.
        addresses: By column, those that there are.
    """

    name: str
    number: str
    addresses: dict[str, str]


@dataclass
class Outcome:
    """What came of a download.

    Attributes:
        there: Images that were there before.
        fetched: Images that came now.
        gone: Images that Flickr does not have any more, those of earlier calls included.
        failed: Names of images that could not be fetched, with the reason: another call tries them again.
    """

    there: int = 0
    fetched: int = 0
    gone: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        text = f"{self.fetched:,} fetched, {self.there:,} there before, {self.gone:,} gone, {len(self.failed):,} failed"
        reasons = Counter(self.failed.values()).most_common(3)
        more = "; ".join(f"{count:,} x {reason}" for reason, count in reasons)
        return f"{text} ({more}). The same command tries them again." if more else f"{text}."


class Pace:
    """Lets so many calls a second pass, from any number of threads.

    Args:
        per_second: Calls a second.
        clock: Tells the time.
        sleep: Waits.

    Examples:
        >>> waits = []
        >>> pace = Pace(10, clock=lambda: 0.0, sleep=waits.append)
        >>> for _ in range(3):
        ...     pace.wait()
        >>> [round(seconds, 1) for seconds in waits]
        [0.1, 0.2]
    """

    def __init__(
        self,
        per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap, self._clock, self._sleep = 1 / per_second, clock, sleep
        self._next = clock()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait for one's turn."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._gap
        if turn > now:
            self._sleep(turn - now)

    def pause(self, seconds: float) -> None:
        """Let nobody pass for a while, as a server asks."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


class GoneError(Exception):
    """The picture is not there any more, at no address of the list."""


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
        per_second: Requests a second of all together.

    Raises:
        CorpusFormatError: If a line of the list is malformed.
        CorpusFileError: If the list is missing or the disk full.
    """
    if workers < 1 or not per_second > 0:
        raise ValueError(f"workers and per_second must be above 0; got {workers} and {per_second}.")
    root, outcome, lock, pace = Path(folder), Outcome(), threading.Lock(), Pace(per_second)
    root.mkdir(parents=True, exist_ok=True)
    known_gone = _read_gone(root / GONE_FILE)
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
    with (
        open(root / GONE_FILE, "a", encoding="utf-8") as gone,
        tqdm(total=len(wanted), desc="Fetching images", unit="") as progress,
        ThreadPoolExecutor(workers) as pool,
    ):

        def fetch_one(photo: Photo) -> None:
            try:
                _fetch(photo, root / "Flickr" / photo.name, pace)
                reason = None
            except GoneError as error:
                reason = str(error)
                with lock:
                    outcome.gone += 1
                    gone.write(f"{photo.name}\t{reason}\n")
                    gone.flush()
            except (OSError, http.client.HTTPException) as error:
                reason = f"{type(error).__name__}: {error}"
                with lock:
                    outcome.failed[photo.name] = reason
            with lock:
                outcome.fetched += reason is None
                progress.update()

        jobs = [pool.submit(fetch_one, photo) for photo in wanted]
        try:
            for job in jobs:
                job.result()  # raises for a full disk
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return outcome


def read_list(url_list: str | Path) -> Iterator[Photo]:
    """The photos of a list of addresses.

    Args:
        url_list: The list. Its columns are separated by spaces or tabs; names may have backslashes or slashes.
    """
    path = Path(url_list)
    if not path.is_file():
        raise CorpusFileError(f"There is no list of addresses {str(path)!r}: expected the file NUS-WIDE-urls.txt.")
    columns: tuple[str, ...] = COLUMNS
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            # A folder's name may have a space in it: the name ends where the id begins.
            name, _, rest = line.strip().partition(".jpg")
            if number == 1 and not rest:
                columns = tuple(word for word in line.split() if word.lower().startswith("url")) or COLUMNS
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
            addresses = {
                column: address for column, address in zip(columns, fields[1:], strict=False) if address != "null"
            }
            yield Photo(match[1], match[2], addresses)


def _fetch(photo: Photo, target: Path, pace: Pace) -> None:
    """Try the addresses of a photo until one gives its picture."""
    reasons: list[str] = []
    unclear = None
    for column, longest in LONGEST_SIDE.items():
        if column not in photo.addresses:
            continue
        try:
            data = _receive(photo, photo.addresses[column], pace)
            defect = picture_defect(data, longest)
        except (GoneError, UnclearError) as error:
            reasons.append(f"{column}: {error}")
            unclear = error if isinstance(error, UnclearError) else unclear
            continue
        if defect is None:
            target.parent.mkdir(parents=True, exist_ok=True)
            with full_disk_named(target.parent), whole_file(target) as draft:
                draft.write_bytes(data)
            return
        reasons.append(f"{column}: {defect}")
    if unclear is not None:
        raise unclear
    raise GoneError("; ".join(reasons) or "the list has no address")


def _receive(photo: Photo, address: str, pace: Pace) -> bytes:
    """What an address gives, tried again where the server is busy or the line breaks."""
    if urlparse(address).scheme not in ("http", "https"):
        raise GoneError(f"{address[:60]!r} is no address")
    for attempt in range(1, ATTEMPTS + 1):
        pace.wait()
        try:
            request = urllib.request.Request(address, headers={"User-Agent": "hf-mlcl (research; NUS-WIDE)"})
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
                where = urlparse(response.url).path
                if UNAVAILABLE in where:
                    raise GoneError(f"leads to {where.rpartition('/')[2]}")
                if photo.number not in where:
                    raise UnclearError(f"an address leads to {urlparse(response.url).netloc}{where}")
                data: bytes = response.read(MAX_BYTES + 1)
                length = response.headers.get("Content-Length")
            if length is not None and len(data) < min(int(length), MAX_BYTES):
                raise http.client.IncompleteRead(data, int(length) - len(data))
            return data
        except urllib.error.HTTPError as error:
            if error.code in (404, 410):
                raise GoneError(f"HTTP {error.code}") from error
            if error.code != 429 and error.code < 500:
                raise
            asked = error.headers.get("Retry-After", "")
            pace.pause(float(asked) if asked.isdecimal() else 2.0**attempt)
            if attempt == ATTEMPTS:
                raise
        except UnclearError:
            raise
        except (OSError, http.client.HTTPException):
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def picture_defect(data: bytes, longest: int) -> str | None:
    """Why a picture is not the one that was meant; None where it may be.

    Args:
        data: What an address gave.
        longest: The longest side that its pictures have.

    Raises:
        UnclearError: If it is no picture, or half of one.
    """
    if len(data) > MAX_BYTES:
        raise UnclearError("an address gives too many bytes for a picture")
    try:
        with Image.open(io.BytesIO(data)) as image:
            kind, size = image.format, image.size
            if max(size) > longest + 1:
                return f"{size[0]} x {size[1]} pixels, at most {longest} expected"
            image.load()
    except Exception as error:  # decoders raise whatever the bytes lead to
        raise UnclearError("an address gives no picture, or half of one") from error
    return None if kind == "JPEG" else f"a {kind}, not the JPEG that it was"


def _read_gone(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    return {line.split("\t")[0] for line in path.read_text(encoding="utf-8").splitlines()}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser("python -m hf_mlcl.data.nuswide_images", description=download_images.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("url_list", help="NUS-WIDE-urls.txt")
    parser.add_argument("folder", help="gets Flickr/ and gone.tsv")
    parser.add_argument("--workers", type=int, default=8, help="downloads at a time")
    parser.add_argument("--per-second", type=float, default=10.0, help="requests a second of all together")
    given = parser.parse_args()
    print(download_images(given.url_list, given.folder, workers=given.workers, per_second=given.per_second))


if __name__ == "__main__":
    main()
