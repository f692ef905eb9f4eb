"""`hf-mlcl study`: run a study, look at it, print its tables and figures. What is computed is in `hf_mlcl.study`."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from hf_mlcl.cli.options import AsJson
from hf_mlcl.cli.output import print_json, print_table, say
from hf_mlcl.files import PLAN_FILE

if TYPE_CHECKING:
    from hf_mlcl.study import Progress, Study
    from hf_mlcl.study.tables import ReportTable

SOME_FAILED, WRONG_ARGUMENTS, INTERRUPTED = 1, 2, 130


class _Commands(TyperGroup):
    """`hf-mlcl study FILE` means `hf-mlcl study run FILE`; a wrong study ends the program with code 2."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["run", *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        from hf_mlcl.study import StudyError

        try:
            return super().invoke(ctx)
        except StudyError as error:
            say(f"hf-mlcl: {error}")
            raise typer.Exit(WRONG_ARGUMENTS) from None


study_app = typer.Typer(
    name="study",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Compare losses: corpora x losses x seeds x settings from one file. `hf-mlcl study FILE` runs it.",
)

SET_HELP = (
    "Change the file: an argument for all runs (`num_train_epochs=3`) or a place in it (`seeds=[0,1]`, "
    "`corpora.aapd.data_dir=DIR`). May be repeated."
)
File = Annotated[str, typer.Argument(metavar="FILE", help="A study file (YAML), or a ready one by name: table_full.")]
FileOrFolder = Annotated[str, typer.Argument(metavar="FILE", help="A study file, a ready one, or a study's folder.")]
Per = Annotated[
    Literal["metric", "setting", "study"],
    typer.Option(help="A table per metric (settings side by side), per setting, or one with settings as rows."),
]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SET_HELP)]


@study_app.command()
def run(
    file: File,
    changes: Changes = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time; one per GPU if not given.")] = None,
    shard: Annotated[str, typer.Option(metavar="K/N", help="Every N-th run from the K-th, for N equal jobs.")] = "1/1",
    ray: Annotated[bool, typer.Option("--ray", help="Use the Ray cluster of this machine, or start one.")] = False,
    ray_address: Annotated[
        str | None, typer.Option("--ray_address", help="Use the Ray cluster at this address.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry_failed", help="Try runs that failed once more.")] = False,
    as_json: AsJson = False,
) -> None:
    """Do what is left of a study, and print its tables.

    Start it as often as you like: runs that are finished stay, runs that another command is at are left to it, runs
    that were interrupted go on from their last checkpoint.
    """
    from hf_mlcl.study import load_study, run_study
    from hf_mlcl.study.publishing import publish

    part = re.fullmatch(r"(\d+)/(\d+)", shard)
    if not part or not 1 <= int(part[1]) <= int(part[2]):
        raise typer.BadParameter(f"--shard must be K/N with K from 1 to N, such as 1/16; got {shard!r}.")
    if workers and (ray or ray_address):
        raise typer.BadParameter("--workers cannot be given with Ray, which decides how many runs there are at a time.")
    study = load_study(file, changes or ())
    tell = say if as_json else partial(print, flush=True)  # stdout is for the JSON alone
    tell(f"{study.name}: {len(study.runs)} runs in {study.output_dir}")

    def notify(line: str, progress: Progress) -> None:
        tell(f"{time.strftime('%Y-%m-%d %H:%M:%S')} [{progress.finished}/{progress.total}] {line}")

    where: dict[str, Any] = {"workers": workers, "shard": (int(part[1]), int(part[2])), "ray": ray_address or ray}
    try:
        outcome = run_study(study, **where, retry_failed=retry_failed, notify=notify)
    except KeyboardInterrupt:
        tell("Interrupted. The same command goes on where it was.")
        raise typer.Exit(INTERRUPTED) from None
    left = outcome.total - outcome.finished - outcome.failed
    others = f" {left} are with other commands; see `hf-mlcl study status`." if left else ""
    tell(f"{outcome.finished} of {outcome.total} runs are finished, {outcome.failed} failed.{others}")
    paths, _, tables = publish(study) if outcome.finished else ([], None, [])
    values = {each.title: each.values() for each in tables}
    if as_json:
        print_json({"folder": study.output_dir, **vars(outcome), "tables": values})
    else:
        _print_tables(tables, study, paths)
    if outcome.failed:
        tell("`hf-mlcl study status` names the errors; --retry_failed tries those runs again.")
        raise typer.Exit(SOME_FAILED)


@study_app.command()
def status(file: FileOrFolder, changes: Changes = None, as_json: AsJson = False) -> None:
    """Show which runs are finished, running, waiting or failed, and how long the rest may take."""
    from hf_mlcl.study.results import STATES, finished, study_table

    study = _planned(file, changes)
    table = study_table(study)
    counts = Counter(table["state"])
    done, left = finished(table), table[table["state"].isin(["waiting", "running"])]
    times = done.groupby(["corpus", "loss"])["seconds.total"].mean() if len(done) else {}
    overall = done["seconds.total"].mean() if len(done) else 0.0
    seconds = float(sum(times.get(key, overall) for key in zip(left["corpus"], left["loss"], strict=True)))
    if as_json:
        rows = table[["id", "corpus", "loss", "setting", "seed", "state", "error"]].to_dict("records")
        print_json({"states": counts, "remaining_seconds": seconds if len(done) else None, "runs": rows})
        return
    lines = []
    for key, rows in table.groupby(["corpus", "setting", "loss"], sort=False):
        states = Counter(rows["state"])
        mean = _duration(finished(rows)["seconds.total"].mean()) if states["finished"] else ""
        lines.append([*key, *(states[state] for state in STATES), mean])
    print_table(["corpus", "setting", "loss", *STATES, "mean time"], lines)
    print(f"{len(table)} runs: {', '.join(f'{count} {state}' for state, count in counts.items())}.")
    if seconds:
        print(f"What is left takes about {_duration(seconds)} of one worker, going by the finished runs.")
    for row in table[table["state"] == "failed"].to_dict("records"):
        print(f"failed: {row['error']}\n  {study.output_dir / 'runs' / row['id'] / 'log.txt'}")


@study_app.command()
def table(
    file: FileOrFolder,
    changes: Changes = None,
    output_format: Annotated[
        Literal["terminal", "markdown", "latex", "html"], typer.Option("--format", help="What to print.")
    ] = "terminal",
    per: Per = "metric",
    as_json: AsJson = False,
) -> None:
    """Print the tables: mean and deviation over seeds, the best in bold, the paper's numbers beside ours.

    Writes `runs.parquet` and `runs.csv` (one row per run), `report.md`, `report.tex`, `report.html` and the figures
    into the study's folder.
    """
    from hf_mlcl.study import rendering
    from hf_mlcl.study.publishing import publish

    study = _planned(file, changes, with_results=True)
    paths, _, tables = publish(study, per)
    if as_json:
        print_json({each.title: each.values() for each in tables})
    elif output_format == "terminal":
        _print_tables(tables, study, paths)
    else:
        render = {"markdown": rendering.to_markdown, "latex": rendering.to_latex, "html": rendering.to_html}
        print("\n\n".join(map(render[output_format], tables)))


@study_app.command()
def publish(
    file: FileOrFolder,
    page: Annotated[Path, typer.Argument(help="A Markdown file, such as docs/results.md; made if it is not there.")],
    changes: Changes = None,
    per: Per = "metric",
) -> None:
    """Write tables, claims and figures of the finished runs into a Markdown page, with date and machine.

    They stand between two comments that name the study; the rest of the page stays, and the same command later renews
    them. Figures go to `images/` beside the page.
    """
    from hf_mlcl.study.publishing import publish_into

    for path in publish_into(_planned(file, changes, with_results=True), page, per):
        print(path)


@study_app.command()
def figures(
    file: FileOrFolder,
    changes: Changes = None,
    name: Annotated[list[str] | None, typer.Option(help="A figure; all that are possible if not given.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder; `figures/` in the study's if not given.")] = None,
    picture_format: Annotated[str, typer.Option("--format", help="png, pdf or svg.")] = "png",
) -> None:
    """Draw the paper's figures from the finished runs.

    `data_share` (macro-F1 against the share of training data), `epochs` (against epochs from random initialisation),
    `prr` (against temperature), `space` (alignment and uniformity), `pairs` (similarity while training), `alpha`.
    """
    from hf_mlcl.study.figures import save_figures
    from hf_mlcl.study.publishing import publishing_lock

    study = _planned(file, changes, with_results=True)
    try:
        with publishing_lock(study):
            drawn, missing = save_figures(study, output or study.output_dir / "figures", None, name, picture_format)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    for path in drawn.values():
        print(path)
    for figure, needs in missing.items():
        say(f"{figure}: not drawn; it needs {needs}.")
    if not drawn:
        raise typer.Exit(1)


@study_app.command()
def cost(
    file: File,
    changes: Changes = None,
    tera_ops: Annotated[float, typer.Option("--tera_ops", min=0, help="10^12 per second of your device.")] = 0,
    settings: Annotated[bool, typer.Option("--settings", help="Show every setting of each kind of run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate what a study costs before it runs: number of runs, operations, GPU hours.

    Operations are counted on the networks; the rate of the device is an assumption, which is printed with the result.
    """
    from hf_mlcl.study import load_study
    from hf_mlcl.study.cost import DEVICE_RATE, assumed_backbones, cost_group, study_cost
    from hf_mlcl.study.execution import dry_run_of

    study = load_study(file, changes or ())
    rates = dict.fromkeys(DEVICE_RATE, tera_ops * 1e12) if tera_ops else DEVICE_RATE
    costs = study_cost(study, rates)
    stand_ins = assumed_backbones(study)
    firsts = {cost_group(run): run for run in reversed(study.runs)} if settings else {}
    plans = {key: dry_run_of(firsts[key]) for key in costs if key in firsts}
    if as_json:
        shown = {"settings": {key: asdict(plan) for key, plan in plans.items()}} if settings else {}
        numbers = {key: asdict(value) for key, value in costs.items()}
        print_json({"rates": rates, "assumed_backbones": stand_ins, "costs": numbers, **shown})
        return
    for key, plan in plans.items():
        print(f"{key}, the first of {costs[key].runs} runs\n{plan}\n")
    rows = [[key, value.runs, f"{value.operations:.1e}", f"{value.hours:,.1f}"] for key, value in costs.items()]
    print_table(["runs of", "number", "operations", "GPU hours"], rows)
    assumed = ", ".join(f"{rate / 1e12:g} x 10^12 operations per second on {what}s" for what, rate in rates.items())
    print(
        f"Assumed: {assumed} (a GPU of the class of an A100, unless you gave --tera_ops); an example costs three\n"
        "forward passes in training and one when its features are extracted; texts have their greatest length. Data\n"
        "loading and linear heads come on top."
    )
    for backbone, stand_in in stand_ins.items():
        print(f"The backbone {backbone} is not available here: it is taken as {stand_in}.")


def _planned(file: str, changes: list[str] | None, with_results: bool = False) -> Study:
    """The study of a file or folder with the runs that were planned last, so that `--set` need not be repeated.

    With results, the program ends where no run is finished, before anything is written.
    """
    from hf_mlcl.study import load_outline, load_study, planned_study
    from hf_mlcl.study.results import read_result

    if Path(file).is_dir():
        if changes:
            raise typer.BadParameter(
                f"--set changes a study file, but {file} is the folder of its runs. Give the file."
            )
        study = planned_study(file)
    elif not changes and ((outline := load_outline(file)).output_dir / PLAN_FILE).exists():
        study = replace(outline, runs=planned_study(outline.output_dir).runs)
    else:
        study = load_study(file, changes or ())
    if with_results and not any(read_result(study.run_folder(run)) for run in study.runs):
        say(f"No run is finished yet: start them with `hf-mlcl study run {file}`.")
        raise typer.Exit(1)
    return study


def _print_tables(tables: list[ReportTable], study: Study, paths: list[Path]) -> None:
    from hf_mlcl.study.rendering import STARRED

    for table in tables:
        headings = ["loss", *(" ".join(column) for column in table.columns)]
        print_table(headings, [[row.loss, *map(STARRED.text, row.cells)] for row in table.rows], table.title)
        print(*(f"  {note.replace('Bold:', 'Starred:')}" for note in table.notes), sep="\n", end="\n\n")
    if paths:
        print(f"In {study.output_dir}: {', '.join(path.name for path in paths)}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
