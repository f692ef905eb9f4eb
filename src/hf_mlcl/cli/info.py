"""``hf-mlcl losses`` and ``hf-mlcl corpora``."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from hf_mlcl.cli.output import print_json, print_pairs, print_table


def show_losses(name: str | None, plugins: Sequence[str], as_json: bool) -> None:
    """All losses in a table, or one of them with everything there is to say.

    Args:
        name: The one, several joined with +, or None.
        plugins: Files or modules that register further ones.
        as_json: For programs.
    """
    from hf_mlcl.losses import list_losses

    if plugins:
        from hf_mlcl.experiments.parsing import import_plugins

        import_plugins(plugins)
    if name is not None:
        from hf_mlcl.losses import loss_names

        parts = [loss_facts(part) for part in loss_names(name)]
        if as_json:
            print_json(parts if len(parts) > 1 else parts[0])
            return
        for number, fact in enumerate(parts):
            if number:
                print()
            print(f"{fact.pop('description')}\n")
            print_pairs([(key, ", ".join(value) if isinstance(value, list) else value) for key, value in fact.items()])
        return
    facts = [loss_facts(known) for known in list_losses()]
    facts.sort(key=lambda fact: fact["kind"])
    if as_json:
        print_json(facts)
        return
    rows = [[fact["name"], fact["kind"], fact["formula"], ", ".join(fact["hyperparameters"])] for fact in facts]
    print_table(["name", "kind", "formula", "hyperparameters"], rows)
    print("\nJoin a contrastive loss and one on logits with +, such as reg+zlpr. More on one: hf-mlcl losses reg")


def loss_facts(name: str) -> dict[str, Any]:
    """What there is to say about a loss.

    Examples:
        >>> loss_facts("focal")["hyperparameters"]
        ['gamma']
    """
    from hf_mlcl.losses import hyperparameters, loss_class

    loss = loss_class(name)
    return {
        "name": name,
        "kind": getattr(loss, "kind", ""),
        "formula": getattr(loss, "formula", ""),
        "hyperparameters": hyperparameters(name),
        "citation": getattr(loss, "citation", ""),
        "description": inspect.getdoc(loss) or "",
    }


def show_corpora(name: str | None, as_json: bool) -> None:
    """All corpora in a table, or one of them with everything there is to say.

    Args:
        name: The one, or None.
        as_json: For programs.
    """
    from hf_mlcl.data.registry import corpus_facts, list_corpora

    if name is not None:
        facts = corpus_facts(name)
        about = {
            "summary": facts.description(),
            "license": facts.license,
            "homepage": facts.homepage,
            "get it": how_to_get(name),
            "by hand": facts.manual or "not needed",
            "recipe": f"accelerate launch recipes/{_recipe(name)}.py",
            "citation": facts.citation,
        }
        if as_json:
            print_json({"name": name, **about})
        else:
            print_pairs(list(about.items()), title=name)
        return
    every = []
    for known in list_corpora():
        facts = corpus_facts(known)
        sizes = facts.sizes
        every.append(
            {
                "name": known,
                "kind": facts.kind,
                "rows": f"{sizes.train:,} / {sizes.validation:,} / {sizes.test:,}"
                if sizes
                else facts.study.sizes
                if facts.study
                else "",
                "small": "yes" if facts.small_sizes else "",
                "license": facts.license,
                "how": how_to_get(known),
            }
        )
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


def _recipe(name: str) -> str:
    from hf_mlcl.recipes import RECIPES

    return RECIPES[name]
