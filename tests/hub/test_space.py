"""A Space in one command: its three files, the push, and (slow) the page itself in a browser."""

from __future__ import annotations

import ast
import csv
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager

import pytest
import yaml
from huggingface_hub.errors import HFValidationError
from PIL import Image
from typer.testing import CliRunner

from copies import HANGS
from hf_mlcl.cli.app import app
from hf_mlcl.experiments.examples import EXAMPLES_FILE, Examples
from hf_mlcl.experiments.prediction import Predictor
from hf_mlcl.hub import push_space, space, write_space
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


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The same for images."""
    folder = tmp_path_factory.mktemp("pictures")
    saved.save_image_classifier(folder / "classifier")
    for i in range(30):
        Image.new("RGB", (40, 30), (8 * i, 255 - 8 * i, 90)).save(folder / f"{i}.png")
    with (folder / "mine.csv").open("w", newline="") as file:
        rows = [(f"{i}.png", ["cat", "dog", "cat|dog"][i % 3]) for i in range(30)]
        csv.writer(file).writerows([("image", "labels"), *rows])
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


def test_examples_of_an_earlier_push_are_removed_where_they_are_not_wanted_any_more(training, tmp_path):
    with HubServer() as server, server.here(tmp_path / "cache"):
        call(training, f"{USER}/toy", "--space", "--examples", training / "mine.csv")
        assert (training / EXAMPLES_FILE).is_file()
        told = call(training, f"{USER}/toy", "--space", "--no_examples")
        assert EXAMPLES_FILE not in server.repositories["model", f"{USER}/toy"].files
    assert "is removed" in told.stderr
    assert not (training / EXAMPLES_FILE).exists()


def test_files_of_a_space_that_somebody_has_changed_stay_as_they_are(tmp_path):
    for plain in (False, True, True):
        assert write_space(tmp_path, "me/reviews", plain=plain) == []  # what we wrote may be written anew
    changed = (tmp_path / "app.py").read_text().replace("lines=4", "lines=9")
    (tmp_path / "app.py").write_text(changed)
    assert write_space(tmp_path, "me/reviews") == ["app.py"]
    assert (tmp_path / "app.py").read_text() == changed
    assert "hf-mlcl" in (tmp_path / "requirements.txt").read_text()


def test_a_space_needs_hf_mlcl_only_for_what_hf_mlcl_alone_loads(training, pictures, tmp_path):
    mean = tmp_path / "mean"  # of all tokens, at which no text classifier of transformers looks
    shutil.copytree(training / "classifier", mean / "classifier")
    saved.change_json(mean / "classifier" / "config.json", pooling="mean")
    (mean / "space").mkdir()
    (mean / "space" / "README.md").write_text("mine")
    with HubServer() as server, server.here(tmp_path / "cache"):
        for name, source, *how in (
            ("exported", mean, "--no_examples"),
            ("native", pictures, "--no_examples"),
            ("saved", pictures, "--no_examples", "--as_saved"),
        ):
            told = call(source, f"{USER}/{name}", "--space", *how)
            assert ("README.md was changed by hand and goes as it is" in told.stderr) == (source is mean)
            files = server.repositories["space", f"{USER}/{name}"].files
            assert (files["README.md"] == b"mine") == (source is mean)
            program = files["app.py"].decode()
            ast.parse(program)
            assert len(program.splitlines()) < 80
            assert ("from hf_mlcl" in program) == (name == "saved")
            assert files["requirements.txt"].decode().startswith("hf-mlcl" if name == "saved" else "transformers\n")
            code = "modeling_mlcl.py" in server.repositories["model", f"{USER}/{name}"].files
            assert code == (name == "exported")
            assert name == "saved" or f"CODE = {code} " in program


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, "hf-mlcl>=1.2"),
        ({"url": "file:///home/me/hf-mlcl", "dir_info": {"editable": True}}, "hf-mlcl>=1.2"),
        (
            {"url": "https://git.example/hf-mlcl", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "hf-mlcl @ git+https://git.example/hf-mlcl@abc",
        ),
        ({"url": "https://example.org/hf_mlcl-1.2-py3-none-any.whl", "archive_info": {}}, "hf-mlcl @ https://example"),
    ],
)
def test_hf_mlcl_is_installed_from_where_it_was_installed_here(monkeypatch, origin, expected):
    class Installed:
        def read_text(self, name):
            return None if origin is None else json.dumps(origin)

    monkeypatch.setattr(space.metadata, "distribution", lambda name: Installed())
    monkeypatch.setattr(space, "installed_version", lambda name: "1.2")
    assert space.requirement().startswith(expected)


@contextmanager
def opened(server, name, folder, **environment):
    """The page of a Space that was pushed, in a browser: its program runs away from the classifier."""
    pytest.importorskip("gradio", reason="the Space's program needs gradio")
    browsers = pytest.importorskip("playwright.sync_api", reason="a browser is driven with playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    page_folder = folder / "away" / "space"
    page_folder.mkdir(parents=True)
    for file, content in server.repositories["space", name].files.items():
        (page_folder / file).write_bytes(content)
    environment = {**os.environ, **server.environment(folder / "cache2"), **environment}
    environment |= {"GRADIO_ANALYTICS_ENABLED": "False", "PYTHONUNBUFFERED": "1"}
    program = subprocess.Popen(
        [sys.executable, "app.py"], cwd=page_folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        lines = iter(program.stdout.readline, "")
        url = next(match[0] for line in lines if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
        with browsers.sync_playwright() as playwright:
            local = "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"  # no other host can be reached
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", local], timeout=1000 * HANGS
            )
            page = browser.new_page(viewport={"width": 900, "height": 1100})
            page.set_default_timeout(HANGS * 1000)
            page.goto(url, wait_until="domcontentloaded")
            yield page
            browser.close()
    finally:
        program.kill()
        program.wait()


def shown(page, text):
    """Where a text is seen; tables are in the page a second time, hidden, to be measured."""
    return page.get_by_text(text, exact=True).locator("visible=true")


@pytest.mark.slow
def test_the_page_answers_in_a_browser(training, tmp_path):
    with HubServer() as server, server.here(tmp_path / "cache"):
        call(training, f"{USER}/toy", "--space", "--examples", training / "mine.csv")
        known = Examples.beside(str(training))
        with opened(server, f"{USER}/toy", tmp_path) as page:
            page.get_by_label("Text", exact=True).fill(known.content[3])
            page.get_by_role("button", name="Classify").click()
            shown(page, ", ".join(known.labels[3])).first.wait_for()  # of the nearest example
            shown(page, "threshold").first.wait_for()
            for name in Predictor(training).label_names:
                assert shown(page, name).count() > 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["examples", "as_saved", "native"])
def test_the_page_of_an_image_classifier_answers_in_a_browser(how, pictures, tmp_path):
    """As hf-mlcl saved it, with its nearest examples or without; or with transformers alone."""
    options = ["--examples", pictures / "mine.csv"] if how == "examples" else ["--no_examples"]
    options += ["--as_saved"] if how == "as_saved" else []
    with HubServer() as server, server.here(tmp_path / "cache"):
        call(pictures, f"{USER}/{how}", "--space", *options)
        blocked = tmp_path / "blocked"  # as if hf-mlcl were not installed
        blocked.mkdir()
        (blocked / "sitecustomize.py").write_text('import sys\n\nsys.modules["hf_mlcl"] = None\n')
        away = {"PYTHONPATH": str(blocked)} if how == "native" else {}
        with opened(server, f"{USER}/{how}", tmp_path, **away) as page:
            page.locator("input[type=file]").first.set_input_files(pictures / "4.png")
            page.locator("img").first.wait_for()
            page.get_by_role("button", name="Classify").click()
            (found,) = next(Predictor(pictures).predictions([str(pictures / "4.png")]))
            for name, score in zip(("cat", "dog"), found.probabilities, strict=True):
                shown(page, name).first.wait_for()
                assert shown(page, f"{score:.3f}".rstrip("0")).count() > 0
            if how == "examples":
                page.get_by_text(re.compile(r"^1(\.0)?: ")).first.wait_for()  # the image itself is the nearest
