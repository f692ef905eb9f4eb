"""Cards: what they say is true, the Hub takes them, and the code on them runs."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
import torch
import yaml
from huggingface_hub import ModelCard, metadata_load, parse_eval_result_entries
from PIL import Image
from sklearn.metrics import average_precision_score, f1_score

from hf_mlcl import ContrastiveMultiLabelTrainer, MLCLModel
from hf_mlcl.evaluation import linear_evaluate
from hf_mlcl.hub import (
    DataFacts,
    LossFacts,
    ModelReport,
    SplitScores,
    export_onnx,
    push_folder,
    report_of_model,
    write_model_card,
)
from hf_mlcl.training import training_report
from hub.cases import NAMES, ONE_HEAD, WORDS, arguments
from hub.fresh import run
from hub.hub_server import USER, card_errors

THRESHOLDS = [0.2, 0.4, 0.5]


@pytest.fixture(scope="module")
def card(text, tmp_path_factory):
    """The card that the trainer wrote for the encoder it trained."""
    folder = tmp_path_factory.mktemp("cards") / "colours-encoder"
    before, text.trainer.args.output_dir = text.trainer.args.output_dir, str(folder)
    text.result.classifier.calibrate(THRESHOLDS)
    try:
        text.trainer.save_model()
        text.trainer.create_model_card(
            language="en", license="apache-2.0", dataset_tags="someone/colours", evaluation=text.result, tags="tiny"
        )
    finally:
        text.trainer.args.output_dir = before
        text.result.classifier.calibrate()
    return folder


def table_after(title, content):
    """Rows of the first table below a heading."""
    section = content.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line for line in section.split("\n") if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows if not row.startswith("| ---")]


def test_the_hub_takes_its_metadata(card, server, tmp_path):
    content = (card / "README.md").read_text()
    assert card_errors(content) == []
    data = metadata_load(card / "README.md")
    assert data == {
        "datasets": ["someone/colours"],
        "language": ["en"],
        "library_name": "transformers",
        "license": "apache-2.0",
        "metrics": ["f1", "mean_average_precision", "hamming_loss"],
        "model-index": data["model-index"],
        "pipeline_tag": "feature-extraction",
        "tags": ["multi-label", "contrastive-learning", "hf-mlcl", "reg", "tiny"],
    }
    with server.here(tmp_path):
        ModelCard.load(card / "README.md").validate()
        with pytest.raises(ValueError, match="a task"):
            ModelCard(content.replace("feature-extraction", "feature extraction", 1)).validate()


def test_its_results_are_in_the_hubs_format(card, text):
    entries = parse_eval_result_entries(yaml.safe_load((card / ".eval_results" / "colours.yaml").read_text()))
    truth, decided = text_truth(text), text.probabilities() >= np.array(THRESHOLDS)
    assert {entry.dataset_id for entry in entries} == {"someone/colours"}
    values = {entry.task_id: entry.value for entry in entries}
    assert values["micro_f1"] == pytest.approx(f1_score(truth, decided, average="micro", zero_division=0), abs=1e-6)
    assert values["macro_f1"] == pytest.approx(f1_score(truth, decided, average="macro", zero_division=0), abs=1e-6)
    assert values["map"] == pytest.approx(average_precision_score(truth, text.probabilities()), abs=1e-6)


def test_the_scores_in_its_metadata_are_those_in_the_hubs_files(card):
    """The Hub's pages read model-index, and .eval_results lists a model under its data: both say the same."""
    (entry,) = metadata_load(card / "README.md")["model-index"]
    (result,) = entry["results"]
    assert entry["name"] == "colours-encoder"
    assert result["task"]["type"] == "text-classification"
    assert result["dataset"] == {"name": "someone/colours", "type": "someone/colours", "split": "test"}
    shown = {metric["name"]: metric["value"] for metric in result["metrics"]}
    entries = parse_eval_result_entries(yaml.safe_load((card / ".eval_results" / "colours.yaml").read_text()))
    assert list(shown.values()) == [entry.value for entry in entries]
    assert list(shown) == ["micro-F1", "macro-F1", "mAP", "Hamming loss"]


def text_truth(case):
    return np.array([[i in row["labels"] for i in range(3)] for row in case.rows])


def test_its_scores_are_those_of_scikit_learn_at_both_thresholds(card, text):
    header, plain, tuned = table_after("Scores", (card / "README.md").read_text())
    assert header[1:5] == ["micro-F1", "macro-F1", "mAP", "Hamming loss"]
    assert header[5:] == ["head F1 (1 labels)", "medium F1 (1 labels)", "tail F1 (1 labels)"]
    truth, probabilities = text_truth(text), text.probabilities()
    counts = np.array([[i in ids for i in range(3)] for ids in text.trainer.train_dataset["labels"]]).sum(0)
    for row, thresholds in ((plain, 0.5), (tuned, np.array(THRESHOLDS))):
        decided = probabilities >= thresholds
        each = f1_score(truth, decided, average=None, zero_division=0)
        expected = [f1_score(truth, decided, average=average, zero_division=0) for average in ("micro", "macro")]
        assert [float(value) for value in row[1:3]] == pytest.approx(expected, abs=1e-4)
        assert float(row[4]) == pytest.approx((truth != decided).mean(), abs=1e-4)
        assert [float(value) for value in row[5:]] == pytest.approx(each[np.argsort(-counts, kind="stable")], abs=1e-4)


def test_its_table_of_labels_has_every_label_with_its_threshold_most_frequent_first(card, text):
    header, *rows = table_after("Labels", (card / "README.md").read_text())
    assert header == ["label", "training examples", "threshold", "precision", "recall", "F1", "average precision"]
    names = [row[0].replace("\\|", "|") for row in rows]
    assert sorted(names) == sorted(NAMES), "whatever is in a name, it does not break the table"
    assert [float(row[2]) for row in rows] == [THRESHOLDS[NAMES.index(name)] for name in names]
    counts = [int(row[1]) for row in rows]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == sum(map(len, text.trainer.train_dataset["labels"]))


def test_its_pictures_are_there(card):
    content = (card / "README.md").read_text()
    shown = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", content)
    assert {"figures/space.png", "figures/prr.png", "figures/prototypes.png", "figures/f1_by_frequency.png"} == set(
        shown
    )
    for file in shown:
        with Image.open(card / file) as picture:
            picture.verify()
            assert picture.width > 400


def test_it_tells_what_the_trainer_knows(card):
    content = (card / "README.md").read_text()
    settings = dict(table_after("Training", content))
    assert settings["loss"] == "reg"
    assert settings["temperature"] == "0.1"
    assert settings["steps"] == "3"
    assert settings["schedule"] == "cosine, warm-up 0.05 of the steps"
    for fact in (
        "T_ij = 1/|y_i| sum_(l in y_i)",
        "arXiv:2412.00101",
        "60 training examples",
        "Hardware: ",
        "Time of training: ",
        "torch ",
        "RobertaModel",
        "eprint = {2412.00101}",
    ):
        assert fact in content, fact


def test_it_betrays_nothing_of_the_machine(card, tmp_path):
    content = (card / "README.md").read_text()
    assert str(card) not in content
    assert str(tmp_path.parent) not in content
    assert "YOUR-NAME/YOUR-MODEL" in content


def test_it_renders_as_a_page(card):
    from markdown_it import MarkdownIt

    content = (card / "README.md").read_text().split("\n---\n", 1)[1]
    tokens = MarkdownIt("commonmark").enable("table").parse(content)
    assert sum(token.type == "table_open" for token in tokens) == 3
    assert sum(token.type == "fence" for token in tokens) == 6, "the formula, three uses, how to install, the citation"
    text = [child.content for token in tokens for child in token.children or [] if child.type == "text"]
    assert not any(set("|") & set(line) for line in text if line not in NAMES), "no table has fallen apart"


def test_energy_is_told_where_codecarbon_tracked_it(text, tmp_path):
    (tmp_path / "emissions.csv").write_text("timestamp,energy_consumed,emissions\n1,0.25,0.1\n2,0.5,0.125\n")
    args, found = text.trainer.args, []
    before = args.output_dir, args.report_to
    try:
        args.output_dir = str(tmp_path)
        for args.report_to in ([], ["codecarbon"]):  # without it, the file is that of an earlier training
            found.append(training_report(text.trainer, figures=False).energy)
    finally:
        args.output_dir, args.report_to = before
    assert found == [{}, {"energy (kWh)": 0.5, "emissions (kg CO2)": 0.125}]


def test_scores_of_a_loss_on_logits_come_from_predict(text, tmp_path):
    from transformers.trainer_utils import PredictionOutput

    logits, labels = np.array([[2.0, -1.0, 0.5]] * 4), np.array([[1, 0, 1]] * 4)
    report = training_report(text.trainer, evaluation=PredictionOutput(logits, labels, {}), figures=False)
    assert report.scores.metrics(0.5)["micro_f1"] == 1.0
    assert report.scores.split == "", "predictions do not tell of which split they are"
    text.model.save_pretrained(tmp_path)
    content = write_model_card(tmp_path, report).read_text()
    assert "On 4 examples. The model's own classifier" in content
    assert "test split" not in content
    with pytest.raises(ValueError, match="evaluation must be what trainer"):
        training_report(text.trainer, evaluation=3, figures=False)


def quick_evaluation(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(40, 4)).astype("float32"), rng.random((40, 3)) < 0.4
    return linear_evaluate(x[:20], y[:20], x[20:30], y[20:30], x[30:], y[30:], ONE_HEAD, progress=False)


def test_a_card_shows_the_evaluation_that_it_was_given_whatever_came_later(text):
    first, second = quick_evaluation(0), quick_evaluation(1)
    for result in (first, second, first):
        report = training_report(text.trainer, evaluation=result, figures=False)
        found = report.scores.metrics(0.5)
        assert found == pytest.approx({name: result.metrics[f"test_{name}"] for name in found})
    assert first.metrics["test_mAP"] != second.metrics["test_mAP"]
    assert training_report(text.trainer, figures=False).scores.split == "test"


def features_trainer(folder, data, **settings):
    return ContrastiveMultiLabelTrainer(MLCLModel.from_features(4, NAMES), arguments(folder, **settings), None, data)


def vectors(count=32):
    labels = np.eye(3, dtype=np.float32)[np.arange(count) % 3]
    return [{"feature_values": torch.randn(4), "labels": torch.from_numpy(row)} for row in labels]


def test_scores_of_earlier_weights_are_forgotten_when_training_goes_on(tmp_path):
    trainer = features_trainer(tmp_path, vectors(), save_strategy="no")
    trainer.linear_evaluate(vectors(), vectors(), config=ONE_HEAD)
    assert training_report(trainer, figures=False).scores.split == "validation"
    trainer.train()
    assert training_report(trainer, figures=False).scores is None


class Decoded(torch.utils.data.Dataset):
    """Rows that cost something to read."""

    def __init__(self, rows):
        self.rows, self.reads = rows, 0

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.reads += 1
        return self.rows[index]


def test_facts_for_a_card_cost_no_further_pass_over_the_data(tmp_path):
    data = Decoded(vectors())
    trainer = features_trainer(tmp_path, data)
    assert training_report(trainer, figures=False).data.label_counts is None
    trainer.linear_evaluate(data, vectors(), config=ONE_HEAD)
    assert training_report(trainer, figures=False).data.label_counts.tolist() == [11, 11, 10]
    assert data.reads == len(data), "once, for the features"


def test_facts_that_cannot_be_gathered_do_not_cost_the_evaluation(text, monkeypatch, caplog):
    def fails(*args, **kwargs):
        raise RuntimeError("no processor")

    monkeypatch.setattr("hf_mlcl.training.trainer.training_report", fails)
    data = text.trainer.train_dataset
    before = text.trainer.last_scores
    try:
        result = text.trainer.linear_evaluate(data, data, config=ONE_HEAD)
    finally:
        text.trainer.last_scores = before
    assert result.classifier.report is None
    assert "facts could not be gathered: no processor" in caplog.text


def test_labels_that_cannot_be_read_are_left_out_of_the_card(tmp_path, caplog):
    trainer = features_trainer(tmp_path, vectors())
    trainer.train_dataset = [{"labels": [7]}]
    assert training_report(trainer, figures=False).data.label_counts is None
    assert "cannot be counted for the model card: Row 0 of the dataset" in caplog.text


def test_a_new_card_leaves_nothing_of_the_one_before(tmp_path):
    from matplotlib.figure import Figure

    MLCLModel.from_features(4, ["a", "b"]).save_pretrained(tmp_path)
    scores = SplitScores("test", np.eye(2), np.eye(2))
    for name, figures in (("one", ("space.png", "prr.png")), ("two", ("space.png",))):
        data, drawn = DataFacts(name, hub_id=f"someone/{name}"), {file: (Figure(), "a picture") for file in figures}
        write_model_card(tmp_path, ModelReport(["a", "b"], "features", data=data, scores=scores, figures=drawn))
        (tmp_path / "figures" / "mine.png").write_bytes(b"the user's own")
    assert [path.name for path in (tmp_path / ".eval_results").iterdir()] == ["two.yaml"]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["mine.png", "space.png"]


def test_a_backbone_from_a_folder_is_not_taken_for_one_on_the_hub_when_the_folder_is_gone(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text.model.save_backbone("models/mine")
    models = [MLCLModel.from_backbone("models/mine", ["a"], pretrained=pretrained) for pretrained in (True, False)]
    shutil.rmtree("models")
    assert [report_of_model(model).base_model for model in models] == [None, None]
    models[0].backbone.config._name_or_path = "someone/encoder"
    assert report_of_model(models[0]).base_model == "someone/encoder"


def test_a_name_with_a_slash_is_no_id_of_the_hub(text):
    report = training_report(text.trainer, dataset="data/train", figures=False)
    assert (report.data.name, report.data.hub_id) == ("data/train", None)
    report = training_report(text.trainer, dataset="Colours", dataset_id="someone/colours", figures=False)
    assert (report.data.name, report.data.hub_id) == ("Colours", "someone/colours")
    with pytest.raises(ValueError, match="must be 'owner/name', got 'colours'"):
        training_report(text.trainer, dataset_id="colours", figures=False)


def test_a_report_with_nothing_but_labels_makes_a_card(tmp_path):
    model = MLCLModel.from_features(4, ["a", "b"])
    model.save_pretrained(tmp_path)
    content = write_model_card(tmp_path, report_of_model(model), name="plain").read_text()
    assert card_errors(content) == []
    assert "## Scores" not in content
    assert not (tmp_path / ".eval_results").exists()


def test_results_are_listed_only_under_an_id_of_the_hub(tmp_path):
    MLCLModel.from_features(4, ["a", "b"]).save_pretrained(tmp_path)
    scores = SplitScores("test", np.eye(2), np.eye(2))
    report = ModelReport(["a", "b"], "features", data=DataFacts("mine"), losses=[LossFacts("bce")], scores=scores)
    content = write_model_card(tmp_path, report).read_text()
    assert "datasets" not in metadata_load(tmp_path / "README.md")
    assert not (tmp_path / ".eval_results").exists()
    assert "| threshold 0.5 | 1.0000 | 1.0000 |" in content


def test_a_folder_without_a_model_gets_no_card(tmp_path):
    with pytest.raises(ValueError, match=r"holds no model: there is no config\.json"):
        write_model_card(tmp_path, ModelReport(["a"], "text"))


def test_the_code_on_the_cards_of_our_own_kinds_runs_as_it_stands(text, image, server, tmp_path):
    """Each is pushed, and its blocks are executed one after another in another process, from the Hub.

    Those that load without this package: test_without_the_package.
    """
    pytest.importorskip("onnxruntime", reason="needs hf-mlcl[onnx]")
    vectors_model = MLCLModel.from_features(4, NAMES, classifier=True)
    make = {
        "encoder": lambda folder: (text.model.save_pretrained(folder), text.processor.save_pretrained(folder)),
        "images": lambda folder: (image.model.save_pretrained(folder), image.processor.save_pretrained(folder)),
        "classifier": lambda folder: (
            text.result.classifier.save_pretrained(folder),
            text.processor.save_pretrained(folder),
            export_onnx(text.result.classifier, folder / "model.onnx"),
        ),
        "image-classifier": lambda folder: (
            image.result.classifier.save_pretrained(folder),
            image.processor.save_pretrained(folder),
        ),
        "onnx": lambda folder: (
            text.processor.save_pretrained(folder),
            shutil.copy(tmp_path / "classifier" / "model.onnx", folder),  # exporting takes seconds
        ),
        "onnx-image": lambda folder: (
            export_onnx(image.model, folder / "model.onnx"),
            image.processor.save_pretrained(folder),
        ),
        "onnx-features": lambda folder: export_onnx(vectors_model, folder / "model.onnx"),
    }
    blocks = []
    for name, write in make.items():
        folder = tmp_path / name
        write(folder)
        report = training_report((image if "image" in name else text).trainer, figures=False)
        report = report_of_model(vectors_model) if "features" in name else report
        content = write_model_card(folder, report).read_text()
        assert card_errors(content) == [], name
        with server.here(tmp_path / "cache"):
            push_folder(folder, name, as_saved=True)
        pushed = server.repositories["model", f"{USER}/{name}"].files["README.md"].decode()
        found = re.findall(r"^```python\n(.*?)^```", pushed, re.MULTILINE | re.DOTALL)
        if name.startswith("onnx"):
            assert len(found) == 1
            assert "pip install onnxruntime" in pushed
            assert not any(word in pushed for word in ("AutoModel", "import hf_mlcl", "from hf_mlcl", "import torch"))
        else:
            assert len(found) >= 3, name
        assert all(f"{USER}/{name}" in block for block in found)
        blocks.append("\n".join(found))
    image.inputs[0].save(tmp_path / "photo.jpg")
    code = "\n".join(f"exec({block!r}, {{}})" for block in blocks)
    printed = run(code, cwd=tmp_path, **server.environment(tmp_path / "other cache")).stdout
    assert all(word in printed for word in WORDS)


HTML = "<img src=x onerror=alert(1)> & <script>x</script> **bold** [link](http://a.b) ![i](j) `code` | $x$ ~~y~~ _z_"


def rendered(folder):
    """The page of a card, without its metadata, as a browser gets it: its elements and its text."""
    from markdown_it import MarkdownIt

    page = (folder / "README.md").read_text().split("---\n", 2)[2]
    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(page)


def test_names_of_files_labels_and_corpora_do_not_become_markup(tmp_path):
    import html

    model = MLCLModel.from_features(4, [f"label {HTML}", "plain_name"])
    model.save_pretrained(tmp_path)

    def page(name):
        report = report_of_model(model)
        report.data = DataFacts(name, rows=10, label_counts=np.array([3, 4]))
        report.hyperparameters = {"backbone": name}
        report.hardware = report.backbone = name
        write_model_card(tmp_path, report, name=name)
        return rendered(tmp_path)

    tags = {name: re.findall(r"<[a-z/][^>]*>", page(name)) for name in ("harmless", HTML, "# a", "- b", "1. c")}
    assert all(found == tags["harmless"] for found in tags.values())
    shown = html.unescape(re.sub(r"<[a-z/][^>]*>", "", page(HTML)))
    assert shown.count(HTML) == 7  # title, summary twice, label, data, hyperparameter, hardware
    assert "plain_name" in (tmp_path / "README.md").read_text()
