"""``hf-mlcl push``."""

from __future__ import annotations

import json
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hf_mlcl.cli.options import AsJson
from hf_mlcl.cli.output import print_json, quiet_libraries, say

if TYPE_CHECKING:
    from hf_mlcl.experiments.examples import Examples


def push(
    folder: Annotated[str, typer.Argument(help="A model's folder; of an experiment's folder, its classifier.")],
    repo_id: Annotated[str, typer.Argument(help="owner/name on the Hub; made if it is not there.")],
    as_saved: Annotated[
        bool, typer.Option("--as_saved", help="Send the files as they are, also where only hf-mlcl loads them.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="For everybody to see; private otherwise.")] = False,
    space: Annotated[
        bool, typer.Option("--space", help="Also make a Space, a page on which one can try the classifier.")
    ] = False,
    examples: Annotated[
        str | None,
        typer.Option(help="Data whose rows the Space shows as nearest examples; those of the training if not set."),
    ] = None,
    no_examples: Annotated[bool, typer.Option("--no_examples", help="Send no training examples.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a trained model to the Hub (log in with `hf auth login` before).

    With --space a small Gradio program goes to a Space of the same name: it shows every label with its score and
    threshold, and the nearest training examples, of which up to 2,000 are sent along. Its folder stays beside the
    classifier: `python space/app.py` runs it on this machine.
    """
    from hf_mlcl.experiments.parsing import check_push
    from hf_mlcl.hub.push import checked_files, push_folder
    from hf_mlcl.models.loading import model_within

    quiet_libraries()
    if (examples or no_examples) and not space:
        raise typer.BadParameter("--examples and --no_examples are for --space.")
    if examples and no_examples:
        raise typer.BadParameter("Give --examples DATA or --no_examples, not both.")
    if space and public and not (examples or no_examples):
        raise typer.BadParameter(
            "A public Space would show training rows to everybody. Say which with --examples DATA, or --no_examples."
        )
    chosen = model_within(folder)
    checked_files(chosen)  # nobody need be online, or logged in, to learn that a folder holds no model
    check_push(repo_id)
    known = _examples(str(chosen), examples) if space and not no_examples else None
    say(f"Uploading {chosen} to {repo_id} ({'public' if public else 'private'})")
    # Of an exported model the features are not known, by which the Space finds the nearest examples.
    commit = push_folder(chosen, repo_id, private=not public, as_saved=as_saved or known is not None)
    result = {"folder": str(chosen), "repo_id": commit.repo_url.repo_id, "commit": str(commit)}
    if space:
        result["space"] = _push_space(Path(chosen), commit.repo_url.repo_id, known, public)
    if as_json:
        print_json(result)
    else:
        print(*(result[key] for key in ("commit", "space") if key in result), sep="\n")


def _examples(model: str, data: str | None) -> Examples | None:
    """Training examples with their features; None, and a word about it, where it is not known where they are."""
    from hf_mlcl.data.errors import CorpusError
    from hf_mlcl.experiments.examples import Examples, training_rows
    from hf_mlcl.experiments.prediction import Predictor

    try:
        rows = training_rows(model, data)
    except (CorpusError, ValueError) as error:
        if data is not None:
            raise
        say(f"The Space will show no training examples: {error}")
        return None
    found = Examples.of(Predictor(model), rows)
    say(
        f"{len(found.content):,} of {len(rows):,} training rows go along, to be shown as examples "
        "(--no_examples: none). The model is sent as hf-mlcl saved it, since the Space compares its features"
    )
    return found


def _push_space(classifier: Path, repo_id: str, examples: Examples | None, public: bool) -> str:
    """Write the Space beside the classifier, and push it with the examples; its address."""
    from huggingface_hub import HfApi

    from hf_mlcl.experiments.examples import EXAMPLES_FILE
    from hf_mlcl.hub.publishing import has_code, is_plain
    from hf_mlcl.hub.space import push_space, requirement, write_space
    from hf_mlcl.models.loading import CLASSIFIER_FOLDER

    of_training = classifier.name == CLASSIFIER_FOLDER
    folder = classifier.parent / "space" if of_training else classifier.with_name(f"{classifier.name}-space")
    api = HfApi()
    with tempfile.TemporaryDirectory() as temporary:
        file = (classifier.parent if of_training else Path(temporary)) / EXAMPLES_FILE
        if examples is not None:
            examples.save(file)
            with warnings.catch_warnings():  # that data belong elsewhere: these are a part of the model
                warnings.simplefilter("ignore", UserWarning)
                api.upload_file(
                    path_or_fileobj=file, path_in_repo=EXAMPLES_FILE, repo_id=repo_id, commit_message="Upload examples"
                )
        else:  # those of an earlier push are not wanted any more, or belong to another model
            file.unlink(missing_ok=True)
            if api.file_exists(repo_id, EXAMPLES_FILE):
                api.delete_file(EXAMPLES_FILE, repo_id, commit_message="Remove examples")
                say(f"{EXAMPLES_FILE} of an earlier push is removed from {repo_id}; its history still has it.")
    settings = json.loads(Path(api.hf_hub_download(repo_id, "config.json")).read_text(encoding="utf-8"))
    plain = examples is None and is_plain(settings)
    for name in write_space(folder, repo_id, plain=plain, code=has_code(settings)):
        is_stale = name == "app.py" and repo_id not in (folder / name).read_text(encoding="utf-8")
        stale = f" Mind that it does not speak of {repo_id}." if is_stale else ""
        say(f"{folder / name} was changed by hand and goes as it is; delete it to have it written anew.{stale}")
    if not plain and "@" not in requirement():
        say(
            f"The Space installs hf-mlcl from the package index. If it is not published there, put an address that pip "
            f"installs from into {folder / 'requirements.txt'}; with --no_examples it needs transformers alone."
        )
    say(f"Uploading {folder} to the Space {repo_id}; to try it here: pip install gradio && python {folder / 'app.py'}")
    return str(push_space(folder, repo_id, private=not public).repo_url)
