"""``hf-mlcl train``."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from hf_mlcl.cli.libraries import quiet_libraries
from hf_mlcl.cli.output import print_json, print_pairs, print_table, say

SHOWN = (
    "protocol",
    "backbone",
    "pooling",
    "max_length",
    "image_size",
    "global_batch_size",
    "num_train_epochs",
    "minutes",
    "learning_rate",
    "head_learning_rate",
    "prototype_init",
    "thresholds",
)


def run(
    data: str, settings: Mapping[str, Any], further: Sequence[str], check: bool, strict: bool, as_json: bool
) -> None:
    """Read, show, train, and say what to do next.

    Args:
        data: Where the data are, or a corpus's name.
        settings: What the options said.
        further: Arguments of the training, as they came.
        check: Whether to stop once everything has been shown.
        strict: Whether the first image that cannot be used is an error.
        as_json: Whether to print the result as JSON.
    """
    from accelerate import PartialState

    from hf_mlcl.data.registry import list_corpora
    from hf_mlcl.experiments.inputs import load_data
    from hf_mlcl.experiments.parsing import build_experiment, parse_settings
    from hf_mlcl.experiments.recipe import study_recipe
    from hf_mlcl.experiments.results import SHOWN as METRICS
    from hf_mlcl.experiments.running import PushError, run_experiment

    try:
        chosen = {**parse_settings(further), **settings}
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if chosen.get("test_file") is not None:
        chosen["test_file"] = str(Path(chosen["test_file"]).resolve())  # found again from anywhere
    quiet_libraries()
    if not sys.stderr.isatty():
        chosen.setdefault("disable_tqdm", True)  # plain lines in a log
    shows = not as_json and os.environ.get("RANK", "0") == "0"  # of several processes, one speaks
    splits = None
    if data in list_corpora():
        recipe = study_recipe(data)
    else:
        from hf_mlcl.data.errors import CorpusWarning
        from hf_mlcl.data.own import read_own_data
        from hf_mlcl.experiments.own import own_recipe

        columns: dict[str, Any] = {
            name: chosen.get(name) for name in ("text_column", "label_columns", "label_delimiter", "test_file")
        }
        with warnings.catch_warnings():
            if not as_json:
                warnings.simplefilter("ignore", CorpusWarning)  # it stands among the notes
            own = read_own_data(data, strict=strict, **columns)
        if shows:
            print_pairs(own.describe(), title=data)
        recipe, splits = own_recipe(own, data, chosen.get("backbone")), own.splits
    try:
        experiment, training = build_experiment(recipe, {**chosen, "corpus": data})
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    if shows:
        known = {**vars(training), **vars(experiment)}
        shown = [(name, _number(known[name])) for name in SHOWN if _applies(name, splits, known)]
        if splits is not None and "backbone" not in chosen:
            shown = [(name, f"{value}{_download(splits)}" if name == "backbone" else value) for name, value in shown]
        print_pairs([("loss", training.loss), *shown, ("output_dir", training.output_dir)], title="training")
    if check:
        if shows:
            print(_plan(recipe, {**chosen, "corpus": data}, splits))
        return
    if strict and splits is None:
        splits = load_data(experiment, training, strict=True)
    failure = None
    try:
        result = run_experiment(experiment, training, splits, quiet=as_json)
    except PushError as error:
        result, failure = error.result, error
    PartialState().destroy_process_group()  # a rank that leaves without it may crash on its way out
    if training.process_index > 0:
        return
    if as_json:
        print_json({"folder": str(result.folder), "metrics": result.metrics, "seconds": result.seconds})
    else:
        names = [name for name in METRICS if f"test_{name}" in result.metrics]
        kinds = {
            "frozen encoder, test": "frozen_test",
            "frozen encoder, test, own thresholds": "frozen_tuned_test",
            "validation": "validation",
            "test": "test",
            "test, own thresholds": "tuned_test",
        }
        rows = [
            [title, *(result.metrics.get(f"{prefix}_{name}", "") for name in names)]
            for title, prefix in kinds.items()
            if f"{prefix}_micro_f1" in result.metrics
        ]
        print_table(["", *names], rows, title=f"\n{training.loss} after {result.seconds['total']:.0f} s")
        _print_verdict(result.verdict)
        example = '"some text"' if _is_text(result.folder) else "picture.jpg"
        say(f"Saved in {result.folder}. Use it: hf-mlcl predict --model {result.folder} {example}")
    if failure is not None:
        say(f"hf-mlcl: {failure}")
        raise typer.Exit(1) from failure


def _plan(recipe: Any, chosen: Mapping[str, Any], splits: Any) -> str:
    """Every setting with its origin, rows and steps."""
    from hf_mlcl.data.facts import SplitSizes
    from hf_mlcl.experiments.dry_run import dry_run

    if splits is None:
        return str(dry_run(recipe, chosen))
    rows = SplitSizes(*(len(splits[name]) for name in ("train", "validation", "test")))
    kind: Any = "image" if "image" in splits["train"].column_names else "text"
    return str(dry_run(recipe, chosen, kind=kind, rows=rows))


def _print_verdict(verdict: Mapping[str, Any]) -> None:
    """What was gained over the frozen encoder, what was chosen, and what to try next."""
    gains = verdict.get("scores", {}).get("gain")
    if gains:
        cells = [f"{value:+.3f} ({low:+.3f} to {high:+.3f})" for value, low, high in gains.values()]
        print_pairs(list(zip(gains, cells, strict=True)), title="\ngained over the frozen encoder, 95 % interval")
    if verdict:
        print_pairs(list(verdict["choices"].items()), title="\nchosen")
        print_pairs([(str(number), tip) for number, tip in enumerate(verdict["advice"], 1)], title="\nto try next")


def _download(splits: Any) -> str:
    """How much the backbone that was chosen for the user is, where it is to be downloaded."""
    from huggingface_hub import try_to_load_from_cache

    from hf_mlcl.experiments.own import default_backbone

    name, megabytes = default_backbone("image" if "image" in splits["train"].column_names else "text")
    here = any(isinstance(try_to_load_from_cache(name, file), str) for file in ("config.json", "model.safetensors"))
    return "" if here else f" ({megabytes} MB to download, once)"


def _applies(name: str, splits: Any, known: Mapping[str, Any]) -> bool:
    images = splits is not None and "image" in splits["train"].column_names
    return known.get(name) is not None and name != ("max_length" if images else "image_size")


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _is_text(folder: Path) -> bool:
    return (folder / "classifier" / "tokenizer_config.json").is_file()
