"""The charts of the pages, described in Vega-Lite. Their data stand once in the page, under the names used here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_mlcl.colours import BLUE, GREEN, GREY, ORANGE, PALETTE, PINK, RED, loss_styles

Spec = dict[str, Any]
STATES = {
    "right": (BLUE, "circle"),
    "missed": (RED, "triangle-up"),
    "given wrongly": (ORANGE, "square"),
    "missed and given wrongly": (PINK, "diamond"),
    "without the label": (GREY, "circle"),
}
"""Of a row on the map, for all labels or for one."""
STEPS = 100
"""Of the threshold slider, from 0 to 1."""
TICKS = [digit * 10**power for power in range(6) for digit in (1, 2, 5)]
BELOW = {"orient": "bottom"}
CURVES = {"precision": (BLUE, []), "recall": (RED, [6, 3]), "F1": (GREEN, [2, 2])}


def _chart(data: str, title: str, height: int, **parts: Any) -> Spec:
    """As wide as the page; titles break where a phone is narrow (see page.js)."""
    return {
        "data": {"name": data},
        "title": title,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        **parts,
    }


def _axis(field: str, title: str | None, kind: str = "quantitative", **more: Any) -> Spec:
    return {"field": field, "type": kind, "title": title, **more}


def _by(field: str, looks: Mapping[str, Any], **more: Any) -> Spec:
    """What a name looks like: its colour, shape or dashes."""
    return _axis(field, None, "nominal", scale={"domain": list(looks), "range": list(looks.values())}, **more)


def _diagonal(end: int, x: Spec, y: Spec) -> Spec:
    """A dashed line on which both axes agree."""
    return {
        "data": {"values": [{"at": 0}, {"at": end}]},
        "mark": {"type": "line", "color": GREY, "strokeDash": [4, 4]},
        "encoding": {"x": _axis("at", x["title"]), "y": _axis("at", y["title"])},
    }


def _select(name: str, caption: str, options: Sequence[Any], titles: Sequence[str] | None = None) -> Spec:
    bind = {"input": "select", "options": list(options), "name": caption}
    return {"name": name, "value": options[0], "bind": bind | ({"labels": list(titles)} if titles else {})}


def space_map(label_names: Sequence[str], contents: Sequence[str], method: str) -> Spec:
    """Rows of the test split where their features lie, coloured by what was decided for them."""
    labels = _select(
        "label", "Colour by ", [-1, *range(len(label_names))], ["all labels: right or wrong", *label_names]
    )
    show = _select("show", "Show ", ["all rows", "rows with errors", "rows with rare labels"])
    ring = {"name": "ring", "value": True, "bind": {"input": "checkbox", "name": "Rings around rare labels "}}
    state = (
        "label < 0 ? (datum.missed && datum.extra ? 'missed and given wrongly' : datum.missed ? 'missed' :"
        " datum.extra ? 'given wrongly' : 'right') :"
        " indexof(datum.truth, label) >= 0 ? (indexof(datum.given, label) >= 0 ? 'right' : 'missed') :"
        " indexof(datum.given, label) >= 0 ? 'given wrongly' : 'without the label'"
    )
    shown = (
        "show == 'all rows' || (show == 'rows with errors' ? datum.missed || datum.extra : datum.rare)"
        " && (label < 0 || datum.state != 'without the label')"
    )
    tooltip = [_axis(field, field, "nominal") for field in (*contents, "labels", "predicted")]
    scale = {"zero": False, "nice": False, "padding": 10}
    place = {axis: {"field": axis, "type": "quantitative", "axis": None, "scale": scale} for axis in ("x", "y")}
    legend = {"orient": "bottom", "columns": {"expr": "width < 500 ? 2 : 5"}, "symbolOpacity": 1, "labelLimit": 300}
    points = {
        "mark": {"type": "point", "filled": True, "size": {"expr": "width < 500 ? 11 : 24"}},
        "params": [
            {"name": "zoom", "select": "interval", "bind": "scales"},
            {"name": "picked", "select": {"type": "point", "on": "click", "fields": ["id"], "nearest": False}},
        ],
        "encoding": {
            **place,
            "color": _by("state", {name: colour for name, (colour, _) in STATES.items()}, legend=legend),
            "shape": _by("state", {name: shape for name, (_, shape) in STATES.items()}),
            "opacity": {"condition": {"test": "datum.state == 'without the label'", "value": 0.25}, "value": 0.75},
            "tooltip": tooltip,
        },
    }
    size = {"expr": "width < 500 ? 50 : 100"}
    circle = {"type": "point", "filled": False, "size": size, "strokeWidth": 1, "color": GREY}
    rings = {"transform": [{"filter": "ring && datum.rare"}], "mark": circle, "encoding": place}
    title = f"Rows that lie together look alike to the encoder ({method}): wheel or pinch to zoom, drag to move"
    transform = [{"calculate": state, "as": "state"}, {"filter": shown}]
    return _chart("rows", title, 460, params=[labels, show, ring], transform=transform, layer=[rings, points])


def f1_by_frequency(title: str, what: str) -> Spec:
    """F1 of each label against its rows, with names where they have a place."""
    x = _axis("at", f"{what} with the label", scale={"type": "log", "nice": False, "padding": 12})
    x["axis"] = {"values": TICKS, "labelOverlap": "greedy"}
    y = _axis("f1", "F1", scale={"domain": [0, 1]})
    tooltip = [_axis("name", "label", "nominal"), _axis("rows", "rows"), _axis("f1", "F1", format=".3f")]
    points = {"mark": {"type": "point", "filled": True, "size": 50, "color": BLUE}, "encoding": {"tooltip": tooltip}}
    names = {
        "transform": [{"filter": "width < 500 ? datum.narrow : datum.wide"}],
        "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 11},
        "encoding": {"text": {"field": "name"}},
    }
    return _chart("labels", title, 340, encoding={"x": x, "y": y}, layer=[points, names])


def threshold_chart(label_names: Sequence[str], thresholds: Sequence[float]) -> Spec:
    """Precision, recall and F1 of a label at every threshold, and a slider for it."""
    slider = {"input": "range", "min": 0, "max": 1, "step": 1 / STEPS, "name": "Threshold "}
    params = [
        _select("label", "Label ", range(len(label_names)), label_names),
        {"name": "threshold", "value": round(thresholds[0] * STEPS) / STEPS, "bind": slider},
    ]
    transform = [
        {"filter": "datum.label == label"},
        {"calculate": f"sequence(0, {STEPS + 1})", "as": "step"},
        {"flatten": ["tp", "fp", "step"]},
        {"calculate": "datum.tp + datum.fp > 0 ? datum.tp / (datum.tp + datum.fp) : null", "as": "precision"},
        {"calculate": "datum.rows > 0 ? datum.tp / datum.rows : null", "as": "recall"},
        {"calculate": "2 * datum.tp / max(1, datum.tp + datum.fp + datum.rows)", "as": "F1"},
        {"fold": list(CURVES), "as": ["score", "value"]},
        {"calculate": f"datum.step / {STEPS}", "as": "at"},
    ]
    encoding = {
        "x": _axis("at", "threshold", scale={"domain": [0, 1]}),
        "y": _axis("value", "score", scale={"domain": [0, 1]}),
        "color": _by("score", {name: colour for name, (colour, _) in CURVES.items()}, legend=BELOW),
    }
    dashes = _by("score", {name: dash for name, (_, dash) in CURVES.items()})
    curves = {"mark": {"type": "line", "invalid": "filter"}, "encoding": {"strokeDash": dashes}}
    there = {
        "transform": [{"filter": f"abs(datum.step - threshold * {STEPS}) < 0.5"}],
        "mark": {"type": "point", "filled": True, "size": 70},
    }
    rule = {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "color": GREY},
        "encoding": {"x": {"datum": {"expr": "threshold"}, "type": "quantitative"}},
    }
    title = "What a label gains in recall it pays in precision"
    scores = {"transform": transform, "encoding": encoding, "layer": [curves, there]}
    return _chart("curves", title, 300, params=params, layer=[scores, rule])


def reliability_chart(label_names: Sequence[str]) -> Spec:
    """Of a label, how often it is right when it says so many percent."""
    x = _axis("said", "predicted probability", scale={"domain": [0, 1]})
    y = _axis("seen", "share of rows that have the label", scale={"domain": [0, 1]})
    tooltip = [_axis("said", "predicted", format=".2f"), _axis("seen", "observed", format=".2f"), _axis("rows", "rows")]
    size = _axis("rows", "rows", scale={"type": "sqrt", "range": [20, 300]}, legend=None)
    one = {"transform": [{"filter": "datum.label == label"}], "encoding": {"x": x, "y": y}}
    line = {**one, "mark": {"type": "line", "color": BLUE}}
    dots = {**one, "mark": {"type": "point", "filled": True, "color": BLUE, "opacity": 1}}
    dots["encoding"] = {"x": x, "y": y, "size": size, "tooltip": tooltip}
    title = "On the dashed line probabilities can be taken at their word"
    return _chart(
        "reliability", title, 300, params=[{"name": "label", "value": 0}], layer=[_diagonal(1, x, y), line, dots]
    )


def confusion_matrix(kinds: Sequence[str], labels: int) -> Spec:
    """Pairs of labels, by what goes wrong or together."""
    tooltip = [_axis("first", "label", "nominal"), _axis("second", "and", "nominal"), _axis("count", "rows")]
    across = {"title": None, "labelAngle": -90, "labelLimit": 110, "labelOverlap": "greedy"}  # a phone shows some
    encoding = {
        "y": _axis("first", "", "nominal", sort=None, axis={"title": None, "labelLimit": 110}),
        "x": _axis("second", "", "nominal", sort=None, axis=across),
        "color": _axis("count", "rows", scale={"scheme": "viridis"}, legend=BELOW),
        "tooltip": tooltip,
    }
    title = "Which labels are taken for which, and which are missed together"
    params = [_select("kind", "Rows with ", kinds)]
    transform = [{"filter": "datum.kind == kind"}]
    parts = {"params": params, "transform": transform, "mark": "rect", "encoding": encoding}
    return _chart("confusions", title, 160 + 18 * labels, **parts)


def pair_chart(largest: int) -> Spec:
    """Pairs of labels: how often together in the labels, and in the predictions."""
    scale = {"type": "sqrt", "domain": [0, max(largest, 1)]}
    x, y = _axis("labels", "rows labelled with both", scale=scale), _axis("predictions", "rows given both", scale=scale)
    tooltip = [_axis("pair", "pair", "nominal"), _axis("labels", "labelled"), _axis("predictions", "predicted")]
    dots = {"mark": {"type": "point", "color": BLUE}, "encoding": {"x": x, "y": y, "tooltip": tooltip}}
    title = "Above the dashed line the model joins labels more often than people do"
    return _chart("pairs", title, 320, layer=[_diagonal(max(largest, 1), x, y), dots])


def label_deltas(places: Sequence[str], losses: Sequence[str], labels: int) -> Spec:
    """F1 of each label with one loss against another, the rarest labels first."""
    params = [_select("place", "On ", places), _select("first", "F1 of ", losses)]
    params += [_select("second", "minus that of ", losses[::-1])]
    transform = [
        {"filter": "datum.place == place && isValid(datum.scores[first]) && isValid(datum.scores[second])"},
        {"calculate": "datum.scores[first] - datum.scores[second]", "as": "delta"},
    ]
    tooltip = [_axis("label", "label", "nominal"), _axis("rows", "training rows")]
    tooltip += [_axis("delta", "difference", format="+.3f")]
    colour = {"condition": {"test": "datum.delta < 0", "value": RED}, "value": BLUE}
    encoding = {
        "y": _axis("label", "", "nominal", sort={"field": "rows"}, axis={"title": None, "labelLimit": 130}),
        "x": _axis("delta", "difference of F1"),
        "color": colour,
        "tooltip": tooltip,
    }
    title = "Which labels gain with one loss over another: the rarest on top"
    parts = {"params": params, "transform": transform, "mark": "bar", "encoding": encoding}
    return _chart("per_label", title, 110 + 15 * labels, **parts)


def learning_curves(places: Sequence[str], losses: Sequence[str]) -> Spec:
    """The training loss of every run with a loss, as it was logged."""
    params = [_select("place", "On ", places), _select("loss", "Loss ", losses)]
    transform = [{"filter": "datum.place == place && datum.loss == loss"}]
    tooltip = [_axis("seed", "seed", "nominal"), _axis("step", "step"), _axis("value", "loss", format=".4g")]
    encoding = {
        "x": _axis("step", "training step"),
        "y": _axis("value", "training loss", scale={"zero": False}),
        "color": {"field": "seed", "type": "nominal", "scale": {"range": PALETTE}, "legend": BELOW},
        "detail": {"field": "run"},
        "tooltip": tooltip,
    }
    mark = {"type": "line", "point": {"filled": True, "size": 20}}
    title = "Learning curves: a run that has levelled off has had enough steps"
    return _chart("curves", title, 300, params=params, transform=transform, mark=mark, encoding=encoding)


def run_times(losses: Sequence[str]) -> Spec:
    """How long each run took."""
    y = _axis("loss", "", "nominal", axis={"title": None})
    x = _axis("minutes", "minutes a run", scale={"zero": True})
    tooltip = [_axis(name, name, "nominal") for name in ("place", "loss", "seed")] + [x]
    mark = {"type": "point", "filled": True, "size": 45, "opacity": 0.8}
    styles = loss_styles(losses)
    colour = _by("loss", {name: style.colour for name, style in styles.items()}, legend=BELOW)
    shape = _by("loss", {name: style.shape for name, style in styles.items()})
    encoding = {"y": y, "x": x, "color": colour, "shape": shape, "tooltip": tooltip}
    return _chart("times", "What a run of each loss took", 120 + 24 * len(losses), mark=mark, encoding=encoding)
