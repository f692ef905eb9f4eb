"""``hf-mlcl predict``."""

from __future__ import annotations

import csv
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from hf_mlcl.cli.options import AsJson, Model, TextColumn, TrustRemoteCode
from hf_mlcl.cli.output import print_table, quiet_libraries, say
from hf_mlcl.files import whole_file

if TYPE_CHECKING:
    from hf_mlcl.experiments.prediction import Prediction, Predictor

LONGEST = 60
"""Characters of a text that a table shows."""
BEGINNING = 8192
NO_TEXT = {b"\xff\xfe": "in UTF-16", b"\xfe\xff": "in UTF-16", b"%PDF": "a PDF", b"PK\3\4": "an archive (as .xlsx is)"}
NO_TEXT |= {b"\x1f\x8b": "packed"}
"""What files that are no text in UTF-8 begin with. Bytes of other kinds have a zero among the first."""
TOLD = 5
"""Rows that failed of which stderr tells the reason; the output has it for all."""

Found = dict[str, Any]
"""Of one row: ``input``, ``labels`` with their scores, ``decided`` and ``probabilities``, or ``error``."""
Write = Callable[[list[Found]], None]
Near = Callable[[list[Any]], list[list[dict[str, Any]]]]
"""Finds the nearest examples of each input."""


def predict(
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Texts, images, files (.txt with one per line, .csv, .jsonl, .parquet), folders, or - for stdin."
        ),
    ],
    model: Model = None,
    text_column: TextColumn = None,
    threshold: Annotated[float | None, typer.Option(help="Instead of the thresholds saved with the model.")] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Show the probability of every label.")] = False,
    top: Annotated[int | None, typer.Option(min=1, help="Show so many labels, the most probable ones.")] = None,
    neighbours: Annotated[
        int | None, typer.Option(min=1, help="Show so many of the nearest training examples of each input.")
    ] = None,
    examples: Annotated[
        str | None, typer.Option(help="Data to take them from, as for `train`; those of the training if not set.")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(help="Write a CSV file: input, labels, one column per label, error; with --json a JSON file."),
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
    as_json: AsJson = False,
) -> None:
    """Predict the labels of texts or images.

    `hf-mlcl predict "some text"` uses the classifier that was trained last; it says which. A label counts if its
    probability reaches its threshold, which stands beside it.

    Rows are predicted as they are read, so that any number of them takes the same memory. A row that cannot be
    predicted stops no other: its line of the output says why, and the exit code is 1.
    """
    from hf_mlcl.experiments.prediction import Predictor, training_settings
    from hf_mlcl.metrics import DecisionRule

    if threshold is not None and not 0 <= threshold <= 1:
        raise ValueError(f"--threshold must be between 0 and 1; got {threshold}.")
    if output is not None and Path(output).is_dir():
        raise ValueError(f"--output must be a file, but {output!r} is a folder. Name a file in it.")
    if output is not None and Path(output).resolve() in {Path(one).resolve() for one in inputs if os.path.isfile(one)}:
        raise ValueError(f"--output is {output!r}, which is to be read: its columns would be lost. Name another file.")
    if scores and top is not None:
        raise typer.BadParameter("--scores shows every label, and --top some of them. Give one of the two.")
    if examples is not None and neighbours is None:
        raise typer.BadParameter("--examples are for --neighbours, which says how many to show.")
    if neighbours is not None and output is not None and not as_json:
        raise typer.BadParameter("A CSV file has no place for --neighbours. Add --json, or leave out --output.")
    quiet_libraries()
    predictor = Predictor(chosen_model(model), trust_remote_code=trust_remote_code)
    if threshold is not None:
        predictor.rule = DecisionRule(threshold)
    # Every argument is looked at before anything is predicted; what is in the files is read as it is needed.
    trained: Mapping[str, Any] = {}
    with suppress(ValueError):  # a damaged record of the training is no reason not to predict
        trained = training_settings(predictor.model)
    sources = [expand(one, predictor.modality, text_column, trained) for one in inputs]
    near = None if neighbours is None else _nearest(predictor, neighbours, examples)
    most = len(predictor.label_names) if scores else top
    batches = _found(predictor, itertools.chain.from_iterable(sources), most, near)
    begin = list(itertools.islice(batches, 2))
    if not begin:
        raise ValueError(f"There is nothing to predict in {', '.join(inputs)}.")
    _write(itertools.chain(begin, batches), predictor, output, as_json, is_long=len(begin) > 1)


def _write(
    batches: Iterable[list[Found]], predictor: Predictor, output: str | None, as_json: bool, is_long: bool
) -> None:
    """Print or write what is found as it comes, and tell of rows that failed."""
    count = failed = 0
    with ExitStack() as open_files:
        file: TextIO = sys.stdout
        if output is not None:
            draft = open_files.enter_context(whole_file(output))
            file = open_files.enter_context(draft.open("w", newline="", encoding="utf-8"))
        if as_json:
            write = open_files.enter_context(_as_json(file))
        elif output is not None:
            write = _as_csv(file, predictor.label_names)
        else:
            write = _as_lines(predictor.modality, is_long)
        for batch in batches:
            write(batch)
            file.flush()
            for one in batch:
                count += 1
                failed += "error" in one
                if "error" in one and failed <= TOLD:
                    say(f"hf-mlcl: row {count} has no prediction: {one['error']}")
    if output is not None:
        say(f"{count - failed} predictions are in {output}")
    if failed:
        say(f"hf-mlcl: {failed} of {count} rows have no prediction; the output says which and why.")
        raise typer.Exit(1)


def chosen_model(model: str | None) -> str:
    """The classifier that was asked for, or else the newest one, which is named."""
    from hf_mlcl.experiments.prediction import newest_classifier

    if model is not None:
        return model
    newest = newest_classifier()
    if newest is None:
        raise ValueError(
            "There is no classifier here, nor under outputs/. Train one (hf-mlcl demo, hf-mlcl train DATA), or name "
            "one: --model."
        )
    say(f"Using {newest}")
    return str(newest)


def expand(
    given: str, modality: str, text_column: str | None = None, trained: Mapping[str, Any] | None = None
) -> Iterable[Any]:
    """The texts or paths of images that a text, a file, a folder, or - for standard input stands for.

    Files are read while one goes through them; of a table the column that `content_of` takes, which is told.

    Examples:
        >>> list(expand("an ordinary text", "text"))
        ['an ordinary text']
    """
    from hf_mlcl.data.own import content_of
    from hf_mlcl.data.own_files import IMAGE_ENDINGS, READERS
    from hf_mlcl.data.sources import OPENERS

    if not given.strip():
        raise ValueError("An empty text has no labels: give a text, a file, a folder, or - for standard input.")
    if given == "-":
        return _lines("standard input", sys.stdin.buffer)
    path = Path(given)
    endings = {"text": (".txt",), "image": IMAGE_ENDINGS}.get(modality, (".txt", *IMAGE_ENDINGS))
    if os.path.isdir(given):  # False, where pathlib raises, for a text that is too long for a name
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in endings and file.is_file())
        return itertools.chain.from_iterable([expand(str(file), modality) for file in files])
    packed = path.suffix.lower() in OPENERS
    is_table = (path.with_suffix("") if packed else path).suffix.lower() in READERS
    if os.path.isfile(given):
        if is_table:
            rows, column = content_of(path, modality, text_column, trained)
            if text_column is None:
                say(f"Reading column {column!r} of {given}")
            return (_not_empty(f"row {number} of {given}", row) for number, row in enumerate(rows, 1))
        if modality == "image":
            return [given]
        if modality == "text+image" and path.suffix.lower() in IMAGE_ENDINGS:
            return [path]
        if path.suffix.lower() in IMAGE_ENDINGS:
            raise ValueError(f"This classifier takes texts; {given} is an image.")
        _check_text(path)
        return _lines(str(path))
    if modality == "image":
        raise ValueError(f"{given!r} is not a file or a folder, but this classifier takes images.")
    if is_table or path.suffix.lower() in (*IMAGE_ENDINGS, ".txt"):
        raise ValueError(f"The file {given!r} is not there.")
    return [given]


def _check_text(path: Path) -> None:
    """Raise for a file that is no text in UTF-8, whose lines would be taken for texts."""
    with path.open("rb") as file:
        start = file.read(BEGINNING)
    kind = next((kind for mark, kind in NO_TEXT.items() if start.startswith(mark)), "no text" if b"\0" in start else "")
    if kind:
        raise ValueError(f"{path} is {kind}: expected texts in UTF-8, one per line, or a .csv, .jsonl or .parquet.")


def _lines(source: str, lines: Iterable[bytes] | None = None) -> Iterator[str | Prediction]:
    r"""A text per line of a file. Lines end with \n alone: what else Python would split at occurs within texts."""
    from hf_mlcl.experiments.prediction import Prediction

    with Path(source).open("rb") if lines is None else nullcontext(lines) as file:
        for number, line in enumerate(file, 1):
            place = f"line {number} of {source}"
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                reason = f"{place} is not UTF-8 (byte 0x{line[error.start]:02x}). Convert it first: "
                text = line.decode("utf-8", errors="replace").rstrip("\r\n")
                yield Prediction(text, error=f"{reason}iconv -f LATIN1 -t UTF-8")
            else:
                yield _not_empty(place, text)


def _not_empty(place: str, row: Any) -> Any:
    from hf_mlcl.experiments.prediction import Prediction

    return Prediction(row, error=f"{place} is empty") if isinstance(row, str) and not row.strip() else row


def _nearest(predictor: Predictor, count: int, data: str | None) -> Near:
    """Finds the nearest examples of inputs, among the rows that the classifier learned from or among others."""
    from hf_mlcl.experiments.examples import Examples, training_rows

    rows = training_rows(predictor.model, data)
    known = Examples.of(predictor, rows)
    if len(known.content) < len(rows):
        say(f"Looking for neighbours among {len(known.content):,} of {len(rows):,} training rows.")
    return lambda inputs: known.nearest(predictor, inputs, count)


def _found(
    predictor: Predictor, rows: Iterable[Any], most: int | None, near: Near | None = None
) -> Iterator[list[Found]]:
    """What is found for each row, a batch at a time: the labels that it is given, or the `most` probable ones."""
    cuts = predictor.rule.per_label(len(predictor.label_names))
    for batch in predictor.predictions(rows):
        good = [one.row for one in batch if one.probabilities is not None]
        neighbours = iter(near(good) if near and good else [])
        found: list[Found] = []
        for one in batch:
            shown = _shown(one.row).encode(errors="replace").decode()  # an argument may hold bytes that are no text
            if one.probabilities is None:
                found.append({"input": shown, "labels": [], "error": one.error})
                continue
            probabilities, decided = one.probabilities, predictor.rule.decide(one.probabilities[None])[0]
            order = (-probabilities).argsort()
            labels = [
                {
                    "label": predictor.label_names[i],
                    "score": round(float(probabilities[i]), 4),
                    **({} if predictor.rule.single_label else {"threshold": round(cuts[i], 4)}),
                    **({} if most is None else {"given": bool(decided[i])}),
                }
                for i in (order[:most] if most is not None else order[decided[order]])
            ]
            found.append({"input": shown, "labels": labels, "decided": decided, "probabilities": probabilities})
            if near is not None:
                found[-1]["neighbours"] = next(neighbours)
        yield found


def _shown(row: Any) -> str:
    """An input in print; of a text with an image, the text and the name of the file.

    Examples:
        >>> _shown({"text": "A heist", "image": "posters/17.jpg"}), _shown({"text": None, "image": "posters/17.jpg"})
        ('A heist [17.jpg]', '[17.jpg]')
    """
    if not isinstance(row, Mapping):
        return str(row)
    image = f"[{Path(row['image']).name}]" if row.get("image") else ""
    return " ".join(filter(None, [row.get("text"), image]))


@contextmanager
def _as_json(file: TextIO) -> Iterator[Write]:
    """One array; it is closed once every row has been written, so that a program cannot take a part for the whole."""
    separator = itertools.chain("[", itertools.repeat(","))

    def write(batch: list[Found]) -> None:
        for one in batch:
            shown = {name: one[name] for name in ("input", "labels", "neighbours", "error") if name in one}
            file.write(f"{next(separator)}\n{json.dumps(shown, ensure_ascii=False)}")

    yield write
    file.write("\n]\n")


def _as_csv(file: TextIO, names: Sequence[str]) -> Write:
    writer = csv.writer(file)
    own = ("input", "labels", "error")
    writer.writerow(["input", "labels", *(f"{name} (label)" if name in own else name for name in names), "error"])

    def write(batch: list[Found]) -> None:
        for one in batch:
            if "error" in one:
                writer.writerow([one["input"], "", *[""] * len(names), one["error"]])
                continue
            labels = "|".join(name for name, is_chosen in zip(names, one["decided"], strict=True) if is_chosen)
            writer.writerow([one["input"], labels, *(f"{value:.6f}" for value in one["probabilities"]), ""])

    return write


def _as_lines(modality: str, is_long: bool) -> Write:
    """A table of the rows of one batch; more of them as lines of a fixed width, since nobody waits for the last."""
    if is_long:
        print(f"{modality:<{LONGEST}}  labels")

    def write(batch: list[Found]) -> None:
        cells = []
        for one in batch:
            labels = ", ".join(map(_reason, one["labels"])) or "(none)"
            cells.append([_short(one["input"]), f"(failed: {one['error']})" if "error" in one else labels])
            cells += [
                [f"  {near['similarity']:.2f} {_short(near['example'])}", ", ".join(near["labels"]) or "(none)"]
                for near in one.get("neighbours", ())
            ]
        if not is_long:
            print_table([modality, "labels"], cells)
            return
        for text, labels in cells:
            print(f"{text:<{LONGEST}}  {labels}")

    return write


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONGEST else flat[: LONGEST - 1] + "…"


def _reason(hit: Mapping[str, Any]) -> str:
    """A label, its score, and why it counts or not: ``drama 0.31 ≥ 0.12``."""
    said = f"{hit['label']} {hit['score']:.2f}"
    if "threshold" not in hit:
        return said
    reaches = hit.get("given", True)
    digits = 2 if (f"{hit['score']:.2f}" >= f"{hit['threshold']:.2f}") == reaches else 4  # so that it can be seen
    return f"{hit['label']} {hit['score']:.{digits}f} {'≥' if reaches else '<'} {hit['threshold']:.{digits}f}"
