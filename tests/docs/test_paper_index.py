"""The tables of settings in docs/paper_index.md say what the recipes do, and every place and command in it is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hf_mlcl.experiments import study_recipe
from hf_mlcl.experiments.dry_run import _shown, dry_run
from hf_mlcl.study import ready_studies

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "paper_index.md").read_text()
TEXTS = ("aapd", "rcv1", "bgc", "semeval2018", "newsgroups20")
IMAGES = ("voc2007", "coco2014", "nuswide")
COLUMNS = {
    "epochs": "num_train_epochs",
    "learning rate": "learning_rate",
    "batch": "global_batch_size",
    "alpha": "alpha",
    "optimizer": "optim",
    "linear learning rates": "linear_learning_rates",
    "linear weight decays": "linear_weight_decays",
    "linear batch": "linear_batch_size",
    "linear optimizer": "linear_optimizer",
}


def tables(text):
    """Every table of a page, as a list of rows by heading."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        headings, _, *rows = ([cell.strip() for cell in line.strip("|\n").split("|")] for line in block.splitlines())
        yield [dict(zip(headings, row, strict=True)) for row in rows]


def rows_of(*headings):
    return [row for table in tables(PAGE) if table and set(headings) <= table[0].keys() for row in table]


def plans(corpora, kinds):
    for corpus in corpora:
        single = corpus == "newsgroups20"
        losses = {"contrastive": "supcon_reg" if single else "reg", "logit": "cross_entropy" if single else "zlpr"}
        for kind in kinds:
            yield dry_run(study_recipe(corpus), {"loss": losses[kind], "use_cpu": True}).study


HYPERPARAMETERS = rows_of("corpus", "epochs")
COMMON = rows_of("setting", "holds for")


@pytest.mark.parametrize("row", HYPERPARAMETERS, ids=lambda row: f"{row['corpus']}-{row['size']}-{row['loss']}")
def test_hyperparameters_of_the_page_are_those_of_the_recipes(row):
    corpus, kind = row["corpus"].strip("`"), row["loss"]
    loss = {"contrastive": "reg", "logit": "zlpr"}[kind]
    if corpus == "newsgroups20":
        loss = {"contrastive": "supcon_reg", "logit": "cross_entropy"}[kind]
    for size in row["size"].split(", "):
        found = dry_run(study_recipe(corpus), {"loss": loss, "size": size, "use_cpu": True}).study
        for heading, name in COLUMNS.items():
            if row.get(heading, "-") == "-":
                assert name not in found
                continue
            one = found[name]
            values = one.tried or (one.value if isinstance(one.value, list) else [one.value])
            assert ", ".join(map(_shown, values)) == row[heading], name
            assert (one.origin == "ours") == row[""].startswith("silent") or name in ("optim",)


@pytest.mark.parametrize("row", COMMON, ids=lambda row: f"{row['setting']}-{row['holds for']}")
def test_common_settings_of_the_page_are_those_of_the_recipes_with_their_origin(row):
    who, name = row["holds for"], row["setting"].strip("`")
    corpora = {"texts": TEXTS, "images": IMAGES}.get(who, (*TEXTS, *IMAGES))
    kinds = [who] if who in ("contrastive", "logit") else ["contrastive", "logit"]
    found = {(_shown(plan[name].value), plan[name].origin) for plan in plans(corpora, kinds)}
    assert found == {(row["value"], row["origin"])}
    assert row[""].startswith("silent" if row["origin"] != "paper" else "agrees")


def test_the_page_has_a_row_for_every_corpus_size_and_kind():
    stated = {
        (row["corpus"].strip("`"), size, row["loss"]) for row in HYPERPARAMETERS for size in row["size"].split(", ")
    }
    both = {(name, "small") for name in (*IMAGES, "aapd", "rcv1", "bgc")} | {
        (name, "full") for name in (*TEXTS, *IMAGES)
    }
    assert stated == {(name, size, kind) for name, size in both for kind in ("contrastive", "logit")}
    settings_in_tables = {*COLUMNS.values(), *(row["setting"].strip("`") for row in COMMON)}
    of_the_study = {name for plan in plans(["aapd", "voc2007"], ["contrastive", "logit"]) for name in plan}
    not_settings = {"corpus", "size", "loss", "use_cpu", "mixed_precision", "pretrained", "evaluation", "protocol"}
    in_prose = {"augmented_passes", "labelled_only", "split", "difficult", "halves", "draw_seed"}
    assert of_the_study <= settings_in_tables | not_settings | in_prose
    assert all(name in PAGE for name in in_prose)


def test_every_place_and_study_that_the_page_names_is_there():
    places = re.findall(r"`((?:losses|metrics|models|data|evaluation|training|experiments)/[\w/]*(?:\.py)?)`", PAGE)
    assert places
    assert [place for place in places if not (ROOT / "src" / "hf_mlcl" / place).exists()] == []
    studies = re.findall(r"`hf-mlcl study (?:figures |table )?(\w+)`", PAGE)
    assert set(studies) <= set(ready_studies())
    ours = {name for name in ready_studies() if name in ("quick", "semeval") or name.startswith("evidence_")}
    assert set(ready_studies()) - set(studies) == ours


def test_every_verdict_is_one_of_three_or_says_more():
    for row in rows_of("paper", "code"):
        assert row[""], row
        assert row["in one command"].startswith("`"), row
