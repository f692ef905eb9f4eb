"""The tree of commands. What a command does stands in the module of its name."""

from __future__ import annotations

import os
import select
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hf_mlcl.cli.output import say
from hf_mlcl.cli.study import study_app
from hf_mlcl.data.errors import CorpusError

TRACEBACK = "HF_MLCL_TRACEBACK"


class _Program(TyperGroup):
    """Failures that a person can fix end with their message and code 1; set HF_MLCL_TRACEBACK=1 to see where."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; it ends without a word where nobody reads on, as in ``hf-mlcl losses | head -1``."""
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                sys.stdout.flush()  # here, where a closed pipe can be told from a failure
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at its end
            sys.exit(1)

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (CorpusError, ValueError, ArithmeticError, OSError, ImportError) as error:
            if isinstance(error, BrokenPipeError) and _nobody_reads():
                raise
            if os.environ.get(TRACEBACK) and isinstance(error, BrokenPipeError):
                raise RuntimeError(_message(error)) from error  # as such, click would pass over it in silence
            if os.environ.get(TRACEBACK):
                raise
            say(f"hf-mlcl: {_message(error)}")
            raise typer.Exit(1) from error
        except KeyboardInterrupt:
            say("hf-mlcl: stopped")
            raise typer.Exit(130) from None


def _nobody_reads() -> bool:
    """Whether it is our own output that is closed, and not the pipe of a worker or of a connection."""
    if not hasattr(select, "poll"):  # Windows
        return True
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))


def _message(error: BaseException) -> str:
    return str(error) or type(error).__name__


app = typer.Typer(
    name="hf-mlcl",
    cls=_Program,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Multi-label contrastive learning: train, evaluate and predict from the command line.\n\n"
    "Try it:  hf-mlcl demo   (two minutes, no download)\n\n"
    "Your data:  hf-mlcl train reviews.csv   then   hf-mlcl predict 'a new text'\n\n"
    "Exit codes: 0 done, 1 failed (the message says why), 2 wrong arguments.",
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run Python files that come with the model; none run otherwise.")
]


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        from hf_mlcl.versions import installed_version

        print(installed_version("hf-mlcl") or "unknown: the package is used without being installed")
        raise typer.Exit


FURTHER: dict[str, Any] = {
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
    "epilog": "Any training argument may follow: --learning_rate 2e-5 --bf16 --max_train_samples 500 --config FILE",
}
"""For commands that hand further arguments on to the training."""


@app.command(rich_help_panel="Start here", **FURTHER)
def demo(
    ctx: typer.Context,
    corpus: Annotated[str, typer.Option(help="toy_text or toy_images; both are built in.")] = "toy_text",
    losses: Annotated[str, typer.Option(help="Losses to compare, separated by commas.")] = "bce,zlpr,reg,reg+zlpr",
    epochs: Annotated[float | None, typer.Option(help="Training epochs; the recipe's if not set.")] = None,
    seed: Annotated[int, typer.Option(help="Of weights and batches.")] = 0,
    output_dir: Annotated[str, typer.Option(help="Where to put everything.")] = "outputs/demo",
    as_json: AsJson = False,
) -> None:
    """Compare four losses on a built-in corpus: a table, a picture, a classifier. Two minutes, no download.

    Every loss trains the same small encoder from nothing for the same epochs. Afterwards
    `hf-mlcl predict "some text"` uses the best classifier.
    """
    from hf_mlcl.cli.demo import run

    run(corpus, [loss.strip() for loss in losses.split(",")], epochs, seed, output_dir, ctx.args, as_json)


@app.command(rich_help_panel="Start here")
def losses(
    name: Annotated[str | None, typer.Argument(help="One loss, or several joined with +; all if left out.")] = None,
    plugins: Annotated[list[str] | None, typer.Option("--plugin", help="File or module with losses of yours.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the losses with their formulas; `hf-mlcl losses reg` explains one."""
    from hf_mlcl.cli.info import show_losses

    show_losses(name, plugins or [], as_json)


@app.command(rich_help_panel="Start here")
def corpora(
    name: Annotated[str | None, typer.Argument(help="One corpus; all of them if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the corpora and how to get them; `hf-mlcl corpora aapd` tells all about one."""
    from hf_mlcl.cli.info import show_corpora

    show_corpora(name, as_json)


@app.command(rich_help_panel="Start here")
def doctor(
    data_dir: Annotated[str | None, typer.Option(help="Look for official files of the corpora in here.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what is there and what is missing: versions, devices, the Hub, data, disk.

    The code is 1 if something must be fixed.
    """
    from hf_mlcl.cli.doctor import run

    run(data_dir, as_json)


@app.command(rich_help_panel="Your data", **FURTHER)
def train(
    ctx: typer.Context,
    data: Annotated[
        str,
        typer.Argument(help="CSV, TSV, JSON, JSONL or Parquet file; folder; Hub dataset; or a corpus by name."),
    ],
    loss: Annotated[
        str | None, typer.Option(help="A loss by name, or several joined with +; `reg` if not set.")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="Hub id, local folder, timm architecture, or 'small': learns from nothing, no download."),
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="Column with texts or image paths, if not found.")] = None,
    label_columns: Annotated[
        str | None, typer.Option(help="Column(s) with labels, separated by commas, if not found.")
    ] = None,
    label_delimiter: Annotated[str | None, typer.Option(help="What separates labels in one column.")] = None,
    epochs: Annotated[float | None, typer.Option(help="Training epochs; from the size of the data if not set.")] = None,
    minutes: Annotated[float | None, typer.Option(help="How long it may take; from the data if not set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows a step on all devices together.")] = None,
    test_file: Annotated[str | None, typer.Option(help="File with test rows, if the data have none.")] = None,
    output_dir: Annotated[str | None, typer.Option(help="Where to put everything.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Show what was recognised, and stop.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first image that cannot be used, instead of leaving it out.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a classifier on your own data.

    Labels are recognised as columns of 0 and 1, a column of lists, or one column of names separated by | ; , tabs or
    spaces. What was recognised is shown before training starts; --check stops there. Every image is decoded before:
    a few that cannot be used are named and left out, many stop the training, --strict stops at the first.

    Splits that are missing are cut off by iterative stratification, so that every label keeps its share. Epochs, batch
    and learning rate follow from the size of the data.

    The output folder holds encoder/, classifier/, backbone/ and metrics.json. After an interruption the same command
    goes on; the best classifier so far is there at any time.
    """
    from hf_mlcl.cli.train import run

    chosen: dict[str, Any] = {
        "loss": loss,
        "backbone": backbone,
        "text_column": text_column,
        "label_columns": None if label_columns is None else [name.strip() for name in label_columns.split(",")],
        "label_delimiter": label_delimiter,
        "num_train_epochs": epochs,
        "minutes": minutes,
        "test_file": test_file,
        "global_batch_size": batch_size,
        "output_dir": output_dir,
    }
    run(data, {name: value for name, value in chosen.items() if value is not None}, ctx.args, check, strict, as_json)


@app.command(rich_help_panel="Your data")
def evaluate(
    data: Annotated[str, typer.Argument(help="As for `train`: file, folder, Hub dataset, or a corpus by name.")],
    model: Annotated[
        str | None, typer.Option(help="Folder or Hub id of a classifier; the newest under outputs/ if not set.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="train, validation, test, or all; what the classifier has not seen if not set.")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Folder with the official files of a corpus.")] = None,
    text_column: Annotated[
        str | None, typer.Option(help="Column with texts or image paths; as in training if not set.")
    ] = None,
    label_columns: Annotated[str | None, typer.Option(help="Column(s) with labels; as in training if not set.")] = None,
    label_delimiter: Annotated[
        str | None, typer.Option(help="What separates labels; as in training if not set.")
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(help="full or small version of a corpus; that which the classifier learned from if not set."),
    ] = None,
    max_samples: Annotated[int | None, typer.Option(help="Rows to keep, drawn with a fixed seed.")] = None,
    per_label: Annotated[bool, typer.Option(help="Show every label.")] = False,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Score a trained classifier on labelled data.

    Of the data that it was trained on, the test rows are scored: those that training held out. Of other data it is
    their test split, or every row where they have none; --split all always takes every row.
    """
    from hf_mlcl.cli.evaluate import run

    columns = {
        "text_column": text_column,
        "label_columns": None if label_columns is None else [name.strip() for name in label_columns.split(",")],
        "label_delimiter": label_delimiter,
    }
    run(data, model, split, data_dir, size, columns, max_samples, per_label, as_json, trust_remote_code)


@app.command(rich_help_panel="Your data")
def predict(
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Texts, images, files (.txt a line each, .csv, .jsonl, .parquet), folders, or - for stdin."
        ),
    ],
    model: Annotated[
        str | None, typer.Option(help="Folder or Hub id of a classifier; the newest under outputs/ if not set.")
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="Column with texts or image paths, if not found.")] = None,
    threshold: Annotated[float | None, typer.Option(help="Instead of the thresholds saved with the model.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Show the probability of every label.")] = False,
    output: Annotated[
        str | None,
        typer.Option(help="Write a CSV file: input, labels, one column per label, error; with --json a JSON file."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Predict the labels of texts or images.

    `hf-mlcl predict "some text"` uses the classifier that was trained last; it says which.

    Rows are predicted as they are read, so that any number of them takes the same memory. A row that cannot be
    predicted stops no other: its line of the output says why, and the exit code is 1.
    """
    from hf_mlcl.cli.predict import run

    run(inputs, model, text_column, threshold, scores, output, as_json, trust_remote_code)


@app.command(rich_help_panel="Share")
def push(
    folder: Annotated[str, typer.Argument(help="A model's folder; of an experiment's folder, its classifier.")],
    repo_id: Annotated[str, typer.Argument(help="owner/name on the Hub; made if it is not there.")],
    public: Annotated[bool, typer.Option("--public", help="For everybody to see; private otherwise.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a trained model to the Hub (log in with `hf auth login` before)."""
    from hf_mlcl.cli.push import run

    run(folder, repo_id, public, as_json)


app.add_typer(study_app, name="study", rich_help_panel="Research")
