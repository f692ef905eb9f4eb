"""``hf-mlcl demo``: the printing around ``recipes/quickstart.py``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from hf_mlcl.cli.options import AsJson, further_settings, names
from hf_mlcl.cli.output import print_json, print_table, quiet_libraries, say


def demo(
    ctx: typer.Context,
    corpus: Annotated[Literal["toy_text", "toy_images"], typer.Option(help="Both are built in.")] = "toy_text",
    losses: Annotated[str, typer.Option(help="Losses to compare, separated by commas.")] = "bce,zlpr,reg,reg+zlpr",
    epochs: Annotated[float | None, typer.Option(help="Training epochs; the recipe's if not set.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of weights and batches; 0 if not set.")] = None,
    output_dir: Annotated[str | None, typer.Option(help="Where to put everything; outputs/demo if not set.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare four losses on a built-in corpus: a table, a picture, a classifier. Three to six minutes, no download.

    Every loss trains the same small encoder from nothing for the same epochs. Afterwards
    `hf-mlcl predict "some text"` uses the best classifier.
    """
    from hf_mlcl.colours import DPI
    from hf_mlcl.losses import build_loss
    from hf_mlcl.recipes.quickstart import METRICS, compare, draw, explain_best, keep_best

    settings = {"seed": 0, "output_dir": "outputs/demo", **further_settings(ctx.args)}
    for name, value in {"seed": seed, "output_dir": output_dir, "num_train_epochs": epochs}.items():
        if value is not None:
            settings[name] = value
    for name, instead in {"loss": "--losses", "corpus": "--corpus"}.items():
        if name in settings:
            raise typer.BadParameter(
                f"{name}={settings[name]!r} is not for the demo, which compares: {instead} sets it."
            )
    output_dir = str(settings.pop("output_dir"))
    chosen = names(losses) or []
    try:
        for loss in chosen:
            build_loss(loss)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    quiet_libraries()
    say(f"Training a small encoder on {corpus} with {len(chosen)} losses")
    results = []
    for result in compare(corpus, chosen, settings, output_dir):
        results.append(result)
        score, seconds = result.metrics["test_macro_f1"], result.seconds["total"]
        say(f"  {result.settings['loss']:<10} macro-F1 {score:.4f} after {seconds:.0f} s")
    best, classifier = keep_best(results, output_dir)
    page = explain_best(results, output_dir)
    picture = Path(output_dir) / "scores.png"
    draw(results).savefig(picture, dpi=DPI)
    if as_json:
        scores = {str(one.settings["loss"]): one.metrics for one in results}
        print_json(
            {"scores": scores, "picture": str(picture), "best": best, "classifier": str(classifier), "page": str(page)}
        )
        return
    rows = [
        [one.settings["loss"], *(one.metrics[f"test_{name}"] for name in METRICS), round(one.seconds["total"])]
        for one in results
    ]
    print_table(["loss", *METRICS, "seconds"], rows, title=f"\n{corpus}, test split")
    print(f"\nPicture:     {picture}\nClassifier:  {classifier} ({best}, the best on the validation split)")
    print(f"Page:        {page} (what it has learned: open it in a browser)")
    example = '"some text"' if corpus == "toy_text" else "picture.jpg"
    print(f"Try it:      hf-mlcl predict {example}")
