"""Safe, uniform reading of official files: folders, archives and compressed files look the same to a builder.

`SourceTree` walks files and, one level deep, the archives among them. Nothing is ever extracted to disk, so no member
can be written anywhere; members are read one after another as streams, so none needs to fit in memory. Hostile members
(names that climb out, links, devices, bombs) and damaged files raise an error that names the file.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import posixpath
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from hf_mlcl.data.errors import CorpusFileError

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_MEMBER_BYTES = 2 << 30
"""No file of any corpus comes near 2 GB unpacked (COCO's largest annotation file has a third of a gigabyte)."""
FREE_BYTES = 64 << 20
MAX_RATIO = 200
"""Past the first 64 MB nothing may unpack to more than 200 times its packed size: text reaches 20, bombs 1,000."""


@contextlib.contextmanager
def naming(path: str, member: str = "") -> Iterator[None]:
    """Turn any error of reading an archive into one that names the file."""
    where = f"{path}: {member}" if member else path
    try:
        yield
    except (CorpusFileError, MemoryError):
        raise
    except Exception as error:  # damaged archives raise whatever their bytes lead to: struct.error, IndexError, …
        if isinstance(error, FileNotFoundError | PermissionError):
            message = f"{where} cannot be read: {error.strerror}."
        else:
            message = (
                f"{where} is truncated or corrupt ({type(error).__name__}: {error}). Get the file again, and compare "
                f"its size and checksum with the publisher's."
            )
        raise CorpusFileError(message, path) from error


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more bytes than agreed, and names its file when its data is damaged."""

    def __init__(self, raw: IO[bytes], limit: int, path: str, member: str) -> None:
        self._raw, self._left, self._path, self._member = raw, limit, path, member

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with naming(self._path, self._member):
            data = self._raw.read(min(len(buffer), self._left + 1))
            self._left -= len(data)
            if self._left < 0:
                raise CorpusFileError(
                    f"{self._path}: {self._member or 'its content'} unpacks to more bytes than it may: it looks like "
                    f"an archive bomb. Get the file from its official source.",
                    self._path,
                )
            buffer[: len(data)] = data
            return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


def bounded(raw: Any, limit: int, path: str, member: str = "") -> io.BufferedReader:
    """A stream that ends with an error past so many bytes.

    Args:
        raw: What is read.
        limit: Bytes that it may give.
        path: The file on disk, for the message.
        member: The name inside an archive.
    """
    return io.BufferedReader(_Bounded(raw, limit, path, member), 1 << 16)


@dataclass(frozen=True)
class Member:
    """One file, wherever it lies. It can be read until the walk that gave it goes on.

    Args:
        name: Path inside its folder or archive, with forward slashes and without `.gz`.
        path: The file on disk that holds it.
        opener: Opens it as a stream of bytes.
        inner: Its name inside an archive; empty for a file of its own.
    """

    name: str
    path: str
    opener: Callable[[], Any]
    inner: str = ""

    @property
    def basename(self) -> str:
        """The last part of the name."""
        return posixpath.basename(self.name)

    @property
    def origin(self) -> str:
        """How to name this member in a message."""
        return f"{self.path}: {self.inner}" if self.inner else self.path

    def open(self) -> io.BufferedReader:
        """Open for reading, bounded in size."""
        with naming(self.path, self.inner):
            packed = os.path.getsize(self.path)
            limit = min(MAX_MEMBER_BYTES, max(FREE_BYTES, MAX_RATIO * packed))
            return bounded(self.opener(), limit, self.path, self.inner)

    def read(self) -> bytes:
        """The whole content."""
        with self.open() as stream:
            return stream.read()

    def lines(self) -> Iterator[tuple[int, str]]:
        """Numbered lines as text without their line ends: UTF-8, and Latin-1 for a line that is not UTF-8.

        Only a line feed (with or without a carriage return before it) ends a line: texts hold other separators.
        """
        with self.open() as stream:
            for number, raw in enumerate(stream, start=1):
                yield number, decode(raw.rstrip(b"\n").removesuffix(b"\r"), first=number == 1)


def decode(raw: bytes, first: bool = False) -> str:
    r"""Text from bytes: UTF-8, or Latin-1 (which never fails) for what is not; `first` drops a byte order mark.

    Examples:
        >>> decode("naïve".encode()) == decode("naïve".encode("latin-1")) == "naïve"
        True
    """
    try:
        return raw.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def safe_name(name: str, path: str) -> str:
    """Normalise a member's name, or refuse it.

    Args:
        name: The name that the archive states.
        path: The archive, for the message.

    Raises:
        CorpusFileError: If the name is absolute, climbs out of its folder, or holds control characters.

    Examples:
        >>> safe_name("./VOCdevkit/VOC2007/a.jpg", "x.tar")
        'VOCdevkit/VOC2007/a.jpg'
    """
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    hostile = (
        name.startswith(("/", "\\"))
        or re.match(r"[A-Za-z]:", name) is not None
        or ".." in parts
        or any(ord(char) < 32 or ord(char) == 127 for char in name)
        or not parts
    )
    if hostile:
        raise CorpusFileError(
            f"{path} holds a member with an unsafe name, {name!r}. Official archives have none: get the file from its "
            f"official source.",
            path,
        )
    return "/".join(parts)


def _walk_zip(path: str) -> Iterator[Member]:
    with naming(path), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            name = safe_name(info.filename, path)
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                raise _not_a_file(name, path)
            yield _member(name, path, partial(archive.open, info), inner=info.filename)


def _walk_tar(path: str) -> Iterator[Member]:
    with naming(path), tarfile.open(path, "r:*") as archive:
        while (info := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # tarfile remembers every member it has passed
            name = safe_name(info.name, path) if info.name not in (".", "./") else "."
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                raise _not_a_file(name, path)
            yield _member(name, path, partial(archive.extractfile, info), inner=info.name)
        # tarfile takes a damaged header, or a file that ends between two members, for the end of the archive. The
        # real end is a block of zeros.
        assert archive.fileobj is not None
        archive.fileobj.seek(archive.offset)
        if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("the archive ends before its end mark")
        while archive.fileobj.read(1 << 16):  # a compressed file's checksum is tested at its very end
            pass


def _not_a_file(name: str, path: str) -> CorpusFileError:
    return CorpusFileError(
        f"{path} holds {name!r}, which is a link or a device. Official archives have none: get the file from its "
        f"official source.",
        path,
    )


def _member(name: str, path: str, opener: Callable[[], Any], inner: str = "") -> Member:
    if not name.endswith(".gz"):
        return Member(name, path, opener, inner)
    return Member(name.removesuffix(".gz"), path, lambda: gzip.GzipFile(fileobj=opener()), inner)


@dataclass(frozen=True)
class SourceTree:
    """The files of a corpus: folders and single files, looked through in sorted order.

    Args:
        roots: Folders or files.

    Examples:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> with gzip.open(folder / "label_val.gz", "wt") as file:
        ...     _ = file.write("cs.LG stat.ML")
        >>> [(member.name, list(member.lines())) for member in SourceTree([str(folder)]).walk()]
        [('label_val', [(1, 'cs.LG stat.ML')])]
    """

    roots: Sequence[str]

    def walk(self, wanted: Callable[[str], bool] = lambda name: True) -> Generator[Member, None, None]:
        """Every file and every member of an archive whose name is wanted, one after another.

        Args:
            wanted: Decides by name; what is not wanted is not unpacked.
        """
        for path, name in self.files():
            lower = name.lower()
            if lower.endswith(".zip"):
                members = _walk_zip(path)
            elif lower.endswith(TAR_SUFFIXES):
                members = _walk_tar(path)
            else:
                members = iter([_member(name, path, partial(io.FileIO, path))])
            yield from (member for member in members if wanted(member.name))

    def files(self) -> Iterator[tuple[str, str]]:
        """Every file on disk as (path, name relative to its root), sorted; a loop of links is walked once."""
        for root in self.roots:
            if os.path.isfile(root):
                yield root, os.path.basename(root)
                continue
            seen: set[str] = set()
            for folder, subfolders, names in os.walk(root, followlinks=True):
                real = os.path.realpath(folder)
                if real in seen:
                    subfolders.clear()
                    continue
                seen.add(real)
                subfolders[:] = sorted(name for name in subfolders if name not in ("__MACOSX", ".git"))
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    if not name.startswith("._") and os.path.isfile(path):
                        yield path, os.path.relpath(path, root).replace(os.sep, "/")

    def find(self, pattern: str) -> list[str]:
        """Names of the members that match a regular expression from their last `/` (or start) on."""
        compiled = re.compile(rf"(?:.*/)?(?:{pattern})")
        return [member.name for member in self.walk(lambda name: compiled.fullmatch(name) is not None)]

    @contextlib.contextmanager
    def open_one(self, name: str) -> Iterator[Member]:
        """The member of exactly this name.

        Raises:
            CorpusFileError: If it is not there.
        """
        with contextlib.closing(self.walk(lambda candidate: candidate == name)) as members:
            for member in members:
                yield member
                return
        raise CorpusFileError(f"{name} is not in {', '.join(self.roots)}.")
