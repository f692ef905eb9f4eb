"""Downloads that resume, prove their checksum, and say what to do by hand when they are not available."""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import socket
import urllib.error
import urllib.request
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from datasets import config as datasets_config
from datasets.utils import tqdm
from filelock import FileLock
from huggingface_hub import constants as hub

from hf_mlcl.data.errors import CorpusDownloadError, CorpusFileError, full_disk_named
from hf_mlcl.data.facts import RemoteFile
from hf_mlcl.files import read_json, whole_file, write_json

CHUNK = 1 << 20
TIMEOUT_SECONDS = 30
ATTEMPTS = 3
"""Attempts per file; each goes on where the one before broke off."""


def fetch(file: RemoteFile, folder: str | os.PathLike[str], manual: str) -> str:
    """Download a file once; later calls return its path at once.

    The data goes to `<name>.part` and gets its name only when it is complete and its checksum right, so a broken
    download is never taken for a file, and the next call goes on where it stopped. Where the publisher states no
    checksum, that of the first download is written down in `<name>.first_use.json`, and a later one must have the same.

    `datasets.DownloadManager` starts a broken file again from its first byte, which is why it is not used for this:
    COCO's training images are 13 GB.

    An error ends with `manual`, which says how to get the file by hand.
    """
    target = Path(folder) / file.name
    if target.exists():
        _check_still_the_same(file, target)
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
            except (http.client.HTTPException, OSError) as error:
                refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
                if attempt == ATTEMPTS or refused:
                    raise _failed(file, f"{type(error).__name__}: {error}", manual) from error
        mismatch, sha256 = _mismatch(file, part, target)
        if mismatch:
            part.unlink()
            raise _failed(file, f"{mismatch}; what was received has been deleted", manual)
        part.replace(target)
        _write_first_use(file, target, sha256)
    return str(target)


def discard(path: str | os.PathLike[str]) -> None:
    """Delete a download that proved bad, and what was written down of it."""
    Path(path).unlink()
    _record(Path(path)).unlink(missing_ok=True)


def hub_is_reachable(timeout: float = 5.0) -> bool:
    """Whether the Hub's host has an address and takes a connection; never in offline mode.

    `huggingface_hub` tries for half a minute before it gives up, which is long when all one wants is to say so.
    """
    if hub.HF_HUB_OFFLINE:
        return False
    address = urlparse(hub.ENDPOINT)
    if address.scheme in urllib.request.getproxies():  # only the proxy knows
        return True
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        with socket.create_connection((address.hostname or "", port), timeout=timeout):
            return True
    except OSError:
        return False


def _record(target: Path) -> Path:
    return target.with_name(f"{target.name}.first_use.json")


def _first_use(target: Path) -> dict[str, Any]:
    """What was written down of a file when it came for the first time; nothing where that cannot be read."""
    return read_json(_record(target)) or {}


def _write_first_use(file: RemoteFile, target: Path, sha256: str) -> None:
    """Write down a file's checksum, and by what to tell that it need not be computed again."""
    status = target.stat()
    known = {"sha256": sha256, "size": status.st_size, "mtime_ns": status.st_mtime_ns, "url": file.url}
    known["since"] = _first_use(target).get("since") or datetime.now(timezone.utc).date().isoformat()
    try:
        write_json(_record(target), known)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):  # a cache that is only read serves as well
            raise


def _check_still_the_same(file: RemoteFile, target: Path) -> None:
    """Compare a file that is there with its checksum, unless it has not been touched since that was done."""
    known, status = _first_use(target), target.stat()
    if (known.get("size"), known.get("mtime_ns")) == (status.st_size, status.st_mtime_ns):
        return
    mismatch, sha256 = _mismatch(file, target, target)
    if mismatch:
        raise CorpusFileError(
            f"{target} is not the file that {file.url} gave: {mismatch}. Move it away, and call again."
        )
    _write_first_use(file, target, sha256)


def _mismatch(file: RemoteFile, path: Path, target: Path) -> tuple[str | None, str]:
    """How a file differs from its publisher's checksum, or else from that of its first use; and its SHA-256."""
    digests = {"sha256": hashlib.sha256(), **({"md5": hashlib.md5(usedforsecurity=False)} if file.md5 else {})}
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK):
            for digest in digests.values():
                digest.update(chunk)
    found = {name: digest.hexdigest() for name, digest in digests.items()}
    for name, expected in (("sha256", file.sha256), ("md5", file.md5)):
        if expected is not None and found[name] != expected:
            return f"its {name} is {found[name]}, expected {expected}", found["sha256"]
    known = _first_use(target)
    if not (file.sha256 or file.md5) and known.get("sha256") not in (None, found["sha256"]):
        return (
            f"its sha256 is {found['sha256']}, but was {known['sha256']} at its first use on {known.get('since')}. If "
            f"the publisher has changed it and you trust the new one, delete {_record(target)}"
        ), found["sha256"]
    return None, found["sha256"]


def _receive(file: RemoteFile, part: Path) -> None:
    """Fetch what is missing of a file. A validator beside it makes sure that both pieces are of the same version."""
    validator_file = part.with_name(part.name + ".json")
    have = part.stat().st_size if part.exists() and validator_file.exists() else 0
    request = urllib.request.Request(file.url, headers={"User-Agent": "hf-mlcl"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", json.loads(validator_file.read_text()))
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
