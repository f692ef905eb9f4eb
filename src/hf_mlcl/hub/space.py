"""A Space: a page on the Hub on which anybody can try a classifier. Three files, of which one is a program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hf_mlcl.files import staged
from hf_mlcl.versions import installed_version

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

APP = Path(__file__).with_name("space_app.py.txt")
FILES = ("app.py", "README.md", "requirements.txt")


def write_space(folder: str | os.PathLike[str], model: str, description: str = "") -> None:
    """Write the files of a Space: a Gradio program, its card, and what it needs.

    ``python app.py`` runs it on this machine: with the classifier of the training beside whose folder it was written,
    with a model that is named as an argument, or with that of the Hub.

    Args:
        folder: Gets the files; other files in it stay.
        model: ``owner/name`` of the classifier on the Hub.
        description: A line below the title.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_space(folder, "me/reviews")
        >>> sorted(path.name for path in folder.iterdir())
        ['README.md', 'app.py', 'requirements.txt']
    """
    from huggingface_hub import SpaceCard, SpaceCardData
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    validate_repo_id(model)  # it becomes part of a program
    title = model.split("/")[-1]
    about = description or f"What [{model}](https://huggingface.co/{model}) says."
    program = APP.read_text(encoding="utf-8")
    for name, value in (("model", model), ("title", title), ("description", about)):
        program = program.replace(
            f"{{{{ {name} }}}}", value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        )
    card = SpaceCardData(title=title, sdk="gradio", app_file="app.py", models=[model])
    version = installed_version("hf-mlcl")
    with staged(folder) as stage:
        (stage / "app.py").write_text(program, encoding="utf-8")
        SpaceCard(f"---\n{card}\n---\n\n# {title}\n\n{about}\n").save(stage / "README.md")
        (stage / "requirements.txt").write_text(f"hf-mlcl{f'>={version}' if version else ''}\n", encoding="utf-8")


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
