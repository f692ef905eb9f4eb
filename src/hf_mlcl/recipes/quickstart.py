"""Four losses on a built-in corpus with a small encoder that learns from nothing: three to six minutes on a CPU.

    python recipes/quickstart.py                                         # the same as: hf-mlcl demo
    python recipes/quickstart.py --losses reg,wo_reg,zlpr --epochs 20
    python recipes/quickstart.py --corpus toy_images

Each loss trains the same encoder for the same epochs. Contrastive losses are then judged by linear evaluation of the
frozen features, losses on logits by their own predictions.
"""

import multiprocessing
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_mlcl.experiments import ExperimentResult, build_experiment, run_experiment, study_recipe
from hf_mlcl.experiments.output_folder import OutputFolder

METRICS = ("micro_f1", "macro_f1", "hamming_loss", "mAP")


def compare(
    corpus: str, losses: Sequence[str], settings: dict[str, Any], output_dir: str
) -> Iterator[ExperimentResult]:
    """Train with each loss, on the same data, with the same encoder and budget; without a GPU, one per core."""
    OutputFolder(output_dir).check_replaceable("classifier")
    jobs = [
        {"export": False, **settings, "loss": loss, "output_dir": f"{output_dir}/{loss}", "overwrite": True}
        for loss in losses
    ]
    for job in jobs:
        build_experiment(study_recipe(corpus), job)  # what is wrong with the settings is told before anything starts
    alone = torch.accelerator.is_available() or "WORLD_SIZE" in os.environ
    workers = 1 if alone else min(torch.get_num_threads(), len(jobs))
    if workers < 2:
        yield from (_trained(corpus, job) for job in jobs)
        return
    from hf_mlcl.study.running import processes

    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, processes("hf_mlcl.experiments.running"), _become_worker, (workers,)) as pool:
        try:
            for future in [pool.submit(_trained, corpus, job) for job in jobs]:
                yield future.result()
        except BrokenProcessPool as error:
            hint = "perhaps the machine had no memory left. OMP_NUM_THREADS=1 trains with one loss at a time."
            raise OSError(f"A training process was killed: {hint}") from error
        except BaseException:  # Ctrl-C included: what is not finished is of no use
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            raise


def _trained(corpus: str, settings: dict[str, Any]) -> ExperimentResult:
    return run_experiment(*build_experiment(study_recipe(corpus), settings), quiet=True)


def _become_worker(share: int) -> None:
    from hf_mlcl.cli.output import quiet_libraries
    from hf_mlcl.study.running import become_worker

    become_worker(share)
    quiet_libraries()


def keep_best(results: Sequence[ExperimentResult], output_dir: str) -> tuple[str, Path]:
    """Copy the classifier with the best validation macro-F1, which `hf-mlcl predict` then uses; say which it is."""
    best = max(results, key=lambda result: result.metrics["validation_macro_f1"])
    output = OutputFolder(output_dir)
    with output.owned(), output.staging("classifier") as stage:
        output.check_replaceable("classifier")
        shutil.copytree(best.folder / "classifier", stage, copy_function=shutil.copyfile, dirs_exist_ok=True)
        output.publish(classifier=stage)
    return str(best.settings["loss"]), output.path / "classifier"


def explain_best(results: Sequence[ExperimentResult], output_dir: str) -> Path:
    """The page of that classifier: what it has learned, and where it errs."""
    from hf_mlcl.data import load_corpus
    from hf_mlcl.experiments.explaining import explain_saved
    from hf_mlcl.experiments.prediction import Predictor
    from hf_mlcl.pages import write_explain_page

    best = max(results, key=lambda result: result.metrics["validation_macro_f1"])
    predictor, corpus = Predictor(best.folder), load_corpus(best.settings["corpus"])
    explained = explain_saved(predictor, corpus["test"], corpus["train"], data=str(best.settings["corpus"]))
    return write_explain_page(Path(output_dir) / "explain.html", explained)


def draw(results: Sequence[ExperimentResult]) -> Any:
    """Scores of each loss, and F1 of the rare, medium and frequent thirds of the labels."""
    from matplotlib.figure import Figure

    from hf_mlcl.colours import HATCHES, loss_styles

    styles = loss_styles(str(result.settings["loss"]) for result in results)
    rare: dict[str, float] = {}
    figure = Figure(figsize=(9.6, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = ("micro_f1", "macro_f1", "mAP")
    for number, result in enumerate(results):
        at = np.arange(3) + (number - (len(results) - 1) / 2) * 0.8 / len(results)
        loss = str(result.settings["loss"])
        style = {"width": 0.76 / len(results), "color": styles[loss].colour, "hatch": HATCHES[number % len(HATCHES)]}
        style |= {"edgecolor": "white", "linewidth": 0}
        left.bar(at, [result.metrics[f"test_{name}"] for name in names], label=loss, **style)
        labels = sorted(result.per_label, key=lambda label: label["train_rows"])
        thirds = np.array_split([label["f1"] for label in labels], 3)
        right.bar(at, [float(np.mean(third)) for third in thirds], **style)
        rare[loss] = float(np.mean(thirds[0]))
    left.set_xticks(np.arange(3), ["micro-F1", "macro-F1", "mAP"])
    right.set_xticks(np.arange(3), ["rare labels", "medium labels", "frequent labels"])
    best = max(results, key=lambda result: result.metrics["test_macro_f1"]).settings["loss"]
    left.set(ylim=(0, 1), ylabel=f"score on the test split of {results[0].settings['corpus']}")
    left.set_title(f"{best} has the highest macro-F1", fontsize=11)
    right.set(ylim=(0, 1), ylabel="macro-F1")
    right.set_title(f"Best on rare labels: {max(rare, key=lambda name: rare[name])}", fontsize=11)
    figure.legend(loc="outside lower center", ncols=len(results), frameon=False)
    return figure


if __name__ == "__main__":
    import sys

    from hf_mlcl.cli.app import app

    app(["demo", *sys.argv[1:]])
