"""Safe, uniform reading of files: folders, archives and compressed files look the same to whoever reads them.

Nothing is ever extracted to disk, so no member can be written anywhere; members are read one after another as streams,
so none needs to fit in memory. Hostile members (names that climb out, links, devices, bombs) and damaged files raise an
error that names the file.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import posixpath
import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import IO, Any, NamedTuple
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from hf_mlcl.data.errors import CorpusFileError, CorpusFormatError

OPENERS: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
TAR_SUFFIXES = (".tar", ".tgz", *(f".tar{suffix}" for suffix in OPENERS))
MAX_MEMBER_BYTES = 2 << 30
"""No member of any corpus comes near 2 GB unpacked (COCO's largest annotation file has a third of a gigabyte)."""
FREE_BYTES = 64 << 20
MAX_RATIO = 200
"""Past the first 64 MB nothing may unpack to more than 200 times its packed size: text reaches 20, bombs 1,000."""


@contextlib.contextmanager
def _naming(path: str, member: str = "") -> Iterator[None]:
    """Turn any error of reading a file into one that names it."""
    where = f"{path}: {member}" if member else path
    try:
        yield
    except (CorpusFileError, MemoryError):
        raise
    except (FileNotFoundError, PermissionError) as error:
        raise CorpusFileError(f"{where} cannot be read: {error.strerror}.", path) from error
    except Exception as error:  # damaged archives raise whatever their bytes lead to: struct.error, IndexError, …
        why = f"is truncated or corrupt ({type(error).__name__}: {error})"
        way_out = "Get the file again, and compare its size and checksum with the publisher's"
        raise CorpusFileError(f"{where} {why}. {way_out}.", path) from error


class _Bounded(io.RawIOBase):
    """A stream that refuses to give more bytes than agreed, and names its file when its data is damaged."""

    def __init__(self, raw: IO[bytes], limit: int, path: str, member: str) -> None:
        self._raw, self._left, self._path, self._member = raw, limit, path, member

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _naming(self._path, self._member):
            data = self._raw.read(min(len(buffer), self._left + 1))
            self._left -= len(data)
            if self._left < 0:
                content = self._member or "its content"
                raise _hostile(self._path, f": {content} unpacks to more bytes than it may, like an archive bomb")
            buffer[: len(data)] = data
            return len(data)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class Member(NamedTuple):
    """One file, wherever it lies. It can be read until the walk that gave it goes on.

    `name` is its path inside its folder or archive, without `.gz`; `path` the file on disk that holds it; `opener`
    opens it as a stream of bytes; `inner` is its name inside an archive, empty for a file of its own.
    """

    name: str
    path: str
    opener: Callable[[], Any]
    inner: str = ""

    @property
    def origin(self) -> str:
        """How to name this member in a message."""
        return f"{self.path}: {self.inner}" if self.inner else self.path

    def malformed(self, line: int, reason: str) -> CorpusFormatError:
        """The error for a line that is not as its format says."""
        return CorpusFormatError(f"{self.origin}, line {line}: {reason}.")

    def open(self) -> io.BufferedReader:
        """Open for reading, bounded in size."""
        with _naming(self.path, self.inner):
            limit = max(FREE_BYTES, MAX_RATIO * os.path.getsize(self.path))
            limit = min(MAX_MEMBER_BYTES, limit) if self.inner else limit
            return io.BufferedReader(_Bounded(self.opener(), limit, self.path, self.inner), 1 << 16)

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
                yield number, _decode(raw.rstrip(b"\n").removesuffix(b"\r"), "utf-8" if number > 1 else "utf-8-sig")

    def xml(self) -> Element:
        """The root of a small XML file; one that does not name its encoding is UTF-8 or Latin-1.

        Document type declarations are refused: no corpus has one, and entities are how a small file fills the memory.
        """
        data = self.read()
        try:
            root: Element = fromstring(data if b"encoding=" in data[:200] else _decode(data), forbid_dtd=True)
            return root
        except DefusedXmlException as error:
            what = "declares a document type or entities, which no official file does"
            raise CorpusFormatError(f"{self.origin} {what}.") from error
        except (ParseError, ValueError, LookupError) as error:  # the latter two for unknown encodings
            line = error.position[0] if isinstance(error, ParseError) else 1
            raise self.malformed(line, f"not well-formed XML ({error})") from error


def _decode(raw: bytes, encoding: str = "utf-8-sig") -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        return raw.decode("latin-1")  # which never fails


def safe_name(name: str, path: str) -> str:
    """Normalise the name of a member of the archive `path`, or refuse it.

    Examples:
        >>> safe_name("./VOCdevkit/VOC2007/a.jpg", "x.tar")
        'VOCdevkit/VOC2007/a.jpg'
    """
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    if not parts or ".." in parts or re.match(r"[/\\]|[A-Za-z]:", name) or re.search(r"[\x00-\x1f\x7f]", name):
        raise _hostile(path, f" holds a member with an unsafe name, {name!r}")
    return "/".join(parts)


def _hostile(path: str, what: str) -> CorpusFileError:
    return CorpusFileError(f"{path}{what}. No official archive does: get the file from its official source.", path)


def _walk_zip(path: str) -> Iterator[Member]:
    with _naming(path), zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.is_dir():
                continue
            name = safe_name(info.filename, path)
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                raise _hostile(path, f" holds {name!r}, which is a link or a device")
            yield unpacked(name, path, partial(archive.open, info), inner=info.filename)


def _walk_tar(path: str) -> Iterator[Member]:
    with _naming(path), tarfile.open(path, "r:*") as archive:
        while (info := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # tarfile remembers every member it has passed
            name = safe_name(info.name, path) if info.name not in (".", "./") else "."
            if info.isdir():
                continue
            if not info.isreg() or info.issparse():
                raise _hostile(path, f" holds {name!r}, which is a link or a device")
            yield unpacked(name, path, partial(archive.extractfile, info), inner=info.name)
        # tarfile takes a damaged header, or a file that ends between two members, for the end of the archive. The
        # real end is a block of zeros.
        assert archive.fileobj is not None
        archive.fileobj.seek(archive.offset)
        if archive.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("the archive ends before its end mark")
        while archive.fileobj.read(1 << 16):  # a compressed file's checksum is tested at its very end
            pass


def unpacked(name: str, path: str, opener: Callable[[], Any] | None = None, inner: str = "") -> Member:
    """A file on disk or in an archive, decompressed where its ending says that it is compressed."""
    opener = partial(io.FileIO, path) if opener is None else opener
    stem, suffix = posixpath.splitext(name)
    if suffix.lower() not in OPENERS:
        return Member(name, path, opener, inner)
    return Member(stem, path, lambda: OPENERS[suffix.lower()](opener()), inner)


class SourceTree(tuple[str, ...]):
    """The files of a corpus: folders and single files, looked through in sorted order.

    Examples:
        >>> import tempfile, pathlib
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> with gzip.open(folder / "label_val.gz", "wt") as file:
        ...     _ = file.write("cs.LG stat.ML")
        >>> [(member.name, list(member.lines())) for member in SourceTree([str(folder)]).walk()]
        [('label_val', [(1, 'cs.LG stat.ML')])]
    """

    def __str__(self) -> str:
        return ", ".join(self)

    def walk(self, wanted: Callable[[str], Any] = lambda name: True) -> Generator[Member, None, None]:
        """Every file and every member of an archive whose name is wanted; what is not wanted is not unpacked."""
        for path, name in self.files():
            if name.lower().endswith(".zip"):
                members = _walk_zip(path)
            elif name.lower().endswith(TAR_SUFFIXES):
                members = _walk_tar(path)
            else:
                members = iter([unpacked(name, path)])
            yield from (member for member in members if wanted(member.name))

    def files(self) -> Iterator[tuple[str, str]]:
        """Every file on disk as (path, name relative to its root), sorted; a loop of links is walked once."""
        for root in self:
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

    def find(self, pattern: str) -> dict[str, str]:
        """The names of members that end in what a regular expression matches, by that end; the shortest of several."""
        compiled = re.compile(rf"(?:.*/)?({pattern})")
        names = sorted((member.name for member in self.walk(compiled.fullmatch)), key=len, reverse=True)
        return {match[1]: match[0] for match in map(compiled.fullmatch, names) if match}

    @contextlib.contextmanager
    def open_one(self, name: str) -> Iterator[Member]:
        """The member of exactly this name."""
        with contextlib.closing(self.walk(lambda candidate: candidate == name)) as members:
            for member in members:
                yield member
                return
        raise CorpusFileError(f"{name} is not in {self}.")
