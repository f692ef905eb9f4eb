"""The tree of commands. What a command does, and its help, stand in the module of its name."""

from __future__ import annotations

import os
import select
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from hf_mlcl.cli.demo import demo
from hf_mlcl.cli.doctor import doctor
from hf_mlcl.cli.evaluate import evaluate
from hf_mlcl.cli.explain import explain
from hf_mlcl.cli.export import export
from hf_mlcl.cli.info import corpora, losses
from hf_mlcl.cli.options import FURTHER
from hf_mlcl.cli.output import say
from hf_mlcl.cli.predict import predict
from hf_mlcl.cli.push import push
from hf_mlcl.cli.study import study_app
from hf_mlcl.cli.train import train
from hf_mlcl.data.errors import CorpusError

TRACEBACK = "HF_MLCL_TRACEBACK"


class _Program(TyperGroup):
    """Options are spelled as HF's (--max_steps); failures that a person can fix end with their message and code 1.

    Set HF_MLCL_TRACEBACK=1 to see where they come from.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        _spell_with_underscores(self)

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
            broken, traceback = isinstance(error, BrokenPipeError), os.environ.get(TRACEBACK)
            if broken and _nobody_reads():
                raise
            message = str(error) or type(error).__name__
            if broken and traceback:
                raise RuntimeError(message) from error  # as such, click would pass over it in silence
            if traceback:
                raise
            say(f"hf-mlcl: {message}")
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


def _underscored(option: str) -> str:
    """Also what a user types: the program takes --max-steps for --max_steps."""
    name = option.lstrip("-")
    return option[: len(option) - len(name)] + name.replace("-", "_")


def _spell_with_underscores(command: Any) -> None:
    for parameter in command.params:
        parameter.opts = [_underscored(option) for option in parameter.opts]
        parameter.secondary_opts = [_underscored(option) for option in parameter.secondary_opts]
    for part in command.commands.values() if isinstance(command, TyperGroup) else ():
        _spell_with_underscores(part)


app = typer.Typer(
    name="hf-mlcl",
    cls=_Program,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _underscored},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Multi-label contrastive learning: train, evaluate and predict from the command line.\n\n"
    "Try it:  hf-mlcl demo   (three to six minutes, no download)\n\n"
    "Your data:  hf-mlcl train reviews.csv   then   hf-mlcl predict 'a new text'\n\n"
    "Exit codes: 0 done, 1 failed (the message says why), 2 wrong arguments.",
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        from hf_mlcl.versions import installed_version

        print(installed_version("hf-mlcl") or "unknown: the package is used without being installed")
        raise typer.Exit
    # Before torch is loaded: threads that spin while they wait lose nothing on a quiet machine, but on a busy one they
    # take the time of those they wait for (a classifier on 160 texts took 102 s instead of 10).
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


COMMANDS: dict[str, dict[Any, dict[str, Any]]] = {
    "Start here": {demo: FURTHER, losses: {}, corpora: {}, doctor: {}},
    "Your data": {train: FURTHER, evaluate: {}, predict: {}, explain: {}},
    "Share": {push: {}, export: {}},
}
for panel, commands in COMMANDS.items():
    for command, settings in commands.items():
        app.command(rich_help_panel=panel, **settings)(command)
app.add_typer(study_app, name="study", rich_help_panel="Research")
