"""The pictures of `docs/evaluation.md`, from real features.

    python benchmarks/evaluation_figures.py --data_dir DATA --cache_dir CACHE --output docs/images

The encoder stays frozen: a projection head and prototypes are trained on its features with the losses `reg` and
`wo_reg` (a few seconds each), which is enough to see in the embedding space what the losses do to it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

import evaluation_drawings as drawings
import real_features
from hf_mlcl import MLCLModel, build_loss, evaluation, metrics
from hf_mlcl.colours import DPI
from hf_mlcl.evaluation import figures
from hf_mlcl.inference import ExampleIndex

TEMPERATURES = (0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
BATCH = 256


@dataclass(frozen=True)
class Space:
    """Raw embeddings of the validation split, and prototypes."""

    embeddings: np.ndarray
    prototypes: np.ndarray


def train_projection(
    corpus: real_features.Corpus, temperature: float = 0.1, loss: str = "reg", epochs: int = 20
) -> Space:
    """A projection head W2 relu(W1 x) and prototypes over frozen features."""
    torch.manual_seed(0)
    x, y = torch.as_tensor(corpus.features["train"]), torch.as_tensor(corpus.labels["train"])
    model = MLCLModel.from_features(x.shape[1], corpus.label_names, num_layers=0)
    objective = build_loss(loss, temperature=temperature)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * (len(x) // BATCH))
    for _ in range(epochs):
        for rows in torch.randperm(len(x))[: len(x) // BATCH * BATCH].split(BATCH):
            output = model(feature_values=x[rows])
            optimizer.zero_grad()
            objective(output.embeddings, y[rows], output.prototypes).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        output = model(feature_values=torch.as_tensor(corpus.features["validation"]))
    return Space(output.embeddings.numpy(), output.prototypes.numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data_dir", type=Path, required=True, help="folder with semeval2018_ec/ and arxiv54/")
    parser.add_argument("--cache_dir", type=Path, default=Path("outputs/features"))
    parser.add_argument("--output", type=Path, default=Path("docs/images"))
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)

    def save(name: str, figure: Figure) -> None:
        path = arguments.output / f"evaluation_{name}.png"
        figure.savefig(path, dpi=DPI)
        print(f"wrote {path.name}, {path.stat().st_size // 1000} kB", flush=True)

    tweets, papers = (
        real_features.load(name, arguments.data_dir, arguments.cache_dir) for name in ("semeval2018", "arxiv54")
    )
    corpora = {"SemEval": tweets, "arXiv": papers}

    result = evaluation.linear_evaluate(*papers.arrays(), progress=False)
    save("learning_curves", drawings.draw_learning_curves(result))
    x, y = papers.features["test"], papers.labels["test"]
    p = result.predict_proba(x)
    thresholds = evaluation.tune_thresholds(
        papers.labels["validation"], result.predict_proba(papers.features["validation"])
    )
    train = papers.labels["train"]
    plain = evaluation.f1_by_frequency(y, metrics.decide(p), train, papers.label_names)
    tuned = evaluation.f1_by_frequency(y, thresholds.decide(p), train, papers.label_names)
    save("f1_by_frequency", figures.draw_f1_by_frequency({"threshold 0.5": plain, "tuned thresholds": tuned}))
    save("comparison", drawings.draw_comparison({"0.5": plain, "tuned": tuned}))

    spaces = {name: train_projection(corpus) for name, corpus in corpora.items()}
    unregularised = {name: train_projection(corpus, loss="wo_reg") for name, corpus in corpora.items()}
    quality = {}
    for name, corpus in corpora.items():
        labels = corpus.labels["validation"]
        quality[f"{name}, frozen features"] = evaluation.space_quality(corpus.features["validation"], labels)
        quality[f"{name}, wo_reg"] = evaluation.space_quality(unregularised[name].embeddings, labels)
        quality[f"{name}, reg"] = evaluation.space_quality(spaces[name].embeddings, labels)
    save("space_quality", drawings.draw_space_quality(quality))
    for name, space in quality.items():
        print(f"{name}: alignment {space['alignment']:.3f}, uniformity {space['uniformity']:.3f}")

    ratios = {}
    for name, corpus in corpora.items():
        labels = corpus.labels["validation"]
        own, fixed = [], spaces[name]
        for temperature in TEMPERATURES:
            space = train_projection(corpus, temperature) if temperature != 0.1 else fixed
            own += evaluation.prr_by_temperature(space.embeddings, labels, [temperature], space.prototypes).tolist()
        ratios[f"{name}, trained at each temperature"] = own
        moved = evaluation.prr_by_temperature(fixed.embeddings, labels, TEMPERATURES, fixed.prototypes)
        ratios[f"{name}, trained at 0.1"] = moved.tolist()
    save("prr", figures.draw_prr(TEMPERATURES, ratios))
    for name, values in ratios.items():
        print(name, [f"{t:g}: {100 * value:.1f} %" for t, value in zip(TEMPERATURES, values, strict=True)])

    study = evaluation.gradient_study(
        unregularised["arXiv"].embeddings[:BATCH],
        papers.labels["validation"][:BATCH],
        unregularised["arXiv"].prototypes,
    )
    wrong_share = study.wrong / (study.attraction + study.wrong)
    print(f"gradient study: PRR {study.prr:.3f}, wrong share {wrong_share:.3f}, pull {study.attraction:.3f}")
    print(f"  push on positives {study.wrong:.3f}, on negatives {study.repulsion:.3f}")
    save("gradient_study", drawings.draw_gradient_study(study))

    prototypes = spaces["SemEval"].prototypes
    similarity = evaluation.prototype_similarities(prototypes)
    save("similarities", figures.draw_similarities(similarity, tweets.label_names))
    print(evaluation.most_similar_labels(prototypes, tweets.label_names, k=5))
    neighbours = ExampleIndex(spaces["SemEval"].embeddings).search(prototypes, k=20)
    share = {
        name: tweets.labels["validation"][rows, i].mean()
        for i, (name, rows) in enumerate(zip(tweets.label_names, neighbours.rows, strict=True))
    }
    print("of the 20 nearest, carry the label:", {name: f"{value:.0%}" for name, value in share.items()})

    for method in ("pca", "tsne"):
        points = evaluation.project_2d(spaces["arXiv"].embeddings, method)
        save(f"map_{method}", figures.draw_map(points, papers.labels["validation"], papers.label_names))


if __name__ == "__main__":
    main()
