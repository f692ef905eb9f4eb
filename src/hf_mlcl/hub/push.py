"""To the Hub: the intended files, private unless said otherwise, again as often as it takes."""

from __future__ import annotations

import fnmatch
import glob
import json
import logging
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_mlcl.files import staged

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors model-*-of-*.safetensors adapter_model.safetensors *.onnx onnx/*.onnx"
INTENDED = f"""
    {WEIGHTS} model.safetensors.index.json prototypes.safetensors *.onnx.data onnx/*.onnx.data modeling_mlcl.py
    adapter_config.json heads.safetensors
    README.md LICENSE* metrics.json figures/*.png .eval_results/*.yaml
    config.json generation_config.json preprocessor_config.json processor_config.json chat_template.jinja
    modules.json sentence_bert_config.json config_sentence_transformers.json 1_Pooling/config.json
    tokenizer*.json tokenizer.model special_tokens_map.json added_tokens.json vocab.txt vocab.json merges.txt
    bpe.codes dict.txt entity_vocab.json word_shape.json word_pronunciation.json
    spiece.model sentencepiece.model spm*.model *.spm *.bpe.model
"""
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
    return [name for name in files if _matches(name, INTENDED)]


def _matches(name: str, patterns: str) -> bool:  # as in a shell: a star does not reach into folders
    return any(name.count("/") == p.count("/") and fnmatch.fnmatchcase(name, p) for p in patterns.split())


def checked_files(folder: str | os.PathLike[str]) -> list[str]:
    """`intended_files` of a folder that holds a model; an error says what is wrong with any other."""
    root = Path(folder)
    if not root.is_dir():
        raise ValueError(f"folder={os.fspath(folder)!r} is not a folder.")
    files = intended_files(root)
    if not any(_matches(name, WEIGHTS) for name in files):
        folders = sorted(path.parent for path in root.glob("*/config.json"))
        inner = [str(path) for path in folders if not path.name.startswith("checkpoint-")]
        hint = f" Push one of the models in it: {', '.join(inner)}." if inner else ""
        raise ValueError(
            f"folder={os.fspath(folder)!r} holds no model: there is no model.safetensors or .onnx file in it.{hint}"
        )
    return files


def push_folder(
    folder: str | os.PathLike[str],
    repo_id: str,
    private: bool = True,
    token: str | bool | None = None,
    *,
    as_saved: bool = False,
    revision: str | None = None,
    commit_message: str = "Upload model",
    **upload: Any,
) -> CommitInfo:
    """Upload a model's folder to a repository of the Hub, which is made if it is not there.

    What arrives loads without this package: an encoder as sentence-transformers, timm and transformers know it, a
    classifier for transformers' pipelines (`export_encoder`, `export_classifier`), with a card that says how. This
    package opens it as well. Only the files of a model go (`intended_files`). An interrupted push is simply repeated:
    what is there already is not sent again, and the repository changes only once everything has arrived.

    Args:
        folder: What `save_pretrained`, `export_encoder`, `export_classifier` or the trainer has written.
        repo_id: ``"name"`` or ``"owner/name"``.
        private: Visibility of a new repository. One that exists keeps its own.
        token: Of the user; the one of ``hf auth login`` if not given. It appears in no message.
        as_saved: Whether to send the files as they are, also where only this package loads them.
        revision: The branch; the main one if not given.
        commit_message: First line of the commit.
        **upload: For ``HfApi.upload_folder``: ``commit_description``, ``create_pr``.
    """
    from huggingface_hub import HfApi

    from hf_mlcl.hub.publishing import published

    checked_files(folder)
    api = HfApi(token=token)
    with nullcontext(Path(folder)) if as_saved else published(Path(folder)) as root:
        files = checked_files(root)
        left = sorted({path.name for path in Path(folder).iterdir()} - {name.split("/")[0] for name in files})
        if vocabulary := sorted(set(left) & _vocabulary_files(root / "tokenizer_config.json")):
            logger.warning(
                "%s of the tokenizer will not be pushed, so that it may not load from the Hub: upload it with "
                "HfApi().upload_file, or push a fast tokenizer (tokenizer.json).",
                ", ".join(vocabulary),
            )
        name = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        _name_repository(root / "README.md", name)
        if not (Path(folder) / "README.md").is_file() and api.file_exists(name, "README.md"):
            files = [file for file in files if file != "README.md"]  # the owner's own stays
        logger.info("Uploading %s to %s; left behind: %s", ", ".join(files), name, ", ".join(left) or "none")
        upload |= {"allow_patterns": [glob.escape(file) for file in files], "commit_message": commit_message}
        return api.upload_folder(repo_id=name, folder_path=root, revision=revision, **upload)


def _vocabulary_files(config: Path) -> set[str]:
    """The files that a saved tokenizer reads its vocabulary from, where transformers knows its class."""
    import transformers

    name = json.loads(config.read_text(encoding="utf-8")).get("tokenizer_class") if config.is_file() else None
    try:  # the class is known by its name alone, and may need a library that is not installed
        return set(getattr(transformers, str(name)).vocab_files_names.values())
    except (AttributeError, ImportError):
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
