"""``hf-mlcl push``."""

from __future__ import annotations

from hf_mlcl.cli.output import say
from hf_mlcl.experiments.prediction import classifier_folder


def run(folder: str, repo_id: str, public: bool) -> None:
    """Upload a folder and print the address of the commit.

    Args:
        folder: A model, or the output folder of an experiment, of which the classifier is meant.
        repo_id: Where to.
        public: Whether everybody may see it.
    """
    from hf_mlcl.data.download import hub_is_reachable
    from hf_mlcl.hub import push_folder

    if not hub_is_reachable():
        raise ValueError("The Hub cannot be reached. `hf-mlcl doctor` says what else is missing.")
    chosen = classifier_folder(folder)
    say(f"Uploading {chosen} to {repo_id} ({'public' if public else 'private'})")
    print(push_folder(chosen, repo_id, private=not public))
