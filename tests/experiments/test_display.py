"""What a person sees while waiting, in a terminal and in a file."""

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.console import Console

from experiments.toy import build
from hf_mlcl.experiments import run_experiment
from hf_mlcl.experiments.display import Display
from hf_mlcl.training import ContrastiveMultiLabelTrainer

SHOWN = textwrap.dedent(
    """
    import sys, time
    from hf_mlcl.experiments.display import Display
    with Display() as display, display.stage("Training"):
        display.facts |= {"loss": "1.234", "similarity +/-": "0.71 / 0.05", "memory": "1.2 GB"}
        display.count(total=40, rows=16)
        for step in range(1, 41):
            time.sleep(0.02)
            display.reached(step)
            if step == 20:
                display.tell("Step 20: the best so far.")
        print("half a table")
    assert not {"torch", "transformers"} & set(sys.modules)
    """
)


def in_terminal(program: str, columns: int = 80) -> str:
    """What a terminal is sent by a Python program."""
    pty, termios = pytest.importorskip("pty"), pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns)) if hasattr(termios, "tcsetwinsize") else None
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)}
    child = subprocess.Popen([sys.executable, "-c", program], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    sent = b""
    try:
        while part := os.read(ours, 65536):
            sent += part
    except OSError:  # Linux's way to say that the other side is closed
        pass
    os.close(ours)
    assert child.wait() == 0, sent.decode()
    return sent.decode()


def test_a_terminal_gets_a_bar_with_pace_and_facts_and_keeps_only_what_was_told():
    sent = in_terminal(SHOWN)
    assert re.search(r"step \d+/40", sent)
    assert re.search(r"rows/s.*left", sent)
    assert "loss 1.234" in sent
    assert "Step 20: the best so far." in sent
    assert "half a table" in sent
    assert sent.rindex("\x1b[?25h") > sent.rindex("\x1b[?25l")  # the cursor is back


def test_a_file_gets_plain_lines():
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == "Training ..."
    assert re.fullmatch(r"Training: step 1/40  [\d,.]+ rows/s  0:00:\d\d left  loss 1.234  .*memory 1.2 GB", lines[1])
    assert lines[2:] == ["Step 20: the best so far.", "half a table"]
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("columns", [60, 80, 100])
def test_no_line_is_wider_than_the_terminal_and_no_fact_is_split(columns):
    display = Display()
    display.facts = {"loss": "12.345", "similarity +/-": "-0.71 / -0.05", "memory": "11.2 GB"}
    display.facts |= {"validation": "0.592, best 0.612 at step 12,345"}
    display.begin("Training")
    display.count(123_456, 512)
    display.reached(100)
    display.begin("encoding", 1234, 512, unit="batch")
    display.reached(7)
    console = Console(width=columns, force_terminal=False)
    with console.capture() as capture:
        console.print(display._drawn())
    drawn = capture.get()
    assert max(map(len, drawn.splitlines())) <= columns
    for name, fact in display.facts.items():
        assert f"{name} {fact}" in drawn


def test_the_first_line_comes_before_anything_heavy_is_imported(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit(7)")
    path = os.pathsep.join([str(tmp_path), *map(os.path.abspath, sys.path)])
    command = [sys.executable, "-c", "from hf_mlcl.cli import main; main()", "train", "my.csv"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (7, "Reading my.csv ...\n"), done.stderr


def test_ctrl_c_ends_after_the_step_and_the_same_command_goes_on_to_the_same_end(tmp_path, monkeypatch, capsys):
    settings = {"protocol": "best", "seed": 3, "max_steps": 6}
    step, calls = ContrastiveMultiLabelTrainer.training_step, []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return step(*args, **kwargs)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
    try:
        with monkeypatch.context() as patch:
            patch.setattr(ContrastiveMultiLabelTrainer, "training_step", interrupted)
            stopped = run_experiment(*build(tmp_path / "run", **settings))
    finally:
        signal.signal(signal.SIGINT, before)
    printed = capsys.readouterr().out
    assert "Stopping after this step" in printed
    assert re.search(r"Stopped at step 4 of 6\. To go on: .*" + re.escape(Path(sys.argv[0]).name), printed)
    assert (stopped.folder / "checkpoint-4").is_dir()
    assert (stopped.folder / "metrics.json").is_file()
    resumed = run_experiment(*build(tmp_path / "run", **settings), quiet=True)
    whole = run_experiment(*build(tmp_path / "whole", **settings), quiet=True)
    judged = {name: value for name, value in whole.metrics.items() if "test_" in name or "validation_" in name}
    assert {name: resumed.metrics[name] for name in judged} == pytest.approx(judged, abs=1e-6)
    assert not list((tmp_path / "run").glob("checkpoint-*"))
