"""Where data of your own come from: memory, a file, a folder of files or of images, a dataset on the Hub."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import datasets
import numpy as np
import pyarrow as pa
from datasets import (
    Dataset,
    DatasetDict,
    Features,
    Image,
    IterableDataset,
    IterableDatasetDict,
    Value,
    load_dataset,
    load_from_disk,
)
from numpy.typing import NDArray

from hf_mlcl.data.download import hub_is_reachable
from hf_mlcl.data.errors import CorpusError, CorpusFileError, CorpusFormatError, full_disk_named
from hf_mlcl.data.images import image_defect
from hf_mlcl.data.sources import OPENERS
from hf_mlcl.data.tables import read_csv, read_json, written
from hf_mlcl.files import HIDDEN_FOLDER

if TYPE_CHECKING:
    import pandas as pd

READERS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet"}
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff")
IMAGE_NAMES = ("image", "file_name", "filename", "image_path", "path", "file")
SPLIT_NAMES = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval"),
}
LONGEST_NAME = 120
"""Characters that the id of an image may have."""
LOOKED_AT = 1000
"""Rows that tell what a column holds."""


@dataclass(frozen=True)
class Table:
    """The rows of a split, of which those of `kept` count, and what they hold.

    `file` is where they were read from, in whose folder paths of images begin; `lines` are those that rows begin in.
    """

    rows: Dataset
    file: Path | None = None
    lines: Sequence[int] | None = None
    kept: NDArray[np.int64] | None = None

    @property
    def folder(self) -> Path | None:
        """Of the file."""
        return None if self.file is None else self.file.parent

    def places(self, split: str) -> list[str]:
        """Where each row is found again: ``reviews.csv, line 7``; ``row``, counted from 1, where there are no lines."""
        where, what = split if self.file is None else self.file.name, "row" if self.lines is None else "line"
        numbers: Sequence[int] = range(1, len(self.rows) + 1) if self.lines is None else self.lines
        kept = range(len(self.rows)) if self.kept is None else self.kept.tolist()
        return [f"{where}, {what} {numbers[row]}" for row in kept]

    @cached_property
    def features(self) -> Features:
        """What the columns are. `Dataset.features` copies all of them at each access; here it is done once."""
        return self.rows.features

    def __len__(self) -> int:
        return len(self.rows) if self.kept is None else len(self.kept)

    def is_plain(self, name: str) -> bool:
        """Whether a column holds texts, numbers, dates or the like: one value per cell."""
        return isinstance(self.features[name], Value)

    def column(self, name: str) -> pa.ChunkedArray:
        """The cells of a column."""
        cells = self.rows.data.column(name)
        return cells if self.kept is None else cells.take(pa.array(self.kept))

    def head(self, name: str) -> list[Any]:
        """The first cells of a column."""
        return list(self.column(name)[:LOOKED_AT].to_pylist())

    def texts(self, name: str) -> list[str | None]:
        """The cells of a column as they are written."""
        self.check_plain(name)
        return [written(value) for value in self.column(name).to_pylist()]

    def check_plain(self, name: str) -> None:
        """Refuse a column of lists, objects or images where texts are expected."""
        if not self.is_plain(name):
            held = {"List": "lists", "dict": "objects"}.get(type(self.features[name]).__name__, "no texts")
            first = str(next((cell for cell in self.head(name) if cell is not None), None))[:60]
            raise CorpusFormatError(f"Column {name!r} holds {held} such as {first}, expected one text in each cell.")

    def holds_images(self, name: str) -> bool:
        """Whether a column holds images, or paths of images.

        Paths are known by their endings: those of at least half of the first rows are those of images. Where a column
        has a usual name, such as ``file_name``, its files may also have no ending, if the first of them is an image.
        Ids and bare names are known by the images beside the table that are called so.
        """
        feature = self.features[name]
        if self.names_images(name):
            return True
        if not self.is_plain(name) or feature.dtype not in ("string", "large_string"):
            return isinstance(feature, Image)
        paths = [value for value in self.head(name) if value and value.strip()]
        here = [path.strip().lower() for path in paths if "://" not in path]  # nothing is fetched
        ending = sum(path.endswith(IMAGE_ENDINGS) for path in here)
        if ending and 2 * ending >= len(paths):
            return True
        first = next((path for path in self.image_paths(paths[:5]) if path and os.path.isfile(path)), None)
        return name.lower() in IMAGE_NAMES and first is not None and image_defect(first) is None

    def names_images(self, name: str) -> bool:
        """Whether a column holds ids or bare names, a different one in each row, of images beside the table."""
        if not self.is_plain(name) or not self.features[name].dtype.startswith(
            ("string", "large_string", "int", "uint")
        ):
            return False
        names = [value for value in map(written, self.head(name)) if value and value.strip()]
        if not names or len(set(names)) < len(names) or max(map(len, names)) > LONGEST_NAME:
            return False
        known = sum(value.strip() in self.images_beside for value in names)
        return bool(known) and 2 * known >= len(names)

    @cached_property
    def images_beside(self) -> dict[str, Path | None]:
        """Images in the table's folder and its subfolders, by name with and without ending; None for several."""
        found: dict[str, Path | None] = {}
        for pattern in ("*", "*/*") if self.folder is not None else ():
            for path in sorted(self.folder.glob(pattern)):  # type: ignore[union-attr]  # which there is
                if path.suffix.lower() in IMAGE_ENDINGS:
                    for key in (path.name, path.stem):
                        found[key] = None if key in found else path
        return found

    def image_paths(self, values: Sequence[str | None]) -> list[str | None]:
        """Where images lie; paths that are not absolute begin in the table's folder, or are names of files in it."""
        folder = "" if self.folder is None else str(self.folder.resolve())
        return [self._image_path(folder, value.strip()) if value and value.strip() else None for value in values]

    def _image_path(self, folder: str, value: str) -> str:
        path = os.path.join(folder, value)
        if len(value) > LONGEST_NAME or os.path.isfile(path) or value not in self.images_beside:
            return path
        found = self.images_beside[value]
        if found is None:
            raise CorpusFormatError(
                f"{value!r} is the name of several images in {self.folder} and its subfolders. Write their paths into "
                "the table."
            )
        return str(found.resolve())


Source: TypeAlias = "str | os.PathLike[str] | Dataset | DatasetDict | pd.DataFrame"
"""What data are read from; `read_own_data` explains each."""


def source_name(source: Source) -> str:
    """What messages call the data."""
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"The {type(source).__name__}"


def folder_name(source: str) -> str:
    """What a folder for results of data is called: as their file or folder, or their repository without its owner.

    Examples:
        >>> folder_name("tables/reviews.csv.gz"), folder_name("owner/reviews-2.0")
        ('reviews', 'reviews-2.0')
    """
    path = Path(source).expanduser()
    # . and .. have a name of their own; a link keeps its name, whatever it leads to.
    name = Path(os.path.abspath(path)).name if path.exists() else path.name
    while not path.is_dir() and (bare := Path(name)).suffix.lower() in {*READERS, *OPENERS}:
        name = bare.stem
    return name or "data"


def read_tables(source: Source) -> dict[str, Table]:
    """The rows of each split under its usual name."""
    if not isinstance(source, str | os.PathLike):
        return _in_memory(source)
    source = os.fspath(source)
    path = Path(source).expanduser()
    if path.is_file():
        return {"train": _read_file(path)}
    if path.is_dir():
        return _read_folder(path)
    if path.suffix.lower() in READERS or source.count("/") > 1 or source.startswith((".", "~", "/")):
        raise CorpusFileError(f"{source!r} is not there. Give a CSV, JSON or Parquet file, a folder, or a Hub dataset.")
    neither = f"{source!r} is neither a file nor a folder here"
    if not hub_is_reachable():
        raise CorpusFileError(f"{neither}, and the Hub cannot be reached.")
    name, _, config = source.partition(":")
    try:
        found = load_dataset(name, config or None)
    except Exception as error:  # whatever the network, the Hub or its files come up with
        raise CorpusFileError(f"{neither}, and as a dataset of the Hub it is not available: {error}") from error
    return _named_splits({split: Table(rows) for split, rows in found.items()})


def _in_memory(source: Any) -> dict[str, Table]:
    import pandas as pd

    if isinstance(source, pd.DataFrame):
        source = Dataset.from_pandas(source, preserve_index=False)
    if isinstance(source, Dataset):
        return {"train": _whole(source)}
    if isinstance(source, DatasetDict):
        return _named_splits({split: _whole(rows) for split, rows in source.items()})
    hint = ". Labels are recognised in all rows at once: take as many as fit, Dataset.from_list(list(stream.take(n)))"
    raise CorpusFileError(
        f"source is of type {type(source).__name__}; expected a path, a Dataset, a DatasetDict or a pandas DataFrame"
        f"{hint if isinstance(source, IterableDataset | IterableDatasetDict) else ''}."
    )


def _whole(rows: Dataset) -> Table:
    """A dataset without format, in which every row lies where it counts: `select` and `shuffle` only list rows."""
    return Table(rows.with_format(None).flatten_indices())


def _read_file(path: Path) -> Table:
    endings = [ending.lower() for ending in path.suffixes if ending.lower() not in OPENERS]
    reader = READERS.get(endings[-1]) if endings else None
    if reader is None:
        raise CorpusFileError(f"{path} ends in {path.suffix or 'nothing'!r}; expected one of {', '.join(READERS)}.")
    problem = f"{path} cannot be read as {reader.upper()}"
    try:
        lines = None
        if reader == "csv":
            cells, lines = read_csv(path)
            rows = Dataset(cells)
        else:
            rows = _read_parquet(path) if reader == "parquet" else Dataset(read_json(path))
    except CorpusError as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{problem}: {error}.") from error
    except RecursionError as error:
        raise CorpusFileError(f"{problem}: it is nested too deeply.") from error
    except Exception as error:  # of gzip, json, pyarrow or datasets, depending on what is wrong
        cause = error.__cause__ or error
        hint = ". Save it as UTF-8" if isinstance(cause, UnicodeDecodeError) else ""
        raise CorpusFileError(f"{problem}: {' '.join(str(cause).split()) or type(cause).__name__}{hint}") from error
    if not len(rows):
        raise CorpusFormatError(f"{path} has columns but no rows.")
    return Table(rows, path, lines)


def _read_parquet(path: Path) -> Dataset:
    before = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(logging.CRITICAL)  # it logs the errors that it raises; they are told once
    try:
        with full_disk_named(datasets.config.HF_DATASETS_CACHE):
            return load_dataset("parquet", data_files=str(path), split="train")
    finally:
        datasets.logging.set_verbosity(before)


def _read_folder(folder: Path) -> dict[str, Table]:
    if any((folder / name).is_file() for name in ("dataset_dict.json", "state.json")):  # of save_to_disk
        try:
            return _in_memory(load_from_disk(str(folder)))
        except Exception as error:  # of json, pyarrow or datasets, depending on what is wrong
            why = " ".join(str(error).split())
            raise CorpusFileError(f"{folder} cannot be read as a saved dataset: {why}") from error
    tables = {}
    for path in sorted(folder.iterdir()):
        split = _split_of_file(path.name.split(".")[0])
        endings = [ending.lower() for ending in path.suffixes if ending.lower() not in OPENERS]
        if path.is_file() and split and READERS.get(endings[-1] if endings else ""):
            if split in tables:
                raise CorpusFormatError(
                    f"{folder} has two files for {split}, one of them {path.name}. Keep one; parts of one, as the Hub "
                    "has them, are joined by datasets.load_dataset, whose result may be given too (save_to_disk)."
                )
            tables[split] = _read_file(path)
    if tables:
        return _named_splits(tables)
    if not any(path.suffix.lower() in IMAGE_ENDINGS for path in folder.rglob("*")):
        raise CorpusFileError(
            f"{folder} holds neither train.csv (.tsv, .json, .jsonl, .parquet) nor images nor a saved dataset. Give "
            f"the file itself, a folder of images with a metadata.csv, or what save_to_disk wrote."
        )
    # A table beside the images, of the folder or of its splits, is read as any other.
    parts = {split: path for path in sorted(folder.iterdir()) if path.is_dir() and (split := _split_name(path.name))}
    described = {split: _table_beside_images(path) for split, path in (parts or {"train": folder}).items()}
    if all(described.values()):
        return _named_splits({split: _read_file(path) for split, path in described.items() if path})
    where: dict[str, Any] = {"data_dir": str(folder)}
    if results := {path.parent for path in folder.rglob(HIDDEN_FOLDER)}:  # of trainings, whose figures are no data
        split_folders = parts or {"train": folder}
        where = {"data_files": {split: _files_outside(results, path) for split, path in split_folders.items()}}
    try:
        found = load_dataset("imagefolder", **where)
    except Exception as error:  # depends on what is wrong with metadata or images
        raise CorpusFileError(
            f"{folder} cannot be read as a folder of images: {error}. It needs a metadata.csv with a column file_name "
            f"(paths relative to the folder) and labels, or a subfolder for each class."
        ) from error
    return _named_splits({split: Table(rows) for split, rows in found.items()})


def _files_outside(folders: set[Path], folder: Path) -> list[str]:
    return [
        str(path) for path in sorted(folder.rglob("*")) if path.is_file() and not folders.intersection(path.parents)
    ]


def _table_beside_images(folder: Path) -> Path | None:
    """``metadata.csv``, as libraries call it; or else the only table, if images lie right beside it."""
    files = [path for path in folder.iterdir() if path.is_file()]
    tables = [path for path in files if path.suffix.lower() in READERS]
    named = [path for path in tables if path.name == "metadata.csv"]
    beside = any(path.suffix.lower() in IMAGE_ENDINGS for path in files)
    return named[0] if named else tables[0] if beside and len(tables) == 1 else None


def _split_name(word: str) -> str | None:
    return next((split for split, names in SPLIT_NAMES.items() if word.lower() in names), None)


def _split_of_file(stem: str) -> str | None:
    """The split that a file is named after: ``train``, ``reviews_train``, ``train-2024``."""
    words = [word for word in re.split(r"[^a-z]+", stem.lower()) if word]
    found = {split for word in (words[:1] + words[-1:]) if (split := _split_name(word))}
    return found.pop() if len(found) == 1 else None


def _named_splits(found: Mapping[str, Table]) -> dict[str, Table]:
    named = {_split_name(str(split)): rows for split, rows in found.items()}
    if "train" in named:
        return {split: named[split] for split in SPLIT_NAMES if split in named}
    if len(found) > 1:
        raise CorpusFormatError(f"There is no split for training among {', '.join(map(str, found))}.")
    return {"train": next(iter(found.values()))}
