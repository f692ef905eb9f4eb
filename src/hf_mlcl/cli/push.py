"""``hf-mlcl push``."""

from __future__ import annotations

from typing import Annotated

import typer

from hf_mlcl.cli.options import AsJson
from hf_mlcl.cli.output import print_json, quiet_libraries, say


def push(
    folder: Annotated[str, typer.Argument(help="A model's folder; of an experiment's folder, its classifier.")],
    repo_id: Annotated[str, typer.Argument(help="owner/name on the Hub; made if it is not there.")],
    as_saved: Annotated[
        bool, typer.Option("--as_saved", help="Send the files as they are, also where only hf-mlcl loads them.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="For everybody to see; private otherwise.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a trained model to the Hub (log in with `hf auth login` before).

    What arrives loads without hf-mlcl, by the lines on its card: a classifier in transformers' pipelines, an encoder
    (FOLDER/encoder of a training) in sentence-transformers, timm or transformers.
    """
    from hf_mlcl.experiments.parsing import check_push
    from hf_mlcl.experiments.prediction import classifier_folder
    from hf_mlcl.hub.push import checked_files, push_folder

    chosen = classifier_folder(folder)
    checked_files(chosen)  # nobody need be online, or logged in, to learn that a folder holds no model
    check_push(repo_id)
    say(f"Uploading {chosen} to {repo_id} ({'public' if public else 'private'})")
    quiet_libraries()
    commit = push_folder(chosen, repo_id, private=not public, as_saved=as_saved)
    if as_json:
        print_json({"folder": str(chosen), "repo_id": commit.repo_url.repo_id, "commit": str(commit)})
    else:
        print(commit)
