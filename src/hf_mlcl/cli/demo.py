"""``hf-mlcl demo``: the printing around ``recipes/quickstart.py``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from hf_mlcl.cli.libraries import quiet_libraries
from hf_mlcl.cli.output import print_json, print_table, say

EXAMPLE = "some text"


def run(
    corpus: str,
    losses: Sequence[str],
    epochs: float | None,
    seed: int,
    output_dir: str,
    further: Sequence[str],
    as_json: bool,
) -> None:
    """Train with every loss, print a table, draw a picture, keep the best classifier.

    Args:
        corpus: A built-in corpus.
        losses: Losses by name.
        epochs: Training epochs.
        seed: Of weights and batches.
        output_dir: Where to put everything.
        further: Arguments of the training, as they came.
        as_json: For programs.
    """
    from hf_mlcl.experiments.parsing import parse_settings
    from hf_mlcl.losses import build_loss
    from hf_mlcl.recipes.quickstart import METRICS, compare, draw, keep_best

    if corpus not in ("toy_text", "toy_images"):
        raise typer.BadParameter(f"--corpus must be toy_text or toy_images, which are built in; got {corpus!r}.")
    try:
        for loss in losses:
            build_loss(loss)
        settings = parse_settings(further)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    quiet_libraries()
    if epochs is not None:
        settings["num_train_epochs"] = epochs
    say(f"Training a small encoder on {corpus} with {len(losses)} losses, one after the other")
    results = []
    for result in compare(corpus, losses, {**settings, "seed": seed}, output_dir):
        results.append(result)
        score, seconds = result.metrics["test_macro_f1"], result.seconds["total"]
        say(f"  {result.settings['loss']:<10} macro-F1 {score:.4f} after {seconds:.0f} s")
    best, classifier = keep_best(results, output_dir)
    picture = Path(output_dir) / "scores.png"
    draw(results).savefig(picture, dpi=110)
    if as_json:
        scores = {str(one.settings["loss"]): one.metrics for one in results}
        print_json({"scores": scores, "picture": str(picture), "best": best, "classifier": str(classifier)})
        return
    rows = [
        [one.settings["loss"], *(one.metrics[f"test_{name}"] for name in METRICS), round(one.seconds["total"])]
        for one in results
    ]
    print_table(["loss", *METRICS, "seconds"], rows, title=f"\n{corpus}, test split")
    print(f"\nPicture:     {picture}\nClassifier:  {classifier} ({best}, the best on the validation split)")
    example = f'"{EXAMPLE}"' if corpus == "toy_text" else "picture.jpg"
    print(f"Try it:      hf-mlcl predict {example}")
