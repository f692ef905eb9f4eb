"""The page of a classifier: where its rows lie, what it makes of its labels, and which labels are doubtful."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from hf_mlcl.files import whole_file
from hf_mlcl.metrics import DecisionRule, frequency_groups
from hf_mlcl.pages import charts, numbers
from hf_mlcl.pages.html import data_uri, excerpt, render, thumbnail
from hf_mlcl.pages.suspicious import Suspicion, expected_labels, suspicious_rows

Flags = npt.NDArray[np.bool_]
Map = Literal["pca", "tsne", "umap"]

ROWS = {"text": 5000, "image": 2000}
"""Rows on the map, at most: more would be a blot, and a page of tens of megabytes."""
NEAREST = {"text": 5, "image": 3}
"""Training examples that are shown with a row."""
TRAINING_ROWS = 20_000
"""Among which neighbours and doubtful labels are looked for, at most."""
LISTED, IN_CSV = 100, 1000
"""Suspicious rows on the page, and in the file that it offers."""
TEXT_BYTES, TEXT_LENGTHS = 4_500_000, (400, 280, 200, 140, 100)
"""Of all texts together, and the lengths that they may be cut to."""
IMAGE_BYTES, SIDES = 7_500_000, {96: 4300, 64: 2400, 48: 1600}
"""Of all thumbnails together, and about how much one of a side takes."""
MAP_NAMES = {"pca": "PCA", "tsne": "t-SNE", "umap": "UMAP"}


@dataclass(frozen=True)
class Split:
    """Rows of a split.

    Attributes:
        inputs: Texts or PIL images; see `Explained.modality`.
        labels: Multi-hot (rows, labels).
        features: (rows, size), of the encoder.
        places: Where each row was read, such as ``reviews.csv, line 7``; if not given, rows are counted from 1.
    """

    inputs: Sequence[Any] = field(repr=False)
    labels: Flags = field(repr=False)
    features: npt.NDArray[np.float32] = field(repr=False)
    places: Sequence[str] | None = field(default=None, repr=False)

    def place(self, row: int, split: str) -> str:
        """What the page calls a row of this split."""
        return f"{split} row {row + 1}" if self.places is None else self.places[row]

    def __post_init__(self) -> None:
        if self.places is not None and len(self.places) != len(self.inputs):
            raise ValueError(f"places must have one text for each of {len(self.inputs)} rows; got {len(self.places)}.")
        if not len(self.inputs) == len(self.labels) == len(self.features):
            found = f"{len(self.inputs)}, {len(self.labels)} and {len(self.features)}"
            raise ValueError(f"inputs, labels and features must have the same number of rows; got {found}.")


@dataclass(frozen=True)
class Explained:
    """What a page tells of a classifier.

    Attributes:
        title: Heading of the page.
        modality: ``"text"``, ``"image"``, or ``"text+image"`` for rows that are mappings with one or both of them.
        label_names: In the order of their ids.
        rule: What the classifier decides by.
        test: Rows that it is judged on.
        probabilities: Of every label of these rows.
        split: What these rows are called.
        train: Rows that it was trained on, for neighbours and doubtful labels; None if they are not at hand.
        train_counts: Training rows of each label, where `train` has some of them only.
        facts: What the model is, heading by heading.
        scores: Of each classifier by name (``frozen``, ``trained``, ``gain``) a mapping from metrics to a value and the
            ends of its interval, as `hf_mlcl.experiments.verdict.side_by_side` gives them.
    """

    title: str
    modality: Literal["text", "image", "text+image"]
    label_names: Sequence[str]
    rule: DecisionRule
    test: Split
    probabilities: npt.NDArray[np.float32] = field(repr=False)
    split: str = "test"
    train: Split | None = None
    train_counts: Sequence[int] | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)

    @property
    def counts(self) -> npt.NDArray[np.int64] | None:
        """Training rows of each label, where they are known."""
        if self.train_counts is not None:
            return np.asarray(self.train_counts)
        return None if self.train is None else np.asarray(self.train.labels.sum(0))

    @property
    def heaviest(self) -> str:
        """What takes the most place of a row: its image where it has one."""
        return "image" if "image" in self.modality else "text"

    def __post_init__(self) -> None:
        expected = (len(self.test.labels), len(self.label_names))
        if self.probabilities.shape != expected or self.test.labels.shape != expected:
            found = f"{self.probabilities.shape} and {self.test.labels.shape}"
            raise ValueError(f"probabilities and test.labels must have the shape {expected}; got {found}.")
        if not len(self.test.labels):
            raise ValueError("test has no rows: there is nothing to explain.")


def write_explain_page(path: str | os.PathLike[str], explained: Explained, map_by: Map = "pca") -> Path:
    """Write the page, all of it or nothing.

    Args:
        path: Of the HTML file.
        explained: What to show.
        map_by: How features become a map: ``"pca"`` takes a second, ``"tsne"`` keeps neighbourhoods and takes half a
            minute for a few thousand rows, ``"umap"`` needs `pip install hf-mlcl[umap]`.

    Examples:
        >>> import tempfile
        >>> labels = np.eye(2, dtype=bool)[np.arange(40) % 2]
        >>> rows = Split(["a text"] * 40, labels, np.random.default_rng(0).random((40, 8), np.float32))
        >>> scores = labels.astype(np.float32)
        >>> one = Explained("Two labels", "text", ["joy", "anger"], DecisionRule(), rows, scores, train=rows)
        >>> page = write_explain_page(Path(tempfile.mkdtemp()) / "explain.html", one)
        >>> "Two labels" in page.read_text(encoding="utf-8")
        True
    """
    html = _html(explained, map_by)
    with whole_file(path) as draft:
        draft.write_text(html, encoding="utf-8")
    return Path(path)


def _html(one: Explained, map_by: Map) -> str:
    names, truth, p = list(one.label_names), one.test.labels, one.probabilities
    decided, cuts = one.rule.decide(p), one.rule.per_label(len(names))
    counts = one.counts
    table = numbers.label_table(truth, p, one.rule, None if counts is None else counts.tolist())
    frequencies = [row["rows"] if counts is None else row["train"] for row in table]
    rare = set(frequency_groups(truth.sum(0) if counts is None else counts)["tail"].tolist())
    searched = _some(0 if one.train is None else len(one.train.labels), TRAINING_ROWS)
    suspicions: list[Suspicion] = []
    if one.train is not None and len(searched) >= 2 * numbers.BINS:
        labels = one.train.labels[searched]
        found = suspicious_rows(labels, expected_labels(one.train.features[searched], labels), IN_CSV)
        suspicions = [each._replace(row=int(searched[each.row])) for each in found]
    rows, examples, length = _rows(one, decided, rare, map_by, searched, suspicions)
    matrix = numbers.confusions(truth, decided, names)
    couples = numbers.pairs(truth, decided, names)
    specs = {
        "map": charts.space_map(names, one.modality.split("+"), MAP_NAMES[map_by]),
        "frequency": charts.f1_by_frequency(
            _frequency_title(table, frequencies), f"{one.split} rows" if counts is None else "training rows"
        ),
        "threshold": charts.threshold_chart(names, cuts),
        "reliability": charts.reliability_chart(names),
        "confusions": charts.confusion_matrix(
            list(dict.fromkeys(cell["kind"] for cell in matrix)), len({cell["first"] for cell in matrix})
        ),
        "pairs": charts.pair_chart(max((max(c["labels"], c["predictions"]) for c in couples), default=1)),
    }
    datasets = {
        "rows": rows,
        "labels": _frequency_points(table, frequencies, names),
        "curves": numbers.threshold_curves(truth, p),
        "reliability": numbers.reliability(truth, p),
        "confusions": matrix,
        "pairs": couples,
    }
    data = {"charts": specs, "datasets": datasets, "examples": examples, "labelNames": names, "thresholds": cuts}
    listed = [_listed(one, each, examples, length) for each in suspicions]
    scores = _told_apart(one.scores)
    return render(
        "explain.html.jinja",
        data,
        one=one,
        table=list(zip(names, table, strict=True)),
        rare=[names[label] for label in sorted(rare)],
        shown=len(rows),
        headline=_headline(one),
        scores=_score_rows(scores),
        scored=list(scores),
        suspicious=listed[:LISTED],
        suspicious_csv=data_uri(_csv(listed), "text/csv;charset=utf-8"),
        searched=len(searched),
    )


def _some(rows: int, most: int) -> npt.NDArray[np.int64]:
    """Row numbers: those of all rows, or of some, drawn with a fixed seed, where there are too many."""
    return np.arange(rows) if rows <= most else np.sort(np.random.default_rng(0).choice(rows, most, replace=False))


def _rows(
    one: Explained,
    decided: Flags,
    rare: set[int],
    map_by: Map,
    searched: npt.NDArray[np.int64],
    suspicions: Sequence[Suspicion],
) -> tuple[list[dict[str, Any]], dict[str, Any], int]:
    """The rows of the map, the training examples that are shown with them, and how long texts may be."""
    from hf_mlcl.evaluation import project_2d
    from hf_mlcl.inference import ExampleIndex

    some = _some(len(decided), ROWS[one.heaviest])
    features = one.test.features[some]
    place = project_2d(features, map_by) if len(some) > 2 else np.zeros((len(some), 2))
    near: list[list[tuple[str, float]]] = [[] for _ in some]
    examples: dict[int, None] = dict.fromkeys(each.row for each in suspicions[:LISTED])
    if one.train is not None:
        k = min(NEAREST[one.heaviest], len(searched))
        found = ExampleIndex(one.train.features[searched]).search(features, k)
        pairs = zip(searched[found.rows].tolist(), found.similarity.tolist(), strict=True)
        near = [[(str(row), round(s, 3)) for row, s in zip(*each, strict=True)] for each in pairs]
        examples |= dict.fromkeys(searched[found.rows].ravel().tolist())
    view, length = _view(one, some, list(examples))
    names = one.label_names
    rows = []
    for position, row in enumerate(some.tolist()):
        has, given = np.flatnonzero(one.test.labels[row]), np.flatnonzero(decided[row])
        best = np.argsort(-one.probabilities[row], kind="stable")[:5]
        rows.append(
            {
                "id": row,
                "place": one.test.place(row, one.split),
                **dict(zip("xy", np.round(place[position], 4).tolist(), strict=True)),
                **view(one.test.inputs[row]),
                "labels": _named(has, names),
                "predicted": _named(given, names),
                "truth": has.tolist(),
                "given": given.tolist(),
                "missed": len(set(has) - set(given)),
                "extra": len(set(given) - set(has)),
                "rare": bool(rare & set(has.tolist())),
                "best": [[names[k], round(float(one.probabilities[row, k]), 3)] for k in best],
                "near": near[position],
            }
        )
    shown = (
        {}
        if one.train is None
        else {str(row): _example(one.train, row, names) | view(one.train.inputs[row]) for row in examples}
    )
    return rows, shown, length


def _example(train: Split, row: int, names: Sequence[str]) -> dict[str, str]:
    return {"place": train.place(row, "training"), "labels": _named(np.flatnonzero(train.labels[row]), names)}


def _named(labels: npt.NDArray[np.int64], names: Sequence[str]) -> str:
    return ", ".join(names[label] for label in labels) or "none"


def _view(one: Explained, some: npt.NDArray[np.int64], examples: list[int]) -> tuple[Any, int]:
    """What makes of a row what the page shows of it, so that all of them together fit; and the length of its texts."""
    rows = []
    if one.modality == "text":
        rows = [one.test.inputs[row] for row in some.tolist()]
        rows += [] if one.train is None else [one.train.inputs[row] for row in examples]
    sizes = {length: sum(len(text[:length].encode("utf-8", "replace")) for text in rows) for length in TEXT_LENGTHS}
    length = next((length for length in TEXT_LENGTHS if sizes[length] <= TEXT_BYTES), min(TEXT_LENGTHS))
    count = len(some) + len(examples)
    side = next((side for side, size in SIDES.items() if count * size <= IMAGE_BYTES), min(SIDES))

    def view(row: Any) -> dict[str, str]:
        content = row if one.modality == "text+image" else {one.modality: row}
        shown = {"text": excerpt(content["text"], length)} if content.get("text") else {}
        return shown | ({"image": thumbnail(content["image"], side)} if content.get("image") is not None else {})

    return view, length if "text" in one.modality else 0


def _frequency_points(
    table: Sequence[Mapping[str, Any]], rows: Sequence[int], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Points of the chart; names are shown where they have a place: first of what is rare or goes wrong."""
    from hf_mlcl.evaluation.figures import without_overlap

    at = [max(count, 0.7) for count in rows]  # a label that never occurs still has a place on a log axis
    low, reach = np.log(min(at)), max(np.log(max(at) / min(at)), 1e-9)
    points = [(float((np.log(x) - low) / reach), row["F1"]) for x, row in zip(at, table, strict=True)]
    order = sorted(range(len(table)), key=lambda i: (points[i][1], rows[i]))
    wide, narrow = (without_overlap(points, list(names), order, size) for size in ((100, 40), (30, 24)))
    return [
        {"name": name, "rows": count, "at": at[i], "f1": round(row["F1"], 4), "wide": wide[i], "narrow": narrow[i]}
        for i, (name, count, row) in enumerate(zip(names, rows, table, strict=True))
    ]


def _frequency_title(table: Sequence[Mapping[str, Any]], rows: Sequence[int]) -> str:
    """What the chart shows, in words."""
    scores = np.array([row["F1"] for row in table])
    groups = [scores[ids].mean() for ids in np.array_split(np.argsort(rows, kind="stable"), 3) if len(ids)]
    gap = groups[-1] - groups[0]
    if len(groups) < 3 or abs(gap) < 0.05:
        return f"Rare and frequent labels are found about as well (mean F1 {scores.mean():.2f})"
    rare, frequent = f"the rarest third has F1 {groups[0]:.2f}", f"the most frequent third {groups[-1]:.2f}"
    return f"Rare labels are found {'less well' if gap > 0 else 'better'}: {rare}, {frequent}"


METRIC_NAMES = {"mAP": "mAP", "micro_f1": "micro-F1", "macro_f1": "macro-F1"}
METRIC_NAMES |= {"head_f1": "F1 of frequent labels", "medium_f1": "F1 of medium labels", "tail_f1": "F1 of rare labels"}


def _told_apart(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> Mapping[str, Mapping[str, Sequence[float]]]:
    """Without the frozen encoder where it is what the classifier uses: the same numbers twice say nothing."""
    gains = [value for interval in scores.get("gain", {}).values() for value in interval]
    return {"trained": scores["trained"]} if gains and not np.nan_to_num(gains).any() else scores


def _score_rows(scores: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, dict[str, str]]:
    """Cells by metric and classifier: the score with its interval."""
    found: dict[str, dict[str, str]] = {}
    for who, metrics in scores.items():
        sign = "+" if who == "gain" else ""
        for metric, (value, low, high) in metrics.items():
            cell = f"{value:{sign}.3f}" + ("" if np.isnan(low) else f" ({low:{sign}.3f} to {high:{sign}.3f})")
            found.setdefault(METRIC_NAMES.get(metric, metric), {})[who] = cell
    return found


def _headline(one: Explained) -> str:
    """The page in a sentence."""
    rows = f"{len(one.test.labels):,} {one.split} rows".replace(" all rows", " rows")
    known = one.scores.get("trained", {}).get("macro_f1")
    if known is None:
        return f"{len(one.label_names)} labels, {rows}."
    text = f"Macro-F1 {known[0]:.3f} (95 % interval {known[1]:.3f} to {known[2]:.3f}) on {rows}"
    gain = one.scores.get("gain", {}).get("macro_f1")
    if "frozen" not in one.scores or gain is None:
        return text + "."
    value, low, high = gain
    if value == low == high == 0:
        return f"{text}, by heads on the frozen encoder."
    if low <= 0 <= high:
        return f"{text}, which is not clearly different from the frozen encoder ({value:+.3f})."
    return (
        f"{text}, {abs(value):.3f} {'above' if value > 0 else 'below'} the frozen encoder ({low:+.3f} to {high:+.3f})."
    )


def _listed(one: Explained, doubtful: Suspicion, examples: Mapping[str, Any], length: int) -> dict[str, Any]:
    """What the page, and the file that it offers, say of a training row with doubtful labels."""
    assert one.train is not None
    row, names = one.train.inputs[doubtful.row], one.label_names
    text = row.get("text") if isinstance(row, Mapping) else row if length else ""  # none where rows are images
    return {
        **_example(one.train, doubtful.row, names),
        "score": doubtful.score,
        "text": excerpt(str(text or "")[:length], 200),
        "image": examples.get(str(doubtful.row), {}).get("image", ""),
        "wrong": ", ".join(names[label] for label in doubtful.wrong),
        "missing": ", ".join(names[label] for label in doubtful.missing),
    }


def _csv(listed: Sequence[Mapping[str, Any]]) -> bytes:
    buffer = io.StringIO()
    columns = ["place", "score", "labels", "wrong", "missing", "text"]
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for row in listed:
        cells = [f"{row[name]:.3f}" if name == "score" else row[name] for name in columns]
        # A spreadsheet would take these beginnings for a formula, and run it.
        writer.writerow([f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell for cell in cells])
    return buffer.getvalue().encode("utf-8-sig")  # with the mark by which spreadsheets know UTF-8
