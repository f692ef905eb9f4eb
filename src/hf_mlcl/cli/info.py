"""``hf-mlcl losses`` and ``hf-mlcl corpora``."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import typer

from hf_mlcl.cli.options import AsJson
from hf_mlcl.cli.output import print_json, print_pairs, print_table


def losses(
    name: Annotated[str | None, typer.Argument(help="One loss, or several joined with +; all if left out.")] = None,
    plugins: Annotated[list[str] | None, typer.Option(help="File or module with losses of yours.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the losses with their formulas; `hf-mlcl losses reg` explains one."""
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
        shown = ("name", "kind", "formula")
        facts.sort(key=lambda fact: fact["kind"])
        rows = [[*(fact[key] for key in shown), ", ".join(fact["hyperparameters"])] for fact in facts]
        print_table([*shown, "hyperparameters"], rows)
        print("\nJoin a contrastive loss and one on logits with +, such as reg+zlpr. More on one: hf-mlcl losses reg")


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
    """List the corpora and how to get them; `hf-mlcl corpora aapd` tells all about one."""
    from hf_mlcl.data.registry import corpus_facts, list_corpora
    from hf_mlcl.recipes import RECIPES

    if name is not None:
        facts = corpus_facts(name)
        about = {
            "summary": facts.description(),
            "license": facts.license,
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
        row = {"name": known, "modality": facts.modality, "rows": rows, "small": small, "license": facts.license}
        every.append({**row, "how": how_to_get(known)})
    if as_json:
        print_json(every)
        return
    print_table(list(every[0]), [list(row.values()) for row in every])
    print("\nRows are train / validation / test. More on one: hf-mlcl corpora aapd")


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
