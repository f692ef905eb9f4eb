"""The paper's numbers, to be printed beside ours.

``paper_results.json`` holds the tables of Audibert, Gauffre and Amini, "Multi-Label Contrastive Learning: A
Comprehensive Study" (arXiv:2412.00101v2): RoBERTa-base on texts, ResNet-50 on images; by size, corpus, loss and metric,
as fractions. Hamming losses are printed there "multiplied by 10^3", which they are for few corpora only: here they are
in the only unit that agrees with the paper's own micro-F1 and numbers of labels (`tests/study/test_paper.py`).
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

SOURCE = "Audibert, Gauffre, Amini: Multi-Label Contrastive Learning: A Comprehensive Study, arXiv:2412.00101v2"


def paper_value(corpus: str, size: str, loss: str, metric: str) -> float | None:
    """A number of the paper as a fraction; None where it has none.

    Examples:
        >>> paper_value("aapd", "small", "reg", "macro_f1")
        0.523
        >>> paper_value("aapd", "full", "reg", "mAP") is None
        True
    """
    return paper_values().get(size, {}).get(corpus, {}).get(loss, {}).get(metric)


@functools.cache
def paper_values() -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    """All numbers of the paper's tables, by size, corpus, loss and metric."""
    text = Path(__file__).with_name("paper_results.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]
