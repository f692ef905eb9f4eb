"""What comes out of an experiment: scores, decisions for each test row, and the closing lines of a run."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hf_mlcl.files import whole_file, write_json

DECISIONS_FILE = "test_decisions.npz"
METRICS_FILE = "metrics.json"
PAGE_FILE = "explain.html"
DATA_SOURCE = "data_source"
"""Among the settings: where data of your own were read from."""
DATA_FINGERPRINT = "data_fingerprint"
"""Among the settings: which data of your own were trained on."""
METRICS = ("micro_f1", "macro_f1", "hamming_loss", "mAP", "accuracy")
HISTORY = ("step", "loss", "positive_similarity", "negative_similarity")
"""What is kept of the log of a training."""
SCORES = {
    "frozen, test": "frozen_test",
    "frozen, test, tuned": "frozen_tuned_test",
    "validation": "validation",
    "test": "test",
    "test, tuned": "tuned_test",
}
"""What is summed up of a run, where there is such a thing, in a table of less than 80 columns."""

Flags = npt.NDArray[np.bool_]


def data_source(name: str) -> str:
    """What tells where data were read from: a file or folder by its whole path, else the name on the Hub."""
    return str(Path(name).resolve()) if Path(name).exists() else name


@dataclass(frozen=True)
class ExperimentResult:
    """What came out of an experiment; all of it also stands in ``metrics.json``.

    Attributes:
        metrics: ``validation_...`` and ``test_...`` (micro_f1, macro_f1, hamming_loss, mAP, ...; accuracy for data with
            one label per row), ``alignment`` and ``uniformity`` of the test features, ``train_loss``, and ``prr`` where
            the loss has one. A joined loss adds ``direct_...``: the scores of its own logits; tuned thresholds add
            ``tuned_test_...``: the scores of what the saved classifier decides. All others are those of 0.5.
            ``best_heads`` adds ``best_test_...`` and ``best_tuned_test_...``: of the heads of ``protocol="best"``.
            ``protocol="best"`` adds the same with ``frozen_`` in front: of the classifier on the frozen encoder.
        per_label: For each label its name, training rows (``train_rows``) and test F1 (``f1``).
        seconds: Time spent on ``data``, ``train``, ``evaluate``, and in ``total``.
        folder: Where everything was saved.
        settings: Corpus, loss, seed and all the rest.
        versions: Of the libraries that matter.
        verdict: With ``protocol="best"``: ``scores`` of the frozen and the trained classifier with 95 % intervals,
            ``choices`` that were made, and ``advice``.
        history: What was logged of the training loss and of pairs of rows, as mappings with the keys of `HISTORY`.
    """

    metrics: dict[str, float]
    per_label: list[dict[str, Any]]
    seconds: dict[str, float]
    folder: Path
    settings: dict[str, Any] = field(repr=False)
    versions: dict[str, str] = field(repr=False)
    verdict: dict[str, Any] = field(default_factory=dict, repr=False)
    history: list[dict[str, float]] = field(default_factory=list, repr=False)

    def save(self, folder: str | os.PathLike[str] | None = None) -> None:
        """Write ``metrics.json`` to a folder, its own if not given; whole or not at all."""
        write_json(Path(folder or self.folder) / METRICS_FILE, dataclasses.asdict(self))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> ExperimentResult:
        """Read back the result of a finished experiment."""
        path = Path(folder) / METRICS_FILE
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is damaged ({error}). Run the experiment again.") from error
        metrics = {name: float("nan") if value is None else value for name, value in content["metrics"].items()}
        return cls(**{**content, "metrics": metrics, "folder": Path(folder)})


def save_decisions(folder: str | os.PathLike[str], labels: npt.ArrayLike, decisions: npt.ArrayLike) -> None:
    """Write truth and decisions, multi-hot (rows, labels), one bit each, to ``test_decisions.npz`` in a folder.

    The file appears whole or not at all; paired tests between runs read it.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> save_decisions(folder, [[1, 0]], [[1, 1]])
        >>> labels, decisions = load_decisions(folder)
        >>> decisions.tolist()
        [[True, True]]
    """
    truth, chosen = np.asarray(labels, dtype=bool), np.asarray(decisions, dtype=bool)
    if truth.ndim != 2 or truth.shape != chosen.shape:
        raise ValueError(f"labels and decisions must be two matrices of one shape; got {truth.shape}, {chosen.shape}.")
    with whole_file(Path(folder) / DECISIONS_FILE) as draft, draft.open("wb") as file:
        np.savez_compressed(file, shape=truth.shape, labels=np.packbits(truth), decisions=np.packbits(chosen))


def load_decisions(folder: str | os.PathLike[str]) -> tuple[Flags, Flags]:
    """Truth and decisions that `save_decisions` wrote; a FileNotFoundError if there are none."""
    with np.load(Path(folder) / DECISIONS_FILE) as file:
        shape = tuple(file["shape"])
        count = int(np.prod(shape))
        labels, decisions = (
            np.unpackbits(file[name], count=count).astype(bool).reshape(shape) for name in ("labels", "decisions")
        )
    return labels, decisions


def print_summary(result: ExperimentResult) -> None:
    """Print scores, times and where everything is; one process of many does."""
    import torch.distributed as dist

    if dist.is_initialized() and dist.get_rank() > 0:
        return
    shown = [name for name in METRICS if f"test_{name}" in result.metrics]
    titles = {title: prefix for title, prefix in SCORES.items() if f"{prefix}_micro_f1" in result.metrics}
    width = max(map(len, titles))
    print(f"\n{result.settings['corpus']}, {result.settings['loss']}, seed {result.settings['seed']}")
    print(" " * width + "".join(f"  {name:>8}" for name in shown))
    for title, prefix in titles.items():
        scores = {name: result.metrics.get(f"{prefix}_{name}") for name in shown}
        cells = (f"  {'' if value is None else f'{value:.4f}':>{max(len(name), 8)}}" for name, value in scores.items())
        print(f"{title:<{width}}{''.join(cells)}".rstrip())
    if "test, tuned" in titles:
        print("Decided at 0.5; tuned: at the thresholds that are saved with the classifier.")
    times = ", ".join(f"{name} {value:.0f} s" for name, value in result.seconds.items())
    print(f"{times}\nEncoder, classifier and metrics.json are in {result.folder}")
