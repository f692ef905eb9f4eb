"""``hf-mlcl explain``."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from hf_mlcl.cli.options import AsJson, LabelColumns, LabelDelimiter, TextColumn, TrustRemoteCode, names
from hf_mlcl.cli.output import print_json, quiet_libraries, say

Map = Literal["pca", "tsne", "umap"]


def explain(
    model: Annotated[str, typer.Argument(help="Output folder of a training, folder of a classifier, or Hub id.")],
    data: Annotated[str, typer.Argument(help="As for `train`: file, folder, Hub dataset, or a corpus by name.")],
    output: Annotated[
        str | None, typer.Option(help="The page; explain.html in the output folder of MODEL, or here, if not set.")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="train, validation, test, or all; what the classifier has not seen if not set.")
    ] = None,
    map_by: Annotated[
        str, typer.Option("--map", help="pca: at once; tsne: half a minute, better neighbourhoods; umap: an extra.")
    ] = "pca",
    data_dir: Annotated[str | None, typer.Option(help="Folder with the official files of a corpus.")] = None,
    text_column: TextColumn = None,
    label_columns: LabelColumns = None,
    label_delimiter: LabelDelimiter = None,
    size: Annotated[
        str | None, typer.Option(help="full or small version of a corpus; as in training if not set.")
    ] = None,
    feature_cache_dir: Annotated[
        str | None, typer.Option(help="Keeps features for the next page of the same classifier and rows.")
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Write a page that shows what a classifier has learned, and where it errs.

    One HTML file, which opens from the disk: a map of the space, scores and thresholds of every label, labels that are
    confused, the nearest training examples of any row, and training rows that are probably labelled wrongly.

    `train` writes it too. Texts or small pictures of your data are in it: share it as you would share them.
    """
    from hf_mlcl.experiments.explaining import explain_saved
    from hf_mlcl.experiments.output_folder import OutputFolder
    from hf_mlcl.experiments.prediction import Predictor
    from hf_mlcl.pages import write_explain_page

    if map_by not in get_args(Map):
        raise typer.BadParameter(f"--map must be one of {', '.join(get_args(Map))}; got {map_by!r}.")
    page, ours = _page(model, output)
    quiet_libraries()
    columns = {"text_column": text_column, "label_columns": names(label_columns), "label_delimiter": label_delimiter}
    found, test, train = _rows(model, data, split, columns, data_dir, size)
    predictor = Predictor(model, trust_remote_code=trust_remote_code)
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


def _rows(
    model: str, data: str, split: str | None, columns: dict[str, Any], data_dir: str | None, size: str | None
) -> tuple[str, Any, Any]:
    """The name of the split, its rows, and the training rows; None where the data have none."""
    from datasets import concatenate_datasets

    from hf_mlcl.cli.evaluate import SPLITS, check_data_options, corpus_splits, own_rows
    from hf_mlcl.data.errors import CorpusFormatError

    if check_data_options(data, split, columns, {"size": size, "data_dir": data_dir}):
        found = split or "test"
        splits = corpus_splits(data, data_dir, size, model)
        chosen = [splits[name] for name in (SPLITS if found == "all" else (found,)) if name in splits]
        train = splits.get("train")
    else:
        found, chosen = own_rows(data, split, columns, model)
        train = None
        with suppress(CorpusFormatError):  # the data bring test rows and no others
            if found in ("validation", "test"):
                _, (train,) = own_rows(data, "train", columns, model, tells=False)
    return found, concatenate_datasets(chosen), train if found in ("validation", "test") else None
