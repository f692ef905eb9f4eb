"""``hf-mlcl explain``."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from hf_mlcl.cli import options
from hf_mlcl.cli.evaluate import classifier_and_rows
from hf_mlcl.cli.output import print_json, say

MAPS = ("pca", "tsne", "umap")


def explain(
    model: Annotated[str, typer.Argument(help="Output folder of a training, folder of a classifier, or Hub id.")],
    data: options.Data,
    output: Annotated[
        str | None, typer.Option(help="The page; explain.html in the output folder of MODEL, or here, if not set.")
    ] = None,
    split: options.Split = None,
    map_by: Annotated[
        str, typer.Option("--map", help="pca: at once; tsne: half a minute, better neighbourhoods; umap: an extra.")
    ] = "pca",
    data_dir: options.DataDir = None,
    text_column: options.TextColumn = None,
    label_columns: options.LabelColumns = None,
    label_delimiter: options.LabelDelimiter = None,
    size: options.Size = None,
    feature_cache_dir: Annotated[
        str | None, typer.Option(help="Keeps features for the next page of the same classifier and rows.")
    ] = None,
    trust_remote_code: options.TrustRemoteCode = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a page that shows what a classifier has learned, and where it errs.

    One HTML file, which opens from the disk: a map of the space, scores and thresholds of every label, labels that are
    confused, the nearest training examples of any row, and training rows that are probably labelled wrongly.

    `train` writes it too. Texts or small pictures of your data are in it: share it as you would share them.
    """
    from datasets import concatenate_datasets

    from hf_mlcl.data.errors import CorpusFormatError
    from hf_mlcl.data.own import cut_missing_splits
    from hf_mlcl.experiments.explaining import explain_saved
    from hf_mlcl.experiments.output_folder import OutputFolder
    from hf_mlcl.pages import write_explain_page

    if map_by not in MAPS:
        raise typer.BadParameter(f"--map must be one of {', '.join(MAPS)}; got {map_by!r}.")
    page, ours = _page(model, output)
    columns = options.columns(text_column, label_columns, label_delimiter)
    of_corpora = {"size": size, "data_dir": data_dir}
    predictor, found, rows, splits = classifier_and_rows(model, data, split, columns, of_corpora, trust_remote_code)
    test, train = concatenate_datasets(rows), None
    if found in ("validation", "test"):
        with suppress(CorpusFormatError):  # the data bring test rows and no others
            train = cut_missing_splits(splits)[0]["train"]
    say(f"Encoding {len(test) + len(train or ()):,} rows, unless they are in the cache ...")
    began = time.perf_counter()
    explained = explain_saved(predictor, test, train, split=found, data=data, cache_dir=feature_cache_dir)
    encoded = time.perf_counter()
    with OutputFolder(page.parent).writing(page.name) if ours else nullcontext():
        write_explain_page(page, explained, map_by)  # type: ignore[arg-type]  # as checked
    seconds = {"encode": round(encoded - began, 1), "page": round(time.perf_counter() - encoded, 1)}
    if as_json:
        scores = {name: value[0] for name, value in explained.scores["trained"].items()}
        about = {"page": str(page), "bytes": page.stat().st_size, "split": found, "rows": len(test)}
        print_json(about | {"seconds": seconds, "scores": scores})
        return
    print(f"{page} ({page.stat().st_size / 1e6:.1f} MB): open it in a browser.")


def _page(model: str, output: str | None) -> tuple[Path, bool]:
    """Where the page goes, and whether that is the output folder of a training, which knows what is its own."""
    from hf_mlcl.experiments.output_folder import OutputFolder
    from hf_mlcl.experiments.results import PAGE_FILE
    from hf_mlcl.models.loading import model_within

    if output is not None:
        page = Path(output)
        if page.suffix not in (".html", ".htm"):
            raise typer.BadParameter(f"--output must be a file that ends in .html; got {output!r}.")
        return page, False
    inner = Path(model_within(model))
    folder = OutputFolder(inner.parent)
    if inner != Path(model) and folder.hidden.is_dir():
        folder.check_replaceable(PAGE_FILE)
        return folder.path / PAGE_FILE, True
    page = Path(PAGE_FILE) if inner == Path(model) else folder.path / PAGE_FILE
    if page.exists():  # whose it is, nobody knows
        raise typer.BadParameter(f"{page} is there already. Name it with --output to replace it, or name another file.")
    return page, False
