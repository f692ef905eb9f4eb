"""Data of one's own against what one would do otherwise, at the same cost.

    python benchmarks/own_data.py run DATA --text_encoder FOLDER --image_weights FILE
    python benchmarks/own_data.py run DATA ... --lines semeval:300 arxiv:1000 --seeds 0 --methods ours frozen
    python benchmarks/own_data.py report --picture docs/images/own_data.png

DATA holds the official files of the corpora in the folders semeval2018_ec, arxiv54 (in AAPD's layout), 20newsgroups and
coco2014_mini; FOLDER a sentence encoder (all-MiniLM-L6-v2), FILE the weights of timm's mobilenetv2_100. Each run is a
process of its own and leaves a JSON file in benchmarks/own_data (or --output), and probabilities beside it, for whoever
wants to score them in another way; what is there is not run again, so that it can be interrupted. The files in the
repository are the runs of docs/results.md: give another --output to repeat them.

Methods: `ours` is `hf-mlcl train` as it comes. arXiv's labels are codes (cs.LG): there it is given what they mean, as
by `--label_descriptions`, and `codes` is the same without. `tfidf` and `frozen` are scikit-learn's logistic regression,
C chosen on validation, on TF-IDF or on the frozen encoder's features. `hf_bce` is HF's Trainer with BCE and one linear
layer on the same encoder, `setfit` is SetFit (where it is installed): both train for as many CPU seconds as `ours` took
in all; `--minutes` gives all three a time of their own. Thresholds are tuned on validation by the same code for all of
them, for micro-F1 and for macro-F1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

CORPORA = {
    "semeval": ("semeval2018", "semeval2018_ec", (300, 1000, 6838)),
    "arxiv": ("aapd", "arxiv54", (300, 1000, 6000)),
    "news": ("newsgroups20", "20newsgroups", (300, 1000)),
    "coco": ("coco2014", "coco2014_mini", (300, 1000, 6000)),
}
METHODS = {
    "ours": "hf-mlcl train",
    "codes": "the same, labels as codes",
    "frozen": "frozen + LR",
    "tfidf": "TF-IDF + LR",
    "hf_bce": "HF Trainer, BCE",
    "setfit": "SetFit",
}
FEWER_SEEDS = ("codes", "hf_bce")
"""Methods that may have been run with fewer seeds than the others: their cells say so."""
METRICS = {
    "mAP": "mAP",
    "tuned_micro_f1": "micro-F1, tuned",
    "tuned_macro_f1": "macro-F1, tuned",
    "micro_f1": "micro-F1 at 0.5",
    "macro_f1": "macro-F1 at 0.5",
}
VALIDATION_ROWS = 2000
TEST_ROWS = 3000
"""Rows that are kept at most; those of test are shared among the seeds of a line."""
IMAGE_SIZE = 96
RESULTS = Path(__file__).with_suffix("")
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
RATE = 1e-4


# The data -------------------------------------------------------------------------------------------------------------


def splits(options: argparse.Namespace) -> Any:
    """Rows of all splits drawn by the seed; of validation a quarter as many as of training, as users hold out."""
    from hf_mlcl import load_corpus

    corpus, folder, _ = CORPORA[options.corpus]
    data = load_corpus(corpus, data_dir=os.path.join(options.data, folder))
    data["train"] = data["train"].shuffle(seed=options.seed).select(range(min(options.rows, len(data["train"]))))
    held_out = min(max(options.rows // 4, 100), VALIDATION_ROWS)
    for split, rows in (("validation", held_out), ("test", TEST_ROWS if is_largest(options) else TEST_ROWS // 3)):
        data[split] = data[split].shuffle(seed=options.seed).select(range(min(rows, len(data[split]))))
    return data


def is_largest(options: argparse.Namespace) -> bool:
    """Whether it is the line of a corpus that is run with one seed."""
    sizes = CORPORA[options.corpus][2]
    return len(sizes) == 3 and options.rows == sizes[-1]


def multi_hot(rows: Any) -> Any:
    from hf_mlcl.data import encode_labels

    return np.asarray(encode_labels(rows["labels"], len(rows.features["labels"].feature.names))) > 0


def half(image: bool) -> Any:
    """Mixed precision for rows that only the benchmark needs, after the clock has stopped, where it is faster."""
    import torch

    from hf_mlcl.experiments.parsing import cpu_knows_bfloat16

    return torch.autocast("cpu", torch.bfloat16, enabled=not image and cpu_knows_bfloat16())


# The methods: from splits to probabilities of validation and test -----------------------------------------------------


def ours(data: Any, options: argparse.Namespace) -> dict[str, Any]:
    from datasets import DatasetDict

    from hf_mlcl.data import corpus_facts
    from hf_mlcl.data.own import OwnData
    from hf_mlcl.experiments import build_experiment, own_recipe, run_experiment
    from hf_mlcl.experiments.anytime import Anytime
    from hf_mlcl.experiments.prediction import Predictor

    image = "image" in data["train"].column_names
    own = OwnData(data, "image" if image else "text", "image" if image else "text", "benchmark", "as given")
    backbone = "mobilenetv2_100" if image else options.text_encoder
    settings: dict[str, Any] = {"seed": options.seed, "export": False, "use_cpu": True, "disable_tqdm": True}
    if image:
        settings |= {"backbone_weights": options.image_weights, "image_size": IMAGE_SIZE}
    if options.minutes:
        settings["minutes"] = options.minutes
    if options.corpus == "news":
        settings["single_label"] = True
    if options.corpus == "arxiv" and options.method == "ours":
        settings["label_descriptions"] = dict(corpus_facts("aapd").descriptions)

    def found(folder: str | Path) -> dict[str, Any]:
        predictor, column = Predictor(folder, batch_size=64), "image" if image else "text"
        with half(image):
            return {split: predictor.probabilities(list(data[split][column])) for split in ("validation", "test")}

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as kept:
        moments: list[float] = []
        publish = Anytime._publish

        def keep(self: Anytime, stage: Any) -> None:
            publish(self, stage)
            if not moments:  # what there is after the first minute; to score more of them would take long
                shutil.copytree(Path(folder, "classifier"), Path(kept, str(len(moments))))
                moments.append(time.process_time())

        if options.seed == 0:  # for the picture: what somebody would have who stops it
            Anytime._publish = keep  # type: ignore[method-assign]
        recipe = own_recipe(own, options.corpus, backbone)
        own_test = data["test"].select(range(min(len(data["test"]), len(data["validation"]))))
        known = DatasetDict({**data, "test": own_test})  # the others do not spend their time on 3,000 rows of test
        result = run_experiment(*build_experiment(recipe, {**settings, "output_dir": folder}), known)
        spent, single = time.process_time(), options.corpus == "news"
        way = [
            {"cpu_seconds": round(moment, 1), "scores": scores(data, found(Path(kept, str(number))), single)}
            for number, moment in enumerate(moments)
        ]
        frozen = {name: value for name, value in result.metrics.items() if name.startswith("frozen_")}
        more = {"spent": spent, "way": way, "frozen": frozen, "seconds": result.seconds, "verdict": result.verdict}
        return found(folder) | more


codes = ours


def frozen(data: Any, options: argparse.Namespace) -> dict[str, Any]:
    return logistic(data, encoded(data, options), options.corpus == "news")


def tfidf(data: Any, options: argparse.Namespace) -> dict[str, Any]:
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, min_df=2).fit(data["train"]["text"])
    features = {split: words.transform(rows["text"]) for split, rows in data.items()}
    return logistic(data, features, options.corpus == "news")


def logistic(data: Any, features: dict[str, Any], single_label: bool) -> dict[str, Any]:
    """Five lines of scikit-learn, for each C; the best on validation by mAP and both F1 together."""
    from sklearn.dummy import DummyClassifier
    from sklearn.linear_model import LogisticRegression

    y, judged = multi_hot(data["train"]), {**data, "test": data["validation"]}
    best: tuple[float, dict[str, Any]] = (-1.0, {})
    for strength in STRENGTHS:
        found = {split: np.zeros((len(data[split]), y.shape[1])) for split in ("validation", "test")}
        for label in range(y.shape[1]):
            one = y[:, label].all() or not y[:, label].any()
            model = DummyClassifier() if one else LogisticRegression(C=strength, max_iter=1000)
            model.fit(features["train"], y[:, label])
            if True in model.classes_:
                for split, p in found.items():
                    p[:, label] = model.predict_proba(features[split])[:, list(model.classes_).index(True)]
        reached = scores(judged, {**found, "test": found["validation"]}, single_label)
        total = sum(reached[name] for name in ("mAP", "tuned_micro_f1", "tuned_macro_f1"))
        best = max(best, (total, found), key=lambda pair: pair[0])
    return best[1]


def encoded(data: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Features of the frozen encoder, as its own library computes them."""
    if "text" in data["train"].column_names:
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(options.text_encoder, device="cpu")
        return {split: model.encode(list(rows["text"]), batch_size=64) for split, rows in data.items()}
    import torch

    from hf_mlcl.data import image_transform

    model, transform = timm_model(options, num_classes=0).eval(), image_transform(IMAGE_SIZE)
    with torch.inference_mode():
        return {
            split: np.concatenate([model(batch).numpy() for batch in image_batches(rows, transform)])
            for split, rows in data.items()
        }


def timm_model(options: argparse.Namespace, num_classes: int) -> Any:
    import timm

    overlay = {"file": options.image_weights}
    return timm.create_model(
        "mobilenetv2_100", pretrained=True, num_classes=num_classes, pretrained_cfg_overlay=overlay
    )


def image_batches(rows: Any, transform: Callable[[Any], Any], size: int = 64) -> Iterator[Any]:
    import torch

    for start in range(0, len(rows), size):
        yield torch.stack([transform(image) for image in rows[start : start + size]["image"]])


def hf_bce(data: Any, options: argparse.Namespace) -> dict[str, Any]:
    """HF's Trainer and a model for classification, for `options.budget` CPU seconds."""
    import torch
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        Trainer,
        TrainingArguments,
    )

    from hf_mlcl.data import image_transform

    names = data["train"].features["labels"].feature.names
    labels = {split: torch.from_numpy(multi_hot(rows)).float() for split, rows in data.items()}
    image = "image" in data["train"].column_names
    if image:
        plain, augmented = image_transform(IMAGE_SIZE), image_transform(IMAGE_SIZE, train=True)
        model = TimmClassifier(timm_model(options, len(names)))

        def collate(rows: Any) -> dict[str, Any]:
            change = augmented if model.training else plain
            pixels = torch.stack([change(data[row["split"]][row["row"]]["image"]) for row in rows])
            return {"pixel_values": pixels, "labels": torch.stack([row["labels"] for row in rows])}
    else:
        tokenizer = AutoTokenizer.from_pretrained(options.text_encoder)
        length = 256 if options.corpus == "arxiv" else 128
        tokens = {s: tokenizer(list(rows["text"]), truncation=True, max_length=length) for s, rows in data.items()}
        model = AutoModelForSequenceClassification.from_pretrained(
            options.text_encoder, num_labels=len(names), problem_type="multi_label_classification"
        )

        def collate(rows: Any) -> dict[str, Any]:
            batch = tokenizer.pad(
                [{"input_ids": tokens[r["split"]]["input_ids"][r["row"]]} for r in rows], return_tensors="pt"
            )
            return {**batch, "labels": torch.stack([row["labels"] for row in rows])}

    rows = {s: [{"split": s, "row": i, "labels": y} for i, y in enumerate(labels[s])] for s in data}

    with tempfile.TemporaryDirectory() as folder:
        fixed: dict[str, Any] = {
            "per_device_train_batch_size": 32,
            "per_device_eval_batch_size": 64,
            "learning_rate": RATE,
            "warmup_steps": 0.1,
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            "save_strategy": "no",
            "remove_unused_columns": False,
            "seed": options.seed,
            "dataloader_pin_memory": False,
            "logging_steps": 10**6,
        }

        def trainer(steps: int) -> Any:
            args = TrainingArguments(folder, max_steps=steps, **fixed)
            return Trainer(model, args, data_collator=collate, train_dataset=rows["train"])

        weights = {name: value.clone() for name, value in model.state_dict().items()}
        start = time.process_time()
        trainer(4).train()
        pace = (time.process_time() - start) / 4
        model.load_state_dict(weights)
        steps = max(int((options.budget - time.process_time()) / pace), 10)
        trained = trainer(steps)
        trained.train()
        spent = time.process_time()
        with half(image):
            logits = {s: torch.from_numpy(trained.predict(rows[s]).predictions) for s in ("validation", "test")}
        found = {s: torch.sigmoid(x.float()).numpy() for s, x in logits.items()}
    return {**found, "spent": spent, "steps": steps}


def setfit(data: Any, options: argparse.Namespace) -> dict[str, Any]:
    """SetFit with one-vs-rest heads, for `options.budget` CPU seconds."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    y = multi_hot(data["train"])
    rows = Dataset.from_dict({"text": list(data["train"]["text"]), "label": y.astype(int).tolist()})
    model = SetFitModel.from_pretrained(options.text_encoder, multi_target_strategy="one-vs-rest", device="cpu")

    def train(steps: int) -> None:
        args = TrainingArguments(
            batch_size=16,
            max_steps=steps,
            seed=options.seed,
            report_to="none",
            save_strategy="no",
            show_progress_bar=False,
            output_dir=tempfile.mkdtemp(),
            max_length=256 if options.corpus == "arxiv" else 128,
        )
        trainer = Trainer(model=model, args=args, train_dataset=rows)
        trainer.train()

    clock = [time.process_time()]
    for steps in (2, 12):
        train(steps)
        clock.append(time.process_time())
    measured = clock[2] - clock[0]  # of which a part, the heads', comes but once
    pace = max(clock[2] - 2 * clock[1] + clock[0], 1e-3) / 10
    heads = clock[1] - clock[0] - 2 * pace
    model = SetFitModel.from_pretrained(options.text_encoder, multi_target_strategy="one-vs-rest", device="cpu")
    train(max(int((options.budget - clock[0] - heads) / pace), 5))
    spent = time.process_time() - measured
    with half(image=False):
        found = {s: np.stack(model.predict_proba(list(data[s]["text"]), as_numpy=True)) for s in ("validation", "test")}
    found = {s: p[..., 1].T if p.ndim == 3 else p for s, p in found.items()}
    return {**found, "spent": spent}


def TimmClassifier(model: Any) -> Any:  # noqa: N802
    """A timm model that computes BCE, as HF's Trainer wants it."""
    import torch

    class Classifier(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, pixel_values: Any, labels: Any = None) -> dict[str, Any]:
            logits = self.model(pixel_values)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
            return {"loss": loss, "logits": logits}

    return Classifier()


# Scores ---------------------------------------------------------------------------------------------------------------


def scores(data: Any, found: dict[str, Any], single_label: bool) -> dict[str, float]:
    """mAP, and F1 at 0.5 and at tuned thresholds; of data with one label per row, of the most probable one."""
    from hf_mlcl.evaluation import tune_thresholds
    from hf_mlcl.metrics import decide, decision_metrics, mean_average_precision

    truth = {split: multi_hot(data[split]) for split in ("validation", "test")}
    p = {split: np.clip(np.nan_to_num(found[split]), 0, 1) for split in truth}
    result = {"mAP": mean_average_precision(truth["test"], p["test"], absent=float("nan"))}
    for name in ("micro_f1", "macro_f1"):
        if single_label:
            chosen = np.eye(p["test"].shape[1], dtype=bool)[p["test"].argmax(1)]
            result[name] = result[f"tuned_{name}"] = decision_metrics(truth["test"], chosen)[name]
            continue
        result[name] = decision_metrics(truth["test"], decide(p["test"]))[name]
        tuned = tune_thresholds(truth["validation"], p["validation"], objective=name)
        result[f"tuned_{name}"] = decision_metrics(truth["test"], tuned.decide(p["test"]))[name]
    return {name: round(100 * float(value), 2) for name, value in result.items()}


# Running and reporting ------------------------------------------------------------------------------------------------


def run_one(options: argparse.Namespace) -> None:
    """One run in this process; writes its file."""
    from hf_mlcl.files import strict_json, whole_file
    from measure import hardware

    data = splits(options)
    found = globals()[options.method](data, options)
    cpu = found.pop("spent", None) or time.process_time()
    content = {
        "corpus": options.corpus,
        "rows": options.rows,
        "seed": options.seed,
        "method": options.method,
        **({"minutes": options.minutes} if options.minutes else {}),
        "date": time.strftime("%Y-%m-%d"),
        "hardware": hardware(),
        "cpu_seconds": round(cpu, 1),
        "scores": scores(data, found, options.corpus == "news"),
        **{key: value for key, value in found.items() if key not in ("validation", "test")},
    }
    with whole_file(Path(options.file).with_suffix(".npz")) as draft, draft.open("wb") as file:
        np.savez_compressed(file, **{split: found[split].astype(np.float32) for split in ("validation", "test")})
    with whole_file(options.file) as draft:
        draft.write_text(strict_json(content), encoding="utf-8")


def run_all(options: argparse.Namespace) -> None:
    """Everything that is asked for and not there yet, a process each."""
    wanted = options.lines or [f"{name}:{rows}" for name, (_, _, sizes) in CORPORA.items() for rows in sizes]
    for seed, line in itertools.product(options.seeds, wanted):  # all lines with one seed, before the next seed
        corpus, rows = line.split(":")
        if seed != options.seeds[0] and is_largest(argparse.Namespace(corpus=corpus, rows=int(rows))):
            continue
        budget = options.minutes and 60 * options.minutes
        for method in methods_of(corpus):
            file = Path(options.output) / f"{corpus}-{rows}-{seed}-{method}.json"
            ours_file = file.with_name(f"{corpus}-{rows}-{seed}-ours.json")
            if ours_file.is_file():
                budget = json.loads(ours_file.read_text())["cpu_seconds"]
            missing_budget = method in ("hf_bce", "setfit") and budget is None
            if method not in options.methods or file.is_file() or missing_budget:
                continue
            command = [sys.executable, __file__, "one", options.data, "--file", str(file), "--method", method]
            command += ["--corpus", corpus, "--rows", rows, "--seed", str(seed), "--budget", str(budget or 0)]
            command += ["--minutes", str(options.minutes)] if options.minutes else []
            command += ["--text_encoder", options.text_encoder or "", "--image_weights", options.image_weights or ""]
            print(time.strftime("%H:%M:%S"), file.stem, flush=True)
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def methods_of(corpus: str) -> list[str]:
    """Methods that can be run on a corpus."""
    without = {"coco": ("codes", "tfidf", "setfit"), "arxiv": ()}.get(corpus, ("codes",))
    return [method for method in METHODS if method not in without]


def report(options: argparse.Namespace) -> None:
    """Tables in Markdown, means over seeds, and a picture of scores against CPU seconds."""
    found: dict[tuple[str, int], dict[str, dict[int, Any]]] = {}
    for path in Path(options.output).glob("*.json"):
        run = json.loads(path.read_text())
        found.setdefault((run["corpus"], run["rows"]), {}).setdefault(run["method"], {})[run["seed"]] = run
    groups: dict[tuple[str, int], dict[str, list[Any]]] = {}
    for (corpus, rows), runs in sorted(found.items(), key=lambda item: (list(CORPORA).index(item[0][0]), item[0][1])):
        needed = [method for method in methods_of(corpus) if method not in FEWER_SEEDS]
        whole = set.intersection(*(set(runs.get(method, {})) for method in needed))
        if not whole:
            missing = ", ".join(method for method in needed if method not in runs) or "a seed that all of them have"
            print(f"Left out: {corpus}, {rows:,}, for want of {missing}.", file=sys.stderr)
        else:  # seeds that every method has been run with: others would compare unlike rows
            known = [method for method in methods_of(corpus) if whole & set(runs.get(method, {}))]
            seeds = {method: sorted(whole & set(runs[method])) for method in known}
            groups[corpus, rows] = {method: [runs[method][seed] for seed in seeds[method]] for method in known}
    if not groups:
        raise SystemExit(f"{options.output} has no line with runs of every method.")
    every = [run for methods in groups.values() for runs in methods.values() for run in runs]
    print("Seeds: " + ", ".join(f"{corpus} {rows:,}: {len(runs['ours'])}" for (corpus, rows), runs in groups.items()))
    print("In brackets: the number of seeds, where a method has fewer.")
    print(f"Runs of {' and '.join(sorted({run['date'] for run in every}))}, {every[0]['hardware']}.")
    for metric, title in METRICS.items():
        print(f"\n| {title} | {' | '.join(METHODS.values())} | ours - best other |\n|{'---|' * (len(METHODS) + 2)}")
        gains = []
        for (corpus, rows), methods in groups.items():
            mean = {method: np.mean([run["scores"][metric] for run in runs]) for method, runs in methods.items()}
            alike = {method: value for method, value in mean.items() if len(methods[method]) == len(methods["ours"])}
            gains.append(mean["ours"] - max(value for name, value in alike.items() if name not in ("ours", "codes")))
            best = f"{max(alike.values()):.1f}"
            cells = []
            for method in METHODS:
                cell = f"{mean[method]:.1f}" if method in mean else ""
                seeds = len(methods.get(method, ()))
                fewer = f" ({seeds})" if 0 < seeds < len(methods["ours"]) else ""
                cells.append((f"**{cell}**" if cell == best else cell) + fewer)
            print(f"| {corpus}, {rows:,} | {' | '.join(cells)} | {gains[-1]:+.1f} |")
        print(f"| mean {'|' * (len(METHODS) + 1)} {np.mean(gains):+.1f} |")
    print(f"\n| CPU seconds | {' | '.join(METHODS.values())} |\n|{'---|' * (len(METHODS) + 1)}")
    for (corpus, rows), methods in groups.items():
        seconds = [np.mean([run["cpu_seconds"] for run in methods[m]]) if m in methods else None for m in METHODS]
        print(f"| {corpus}, {rows:,} | {' | '.join('' if s is None else f'{s:.0f}' for s in seconds)} |")
    if options.picture:
        picture(groups, options.picture)


def picture(groups: dict[tuple[str, int], dict[str, list[Any]]], path: str) -> None:
    """Test mAP against CPU seconds, a mark per seed; of ours, with the first classifier that a run had on the way."""
    import matplotlib.pyplot as plt

    from hf_mlcl.colours import MARKERS, PALETTE

    columns, height = min(len(groups), 4), -(-len(groups) // 4)
    most = max(run["cpu_seconds"] for methods in groups.values() for runs in methods.values() for run in runs)
    marks: dict[str, Any] = {}
    figure, axes = plt.subplots(
        height, columns, figsize=(3.6 * columns, 3 * height), squeeze=False, layout="constrained"
    )
    for axis, ((corpus, rows), methods) in zip(axes.flat, groups.items(), strict=False):
        for marker, color, (method, name) in zip(MARKERS, PALETTE, METHODS.items(), strict=False):
            found = methods.get(method, [])
            if not found:
                continue
            ends = [(run["cpu_seconds"], run["scores"]["mAP"]) for run in found]
            look = {"marker": marker, "color": color, "label": name, "s": 40, "alpha": 0.7, "linewidths": 0}
            axis.scatter(*zip(*ends, strict=True), **look, zorder=3)
            for run in found:
                if run.get("way"):
                    way = [(step["cpu_seconds"], step["scores"]["mAP"]) for step in run["way"]]
                    axis.plot(*zip(*way, (run["cpu_seconds"], run["scores"]["mAP"]), strict=True), color=color, lw=1)
        axis.set(title=f"{corpus}, {rows:,} rows", xlabel="CPU seconds", ylabel="test mAP", xscale="log")
        axis.set_xlim(1, 10 ** np.ceil(np.log10(most)))
        marks |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    for axis in axes.flat[len(groups) :]:
        axis.axis("off")
    figure.legend(marks.values(), marks.keys(), loc="outside lower center", ncols=len(METHODS))
    figure.savefig(path, dpi=130)


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "one"):
        command = commands.add_parser(name)
        command.add_argument("data")
        command.add_argument("--text_encoder")
        command.add_argument("--image_weights")
        command.add_argument("--minutes", type=float)
        if name == "run":
            command.add_argument("--output", default=str(RESULTS))
            command.add_argument("--lines", nargs="+")
            command.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
            command.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
        else:
            command.add_argument("--file", required=True)
            command.add_argument("--method", required=True, choices=list(METHODS))
            command.add_argument("--corpus", required=True, choices=list(CORPORA))
            command.add_argument("--rows", type=int, required=True)
            command.add_argument("--seed", type=int, required=True)
            command.add_argument("--budget", type=float, required=True)
    command = commands.add_parser("report")
    command.add_argument("--output", default=str(RESULTS))
    command.add_argument("--picture")
    options = parser.parse_args()
    {"run": run_all, "one": run_one, "report": report}[options.command](options)


if __name__ == "__main__":
    main()
