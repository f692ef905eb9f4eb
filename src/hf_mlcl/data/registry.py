"""The functions that users call with the name of a corpus."""

from __future__ import annotations

import errno
import hashlib
import importlib
import inspect
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from hf_mlcl.data.errors import PROBLEMS_FILE, CorpusFileError, CorpusWarning, Problems, full_disk_named
from hf_mlcl.data.facts import OPTIONS_OF_SIZE, CorpusFacts, all_facts
from hf_mlcl.errors import unknown_name

if TYPE_CHECKING:
    from datasets import DatasetDict, IterableDatasetDict

    from hf_mlcl.data.builder import CorpusBuilder

SIZES = ("full", "small")


def list_corpora() -> list[str]:
    """Names that `load_corpus` takes, sorted.

    Examples:
        >>> list_corpora()[:3]
        ['aapd', 'bgc', 'coco2014']
    """
    return sorted(all_facts())


def load_corpus(
    name: str,
    size: str = "full",
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    streaming: bool = False,
    **options: Any,
) -> DatasetDict | IterableDatasetDict:
    """Load a corpus of the study, or a built-in one, ready to train on.

    The first call reads the official files (downloads them, where that is allowed) and builds a cache; later calls
    open the cache. A change of the files in `data_dir` builds it again.

    Args:
        name: One of `list_corpora()`. `toy_text` and `toy_images` need no files.
        size: "small" for the study's version with little training data.
        data_dir: Folder with the official files, archives or unpacked, gzipped or not.
        cache_dir: Where to keep downloads and the built corpus; the cache of `datasets` by default.
        strict: Raise at the first unreadable image or unknown label. By default it is left out, and a `CorpusWarning`
            counts and names what was.
        streaming: Read rows from the official files as they are needed, and build no cache: an `IterableDatasetDict`,
            which the trainer takes with ``max_steps``. Files are downloaded as before, and opened anew in each epoch.
            What is left out, `strict` aside, is not counted.
        **options: What the corpus leaves to choose: ``labelled_only`` (all), ``difficult`` and ``halves``
            (``voc2007``), ``draw_seed`` (images, small), ``split`` (``aapd``); `docs/corpora.md` explains them.

    Returns:
        `train`, `validation` and `test`, each with a column `text` or `image` and a column `labels` with lists of ids.

    Raises:
        CorpusError: If a file is missing, corrupt or hostile, a row malformed, or a download fails: its subclasses.

    Examples:
        >>> corpus = load_corpus("toy_text")
        >>> list(corpus), corpus["train"].column_names
        (['train', 'validation', 'test'], ['text', 'labels'])
        >>> corpus["train"].features["labels"].feature.names[:3]
        ['boats', 'bread', 'trees']
        >>> next(iter(load_corpus("toy_text", streaming=True)["train"])) == corpus["train"][0]
        True
    """
    from datasets import config

    where = config.HF_DATASETS_CACHE if cache_dir is None else cache_dir
    make = partial(corpus_builder, name, size, data_dir, strict=strict, **options)
    if streaming:
        return make(cache_dir=cache_dir).as_streaming_dataset()
    try:
        with full_disk_named(where):
            corpus, problems = _built(make(cache_dir=cache_dir))
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        ready = _ready(make, where)
        if ready is None:
            raise CorpusFileError(
                f"{name} is not built yet, and its cache {os.fspath(where)} cannot be written: {error.strerror}. Name "
                f"a folder that can: cache_dir, or the variable HF_HOME."
            ) from error
        corpus, problems = ready
    if problems.found:
        warnings.warn(problems.summary(name), CorpusWarning, stacklevel=2)
    return corpus


def corpus_builder(
    name: str,
    size: str = "full",
    data_dir: str | os.PathLike[str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    *,
    strict: bool = False,
    **options: Any,
) -> CorpusBuilder:
    """The `datasets` builder of a corpus, for those who want its `info` or its own methods; see `load_corpus`."""
    from hf_mlcl.data import toy
    from hf_mlcl.data.builder import folder_fingerprint

    facts = corpus_facts(name)
    module = importlib.import_module(f"hf_mlcl.data.corpora.{facts.name}")
    builder: type[CorpusBuilder] = vars(module)[name.title().replace("_", "")]
    if size not in SIZES:
        raise ValueError(f"size={size!r} is not known: pass one of {', '.join(map(repr, SIZES))}.")
    if size == "small" and facts.small_sizes is None:
        raise ValueError(f"size='small' is not available for {name}: the study has no small version of it.")
    key = "official"
    if facts.study is None:
        if data_dir is not None:
            raise ValueError(
                f"data_dir={os.fspath(data_dir)!r} has no use for {name}, which is built in. Leave it out."
            )
        # When the code that generates a corpus changes, so does the corpus.
        code = inspect.getsource(module) + inspect.getsource(toy)
        key = hashlib.blake2b(code.encode(), digest_size=16).hexdigest()
    elif data_dir is not None:
        data_dir = os.path.abspath(os.path.expanduser(os.fspath(data_dir)))
        if not os.path.isdir(data_dir):
            raise ValueError(f"data_dir={data_dir!r} is not a folder. Pass the folder that holds the files of {name}.")
        key = folder_fingerprint(data_dir)
    chosen = chosen_options(name, size, options)
    return builder(
        cache_dir=None if cache_dir is None else os.path.abspath(os.path.expanduser(os.fspath(cache_dir))),
        dataset_name=f"hf_mlcl_{name}",
        config_name=size,
        hash=key,
        data_dir=data_dir,
        size=size,
        strict=strict,
        **({"options": chosen} if chosen else {}),
    )


def chosen_options(corpus: str, size: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `load_corpus` that are not the default, checked.

    Examples:
        >>> chosen_options("voc2007", "full", {"difficult": "absent", "halves": "study"})
        {'difficult': 'absent'}
    """
    facts = corpus_facts(corpus)
    for name, value in options.items():
        if name not in facts.options:
            raise ValueError(f"{corpus} has no option {name!r}. It has: {', '.join(sorted(facts.options))}.")
        values = facts.options[name]
        if isinstance(values, list):
            if value not in values or type(value) is not type(values[0]):
                raise ValueError(f"{name}={value!r} is not known: pass one of {', '.join(map(repr, values))}.")
        elif type(value) is not int or value < 0:
            raise ValueError(f"{name}={value!r} is not possible: pass a whole number from 0 on.")
        if OPTIONS_OF_SIZE.get(name, size) != size:
            about = f"it is about size={OPTIONS_OF_SIZE[name]!r}"
            raise ValueError(f"{name}={value!r} has no use for size={size!r}: {about}. Leave it out.")
    return {name: value for name, value in sorted(options.items()) if value != facts.default_options(size)[name]}


def corpus_facts(name: str) -> CorpusFacts:
    """Source, licence, files and the study's statistics of a corpus.

    Examples:
        >>> corpus_facts("bgc").license
        'CC BY-NC 4.0'
    """
    facts = all_facts()
    if name not in facts:
        raise ValueError(unknown_name("corpus", name, facts))
    return facts[name]


def _built(builder: CorpusBuilder) -> tuple[DatasetDict, Problems]:
    builder.download_and_prepare()
    try:
        return _checked(builder)
    except Exception:  # a cache that was damaged after it was built, whatever way it shows: build it again
        builder.download_and_prepare(download_mode="reuse_cache_if_exists")
        return _checked(builder)


def _ready(make: Callable[..., CorpusBuilder], where: str | os.PathLike[str]) -> tuple[DatasetDict, Problems] | None:
    """A corpus from a cache that cannot be written, so that no lock can be made there; None if it is not in there.

    Nothing is lost without a lock: a corpus gets its name in the cache when it is complete.
    """
    from datasets import DatasetInfo, config

    with tempfile.TemporaryDirectory() as elsewhere:  # the builder makes its locks there, and knows the name
        builder = make(cache_dir=elsewhere)
    built = os.path.join(os.path.expanduser(os.fspath(where)), builder._relative_data_dir())
    if not os.path.isfile(os.path.join(built, config.DATASET_INFO_FILENAME)):
        return None
    builder._cache_dir = builder._output_dir = built
    builder.info = DatasetInfo.from_directory(built)
    return _checked(builder)


def _checked(builder: CorpusBuilder) -> tuple[DatasetDict, Problems]:
    """Open a built corpus and hold it against what was written down when it was built."""
    corpus: DatasetDict = builder.as_dataset()
    for split, info in builder.info.splits.items():
        if len(corpus[split]) != info.num_examples:
            raise RuntimeError(f"{split} has {len(corpus[split])} rows, built were {info.num_examples}")
    with open(os.path.join(builder.cache_dir, PROBLEMS_FILE), encoding="utf-8") as file:
        return corpus, Problems(found=json.load(file))
