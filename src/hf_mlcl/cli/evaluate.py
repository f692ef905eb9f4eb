"""``hf-mlcl evaluate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_mlcl.cli import options
from hf_mlcl.cli.output import print_json, print_pairs, print_table, quiet_libraries, say
from hf_mlcl.cli.predict import chosen_model

if TYPE_CHECKING:
    from hf_mlcl.experiments.prediction import Predictor

SPLITS = ("train", "validation", "test")


def evaluate(
    data: options.Data,
    model: options.Model = None,
    split: options.Split = None,
    data_dir: options.DataDir = None,
    text_column: options.TextColumn = None,
    label_columns: options.LabelColumns = None,
    label_delimiter: options.LabelDelimiter = None,
    size: options.Size = None,
    max_samples: Annotated[int | None, typer.Option(help="Rows to keep, drawn with a fixed seed.")] = None,
    per_label: Annotated[bool, typer.Option(help="Show every label.")] = False,
    trust_remote_code: options.TrustRemoteCode = False,
    as_json: options.AsJson = False,
) -> None:
    """Score a trained classifier on labelled data.

    Of the data that it was trained on, the test rows are scored: those that training held out. Of other data it is
    their test split, or every row where they have none; --split all always takes every row.
    """
    from datasets import concatenate_datasets

    from hf_mlcl.experiments.inputs import sample_rows
    from hf_mlcl.metrics import f1, rule_metrics

    columns = options.columns(text_column, label_columns, label_delimiter)
    of_corpora = {"size": size, "data_dir": data_dir}
    predictor, split, found, _ = classifier_and_rows(model, data, split, columns, of_corpora, trust_remote_code)
    rows = sample_rows(predictor.readable(concatenate_datasets(found)), max_samples)
    truth, inputs = predictor.truth(rows), list(predictor.contents(rows))
    probabilities = predictor.probabilities(inputs)
    metrics = rule_metrics(truth, probabilities, predictor.rule, absent=float("nan"))
    counts, scores = truth.sum(axis=0).tolist(), f1(truth, predictor.rule.decide(probabilities)).tolist()
    table = {"label": predictor.label_names, "rows": counts, "f1": scores}
    each: Any = [dict(zip(table, one, strict=True)) for one in zip(*table.values(), strict=True)]
    if as_json:
        about = {"model": predictor.model, "split": split, "rows": len(inputs)}
        print_json(about | {"metrics": metrics, "per_label": each})
        return
    decided = "" if set(predictor.rule.per_label(len(each))) == {0.5} else ", tuned thresholds"
    title = f"{predictor.model} on {data} ({split}{decided})"
    shown = [("rows", f"{len(inputs):,}"), *((name, f"{float(value):.4f}") for name, value in metrics.items())]
    print_pairs(shown, title)
    if per_label:
        print_table(["label", "rows", "F1"], [list(row.values()) for row in sorted(each, key=lambda one: -one["rows"])])


def classifier_and_rows(
    model: str | None,
    data: str,
    split: str | None,
    columns: Mapping[str, Any],
    of_corpora: Mapping[str, str | None],
    trust_remote_code: bool,
) -> tuple[Predictor, str, list[Any], Any]:
    """The classifier, the name of the split to judge it on, its rows, and all splits of the data as they are given.

    Options that would do nothing for the data are refused.
    """
    from hf_mlcl.data import list_corpora
    from hf_mlcl.experiments.prediction import Predictor

    for name, value, known in (("split", split, (*SPLITS, "all")), ("size", of_corpora["size"], ("full", "small"))):
        if value not in (None, *known):
            raise typer.BadParameter(f"--{name} must be one of {', '.join(known)}; got {value!r}.")
    is_corpus = data in list_corpora()
    for name, value in (columns if is_corpus else of_corpora).items():
        if value:
            where = "data of your own, but" if is_corpus else "the corpora of `hf-mlcl corpora`, and"
            what = "is a corpus" if is_corpus else "is none of them"
            raise typer.BadParameter(f"--{name} is for {where} {data!r} {what}. Leave it out.")
    quiet_libraries()
    model = chosen_model(model)
    predictor = Predictor(model, trust_remote_code=trust_remote_code)
    if is_corpus:
        split, splits = split or "test", corpus_splits(data, of_corpora["data_dir"], of_corpora["size"], model)
        rows = [splits[name] for name in (SPLITS if split == "all" else (split,)) if name in splits]
    else:
        split, rows, splits = _own_rows(data, split, columns, model, predictor.label_names)
    return predictor, split, rows, splits


def corpus_splits(corpus: str, data_dir: str | None, size: str | None, model: str) -> Any:
    """The splits of a corpus, as the classifier was trained on them."""
    from hf_mlcl.data import load_corpus
    from hf_mlcl.data.facts import OPTIONS_OF_SIZE
    from hf_mlcl.experiments.inputs import corpus_options
    from hf_mlcl.experiments.prediction import training_settings

    trained = training_settings(model)
    given = trained.get("corpus_options") if trained.get("corpus") == corpus else None
    if size is None:
        size = str(trained.get("size", "full")) if trained.get("corpus") == corpus else "full"
        if size != "full":  # its test rows are unseen there only
            say(f"Using the {size} version of {corpus}, as in training; --size full takes the whole of it.")
    of_this_size = {name: value for name, value in (given or {}).items() if OPTIONS_OF_SIZE.get(name, size) == size}
    options = corpus_options(corpus, size, of_this_size, int(trained.get("seed", 42)))
    if options:
        say(f"Using {corpus} with {', '.join(f'{name}={value!r}' for name, value in options.items())}, as in training.")
    return load_corpus(corpus, size=size, data_dir=data_dir, **options)


def _own_rows(
    data: str, split: str | None, columns: Mapping[str, Any], model: str, label_names: Sequence[str]
) -> tuple[str, list[Any], Mapping[str, Any]]:
    """The name of the split to score, its rows, and all splits that are given; what is left out is told.

    Nothing is cut off where the data bring a test split, or where the classifier was trained on other data: all of
    their rows are new to it.
    """
    from hf_mlcl.data.errors import CorpusFormatError
    from hf_mlcl.data.own import cut_missing_splits, data_fingerprint, read_own_data
    from hf_mlcl.experiments.prediction import training_settings
    from hf_mlcl.experiments.results import DATA_FINGERPRINT, DATA_SOURCE, data_source

    trained = training_settings(model)
    as_trained: Any = {name: trained.get(name) if value is None else value for name, value in columns.items()}
    # The rows that training held out belong to the data, where they are the same.
    same = trained.get(DATA_SOURCE) == data_source(data)
    test_file = trained.get("test_file") if same else None
    read = read_own_data(data, cut=False, test_file=test_file, label_names=label_names, **as_trained)
    given = read.splits
    there = set(next(iter(given.values())).features["labels"].feature.names)
    if missing := [name for name in label_names if name not in there]:
        few = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        say(f"{data} has no column for {few}: no row counts as having it.")
    for note in read.notes:
        if note.endswith("left out"):  # of images, Python warns
            say(f"{data}: {note}.")
    if split == "all":
        return split, list(given.values()), given
    if split in (None, "test") and "test" in given:
        return "test", [given["test"]], given
    if split is not None:
        return split, [cut_missing_splits(given)[0][split]], given
    trained_on = trained.get(DATA_FINGERPRINT)
    try:
        splits = cut_missing_splits(given)[0]
        if data_fingerprint(splits) == trained_on:
            return "test", [splits["test"]], given
    except CorpusFormatError:  # too few rows to be cut, so that nothing can have been trained on them
        pass
    what, rows = f"{data} is not what the classifier was trained on", sum(map(len, given.values()))
    if trained_on is None:
        what = f"It is not known whether the classifier was trained on {data} (--split test scores a tenth of it)"
    elif same:
        what = (
            f"{data} has changed since the classifier was trained on it, and most of it was trained on, which flatters"
        )
    elif trained.get("test_file"):
        what = f"{what}, as far as can be told (if it was moved: its test rows were in {trained['test_file']})"
    say(f"{what}: all {rows} rows are scored.")
    return "all", list(given.values()), given
