"""``hf-mlcl push``."""

from __future__ import annotations

from hf_mlcl.cli.output import print_json, say
from hf_mlcl.experiments.prediction import classifier_folder


def run(folder: str, repo_id: str, public: bool, as_json: bool) -> None:
    """Upload a folder and print the address of the commit.

    Args:
        folder: A model, or the output folder of an experiment, of which the classifier is meant.
        repo_id: Where to.
        public: Whether everybody may see it.
        as_json: For programs.
    """
    from hf_mlcl.experiments.checking import check_push
    from hf_mlcl.hub.push import checked_files, push_folder

    chosen = classifier_folder(folder)
    checked_files(chosen)  # nobody need be online, or logged in, to learn that a folder holds no model
    check_push(repo_id)
    say(f"Uploading {chosen} to {repo_id} ({'public' if public else 'private'})")
    commit = push_folder(chosen, repo_id, private=not public)
    if as_json:
        print_json({"folder": str(chosen), "repo_id": commit.repo_url.repo_id, "commit": str(commit)})
    else:
        print(commit)
