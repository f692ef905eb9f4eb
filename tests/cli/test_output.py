"""What is printed fits a terminal, and nothing in it is split."""

from __future__ import annotations

import io
import os
import re
import sys
from unittest import mock

import pytest

from hf_mlcl.cli.doctor import _verdict
from hf_mlcl.cli.info import SYMBOLS
from hf_mlcl.cli.output import print_pairs, print_table
from hf_mlcl.experiments.prediction import newest_classifier

COLUMNS = 80


class Screen(io.StringIO):
    def isatty(self):
        return True


def on_screen(function, *arguments):
    """What a terminal shows; stdout is replaced here, since pytest puts its own in place before each test."""
    with mock.patch.object(sys, "stdout", Screen()) as screen, mock.patch.dict(os.environ, COLUMNS=str(COLUMNS)):
        function(*arguments)
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())  # without colours


def test_no_number_is_split_however_many_columns_there_are():
    numbers = [0.325361 + i / 1000 for i in range(14)]
    headings = ["loss", *(f"metric {i}" for i in range(14))]
    printed = on_screen(print_table, headings, [["reg", *numbers], ["reg+zlpr", *numbers]], "scores")
    assert max(map(len, printed.splitlines())) <= COLUMNS
    for number in numbers:
        assert printed.count(f"{number:.4f}") == 2
    assert printed.count("reg+zlpr") > 1  # every part says whose the numbers are


def test_no_word_of_a_sentence_is_split():
    sentence = "the abstracts of papers on computer science, which are their authors'"
    rows = [["aapd", 37_820, sentence, sentence]] * 2
    printed = on_screen(print_table, ["name", "rows", "licence", "how"], rows)
    assert max(map(len, printed.splitlines())) <= COLUMNS
    assert all(word in printed for word in ("37820", *sentence.split()))


def test_a_long_text_goes_on_below_its_beginning():
    pairs = [("labels", " ".join(f"word{i}" for i in range(40))), ("x", "short")]
    lines = on_screen(print_pairs, pairs, "title").splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert all(line.startswith(" " * 10) for line in lines[2:-1])


def test_the_symbols_of_the_formulas_are_explained(hf_mlcl):
    printed = hf_mlcl("losses").stdout
    assert all(symbol in printed for symbol in SYMBOLS)
    assert "T = 1/3 for j and 2/3 for k" in printed


def test_the_example_of_the_symbols_is_what_the_loss_computes():
    import torch

    from hf_mlcl import build_loss

    labels = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]])  # i, j, k and m: rain, wind, snow
    x = torch.randn(4, 8, dtype=torch.float64)
    unit = torch.nn.functional.normalize(x, dim=1)
    p = (unit @ unit.T / 0.1).fill_diagonal_(-torch.inf).log_softmax(1)
    wanted = torch.zeros(4, 4, dtype=torch.float64)
    wanted[0, 1:3] = torch.tensor([1 / 3, 2 / 3])
    wanted[1, [0, 2]] = 1 / 2
    wanted[2, :2] = torch.tensor([2 / 3, 1 / 3])
    by_hand = -(wanted[:3] * p[:3].nan_to_num(neginf=0)).sum(1).mean()
    torch.testing.assert_close(build_loss("base", temperature=0.1)(x, labels), by_hand)


def test_doctor_says_what_to_do():
    fine = [("Hub", "https://hub", "ok"), ("GPU 0", "A100", "ok")]
    assert _verdict(fine).startswith("hf-mlcl works here. Start with:")
    broken = _verdict([*fine, ("timm", "missing", "fix: pip install 'timm>=1'")])
    assert broken.splitlines()[1].split() == ["pip", "install", "'timm>=1'", "(timm:", "missing)"]
    alone = _verdict([("Hub", "https://hub", "not reached: ..."), ("GPU", "none", "toys only")])
    assert "--backbone small" in alone
    assert "There is no GPU" in alone


def test_the_newest_classifier_is_the_users_and_never_that_of_a_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = ["mine/classifier", "outputs/older/classifier", "outputs/study/runs/a/work/classifier"]
    for age, place in enumerate(places):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "config.json").write_text("{}")
        os.utime(tmp_path / place / "config.json", (1000 + age, 1000 + age))
    (tmp_path / "outputs" / "study" / "plan.json").write_text("{}")
    (tmp_path / "outputs" / "older" / "plan.json").write_text("{}")  # a study of the same name as the data
    assert newest_classifier() == tmp_path.__class__("outputs/older/classifier")
    os.utime(tmp_path / "mine/classifier/config.json", (2000, 2000))
    assert newest_classifier() == tmp_path / "mine/classifier"


@pytest.mark.parametrize("panel", ["Data", "Encoder", "Training", "Result"])
def test_the_help_of_train_is_in_groups(hf_mlcl, panel):
    assert f"─ {panel} ─" in hf_mlcl("train", "--help").stdout
