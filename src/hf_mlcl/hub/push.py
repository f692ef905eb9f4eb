"""To the Hub: the intended files, private unless said otherwise, again as often as it takes."""

from __future__ import annotations

import fnmatch
import glob
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_mlcl.files import staged

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

    from hf_mlcl.hub.facts import ModelReport

logger = logging.getLogger(__name__)

INTENDED = (
    "README.md",
    "LICENSE*",
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    "prototypes.safetensors",
    "*.onnx",
    "*.onnx.data",
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer*.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "bpe.codes",
    "dict.txt",
    "entity_vocab.json",
    "word_shape.json",
    "word_pronunciation.json",
    "spiece.model",
    "sentencepiece.model",
    "spm*.model",
    "*.spm",
    "*.bpe.model",
    "chat_template.jinja",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "metrics.json",
    "figures/*.png",
    ".eval_results/*.yaml",
)
"""What a model's folder is made of. Everything else stays at home: checkpoints, optimizer states, logs, features of
examples (`ExampleIndex`, the cache of linear evaluations), and ``training_args.bin``, in which HF's trainer keeps the
user's token."""


def intended_files(folder: str | os.PathLike[str]) -> list[str]:
    """The files of a model's folder that `push_folder` uploads, relative to it and sorted.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for name in ("config.json", "model.safetensors", "training_args.bin", "optimizer.pt", ".env"):
        ...     _ = (folder / name).write_text("")
        >>> intended_files(folder)
        ['config.json', 'model.safetensors']
    """
    root = Path(folder)
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return [name for name in files if any(_matches(name, pattern) for pattern in INTENDED)]


def push_folder(
    folder: str | os.PathLike[str],
    repo_id: str,
    private: bool = True,
    token: str | bool | None = None,
    *,
    revision: str | None = None,
    commit_message: str = "Upload model",
    **upload: Any,
) -> CommitInfo:
    """Upload a model's folder to a repository of the Hub, which is made if it is not there.

    Only the files of a model go (`intended_files`). An interrupted push is simply repeated: what is there already is
    not sent again, and the repository changes only once everything has arrived.

    Args:
        folder: What `save_pretrained`, `export_encoder`, `export_classifier` or the trainer has written.
        repo_id: ``"name"`` or ``"owner/name"``.
        private: Visibility of a new repository. One that exists keeps its own.
        token: Of the user; the one of ``hf auth login`` if not given. It is sent to the Hub and to nobody else, and
            appears in no message.
        revision: The branch; the main one if not given.
        commit_message: First line of the commit.
        **upload: For ``HfApi.upload_folder``: ``commit_description``, ``create_pr``.

    Returns:
        Facts on the commit; printed, its address.
    """
    from huggingface_hub import HfApi

    files = checked_files(folder)
    left = sorted({path.name for path in Path(folder).iterdir()} - {name.split("/")[0] for name in files})
    if vocabulary := sorted(set(left) & _vocabulary_files(Path(folder))):
        logger.warning(
            "%s of the tokenizer will not be pushed, so that it may not load from the Hub: upload it with "
            "HfApi().upload_file, or push a fast tokenizer (tokenizer.json).",
            ", ".join(vocabulary),
        )
    api = HfApi(token=token)
    repository = api.create_repo(repo_id, private=private, exist_ok=True)
    if revision is not None:
        api.create_branch(repository.repo_id, branch=revision, exist_ok=True)
    _name_repository(Path(folder) / "README.md", repository.repo_id)
    logger.info("Uploading %s to %s; left behind: %s", ", ".join(files), repository.repo_id, ", ".join(left) or "none")
    return api.upload_folder(
        repo_id=repository.repo_id,
        folder_path=os.fspath(folder),
        allow_patterns=[glob.escape(name) for name in files],
        commit_message=commit_message,
        revision=revision,
        **upload,
    )


def push_model(
    model: Any,
    repo_id: str,
    *,
    processor: Any = None,
    report: ModelReport | None = None,
    private: bool = True,
    token: str | bool | None = None,
    **push: Any,
) -> CommitInfo:
    """Save a model with its processor and its card, and upload that: what ``model.push_to_hub`` does.

    Args:
        model: An encoder or a classifier.
        repo_id: ``"name"`` or ``"owner/name"``.
        processor: Its tokenizer or image processor, without which pipelines cannot run.
        report: Facts for the card. Without them, a card that is on the Hub already stays as it is.
        private: See `push_folder`.
        token: See `push_folder`.
        **push: Further arguments of `push_folder`.
    """
    from huggingface_hub import HfApi

    from hf_mlcl.hub.facts import calibrated, report_of_model
    from hf_mlcl.hub.model_card import write_model_card

    repository = HfApi(token=token).create_repo(repo_id, private=private, exist_ok=True).repo_id
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        if processor is not None:
            processor.save_pretrained(folder)
        if report is not None or not HfApi(token=token).file_exists(repository, "README.md"):
            write_model_card(folder, calibrated(report or report_of_model(model), model.config), repo_id=repository)
        return push_folder(folder, repository, private, token, **push)


def checked_files(folder: str | os.PathLike[str]) -> list[str]:
    """`intended_files` of a folder that holds a model; an error says what is wrong with any other."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"folder={os.fspath(folder)!r} is not a folder.")
    files = intended_files(root)
    if not any(name.endswith(".onnx") or _matches(name, "model*.safetensors") for name in files):
        inner = sorted(path.parent.name for path in root.glob("*/config.json") if not _is_checkpoint(path.parent.name))
        hint = f" Push one of the models in it: {', '.join(str(root / name) for name in inner)}." if inner else ""
        raise ValueError(
            f"folder={os.fspath(folder)!r} holds no model: there is no model.safetensors or .onnx file in it.{hint}"
        )
    return files


def _vocabulary_files(folder: Path) -> set[str]:
    """The files that the tokenizer in a folder reads its vocabulary from, where transformers knows its class."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return set()
    import transformers

    name = json.loads(path.read_text(encoding="utf-8")).get("tokenizer_class")
    known = getattr(transformers, str(name), None)
    try:
        return set(getattr(known, "vocab_files_names", {}).values())
    except ImportError:  # a library that this tokenizer needs is not installed
        return set()


def _name_repository(card: Path, repo_id: str) -> None:
    """Put the repository into the code of a card that was written before it was known."""
    from hf_mlcl.experiments.output_folder import OutputFolder
    from hf_mlcl.hub.model_card import NO_REPOSITORY_YET

    card = card.resolve()
    text = card.read_text(encoding="utf-8") if card.is_file() else ""
    if NO_REPOSITORY_YET in text:
        output = OutputFolder(card.parent.parent)
        with output.changing(card.parent.name, card.name), staged(card.parent) as stage:
            (stage / card.name).write_text(text.replace(NO_REPOSITORY_YET, repo_id), encoding="utf-8")


def _matches(name: str, pattern: str) -> bool:
    """As in a shell: a star does not reach into folders."""
    return name.count("/") == pattern.count("/") and fnmatch.fnmatchcase(name, pattern)


def _is_checkpoint(name: str) -> bool:
    return name.startswith("checkpoint-")
