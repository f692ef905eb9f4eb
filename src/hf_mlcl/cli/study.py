"""`hf-mlcl study`: run a study, look at it, print its tables and figures.

The commands call `hf_mlcl.study`; here is only what a person sees: progress and tables in a terminal, plain lines in a
log.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from hf_mlcl.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from hf_mlcl.study import Progress, Study
    from hf_mlcl.study.report import Cell, ReportTable

WRONG_FILE, SOME_FAILED, INTERRUPTED = 2, 1, 130
STATES = ("finished", "running", "waiting", "failed")


class _RunByDefault(TyperGroup):
    """`hf-mlcl study FILE` means `hf-mlcl study run FILE`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


study_app = typer.Typer(
    name="study",
    cls=_RunByDefault,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Compare losses: corpora x losses x seeds x settings from one file. `hf-mlcl study FILE` runs it.",
)


class Layout(str, Enum):
    """What makes a table of its own."""

    metric = "metric"
    setting = "setting"


class TableFormat(str, Enum):
    """How tables are printed."""

    terminal = "terminal"
    markdown = "markdown"
    latex = "latex"
    html = "html"


FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A study file (YAML), or a ready one by name: table_full.")
]
FileOrFolder = Annotated[
    str, typer.Argument(metavar="FILE", help="A study file, a ready one by name, or the folder of a study.")
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change the file: an argument for all runs (`num_train_epochs=3`) or a place in it "
        "(`seeds=[0,1]`, `corpora.aapd.data_dir=DIR`). May be repeated.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@study_app.command()
def run(
    file: FileArgument,
    changes: Changes = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time. One a GPU (or one on a CPU) if not given.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option(help="Try runs that failed once more.")] = False,
    lease: Annotated[
        float, typer.Option(min=1, help="Seconds without a sign after which a worker on another machine is dead.")
    ] = 600.0,
    as_json: AsJson = False,
) -> None:
    """Do what is left of a study, and print its tables.

    Start it as often as you like, on one machine or on many that share the folder: runs that are finished stay, runs
    that are being done elsewhere are left alone, runs that were interrupted go on from their last checkpoint.
    """
    from hf_mlcl.study import run_study
    from hf_mlcl.study.publishing import publish

    study = _loaded(file, changes)
    console = Console(stderr=as_json)  # stdout is for the JSON alone
    console.print(f"{escape(study.name)}: {len(study.runs)} runs in {escape(str(study.output_dir))}", highlight=False)
    try:
        with _progress(console) as notify:
            outcome = run_study(study, workers=workers, retry_failed=retry_failed, lease=lease, notify=notify)
    except KeyboardInterrupt:
        console.print("Interrupted. The same command goes on where it was.")
        raise typer.Exit(INTERRUPTED) from None
    left = outcome.total - outcome.finished - outcome.failed
    console.print(f"{outcome.finished} of {outcome.total} runs are finished, {outcome.failed} failed.")
    if left:
        console.print(f"{left} are with other workers; see `hf-mlcl study status`.")
    published = publish(study) if outcome.finished else None
    if as_json:
        counts = {"total": outcome.total, "finished": outcome.finished, "failed": outcome.failed}
        print_json({"folder": study.output_dir, **counts, "tables": _values(published.tables if published else [])})
    elif published:
        for each in published.tables:
            _print_table(console, each)
        names = ", ".join(path.name for path in published.paths)
        console.print(f"In {study.output_dir}: {names}", markup=False, soft_wrap=True)
    if outcome.failed:
        console.print("`hf-mlcl study status` names the errors; --retry-failed tries those runs again.")
        raise typer.Exit(SOME_FAILED)


@study_app.command()
def status(file: FileOrFolder, changes: Changes = None, as_json: AsJson = False) -> None:
    """Show which runs are finished, running, waiting or failed, and how long the rest may take."""
    from hf_mlcl.study.table import finished, study_table

    study = _planned(file, changes)
    table = study_table(study)
    counts = Counter(table["state"])
    seconds = _remaining(table)
    if as_json:
        rows = table[["id", "corpus", "loss", "group", "seed", "state", "attempts", "error"]].to_dict("records")
        print_json({"states": counts, "remaining_seconds": seconds, "runs": rows})
        return
    lines = []
    for (corpus, group, loss), rows in table.groupby(["corpus", "group", "loss"], sort=False):
        states = Counter(rows["state"])
        done = finished(rows)
        mean = _duration(done["seconds.total"].mean()) if len(done) else ""
        lines.append([corpus, group, loss, *(states[state] for state in STATES), mean])
    print_table(["corpus", "setting", "loss", *STATES, "mean time"], lines)
    summary = ", ".join(f"{count} {state}" for state, count in counts.items())
    print(f"{len(table)} runs: {summary}.")
    if seconds:
        print(f"What is left takes about {_duration(seconds)} of one worker, going by the finished runs.")
    for row in table[table["state"] == "failed"].to_dict("records"):
        folder = study.output_dir / "runs" / row["id"]
        print(f"failed: {row['error']}\n  {folder / 'log.txt'}")


@study_app.command()
def table(
    file: FileOrFolder,
    changes: Changes = None,
    output_format: Annotated[TableFormat, typer.Option("--format", help="What to print.")] = TableFormat.terminal,
    per: Annotated[
        Layout, typer.Option(help="A table a metric (settings side by side), or a setting.")
    ] = Layout.metric,
    as_json: AsJson = False,
) -> None:
    """Print the tables: mean and deviation over seeds, the best in bold, the paper's numbers beside ours.

    Writes `runs.parquet` and `runs.csv` (every run a row), `report.md`, `report.tex`, `report.html` and the figures
    into the study's folder.
    """
    from hf_mlcl.study.publishing import publish
    from hf_mlcl.study.rendering import to_html, to_latex, to_markdown

    study = _planned(file, changes)
    _expect_results(study, file)
    console = Console()
    paths, _, tables = publish(study, per.value)
    if as_json:
        print_json(_values(tables))
    elif output_format is TableFormat.terminal:
        for each in tables:
            _print_table(console, each)
        console.print(f"Also in {study.output_dir}: {', '.join(path.name for path in paths)}", markup=False)
    else:
        render = {"markdown": to_markdown, "latex": to_latex, "html": to_html}[output_format.value]
        print("\n\n".join(map(render, tables)))


@study_app.command()
def figures(
    file: FileOrFolder,
    changes: Changes = None,
    name: Annotated[
        list[str] | None, typer.Option(help="A figure by name; all that are possible if not given.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder; `figures/` in the study's if not given.")] = None,
    picture_format: Annotated[str, typer.Option("--format", help="png, pdf or svg.")] = "png",
) -> None:
    """Draw the paper's figures from the finished runs.

    `data_share` (macro-F1 against the share of training data), `epochs` (against epochs from random initialisation),
    `prr` (against temperature), `space` (alignment and uniformity), `alpha`.
    """
    from hf_mlcl.study.figures import save_figures
    from hf_mlcl.study.publishing import publishing_lock

    study = _planned(file, changes)
    _expect_results(study, file)
    folder = output or study.output_dir / "figures"
    try:
        with publishing_lock(study):
            drawn, missing = save_figures(study, folder, names=name, suffix=picture_format)
    except ValueError as error:
        _fail(str(error))
    for path in drawn.values():
        print(path)
    for figure, needs in missing.items():
        say(f"{figure}: not drawn; it needs {needs}.")
    if not drawn:
        raise typer.Exit(1)


@study_app.command()
def cost(
    file: FileArgument,
    changes: Changes = None,
    tera: Annotated[
        float | None,
        typer.Option("--tera-ops", min=0.001, help="Operations a second that your device sustains, in 10^12."),
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Show every setting with its origin, rows and steps of each kind of run.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate what a study costs before it runs: number of runs, operations, GPU hours.

    Operations are counted on the networks; the rate of the device is an assumption, which is printed with the result.
    """
    from hf_mlcl.study.cost import DEVICE_RATE, assumed_backbones, cost_group, study_cost
    from hf_mlcl.study.execution import dry_run_of

    study = _loaded(file, changes)
    rates = DEVICE_RATE if tera is None else dict.fromkeys(DEVICE_RATE, tera * 1e12)
    costs = study_cost(study, rates)
    stand_ins = assumed_backbones(study)
    firsts = {cost_group(run): run for run in reversed(study.runs)} if settings else {}
    plans = {key: dry_run_of(firsts[key]) for key in costs if key in firsts}
    if as_json:
        print_json(
            {
                "rates": rates,
                "assumed_backbones": stand_ins,
                "costs": {key: vars(value) for key, value in costs.items()},
                **({"settings": {key: asdict(plan) for key, plan in plans.items()}} if settings else {}),
            }
        )
        return
    for key, plan in plans.items():
        print(f"{key}, the first of {costs[key].runs} runs\n{plan}\n")
    rows = [[key, value.runs, f"{value.operations:.1e}", f"{value.hours:,.1f}"] for key, value in costs.items()]
    print_table(["runs of", "number", "operations", "GPU hours"], rows)
    assumed = ", ".join(f"{rate / 1e12:g} x 10^12 operations a second on {kind}s" for kind, rate in rates.items())
    print(
        f"Assumed: {assumed} (a GPU of the class of an A100, unless you gave --tera-ops); an example costs three\n"
        "forward passes in training and one when its features are extracted; texts have their greatest length. Data\n"
        "loading and linear heads come on top."
    )
    for backbone, stand_in in stand_ins.items():
        print(f"The backbone {backbone} is not available here: it is taken as {stand_in}.")


# Helpers --------------------------------------------------------------------------------------------------------------


def _loaded(file: str, changes: list[str] | None) -> Study:
    from hf_mlcl.study import StudyError, load_study

    try:
        return load_study(file, changes or ())
    except StudyError as error:
        _fail(str(error))


def _planned(file: str, changes: list[str] | None) -> Study:
    """The study of a file or folder with the runs that were planned last, so that `--set` need not be repeated."""
    from hf_mlcl.study import StudyError, WorkList, load_outline

    try:
        if Path(file).is_dir():
            return WorkList(file).study()
        outline = None if changes else load_outline(file)
        if outline and (outline.output_dir / "plan.json").exists():
            return replace(outline, runs=WorkList(outline.output_dir).study().runs)
    except StudyError as error:
        _fail(str(error))
    return _loaded(file, changes)


def _expect_results(study: Study, file: str) -> None:
    """End the program where no run is finished, before anything is written."""
    from hf_mlcl.study.table import finished, study_table

    if not (study.output_dir / "plan.json").exists() or finished(study_table(study)).empty:
        say(f"No run is finished yet: start them with `hf-mlcl study run {file}`.")
        raise typer.Exit(1)


def _fail(message: str) -> NoReturn:
    say(f"hf-mlcl: {message}")
    raise typer.Exit(WRONG_FILE)


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, Progress], None]]:
    """How a study's events are shown: lines above a bar in a terminal, lines with the time in a log."""
    if not console.is_terminal:

        def log(line: str, progress: Progress) -> None:
            counted = f"[{progress.finished}/{progress.total}]"
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {counted} {line}", file=console.file, flush=True)

        yield log
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console) as bar:
        task = bar.add_task("")

        def show(line: str, progress: Progress) -> None:
            style = "red" if line.startswith("FAILED") else None
            if not line.startswith("started"):
                console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
            now = ", ".join(progress.running)
            bar.update(task, completed=progress.finished, total=progress.total, description=now)

        yield show


def _values(tables: list[ReportTable]) -> dict[str, Any]:
    from hf_mlcl.study.report import report_values

    return {each.title: report_values(each) for each in tables}


def _print_table(console: Console, table: ReportTable) -> None:
    if not console.is_terminal:
        headings = ["loss", *(" ".join(column) for column in table.columns)]
        # There is no bold in a log: a star says the same.
        print_table(headings, [[row.loss, *(_plain(cell) for cell in row.cells)] for row in table.rows], table.title)
        print(*(f"  {note.replace('Bold:', 'Starred:')}" for note in table.notes), sep="\n", end="\n\n")
        return
    shown = Table("loss", title=escape(table.title), title_justify="left")
    for column in table.columns:
        shown.add_column("\n".join(map(escape, column)), justify="right")
    group = None
    for row in table.rows:
        if group is not None and row.group != group:
            shown.add_section()
        group = row.group
        shown.add_row(escape(row.loss), *map(_styled, row.cells))
    console.print(shown)
    for note in table.notes:
        console.print(f"  {note}", markup=False, highlight=False, style="dim")


def _styled(cell: Cell | None) -> str:
    if cell is None:
        return ""
    style = "bold" if cell.bold else "underline" if cell.underlined else None
    value = f"[{style}]{cell.value}[/]" if style else cell.value
    return value + (f" ± {cell.deviation}" if cell.deviation is not None else "")


def _plain(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return cell.value + (f" ± {cell.deviation}" if cell.deviation is not None else "") + ("*" if cell.bold else "")


def _remaining(table: Any) -> float | None:
    """Seconds that the runs that are not finished may take: as the finished ones of their corpus and loss did."""
    from hf_mlcl.study.table import finished

    done = finished(table)
    if done.empty:
        return None
    by_kind = done.groupby(["corpus", "loss"])["seconds.total"].mean().to_dict()
    overall = float(done["seconds.total"].mean())
    left = table[table["state"].isin(["waiting", "running"])]
    return float(sum(by_kind.get((row["corpus"], row["loss"]), overall) for row in left.to_dict("records")))


def _duration(seconds: float) -> str:
    """A duration in the unit that suits it.

    Examples:
        >>> _duration(42), _duration(600), _duration(7200)
        ('42 s', '10 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
