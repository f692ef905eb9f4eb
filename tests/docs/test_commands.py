"""Every command line in the README and the docs is one that the program takes, and every file they name is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from hf_mlcl.cli.app import app
from hf_mlcl.experiments.settings_file import known_arguments

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAM = "hf-mlcl"
NAMED_FILE = re.compile(r"\b(?:tests/)?(?:recipes|studies|docs|benchmarks)/[\w/-]+\.(?:py|yaml|md)\b")


def lines_in_blocks(page):
    """The lines of shell blocks, those that are continued joined to one."""
    for block in re.finditer(r"^```(?:bash|sh|shell|console)\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        yield from block.group(1).replace("\\\n", " ").splitlines()


def lines_in_prose(page):
    """What stands between backticks and begins with the program's name; it may leave out arguments."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text) if code.startswith(PROGRAM + " "))


def calls(line):
    """The arguments of every call of the program in a line of shell; also of one in quotes, for another program."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    current = None
    for token in [*lexer, ";"]:
        if not token.strip(";|&<>()"):
            if current is not None:
                yield current
            current = None
        elif current is not None:
            current.append(token)
        elif token == PROGRAM:
            current = []
        elif f"{PROGRAM} " in token:
            yield from calls(token)


def unknown_settings(arguments):
    """Options that are no settings of an experiment."""
    names = [word.removeprefix("--").partition("=")[0].replace("-", "_") for word in arguments if word.startswith("--")]
    return [name for name in names if name not in {*known_arguments(), "config", "dry_run"}]


def what_is_wrong(arguments, whole=True):
    """Why the program would refuse the arguments, as far as it can tell before it does anything; None if it takes them.

    Args:
        arguments: As the shell gives them.
        whole: Whether nothing may be missing.
    """
    command, rest, parent = typer.main.get_command(app), list(arguments), None
    try:
        while True:
            context = command.make_context(PROGRAM, rest, parent=parent)
            if not isinstance(command, TyperGroup):
                unknown = unknown_settings(context.args)  # of commands that hand further arguments on
                return f"There is no setting {', '.join(unknown)}." if unknown else None
            rest = [*context._protected_args, *context.args]
            _, command, rest = command.resolve_command(context, rest)
            parent = context
    except Exception as error:
        kind = type(error).__name__
        if kind == "Exit" or (not whole and kind in ("MissingParameter", "NoArgsIsHelpError")):  # --help is an exit
            return None
        return f"{kind}: {getattr(error, 'message', error)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_program_takes_every_command_line(page):
    wrong = {
        line: problem
        for lines, whole in ((lines_in_blocks(page), True), (lines_in_prose(page), False))
        for line in lines
        for arguments in calls(line)
        if (problem := what_is_wrong(arguments, whole))
    }
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_recipes_take_every_option_they_are_shown_with(page):
    wrong = {}
    for line in lines_in_blocks(page):
        words = shlex.split(line, comments=True)
        places = [i for i, word in enumerate(words) if re.fullmatch(r"recipes/\w+_\w+\.py", word)]
        if places and (unknown := unknown_settings(words[places[0] + 1 :])):
            wrong[line] = unknown
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_is_there(page):
    missing = [name for name in NAMED_FILE.findall(page.read_text()) if not (ROOT / name).is_file()]
    assert not missing


def test_pages_show_command_lines():
    shown = [arguments for page in PAGES for line in lines_in_blocks(page) for arguments in calls(line)]
    assert {"train", "predict", "evaluate", "study", "demo", "push"} <= {arguments[0] for arguments in shown}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("hf-mlcl trian reviews.csv", "No such command 'trian'"),
        ("hf-mlcl train reviews.csv --learning_rat 1", "no setting learning_rat"),
        ("hf-mlcl train", "MissingParameter"),
        ("hf-mlcl predict x --modell y", "No such option"),
        ("hf-mlcl study tables studies/quick.yaml --format markdown", ""),
        ("hf-mlcl study table studies/quick.yaml --format word", "BadParameter"),
        ('sbatch --wrap "exec hf-mlcl study cost"', "MissingParameter"),
        ("for x in a b; do hf-mlcl losses $x --jsn; done", "No such option"),
    ],
)
def test_a_wrong_command_line_would_be_noticed(line, expected):
    problems = [problem for arguments in calls(line) if (problem := what_is_wrong(arguments))]
    assert len(problems) == 1
    assert expected in problems[0]


@pytest.mark.parametrize(
    "line",
    [
        "hf-mlcl --help",
        "hf-mlcl train reviews.csv --loss reg --learning_rate 2e-5 --config mine.yaml  # it's fine",
        "hf-mlcl study studies/quick.yaml --set seeds=[0,1]",
    ],
)
def test_a_right_command_line_is_taken(line):
    assert [what_is_wrong(arguments) for arguments in calls(line)] == [None]
