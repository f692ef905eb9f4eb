"""A Space: a page on the Hub on which anybody can try a classifier. Three files, of which one is a program."""

from __future__ import annotations

import hashlib
import json
import os
import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from hf_mlcl.files import staged
from hf_mlcl.versions import installed_version

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

PROGRAMS = {plain: Path(__file__).with_name(f"space_{'plain' if plain else 'app'}.py.txt") for plain in (False, True)}
FILES = ("app.py", "README.md", "requirements.txt")
SIGNED = re.compile(r"(?s)(?P<text>.*)(?:#|<!--) As hf-mlcl wrote it: [0-9a-f]{16}(?: -->)?\n")
PLAIN_NEEDS = ("transformers", "torch", "torchvision", "timm", "pillow")


def write_space(
    folder: str | os.PathLike[str], model: str, description: str = "", *, plain: bool = False, code: bool = False
) -> list[str]:
    """Write the files of a Space: a Gradio program, its card, and what it needs.

    ``python app.py`` runs it on this machine: with the classifier of the training beside whose folder it was written,
    with a model that is named as an argument, or with that of the Hub.

    Args:
        folder: Gets the files; other files in it stay, as do those of the three that somebody has changed.
        model: ``owner/name`` of the classifier on the Hub.
        description: A line below the title.
        plain: Whether transformers loads the model by itself: then the Space needs no hf-mlcl, and has no examples.
        code: Whether it needs the file ``modeling_mlcl.py`` beside it for that (`export_classifier` says when).

    Returns:
        The names of files that were changed since they were written here, and stay as they are.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_space(folder, "me/reviews")
        []
        >>> sorted(path.name for path in folder.iterdir())
        ['README.md', 'app.py', 'requirements.txt']
        >>> _ = (folder / "requirements.txt").write_text("hf-mlcl @ git+https://example.org/hf-mlcl")
        >>> write_space(folder, "me/reviews")
        ['requirements.txt']
    """
    from huggingface_hub import SpaceCardData
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    validate_repo_id(model)  # it becomes part of a program
    title = model.split("/")[-1]
    about = description or f"What [{model}](https://huggingface.co/{model}) says."
    program = PROGRAMS[plain].read_text(encoding="utf-8")
    for name, value in (("model", model), ("title", title), ("description", about), ("code", str(code))):
        program = program.replace(
            f"{{{{ {name} }}}}", value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        )
    card = SpaceCardData(title=title, sdk="gradio", app_file="app.py", models=[model])
    needs = [*PLAIN_NEEDS] if plain else [requirement()]
    texts = {
        "app.py": program,
        "README.md": f"---\n{card}\n---\n\n# {title}\n\n{about}\n",
        "requirements.txt": "\n".join(needs) + "\n",
    }
    kept = [name for name in texts if _is_changed(Path(folder) / name)]
    with staged(folder) as stage:
        for name in texts.keys() - set(kept):
            (stage / name).write_text(_signed(name, texts[name]), encoding="utf-8")
    return kept


def requirement() -> str:
    """What installs this version of hf-mlcl: from where it was installed here, if that is an address, or an index."""
    version = installed_version("hf-mlcl")
    if version is None:
        return "hf-mlcl"
    origin = json.loads(metadata.distribution("hf-mlcl").read_text("direct_url.json") or "{}")
    if "vcs_info" in origin:
        return f"hf-mlcl @ {origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
    if str(origin.get("url", "")).startswith("https:"):
        return f"hf-mlcl @ {origin['url']}"
    return f"hf-mlcl>={version}"


def _signed(name: str, text: str) -> str:
    """A text with a last line by which it is known whether it was changed."""
    line = f"As hf-mlcl wrote it: {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    return f"{text}<!-- {line} -->\n" if name.endswith(".md") else f"{text}# {line}\n"


def _is_changed(path: Path) -> bool:
    """Whether a file is there that is not as `_signed` made it."""
    if not path.is_file():
        return False
    text = path.read_text(encoding="utf-8")
    found = SIGNED.fullmatch(text)
    return found is None or _signed(path.name, found["text"]) != text


def push_space(
    folder: str | os.PathLike[str], repo_id: str, private: bool = True, token: str | bool | None = None
) -> CommitInfo:
    """Upload what `write_space` wrote to a Space of the Hub, which is made if it is not there.

    Args:
        folder: With the three files.
        repo_id: ``"name"`` or ``"owner/name"``.
        private: Visibility of a new Space. A private one is for its owner; of a private model it also needs a token,
            as the secret ``HF_TOKEN`` in its settings.
        token: Of the user; the one of ``hf auth login`` if not given.
    """
    from huggingface_hub import HfApi

    missing = [name for name in FILES if not (Path(folder) / name).is_file()]
    if missing:
        raise ValueError(f"folder={os.fspath(folder)!r} is no Space: {missing[0]} is missing. Write it: write_space.")
    api = HfApi(token=token)
    name = api.create_repo(repo_id, repo_type="space", space_sdk="gradio", private=private, exist_ok=True).repo_id
    return api.upload_folder(
        repo_id=name,
        repo_type="space",
        folder_path=Path(folder),
        allow_patterns=list(FILES),
        commit_message="Upload Space",
    )
