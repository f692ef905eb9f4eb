"""What the paper claims, or a study's own file, and a sentence on what the runs of the study say of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from hf_mlcl.study.paper import paper_value
from hf_mlcl.study.results import ARGUMENT, finished, select
from hf_mlcl.study.significance import Comparison
from hf_mlcl.study.specification import Study
from hf_mlcl.study.tables import column_of, metric_of, pair_comparison, place_name

CONTRASTIVE = ("base", "proto", "mulsupcon", "msc", "wo_reg", "reg")
LOGIT = ("bce", "asymmetric", "zlpr", "focal", "lsep")


class Claim(NamedTuple):
    """One side is said to be better than the other in a metric: of each the best of these losses."""

    text: str
    metric: str
    better: Sequence[str]
    worse: Sequence[str]
    by_paper: bool = True  # and not by the file of a study, `ReportOptions.claims`


CLAIMS = (
    Claim("Contrastive losses gain macro-F1 over losses on logits", "macro_f1", CONTRASTIVE, LOGIT),
    Claim("`reg` is at least as good as `wo_reg`", "macro_f1", ("reg",), ("wo_reg",)),
    Claim("`reg` is the best of the contrastive losses", "macro_f1", ("reg",), CONTRASTIVE[:-1]),
    Claim("Losses on logits rank better (mAP)", "mAP", LOGIT, CONTRASTIVE),
    Claim("The regulariser keeps positives together (alignment, lower is better)", "alignment", ("reg",), ("wo_reg",)),
)
PAPER_PRR = 0.38
VARIANTS = ("tuned_test_", "best_tuned_test_", "best_test_")
"""Of a metric: at tuned thresholds, by better heads."""
OVER = {"seeds": "over seeds", "examples": "over test rows"}


class Verdict(NamedTuple):
    """A claim, and what is seen of it."""

    claim: str
    holds: str  # yes, no, or partly
    sentence: str
    sure: str = ""  # whether it may be chance


def verdicts(study: Study, table: pd.DataFrame) -> list[Verdict]:
    """A sentence for each claim that the finished runs have something to say about; see `study_table`."""
    done = finished(table)
    if done.empty:
        return []
    chosen = select(done, study.report.select_by)
    # A loss or a corpus under another name, or losses that are joined, are not what the paper speaks of.
    plain = chosen
    for name in ("loss", "corpus"):
        stated = plain.get(f"{ARGUMENT}{name}", plain[name])
        plain = plain[stated.astype(str) == plain[name].astype(str)]
    compared = pair_comparison(study, plain)
    found = [verdict for claim in CLAIMS if (verdict := _verdict(claim, plain, compared, study.report.metrics))]
    found += _little_data(plain) + _prr(plain)
    compared = pair_comparison(study, chosen)
    own = [Claim(**claim, by_paper=False) for claim in study.report.claims]
    return [*filter(None, (_verdict(claim, chosen, compared, study.report.metrics) for claim in own)), *found]


def _verdict(
    claim: Claim, table: pd.DataFrame, compared: Callable[..., Comparison], printed_metrics: Sequence[str]
) -> Verdict | None:
    plain_metric = claim.metric
    # As the tables show it: at tuned thresholds, say, where those at 0.5 are not printed.
    shown = [variant for variant in printed_metrics if variant in (f"{start}{claim.metric}" for start in VARIANTS)]
    name = claim.metric if {claim.metric, f"test_{claim.metric}"} & set(printed_metrics) or not shown else shown[0]
    column = column_of(table, name)
    if column is None:
        return None
    metric = metric_of(name)
    claim = claim._replace(metric=name)
    gains, texts, tests = [], [], []
    for key, rows in table.dropna(subset=[column]).groupby(["corpus", "setting"], sort=False):
        means = rows.groupby("loss")[column].mean().to_dict()
        ours = _difference(means.get, claim)
        if ours is None:
            continue
        pair = rows[rows["loss"].isin(ours[1:])].pivot_table(index="seed", columns="loss", values=column)
        if len(common := pair.dropna()):  # as the test beside it
            ours = (float((common[ours[1]] - common[ours[2]]).mean()), *ours[1:])
        size = str(rows.get(f"{ARGUMENT}size", pd.Series(["full"])).iloc[0])
        printed = {loss: paper_value(key[0], size, loss, claim.metric) for loss in means}  # of the losses that were run
        paper = _difference(printed.get, claim) if claim.by_paper else None
        text = f"{place_name(*key)} {ours[0] * metric.factor:+.{metric.digits}f} (`{ours[1]}` against `{ours[2]}`)"
        tests.append(compared((*key, claim.metric), ours[1], ours[2]))
        if paper is not None:
            text += f", the paper {paper[0] * metric.factor:+.{metric.digits}f}"
        gains.append(ours[0] if metric.higher_is_better else -ours[0])
        texts.append(text)
    if not texts:
        return None
    if len(texts) > 1:
        texts = [_with_p(text, one) for text, one in zip(texts, tests, strict=True)]
    if name != plain_metric:
        texts[0] = f"{metric.title.removesuffix(' (%)')}: {texts[0]}"
    return _told(claim.text, sum(gain >= 0 for gain in gains), texts, _sureness(tests))


def _with_p(text: str, test: Comparison) -> str:
    p = next(iter(test.p_values.values()), float("nan"))
    return f"{text}, p = {p:.2g}" if p == p else text


def _told(claim: str, right: int, texts: Sequence[str], sure: str) -> Verdict:
    """What is seen of a claim at each of some places, of which so many are as it says."""
    holds = "yes" if right == len(texts) else "partly" if right else "no"
    seen = {"yes": "Seen", "partly": f"Seen on {right} of {len(texts)}", "no": "Not seen"}[holds]
    return Verdict(claim, holds, f"{seen}: {'; '.join(texts)}.", sure)


def _sureness(tests: Sequence[Comparison]) -> str:
    """Whether differences may be chance, and by which test."""
    every = [value for one in tests for value in one.p_values.values()]
    p = [value for value in every if value == value]
    if not p:
        return "not tested"
    over = " and ".join(OVER[test] for test in OVER if any(one.test == test for one in tests))
    over += f", {len(p)} of {len(every)} tested" if len(p) < len(every) else ""
    clear = sum(value < tests[0].level for value in p)
    if clear == len(p):
        return f"hardly chance: p {'=' if len(p) == 1 else 'up to'} {max(p):.2g} {over}"
    if not clear:
        return f"may be chance: p {'=' if len(p) == 1 else 'from'} {min(p):.2g} {over}"
    return f"hardly chance on {clear} of {len(p)}, at {tests[0].level:.0%} {over}"


def _difference(value: Callable[[str], float | None], claim: Claim) -> tuple[float, str, str] | None:
    """Between the best of each side, and which they are."""
    sign = 1 if metric_of(claim.metric).higher_is_better else -1
    best = []
    for losses in (claim.better, claim.worse):
        known = {loss: found for loss in losses if (found := value(loss)) is not None}
        if not known:
            return None
        best.append(max(known.items(), key=lambda one: sign * one[1]))
    (first, a), (second, b) = best
    return a - b, first, second


def _little_data(table: pd.DataFrame) -> list[Verdict]:
    """Whether contrastive losses gain more with little training data, where a corpus was run in both sizes."""
    column, size = column_of(table, "macro_f1"), f"{ARGUMENT}size"
    if column is None or size not in table:
        return []
    claim = CLAIMS[0]
    texts, right = [], 0
    for corpus, rows in table.dropna(subset=[column]).groupby("corpus", sort=False):
        means = {key: part.groupby("loss")[column].mean().to_dict() for key, part in rows.groupby(size)}
        gains = {key: gain[0] for key, each in means.items() if (gain := _difference(each.get, claim))}
        if {"full", "small"} <= gains.keys():
            right += gains["small"] >= gains["full"]
            name = place_name(corpus)
            texts.append(f"{name} {100 * gains['small']:+.2f} with little data, {100 * gains['full']:+.2f} with all")
    if not texts:
        return []
    return [_told("Contrastive losses gain most where training data are few", right, texts, "not tested")]


def _prr(table: pd.DataFrame) -> list[Verdict]:
    temperature = f"{ARGUMENT}temperature"
    if not {"prr", temperature} <= set(table.columns):
        return []
    at = table[(table[temperature].astype(float) - 0.1).abs() < 1e-9].dropna(subset=["prr"])
    if at.empty:
        return []
    low, high = 100 * at["prr"].min(), 100 * at["prr"].max()
    holds = "yes" if low <= 100 * PAPER_PRR <= high else "partly" if abs((low + high) / 2 - 38) < 12 else "no"
    return [
        Verdict(
            "About 38 % of positive pairs would be pushed apart at temperature 0.1 (PRR)",
            holds,
            f"{low:.0f} to {high:.0f} % in these runs, at their end.",
        )
    ]
