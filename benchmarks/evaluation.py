"""Speed and memory of the evaluation, and its agreement with a plain training loop on real features.

Prints the tables of `docs/benchmarks.md`:

    python benchmarks/evaluation.py                              # synthetic data
    python benchmarks/evaluation.py --data_dir DATA --cache_dir CACHE   # and real features

Compared times are taken side by side in this run, the best of several interleaved rounds.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from hf_mlcl import metrics
from hf_mlcl.evaluation import LinearEvaluationConfig, cross_fitted_score, linear_evaluate, tune_thresholds
from hf_mlcl.evaluation.logistic import fit_logistic
from measure import hardware

ROWS, SIZE, LABELS, VALIDATION = 4000, 768, 54, 1000
EPOCHS, SLICES = 40, 5
"""A fifth of the epochs is timed and multiplied: short slices find quiet moments on a machine that is not one's own.
What happens once a run (initialisation, choice, metrics) is thereby counted five times."""


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak_megabytes(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of a call, and its peak memory above what was there before (Linux)."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    elapsed = seconds(call)
    return elapsed, (_status("VmHWM") - before) / 1024


def _status(field: str) -> float:
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(field))
    return float(line.split()[1])


def plain_head(x: torch.Tensor, y: torch.Tensor, workers: int, epochs: int, seed: int = 0) -> torch.nn.Linear:
    """One head of one grid point as it is usually trained."""
    torch.manual_seed(seed)
    head = torch.nn.Linear(x.shape[1], y.shape[1])
    torch.nn.init.xavier_uniform_(head.weight)
    torch.nn.init.zeros_(head.bias)
    loader = DataLoader(TensorDataset(x, y), batch_size=256, shuffle=True, num_workers=workers)
    groups = [{"params": [head.weight], "weight_decay": 1e-2}, {"params": [head.bias], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    steps = epochs * len(loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in range(epochs):
        for features, labels in loader:
            optimizer.zero_grad()
            F.binary_cross_entropy_with_logits(head(features), labels).backward()
            optimizer.step()
            schedule.step()
    return head


def linear_evaluation(rounds: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS + VALIDATION, SIZE)).astype(np.float32)
    y = (x @ rng.normal(size=(SIZE, LABELS)) / SIZE**0.5 + 0.5 * rng.normal(size=(len(x), LABELS))) > 1.8
    config = LinearEvaluationConfig(epochs=EPOCHS // SLICES)
    heads = len(config.grid()) * config.heads
    X, W = torch.randn(256, SIZE), torch.randn(heads * LABELS, SIZE)
    P, dW = torch.empty(256, len(W)), torch.empty_like(W)
    steps = [min(256, ROWS - start) for start in range(0, ROWS, 256)] * config.epochs

    def products() -> None:
        for rows in steps:
            torch.mm(X[:rows], W.T, out=P[:rows])
            torch.mm(P[:rows].T, X[:rows], out=dW)

    def ours() -> None:
        linear_evaluate(x[:ROWS], y[:ROWS], x[ROWS:], y[ROWS:], config=config, progress=False)

    features, labels = torch.as_tensor(x[:ROWS]), torch.as_tensor(y[:ROWS]).float()
    calls: dict[str, Callable[[], object]] = {
        "ours": ours,
        "products": products,
        "loop": lambda: plain_head(features, labels, workers=0, epochs=config.epochs),
        "workers": lambda: plain_head(features, labels, workers=4, epochs=config.epochs),
    }
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], SLICES * seconds(call))
    print(f"### Linear evaluation: 2 x 5 grid, 3 heads, 40 epochs; N = {ROWS:,}, h = {SIZE}, L = {LABELS}\n")
    print("| | seconds | against ours |\n|---|---|---|")
    print(f"| ours, all {heads} heads, validation and choice included | {best['ours']:.2f} | 1 |")
    print(
        f"| its two matrix products alone | {best['products']:.2f} | "
        f"ours takes {best['ours'] / best['products']:.2f}x |"
    )
    for name, title in (
        ("loop", "plain loop, DataLoader in process"),
        ("workers", "plain loop, four worker processes"),
    ):
        total = best[name] * heads
        print(f"| {title}: one head {best[name]:.2f} s, x {heads} | {total:.1f} | {total / best['ours']:.1f}x |")
    print()


def regularised_heads(rounds: int) -> None:
    """All labels and strengths of `protocol="best"` at once, against scikit-learn, one at a time."""
    rng = np.random.default_rng(0)
    spread = 1 / np.arange(1, SIZE + 1) ** 0.5  # a few directions hold most of the variance, as in real features
    x = (rng.normal(size=(ROWS, SIZE)) * spread) @ np.linalg.qr(rng.normal(size=(SIZE, SIZE)))[0]
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    logits = x @ rng.normal(size=(SIZE, LABELS)) / SIZE**0.5 + rng.normal(size=(ROWS, LABELS))
    y = logits > np.quantile(logits, np.linspace(0.7, 0.995, LABELS), axis=0).diagonal()  # from 30 % to 0.5 % of rows
    decays, some = 10.0 ** np.arange(-3, 1, 0.5), range(0, LABELS, 6)
    found: dict[str, np.ndarray] = {}

    def ours() -> None:
        heads = fit_logistic([torch.as_tensor(x)], torch.as_tensor(y), decays.tolist(), torch.device("cpu"))
        found["ours"] = heads.weight[:, 0, list(some)].numpy()

    def theirs(name: str, tolerance: float, features: np.ndarray) -> None:
        found[name] = np.zeros((len(decays), len(some), SIZE))
        for point, decay in enumerate(decays):
            for place, label in enumerate(some):
                model = LogisticRegression(C=1 / (ROWS * decay), tol=tolerance, max_iter=10_000)
                found[name][point, place] = model.fit(features, y[:, label]).coef_[0]

    loops = {"scikit-learn as it comes": (1e-4, x), "scikit-learn, tol=1e-7, float64": (1e-7, x.astype(np.float64))}
    best = dict.fromkeys(["ours", *loops], float("inf"))
    for _ in range(rounds):
        best["ours"] = min(best["ours"], seconds(ours))
        for name, how in loops.items():
            best[name] = min(best[name], seconds(partial(theirs, name, *how)) * LABELS / len(some))
    print(f"### Regularised heads: {LABELS} labels x {len(decays)} strengths; N = {ROWS:,}, h = {SIZE}\n")
    print("| | seconds | against ours | largest difference of a coefficient from ours |\n|---|---|---|---|")
    for name, spent in best.items():
        apart = "" if name == "ours" else f"{np.abs(found[name] - found['ours']).max():.1e}"
        print(f"| {name} | {spent:.1f} | {spent / best['ours']:.1f}x | {apart} |")
    print()


def large_matrices() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((781_000, 103), dtype=np.float32)
    labels = rng.random((781_000, 103), dtype=np.float32) < 0.03
    print("### Metrics of 781,000 x 103 scores\n")
    print("| metric | seconds | MB above the inputs |\n|---|---|---|")
    calls: dict[str, Callable[[], object]] = {
        "mAP": lambda: metrics.mean_average_precision(labels, scores),
        "F1, precision, recall, Hamming, subset accuracy": lambda: metrics.decision_metrics(
            labels, metrics.decide(scores)
        ),
        "all of these together": lambda: metrics.multilabel_metrics(labels, scores),
        "LRAP": lambda: metrics.label_ranking_average_precision(labels, scores),
        "precision@5": lambda: metrics.precision_at_k(labels, scores, 5),
        "expected calibration error": lambda: metrics.expected_calibration_error(labels, scores),
    }
    for name, call in calls.items():
        elapsed, memory = peak_megabytes(call)
        print(f"| {name} | {elapsed:.1f} | {memory:.0f} |")
    elapsed = 103 * seconds(lambda: average_precision_score(labels[:, 0], scores[:, 0]))
    print(f"| for comparison, mAP by scikit-learn: one label x 103 | {elapsed:.1f} | |\n")


def large_spaces() -> None:
    rng = np.random.default_rng(0)
    features = torch.randn(40_000, 2_048, generator=torch.Generator().manual_seed(0))
    labels = rng.random((40_000, 20)) < 0.1
    print("### Alignment and uniformity of 40,000 x 2,048 features (328 MB)\n")
    print("| metric | value | seconds | MB above the inputs |\n|---|---|---|---|")
    for name, call in {
        "alignment, exact": lambda: metrics.alignment(features, labels),
        "uniformity, exact": lambda: metrics.uniformity(features),
        "uniformity of 8,000 rows": lambda: metrics.uniformity(features, max_rows=8000),
    }.items():
        values: list[float] = []
        elapsed, memory = peak_megabytes(lambda call=call, values=values: values.append(call()))
        print(f"| {name} | {values[0]:.5f} | {elapsed:.1f} | {memory:.0f} |")


def plain_evaluation(
    x: torch.Tensor, y: torch.Tensor, vx: torch.Tensor, vy: np.ndarray, test: torch.Tensor, seed: int
) -> np.ndarray:
    """The protocol head after head, each with its own order of batches; predictions on `test`."""
    config, f1s, losses, probabilities = LinearEvaluationConfig(), [], [], []
    for rate, decay in config.grid():
        on_validation, on_test = [], []
        for head in range(config.heads):
            random = torch.Generator().manual_seed(100 * seed + head)
            weight = torch.nn.Parameter(torch.empty(y.shape[1], x.shape[1]))
            bias = torch.nn.Parameter(torch.zeros(y.shape[1]))
            torch.nn.init.xavier_uniform_(weight, generator=random)
            groups = [{"params": [weight], "weight_decay": decay}, {"params": [bias], "weight_decay": 0.0}]
            optimizer = torch.optim.AdamW(groups, lr=rate)
            steps = config.epochs * -(-len(x) // 256)
            schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step, steps=steps: 1 - step / steps)
            for _ in range(config.epochs):
                for rows in torch.randperm(len(x), generator=random).split(256):
                    optimizer.zero_grad()
                    F.binary_cross_entropy_with_logits(F.linear(x[rows], weight, bias), y[rows]).backward()
                    optimizer.step()
                    schedule.step()
            with torch.no_grad():
                on_validation.append(F.linear(vx, weight, bias).sigmoid())
                on_test.append(F.linear(test, weight, bias).sigmoid())
        p = torch.stack(on_validation).mean(0).numpy()
        f1s.append(metrics.f1(vy, p >= 0.5))
        losses.append(-np.log(np.maximum(np.where(vy, p, 1 - p), 1e-40)).mean(0))
        probabilities.append(torch.stack(on_test).mean(0).numpy())
    best = np.lexsort((losses, -np.array(f1s)), axis=0)[0]
    return np.stack(probabilities)[best, :, np.arange(len(best))].T


def real_data(data_dir: Path, cache_dir: Path) -> None:
    import real_features

    print("### Real features (frozen MiniLM, mean pooling): per-label test F1 against the plain loop\n")
    print("| corpus | ours, macro-F1 of each seed | plain loop | mean difference | noise: two plain seeds, a label |")
    print("|---|---|---|---|---|")
    corpora = [real_features.load(name, data_dir, cache_dir) for name in ("semeval2018", "arxiv54")]
    results = {}
    for corpus in corpora:
        x, y, vx, vy, tx, ty = corpus.arrays()
        ours, plain = [], []
        for seed in range(4):
            config = LinearEvaluationConfig(seed=seed)
            result = linear_evaluate(x, y, vx, vy, config=config, progress=False)
            results.setdefault(corpus.name, result)
            ours.append(100 * metrics.f1(ty, metrics.decide(result.predict_proba(tx))))
        tensors = [torch.as_tensor(x), torch.as_tensor(y).float(), torch.as_tensor(vx)]
        for seed in (1, 2, 3):
            p = plain_evaluation(*tensors, vy, torch.as_tensor(tx), seed=seed)
            plain.append(100 * metrics.f1(ty, metrics.decide(p)))
        cells = [", ".join(f"{each.mean():.2f}" for each in runs) for runs in (ours, plain)]
        gap, noise = np.mean(ours) - np.mean(plain), np.abs(plain[0] - plain[1]).mean()
        print(f"| {corpus.name} | {cells[0]} | {cells[1]} | {gap:+.2f} | {noise:.2f} |", flush=True)
    print("\n### Thresholds tuned on validation scores (F1 in points; five seeds of folds)\n")
    print(
        "| corpus | objective | scope | 0.5, validation | cross-fitted gain | gain on test |\n|---|---|---|---|---|---|"
    )
    for corpus in corpora:
        _, _, vx, vy, tx, ty = corpus.arrays()
        p, q = results[corpus.name].predict_proba(vx), results[corpus.name].predict_proba(tx)
        for objective in ("macro_f1", "micro_f1"):
            for scope in ("label", "global"):
                scores = [cross_fitted_score(vy, p, objective, seed=seed, scope=scope) for seed in range(5)]
                gains = 100 * np.array([score.tuned - score.plain for score in scores])
                average = "macro" if objective == "macro_f1" else "micro"
                chosen = tune_thresholds(vy, p, objective, scope)
                test = 100 * (metrics.f1(ty, chosen.decide(q), average) - metrics.f1(ty, metrics.decide(q), average))
                print(
                    f"| {corpus.name} | {objective} | {scope} | {100 * scores[0].plain:.2f} | {gains.mean():+.2f} "
                    f"± {gains.std():.2f} | {test:+.2f} |"
                )
    print()


def feature_length(data_dir: Path, cache_dir: Path, draws: int = 4) -> None:
    """Heads of `protocol="best"` on features as they are and of length 1, on training rows that were not drawn."""
    import real_features

    print("### Features as they are, and of length 1: mAP / micro-F1 / macro-F1, thresholds tuned on 100 or 250 rows\n")
    print("| corpus | training rows | as they are | of length 1 | difference |\n|---|---|---|---|---|")
    for name in ("semeval2018", "arxiv54"):
        corpus = real_features.load(name, data_dir, cache_dir)
        y = corpus.labels["train"] > 0
        as_it_is = corpus.features["train"]
        versions = [as_it_is, as_it_is / np.linalg.norm(as_it_is, axis=1, keepdims=True)]
        for rows, judges in ((300, 100), (1000, 250)):
            found: list[list[list[float]]] = [[], []]
            for draw in range(draws):
                order = np.random.default_rng(draw).permutation(len(y))
                train, held_out, rest = np.split(order, [rows, rows + judges])
                for x, scores in zip(versions, found, strict=True):
                    config = LinearEvaluationConfig(protocol="best")
                    parts = (x[train], y[train], x[held_out], y[held_out])
                    heads = linear_evaluate(*parts, config=config, progress=False, trained_on_these=False)
                    p, q = (heads.predict_proba(x[part]) for part in (held_out, rest))
                    scores.append([metrics.mean_average_precision(y[rest], q, absent=float("nan"))])
                    for average in ("micro", "macro"):
                        rule = tune_thresholds(y[held_out], p, f"{average}_f1")
                        scores[-1].append(metrics.f1(y[rest], rule.decide(q), average))
            before, after = (100 * np.mean(scores, axis=0) for scores in found)
            cells = [" / ".join(f"{value:.1f}" for value in each) for each in (before, after)]
            gain = " / ".join(f"{value:+.1f}" for value in after - before)
            print(f"| {name} | {rows:,} | {cells[0]} | {cells[1]} | {gain} |", flush=True)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=Path, help="folder with semeval2018_ec/ and arxiv54/")
    parser.add_argument("--cache_dir", type=Path, default=Path("outputs/features"))
    parser.add_argument("--rounds", type=int, default=10)
    warnings.filterwarnings("ignore", message="This DataLoader will create 4 worker processes")  # that is the point
    parser.add_argument("--only", choices=["linear", "heads", "metrics", "real", "length"])
    arguments = parser.parse_args()
    print(f"{hardware()}\n")
    if arguments.only in (None, "linear"):
        linear_evaluation(arguments.rounds)
    if arguments.only in (None, "heads"):
        regularised_heads(min(arguments.rounds, 3))
    if arguments.only in (None, "metrics"):
        large_matrices()
        large_spaces()
    if arguments.data_dir is not None and arguments.only in (None, "real"):
        real_data(arguments.data_dir, arguments.cache_dir)
    if arguments.data_dir is not None and arguments.only in (None, "length"):
        feature_length(arguments.data_dir, arguments.cache_dir)


if __name__ == "__main__":
    main()
