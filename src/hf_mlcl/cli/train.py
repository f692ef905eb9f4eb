"""``hf-mlcl train``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_mlcl.cli.options import AsJson, LabelColumns, LabelDelimiter, TextColumn, further_settings, names
from hf_mlcl.cli.output import print_json, print_pairs, quiet_libraries, say
from hf_mlcl.experiments.display import Display

OfData, OfEncoder, OfTraining, OfResult = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Data", "Encoder", "Training", "Result")
)
FULL_NAMES = {"epochs": "num_train_epochs", "batch_size": "global_batch_size"}
SHOWN = (
    *("loss", "protocol", "backbone", "lora_rank", "pooling", "max_length", "image_size", "global_batch_size"),
    *("num_train_epochs", "minutes", "learning_rate", "head_learning_rate", "prototype_init", "thresholds"),
    "output_dir",
)


def train(
    ctx: typer.Context,
    data: Annotated[
        str, typer.Argument(help="CSV, TSV, JSON, JSONL or Parquet file; folder; Hub dataset; or a corpus by name.")
    ],
    text_column: TextColumn = None,
    label_columns: LabelColumns = None,
    label_delimiter: LabelDelimiter = None,
    label_descriptions: Annotated[
        str | None, OfData(help="CSV file with label and description, if names say little (codes). Rare labels gain.")
    ] = None,
    test_file: Annotated[str | None, OfData(help="File with test rows, if the data have none.")] = None,
    max_train_samples: Annotated[int | None, OfData(help="Training rows to keep, drawn with a fixed seed.")] = None,
    check: Annotated[bool, OfData("--check", help="Show what was recognised, and stop.")] = False,
    strict: Annotated[bool, OfData("--strict", help="Stop at the first image that cannot be used.")] = False,
    backbone: Annotated[
        str | None, OfEncoder(help="Hub id, local folder, timm architecture, or 'small': learns from nothing.")
    ] = None,
    backbone_weights: Annotated[str | None, OfEncoder(help="Safetensors file for a timm architecture.")] = None,
    max_length: Annotated[int | None, OfEncoder(help="Tokens of a text to keep; from the texts if not set.")] = None,
    image_size: Annotated[int | None, OfEncoder(help="Side in pixels of the square images are resized to.")] = None,
    loss: Annotated[
        str | None,
        OfTraining(
            help="A loss, or several joined with +; reg+two_way if not set (small: reg; corpora: as in their recipes)."
        ),
    ] = None,
    minutes: Annotated[float | None, OfTraining(help="How long it may take; from the data if not set.")] = None,
    epochs: Annotated[float | None, OfTraining(help="Training epochs; from the data if not set.")] = None,
    batch_size: Annotated[int | None, OfTraining(help="Rows per step on all devices together.")] = None,
    learning_rate: Annotated[float | None, OfTraining(help="Of the encoder; from the encoder if not set.")] = None,
    seed: Annotated[int | None, OfTraining(help="Of new weights and of the order of rows.")] = None,
    output_dir: Annotated[str | None, OfResult(help="Where to put everything.")] = None,
    no_page: Annotated[bool, OfResult("--no_page", help="Do not write explain.html, which shows rows.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier on your own data.

    Labels are recognised as columns of 0 and 1, a column of lists, or one column of names separated by | ; , tabs or
    spaces. What was recognised is shown before training starts; --check stops there. Every image is decoded before:
    a few that cannot be used are named and left out, many stop the training, --strict stops at the first.

    Splits that are missing are cut off by iterative stratification, so that every label keeps its share. Epochs, batch
    and learning rate follow from the size of the data.

    The output folder holds encoder/, classifier/, backbone/, metrics.json and explain.html, a page that shows what was
    learned. After an interruption the same command goes on; the best classifier so far is there at any time.
    """
    speaks = os.environ.get("RANK", "0") == "0"  # of several processes, one
    shows = speaks and not as_json
    with Display(quiet=not shows) as display, display.stage(f"Reading {data}"):  # and libraries, which take their time
        from hf_mlcl.data import corpus_facts
        from hf_mlcl.experiments import build_experiment
        from hf_mlcl.experiments.dry_run import dry_run
        from hf_mlcl.experiments.inputs import load_data
        from hf_mlcl.experiments.parsing import check_kind

        chosen = {"page": True, **_chosen(ctx), "corpus": data}
        quiet_libraries()
        recipe, own = _recipe_and_data(data, chosen, strict, shows, as_json)
    modality = own.modality if own else corpus_facts(data).modality
    splits = own and own.splits
    try:
        if own:
            check_kind(chosen, modality, own.single_label)
        experiment, training = build_experiment(recipe, chosen)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    training.disable_tqdm = chosen.get("disable_tqdm", False)  # and not because the libraries are quiet
    if shows:
        _show({**vars(training), **vars(experiment)}, modality, announced=own is not None and "backbone" not in chosen)
    if check:
        plan = dry_run(recipe, chosen, modality=modality, rows=own and own.sizes)
        if shows:
            print(plan)
        elif speaks:
            print_json(plan.facts() | ({"labels": own.label_counts(), "notes": own.notes} if own else {}))
        return
    if strict and splits is None:
        splits = load_data(experiment, training, strict=True)
    _run(experiment, training, splits, as_json)


def _chosen(ctx: typer.Context) -> dict[str, Any]:
    """What the user said, by the full names of settings."""
    options = {
        name: value
        for name, value in ctx.params.items()
        if name not in ("data", "check", "strict", "as_json", "no_page")
    }
    options["label_columns"] = names(options["label_columns"])
    chosen = further_settings(ctx.args)
    if ctx.params["no_page"]:
        if chosen.get("page"):
            raise typer.BadParameter("--no_page and --page True contradict each other. Leave one out.")
        chosen["page"] = False
    chosen |= {FULL_NAMES.get(name, name): value for name, value in options.items() if value is not None}
    if chosen.get("test_file") is not None:
        chosen["test_file"] = str(Path(chosen["test_file"]).resolve())  # found again from anywhere
    return chosen


def _recipe_and_data(data: str, chosen: Mapping[str, Any], strict: bool, shows: bool, as_json: bool) -> tuple[Any, Any]:
    """Settings that suit the data; and the data, where they are the user's own, which are described."""
    from hf_mlcl.data.registry import list_corpora
    from hf_mlcl.experiments import own_recipe, study_recipe

    if data in list_corpora():
        return study_recipe(data), None
    from hf_mlcl.data.errors import CorpusWarning
    from hf_mlcl.experiments.own import read_for

    with warnings.catch_warnings():
        if not as_json:
            warnings.simplefilter("ignore", CorpusWarning)  # it stands among the notes
        own = read_for(data, chosen, strict)
    if shows:
        print_pairs(own.describe(), title=data)
    return own_recipe(own, data, chosen.get("backbone"), chosen.get("max_train_samples")), own


def _show(known: dict[str, Any], modality: str, announced: bool) -> None:
    """The settings that matter; and how much is to be downloaded of a backbone that was chosen for the user."""
    from huggingface_hub import try_to_load_from_cache

    from hf_mlcl.experiments.own import default_backbone

    if announced:
        name, megabytes = default_backbone(modality)
        here = any(isinstance(try_to_load_from_cache(name, file), str) for file in ("config.json", "model.safetensors"))
        known["backbone"] += "" if here else f" ({megabytes} MB to download, once)"
    for name, kind in (("max_length", "text"), ("image_size", "image")):
        if kind not in modality:
            known.pop(name)
    if known["single_label"]:
        known["thresholds"] = "none: the most probable label"
    shown = {name: known[name] for name in SHOWN if known.get(name) is not None}
    print_pairs(
        [(name, f"{value:g}" if isinstance(value, float) else str(value)) for name, value in shown.items()],
        title="training",
    )


def _run(experiment: Any, training: Any, splits: Any, as_json: bool) -> None:
    """Train, and say what came of it and what to do next."""
    from accelerate import PartialState

    from hf_mlcl.experiments import print_summary, run_experiment
    from hf_mlcl.experiments.running import PushError

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
        print_summary(result)
        _print_verdict(result.verdict)
        files = {path.name for path in (result.folder / "classifier").iterdir()}
        is_text = "tokenizer_config.json" in files and "processor_config.json" not in files  # which reads images too
        example = '"some text"' if is_text else "picture.jpg"
        say(f"Saved in {result.folder}. Use it: hf-mlcl predict --model {result.folder} {example}")
        if (page := result.folder / "explain.html").is_file():
            say(f"What it has learned and where it errs: open {page} in a browser.")
    if failure is not None:
        say(f"hf-mlcl: {failure}")
        raise typer.Exit(1) from failure


def _print_verdict(verdict: Mapping[str, Any]) -> None:
    """What was gained over the frozen encoder, what was chosen, and what to try next."""
    gains = verdict.get("scores", {}).get("gain", {})
    if any(value for value, _, _ in gains.values()):  # there is nothing to tell where the frozen encoder was kept
        cells = [f"{value:+.3f} ({low:+.3f} to {high:+.3f})" for value, low, high in gains.values()]
        title = f"\ngained over the frozen encoder on {verdict['rows']['test']:,} test rows (labels that they carry)"
        print_pairs(list(zip(gains, cells, strict=True)), title=f"{title}, 95 % interval")
    if verdict:
        print_pairs(list(verdict["choices"].items()), title="\nchosen")
        print_pairs([(str(number), tip) for number, tip in enumerate(verdict["advice"], 1)], title="\nto try next")
