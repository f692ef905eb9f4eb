"""Downloads that resume, prove their checksum, and say what to do by hand when they are not available."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import socket
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

from datasets import config as datasets_config
from datasets.utils import tqdm
from filelock import FileLock
from huggingface_hub import constants as hub

from hf_mlcl.data.errors import CorpusDownloadError, CorpusFileError, full_disk_named
from hf_mlcl.data.facts import RemoteFile
from hf_mlcl.files import whole_file

CHUNK = 1 << 20
TIMEOUT_SECONDS = 30
ATTEMPTS = 3
"""Tries a file; each goes on where the one before broke off."""


def fetch(file: RemoteFile, folder: str | os.PathLike[str], manual: str) -> str:
    """Download a file once; later calls return it at once.

    The data goes to `<name>.part` and gets its name only when it is complete and its checksum right, so a broken
    download is never taken for a file, and the next call goes on where it stopped.

    `datasets.DownloadManager` starts a broken file again from its first byte, which is why it is not used for this:
    COCO's training images are 13 GB.

    Args:
        file: What to get.
        folder: Where to keep it.
        manual: What to tell the user when it is not available.

    Returns:
        The path of the file.

    Raises:
        CorpusDownloadError: If the address cannot be reached or gives other data than it should.
        CorpusFileError: If the disk is full.
    """
    target = Path(folder) / file.name
    if target.exists():
        return str(target)
    if datasets_config.HF_HUB_OFFLINE:
        raise _failed(file, "downloads are switched off by HF_HUB_OFFLINE or HF_DATASETS_OFFLINE", manual)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with FileLock(str(target) + ".lock"):
        for attempt in range(1, ATTEMPTS + 1):
            if target.exists():  # another process was faster
                return str(target)
            try:
                with full_disk_named(target.parent):
                    _receive(file, part)
                break
            except CorpusFileError:  # of a full disk: it does not help to try again
                raise
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
                if attempt == ATTEMPTS or refused:
                    raise _failed(file, f"{type(error).__name__}: {error}", manual) from error
        mismatch = checksum_mismatch(file, part)
        if mismatch:
            part.unlink()
            raise _failed(file, f"{mismatch}; what was received has been deleted", manual)
        part.replace(target)
    return str(target)


def hub_is_reachable(timeout: float = 5.0) -> bool:
    """Whether the Hub's host has an address and takes a connection; never in offline mode.

    `huggingface_hub` tries for half a minute before it gives up, which is long when all one wants is to say so.
    """
    if hub.HF_HUB_OFFLINE:
        return False
    address = urlparse(hub.ENDPOINT)
    if address.scheme in urllib.request.getproxies():  # only the proxy knows
        return True
    try:
        with socket.create_connection(
            (address.hostname or "", address.port or (80 if address.scheme == "http" else 443)), timeout=timeout
        ):
            return True
    except OSError:
        return False


def checksum_mismatch(file: RemoteFile, path: str | os.PathLike[str]) -> str | None:
    """Say how a file differs from its known checksum; None where it does not, or none is known."""
    for algorithm, expected in (("sha256", file.sha256), ("md5", file.md5)):
        if expected is not None:
            digest = hashlib.new(algorithm)
            with open(path, "rb") as stream:
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
            actual = digest.hexdigest()
            if actual != expected:
                return f"its {algorithm} is {actual}, expected {expected}"
    return None


def _receive(file: RemoteFile, part: Path) -> None:
    """Fetch what is missing of a file. A validator beside it makes sure that both pieces are of the same version."""
    validator_file = part.with_name(part.name + ".json")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(file.url, headers={"User-Agent": "hf-mlcl"})
    if have and validator_file.exists():
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", json.loads(validator_file.read_text()))
    else:
        have = 0
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        if response.status != 206:  # the whole file comes, because it is the first time or because it has changed
            have = 0
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
        if validator and not validator.startswith("W/"):
            with whole_file(validator_file) as draft:  # half of one could not be read by the next attempt
                draft.write_text(json.dumps(validator))
        else:
            validator_file.unlink(missing_ok=True)
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        progress = tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=f"Downloading {file.name}")
        with open(part, "ab" if have else "wb") as stream, progress:
            while chunk := response.read(CHUNK):
                stream.write(chunk)
                progress.update(len(chunk))
    received = part.stat().st_size
    if total is not None and received != total:
        raise OSError(f"the connection closed after {received:,} of {total:,} bytes")
    validator_file.unlink(missing_ok=True)


def _failed(file: RemoteFile, reason: str, manual: str) -> CorpusDownloadError:
    return CorpusDownloadError(f"{file.name} could not be downloaded from {file.url}: {reason}.\n{manual}")
