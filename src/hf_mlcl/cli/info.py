"""``hf-mlcl losses`` and ``hf-mlcl corpora``."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_mlcl.cli.options import AsJson
from hf_mlcl.cli.output import print_json, print_pairs, print_table

KINDS = {"contrastive": "Contrastive, on embeddings", "logit": "On logits"}
SYMBOLS = {
    "i, j": "an anchor and a candidate: rows of the batch, or prototypes, of which each label has one",
    "y_i": "the labels of i, and |y_i| how many; y_il is 1 if l is among them; [...] is 1 if it holds, else 0",
    "s_ij": "cosine similarity of i and j, divided by the temperature",
    "p_ij": "the share of j among all candidates: exp(s_ij) / sum_k exp(s_ik)",
    "T_ij": "how strongly i and j should attract; the loss is the mean over i of -sum_j T_ij log p_ij",
    "P(l, i)": "the candidates other than i that carry l; N(l, i) is the sum of f_ij over them",
    "x, q": "a logit, and the probability sigmoid(x); y is 1 where the row has the label",
}
"""Of the formulas, in the order in which one needs them."""
EXAMPLE = """Example: i has the labels {rain, wind}; of the others j has {rain}, k has {rain, wind}, m has {snow}.
`base` wants similarities T = 1/3 for j and 2/3 for k (half and all of the labels in common, made to add up to 1),
and none for m, which is pushed away.

In a training:  hf-mlcl train reviews.csv --loss reg --loss_kwargs '{"alpha": 2.0}'
Two at once:    hf-mlcl train reviews.csv --loss reg+zlpr     (a contrastive one and one on logits)
More on one:    hf-mlcl losses reg"""


def losses(
    name: Annotated[str | None, typer.Argument(help="One loss, or several joined with +; all if left out.")] = None,
    plugins: Annotated[list[str] | None, typer.Option(help="File or module with losses of yours.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the losses with their formulas and what the symbols mean; `hf-mlcl losses reg` explains one."""
    from hf_mlcl.losses import list_losses, loss_names

    if plugins:
        from hf_mlcl.experiments.parsing import import_plugins

        import_plugins(plugins)
    facts = [loss_facts(part) for part in (loss_names(name) if name else list_losses())]
    if as_json:
        print_json(facts[0] if name and len(facts) == 1 else sorted(facts, key=lambda fact: fact["kind"]))
    elif name:
        for number, fact in enumerate(facts):
            print("\n" * (number > 0) + f"{fact.pop('description')}\n")
            print_pairs([(key, ", ".join(value) if isinstance(value, list) else value) for key, value in fact.items()])
    else:
        for kind in sorted({fact["kind"] for fact in facts}):
            rows = [
                [one["name"], one["formula"], ", ".join(one["hyperparameters"])] for one in facts if one["kind"] == kind
            ]
            print_table(["name", "formula", "hyperparameters"], rows, title=KINDS.get(kind, kind))
            print()
        print_pairs(list(SYMBOLS.items()), title="The symbols")
        print(f"\n{EXAMPLE}")


def loss_facts(name: str) -> dict[str, Any]:
    """What there is to say about a loss.

    Examples:
        >>> loss_facts("focal")["hyperparameters"]
        ['gamma']
    """
    from hf_mlcl.losses import hyperparameters, loss_class

    loss = loss_class(name)
    # A user's own loss may be any nn.Module: it need not say what it is.
    facts = {"name": name, **{key: getattr(loss, key, "") for key in ("kind", "formula")}}
    facts |= {"hyperparameters": hyperparameters(name), "citation": getattr(loss, "citation", "")}
    return {**facts, "description": inspect.getdoc(loss) or ""}


def corpora(
    name: Annotated[str | None, typer.Argument(help="One corpus; all of them if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the corpora, how large they are and how to get them; `hf-mlcl corpora aapd` tells all about one."""
    from hf_mlcl.data.registry import corpus_facts, list_corpora
    from hf_mlcl.recipes import RECIPES

    if name is not None:
        facts = corpus_facts(name)
        about = {
            "summary": facts.description(),
            "labels": str(_labels(facts)),
            "license": facts.license,
            "here": "yes" if is_here(name) else "no",
            "homepage": facts.homepage,
            "get it": how_to_get(name),
            "by hand": facts.manual or "not needed",
            "recipe": f"accelerate launch recipes/{RECIPES[name]}.py",
            "citation": facts.citation,
        }
        print_json({"name": name, **about}) if as_json else print_pairs(list(about.items()), title=name)
        return
    every = []
    for known in list_corpora():
        facts = corpus_facts(known)
        rows = facts.study.sizes if facts.study else ""
        if facts.sizes:
            rows = f"{facts.sizes.train:,} / {facts.sizes.validation:,} / {facts.sizes.test:,}"
        small = "yes" if facts.small_sizes else ""
        row = {"name": known, "modality": facts.modality, "rows": rows, "labels": _labels(facts), "small": small}
        row |= {"license": facts.license, "here": "yes" if is_here(known) else "no", "how": how_to_get(known)}
        every.append(row)
    if as_json:
        print_json(every)
        return
    for row in every:
        row["license"] = str(row["license"]).split(" (")[0].split(";")[0]  # the beginning is enough to choose by
    print_table(list(every[0]), [list(row.values()) for row in every])
    print("\nRows are train / validation / test. More on one, its licence in full: hf-mlcl corpora aapd")


def _labels(facts: Any) -> int:
    """How many labels a corpus has; the built-in ones know theirs themselves."""
    if facts.study is None:
        return len(importlib.import_module(f"hf_mlcl.data.corpora.{facts.name}").LABELS)
    return int(facts.study.num_labels)


def is_here(name: str) -> bool:
    """Whether a corpus has been built on this machine, or needs nothing to be."""
    from datasets import config

    built = Path(config.HF_DATASETS_CACHE) / f"hf_mlcl_{name}"
    return built.is_dir() or how_to_get(name) == "built in"


def how_to_get(name: str) -> str:
    """Built in, downloaded, or by hand.

    Examples:
        >>> how_to_get("toy_text"), how_to_get("rcv1")
        ('built in', 'by hand, with --data_dir')
    """
    from hf_mlcl.data.registry import corpus_facts

    facts = corpus_facts(name)
    if facts.study is None:
        return "built in"
    return "downloads" if facts.download_all and facts.files else "by hand, with --data_dir"
