"""A Space in one command: its three files, the push, and (slow) the page itself in a browser."""

from __future__ import annotations

import ast
import csv
import itertools
import os
import re
import shutil
import subprocess
import sys
import urllib.request

import pytest
import yaml
from huggingface_hub.errors import HFValidationError
from typer.testing import CliRunner

from copies import HANGS
from hf_mlcl.cli.app import app
from hf_mlcl.experiments.examples import EXAMPLES_FILE, Examples
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.hub import push_space, write_space
from hub.hub_server import USER, HubServer
from models import saved

LABELS = 6
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """The output folder of a training, as far as a Space needs it, and a table of examples."""
    folder = tmp_path_factory.mktemp("run")
    made = saved.save_classifier(tmp_path_factory.mktemp("model"), LABELS)
    shutil.copytree(made, folder / "classifier")
    names = Predictor(folder).label_names
    with (folder / "mine.csv").open("w", newline="") as file:
        texts = map(" ".join, itertools.islice(itertools.permutations(saved.WORDS.split(), 3), 40))
        rows = [(text, "|".join({names[i % LABELS], names[i % 2]})) for i, text in enumerate(texts)]
        csv.writer(file).writerows([("text", "labels"), *rows])
    return folder


def call(*arguments, code=0):
    result = CliRunner().invoke(app, ["push", *map(str, arguments)])
    assert result.exit_code == code, f"{result.output}\n{result.stderr}\n{result.exception!r}"
    return result


def test_a_space_is_three_files_with_a_short_program(tmp_path):
    write_space(tmp_path, "me/reviews", 'Says "what" it is\nabout')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "app.py", "requirements.txt"]
    program = (tmp_path / "app.py").read_text()
    assert len(program.splitlines()) < 80
    ast.parse(program)
    assert "{{" not in program
    assert "me/reviews" in program
    card = yaml.safe_load((tmp_path / "README.md").read_text().split("---")[1])
    assert (card["sdk"], card["app_file"], card["models"]) == ("gradio", "app.py", ["me/reviews"])


@pytest.mark.parametrize("name", ['me/x"; import os', "me/a b", "../.."])
def test_a_name_that_is_none_gets_into_no_program(tmp_path, name):
    with pytest.raises(HFValidationError):
        write_space(tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_what_is_no_space_is_not_pushed(tmp_path):
    with pytest.raises(ValueError, match=r"is no Space: app\.py is missing"):
        push_space(tmp_path, "me/reviews")


def test_push_with_a_space_sends_the_model_its_examples_and_the_page(training, tmp_path):
    with HubServer() as server, server.here(tmp_path / "cache"):
        done = call(training, f"{USER}/toy", "--space", "--examples", training / "mine.csv")
        model, space = (server.repositories[kind, f"{USER}/toy"] for kind in ("model", "space"))
        assert (model.private, space.private) == (True, True)
        assert {"model.safetensors", EXAMPLES_FILE} <= set(model.files)
        assert set(space.files) - {".gitattributes"} == {"app.py", "README.md", "requirements.txt"}
        assert f"spaces/{USER}/toy" in done.stdout
        assert "32 of 32 training rows go along" in done.stderr
        fetched = Examples.beside(f"{USER}/toy")
    here = Examples.beside(str(training))
    assert fetched.content == here.content
    predictor = Predictor(training)
    nearest = here.nearest(predictor, [here.content[3]], 2)[0][0]
    assert (nearest["example"], nearest["labels"]) == (here.content[3], here.labels[3])
    assert nearest["similarity"] == pytest.approx(1.0, abs=1e-4)


def test_examples_are_left_out_where_they_are_not_wanted_or_not_known(training, tmp_path):
    with HubServer() as server, server.here(tmp_path / "cache"):
        call(training, f"{USER}/none", "--space", "--no_examples")
        unknown = call(training, f"{USER}/unknown", "--space")
        for name in ("none", "unknown"):
            assert EXAMPLES_FILE not in server.repositories["model", f"{USER}/{name}"].files
            assert Examples.beside(f"{USER}/{name}") is None
    assert "no training examples: It is not known what" in unknown.stderr
    assert "are for --space" in call(training, "me/toy", "--no_examples", code=2).stderr


@pytest.mark.slow
def test_the_page_answers_in_a_browser(training, tmp_path):
    pytest.importorskip("gradio", reason="the Space's program needs gradio")
    browsers = pytest.importorskip("playwright.sync_api", reason="a browser is driven with playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with HubServer() as server, server.here(tmp_path / "cache"):
        call(training, f"{USER}/toy", "--space", "--examples", training / "mine.csv")
        page_folder = tmp_path / "space"  # away from the classifier: it comes from the Hub
        page_folder.mkdir()
        for name, content in server.repositories["space", f"{USER}/toy"].files.items():
            (page_folder / name).write_bytes(content)
        environment = {**os.environ, **server.environment(tmp_path / "cache2")}
        environment |= {"GRADIO_ANALYTICS_ENABLED": "False", "PYTHONUNBUFFERED": "1"}
        program = subprocess.Popen(
            [sys.executable, "app.py"], cwd=page_folder, env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            lines = iter(program.stdout.readline, "")
            url = next(match[0] for line in lines if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
            assert urllib.request.urlopen(url).status == 200
            with browsers.sync_playwright() as playwright:
                local = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"  # no other host can be reached
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", local])
                page = browser.new_page(viewport={"width": 900, "height": 1100})
                page.set_default_timeout(HANGS * 1000)
                page.goto(url, wait_until="domcontentloaded")
                known = Examples.beside(str(training))
                page.get_by_label("Text", exact=True).fill(known.content[3])
                page.get_by_role("button", name="Classify").click()

                def shown(text):  # tables are in the page a second time, hidden, to be measured
                    return page.get_by_text(text, exact=True).locator("visible=true")

                shown(", ".join(known.labels[3])).first.wait_for()  # of the nearest example
                shown("threshold").first.wait_for()
                for name in Predictor(training).label_names:
                    assert shown(name).count() > 0
                browser.close()
        finally:
            program.kill()
            program.wait()
