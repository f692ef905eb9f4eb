"""From a study file to its runs."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest

from hf_mlcl import ContrastiveMultiLabelTrainer, ContrastiveTrainingArguments
from hf_mlcl.experiments.settings_file import parse_yaml
from hf_mlcl.metrics import multilabel_metrics
from hf_mlcl.study import StudyError, load_outline, load_study
from hf_mlcl.study.cost import run_cost
from hf_mlcl.study.execution import LAUNCHER_VARIABLES, dry_run_of, run_experiment_of
from training.tiny import text_model, text_rows

FILE = """
name: example
defaults: {num_train_epochs: 2, learning_rate: 5e-5}
corpora: [toy_text, toy_images]
losses: [bce, reg]
seeds: [0, 1, 2]
"""


WITH_BLOCKS = """
corpora:
  toy_text: {num_train_epochs: 3}
  toy_images: {num_train_epochs: 4}
losses: {bce: {}, mine: {loss: reg, temperature: 0.2}}
overrides:
  - {when: {corpus: [toy_text, toy_images], loss: [bce, mine]}, learning_rate: 1e-3}
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "example.yaml"
        path.write_text(text)
        return path

    return write


def test_runs_are_the_product_of_corpora_losses_and_seeds(write):
    study = load_study(write(FILE))
    assert len(study.runs) == 2 * 2 * 3 == len({run.id for run in study.runs})
    run = study.runs[0]
    assert run.arguments == {
        "corpus": "toy_text", "loss": "bce", "seed": 0, "num_train_epochs": 2, "learning_rate": 5e-5
    }  # fmt: skip
    assert (study.name, str(study.output_dir)) == ("example", "outputs/example")
    assert [run.seed for run in study.runs] == sorted(run.seed for run in study.runs)  # every loss has a seed early


def test_later_blocks_go_over_earlier_ones(write):
    study = load_study(
        write(
            """
            defaults: {num_train_epochs: 1, learning_rate: 1.0, weight_decay: 1.0, max_length: 1, warmup_steps: 1.0}
            corpora: {toy_text: {learning_rate: 2.0, weight_decay: 2.0, max_length: 2, warmup_steps: 2.0}}
            losses: {reg: {weight_decay: 3.0, max_length: 3, warmup_steps: 3.0}}
            settings: {one: {max_length: 4, warmup_steps: 4.0}}
            overrides: [{when: {kind: contrastive}, warmup_steps: 5.0}]
            """
        ),
        ["temperature=0.5"],
    )
    (run,) = study.runs
    names = ("num_train_epochs", "learning_rate", "weight_decay", "max_length", "warmup_steps", "temperature")
    assert [run.arguments[name] for name in names] == [1, 2.0, 3.0, 4, 5.0, 0.5]


def test_hyperparameters_of_a_loss_are_merged_by_name(write):
    study = load_study(write(FILE + "overrides: [{when: {loss: reg}, loss_kwargs: {alpha: 1}}]"), ["losses=[reg]"])
    assert study.runs[0].arguments["loss_kwargs"] == {"alpha": 1}
    study = load_study(
        write("corpora: [toy_text]\nlosses: {reg: {loss_kwargs: {alpha: 1}}}"), ["loss_kwargs.chunk_size=8"]
    )
    assert study.runs[0].arguments["loss_kwargs"] == {"alpha": 1, "chunk_size": 8}


def test_searched_values_are_all_tried_and_a_later_value_ends_the_search(write):
    text = (
        FILE
        + """
overrides:
  - {when: {loss: reg}, search: {learning_rate: [1e-3, 1e-4], loss_kwargs.alpha: [0, 1]}}
  - {when: {loss: reg, corpus: toy_images}, learning_rate: 0.1}
"""
    )
    runs = load_study(write(text), ["seeds=[7]"]).runs
    tried = [(run.corpus, run.arguments["learning_rate"], run.choice) for run in runs if run.loss == "reg"]
    assert [rate for corpus, rate, _ in tried if corpus == "toy_text"] == [1e-3, 1e-3, 1e-4, 1e-4]
    assert [choice for corpus, _, choice in tried if corpus == "toy_images"] == [
        {"loss_kwargs.alpha": 0}, {"loss_kwargs.alpha": 1}
    ]  # fmt: skip
    assert all(run.choice == {} for run in runs if run.loss == "bce")


def test_the_word_recipe_searches_what_the_paper_tried(write):
    text = "corpora: [aapd]\nlosses: [zlpr, msc, reg]\nsettings: {full: {}, small: {size: small}}\n"
    runs = load_study(write(text + "defaults: {search: recipe}")).runs
    count = {
        (setting, loss): sum(run.setting == setting and run.loss == loss for run in runs)
        for setting in ("full", "small")
        for loss in ("zlpr", "msc", "reg")
    }
    # 4 epochs x 2 rates x 2 batches; 2 epochs x 2 rates (x 2 alphas where there is one; small: x 2 batches)
    assert count == {
        ("full", "zlpr"): 16, ("full", "msc"): 4, ("full", "reg"): 8,
        ("small", "zlpr"): 16, ("small", "msc"): 8, ("small", "reg"): 16,
    }  # fmt: skip
    fixed = load_study(write(text + "defaults: {search: recipe, num_train_epochs: 5}")).runs
    assert {run.arguments["num_train_epochs"] for run in fixed} == {5}
    assert sum(run.setting == "full" and run.loss == "reg" for run in fixed) == 4


def test_overrides_can_leave_runs_out(write):
    study = load_study(write(FILE + "overrides: [{when: {corpus: toy_images, kind: logit}, skip: true}]"))
    assert {(run.corpus, run.loss) for run in study.runs} == {
        ("toy_text", "bce"), ("toy_text", "reg"), ("toy_images", "reg")
    }  # fmt: skip


def test_a_name_can_stand_for_a_loss_with_other_arguments(write):
    study = load_study(
        write("corpora: [toy_text]\nlosses: {reg: , cold reg: {loss: reg, temperature: 0.01}, reg+zlpr: }")
    )
    assert [(run.loss, run.arguments["loss"]) for run in study.runs] == [
        ("reg", "reg"), ("cold reg", "reg"), ("reg+zlpr", "reg+zlpr")
    ]  # fmt: skip
    assert " " not in study.runs[1].id


def test_losses_of_plugins_may_be_named(write, tmp_path):
    """In the whole file, or for a loss alone; a plugin that is not there is named."""
    (tmp_path / "mine.py").write_text(
        "import torch\nfrom hf_mlcl import register_loss\n\n\n@register_loss('mine_in_a_study')\n"
        "class Mine(torch.nn.Module):\n    def forward(self, logits, labels):\n        return logits.sum()\n"
    )
    file = f"""
        corpora: [toy_text]
        losses: [bce, mine_in_a_study]
        defaults: {{plugins: [{tmp_path}/mine.py]}}
        """
    assert [run.kind for run in load_study(write(file)).runs] == ["logit", "logit"]
    with pytest.raises(StudyError, match=r"plugins: plugins names '.*other\.py', which cannot be imported"):
        load_study(write(file.replace("mine.py", "other.py")))


def test_a_run_is_known_by_what_it_does_and_not_by_what_else_is_in_the_file(write):
    before = {run.id for run in load_study(write(FILE)).runs}
    more = {run.id for run in load_study(write(FILE), ["seeds=[0,1,2,3]", "losses=[reg,bce,zlpr]"]).runs}
    other = {run.id for run in load_study(write(FILE), ["learning_rate=1e-4"]).runs}
    assert before < more
    assert not before & other


def test_a_choice_among_the_names_of_a_file_keeps_what_it_says_of_them(write):
    path = write(WITH_BLOCKS)
    whole = {run.id: run for run in load_study(path).runs}
    chosen = load_study(path, ["corpora=[toy_images]", "losses=[mine]"]).runs
    assert [(run.corpus, run.loss) for run in chosen] == [("toy_images", "mine")]
    assert whole[chosen[0].id].arguments == chosen[0].arguments
    assert chosen[0].arguments["num_train_epochs"] == 4
    added = load_study(path, ["losses=[mine, zlpr]", "corpora=[toy_text]"]).runs
    assert [run.loss for run in added] == ["mine", "zlpr"]
    with pytest.raises(StudyError, match="'mine' stands there twice"):
        load_study(path, ["losses=[mine, mine]"])


def test_changes_reach_every_place_of_the_file(write):
    study = load_study(
        write(FILE), ["corpora.toy_text.max_length=7", "output_dir=elsewhere", "report.level=0.01", "seeds=[5]"]
    )
    assert {run.arguments.get("max_length") for run in study.runs if run.corpus == "toy_text"} == {7}
    assert {run.arguments.get("max_length") for run in study.runs if run.corpus == "toy_images"} == {None}
    assert (str(study.output_dir), study.report.level, study.runs[0].seed) == ("elsewhere", 0.01, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("corpora: [toy_text]\nlosses: [bce]\nseed: [1]", "no key 'seed'. Known, nearest first: seeds"),
        ("losses: [bce]", "corpora: name at least one"),
        ("corpora: [toy_txt]\nlosses: [bce]", "no corpus or file 'toy_txt'. Known, nearest first: toy_text"),
        ("corpora: [toy_text]\nlosses: [rg]", "losses.rg: There is no loss 'rg'. Known, nearest first: reg"),
        ("corpora: [toy_text]\nlosses: [bce, bce]", "'bce' stands there twice"),
        ("corpora: [toy_text]\nlosses: {bce: 1}", "losses.bce: must be a mapping"),
        ("corpora: [toy_text]\nlosses: [bce]\nseeds: 3", "seeds: must be a list, each item a whole number; it is 3"),
        (
            "corpora: [toy_text]\nlosses: [bce]\nseeds: [0, 0]",
            "must be different whole numbers from 0, such as [0, 1, 2]",
        ),
        ("corpora: [toy_text]\nlosses: [bce]\nseeds: [0.5]", "seeds: must be a list, each item a whole number"),
        ("corpora: [toy_text]\nlosses: [bce]\nkeep: all", "keep: must be results or models or everything; it is 'all'"),
        (
            "corpora: [toy_text]\nlosses: [bce]\ndefaults: {learning_rat: 1}",
            "There is no setting 'learning_rat'. Known, nearest first: lear",
        ),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {learning_rate: fast}", "learning_rate"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {max_length: 1.5}", "max_length must be a whole number"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {pretrained: 1}", "pretrained must be true or false"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {size: tiny}", "size"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {seed: 1}", "list them under `seeds`"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {loss: reg}", "name it under `losses`"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {skip: true}", "'skip' cannot be set here; it is for `overr"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {output_dir: x}", "folder of its own"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {max_length.x: 1}", "max_length must be a whole number"),
        ("corpora: [toy_text]\nlosses: {bce: {loss_kwargs: {alpha: 1}}}", "Unknown hyperparameter 'alpha'"),
        (
            "corpora: [toy_text]\nlosses: [bce]\ndefaults: {search: {learning_rate: 1}}",
            "must be a list of values to",
        ),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {search: all}", "or the word 'recipe'"),
        (
            "corpora: [toy_text]\nlosses: [bce]\noverrides: [{when: {los: bce}}]",
            "no key 'los'. Known, nearest first: loss",
        ),
        (
            "corpora: [toy_text]\nlosses: [bce]\noverrides: [{when: {loss: reg}}]",
            "no loss 'reg'. Known, nearest first: bce",
        ),
        ("corpora: [toy_text]\nlosses: [bce]\noverrides: [{max_length: 3}]", "overrides, number 1: must have `when`"),
        ("corpora: [toy_text]\nlosses: [bce]\noverrides: [{when: {}, skip: true}]", "every run is skipped"),
        ("corpora: [toy_text]\nlosses: [bce]\nreport: {metric: [a]}", "no key 'metric'. Known, nearest first: metrics"),
        (
            "corpora: [toy_text]\nlosses: [bce]\nreport: {test: t}",
            "report.test: must be auto or seeds or examples or none; it is 't'",
        ),
        ("corpora: [toy_text]\nlosses: [bce]\nreport: {metrics: [map]}", "no metric 'map'. Known, nearest first: mAP"),
        (
            "corpora: [toy_text]\nlosses: [bce]\nreport: {select_by: micro_f1}",
            "no metric of validation 'micro_f1'. Known, nearest first: validation_micro_f1",
        ),
        (
            "corpora: [toy_text]\nlosses: [bce]\nreport: {select_by: test_macro_f1}",
            "no metric of validation 'test_macro_f1'. Known, nearest first: validation_macro_f1",
        ),
        (
            "corpora: [toy_text]\nlosses: [bce]\ndefaults: {image_size: 64}",
            "toy_text bce seed 0: image_size=64 is for images, but the data are texts",
        ),
        (
            "corpora: [toy_text]\nlosses: [bce]\ndefaults: {max_train_samples: -5}",
            "toy_text bce seed 0: max_train_samples must be at least 1; got -5",
        ),
        (
            "corpora: [toy_text]\nlosses: [reg]\ndefaults: {search: {num_train_epochs: [1, -1]}}",
            "toy_text reg num_train_epochs=-1 seed 0: num_train_epochs must be above 0",
        ),
        ("corpora: [toy_text]\nlosses: [reg]\ndefaults: {linear_epochs: 0}", "linear_epochs must be at least 1; got 0"),
        ("corpora: [toy_text]\nlosses: [reg]\ndefaults: {evaluation: direct}", "evaluation='direct' needs a loss on"),
        ("corpora: [toy_text]\nlosses: [bce]\ndefaults: {optim: adamx}", "adamx"),
        ("corpora: [toy_text]\nlosses: [bce]\nreport: {level: 5}", "must lie between 0 and 1"),
        (
            "corpora: [toy_text]\nlosses: [bce]\nreport: {claims: [{text: t, metric: mAP, better: [bce]}]}",
            "must have text, metric, better, worse; worse is missing",
        ),
        (
            "corpora: [toy_text]\nlosses: [bce]\n"
            "report: {claims: [{text: t, metric: map, better: [bce], worse: [bec]}]}",
            "no metric 'map'. Known, nearest first: mAP",
        ),
        (
            "corpora: [toy_text]\nlosses: [bce]\n"
            "report: {metrics: [mAP], claims: [{text: t, metric: mAP, better: [bce], worse: [bec]}]}",
            "no loss 'bec'. Known, nearest first: bce.",
        ),
        (
            "corpora: [toy_text]\nlosses: [bce]\n"
            "report: {claims: [{text: t, metric: mAP, better: [bce], worse: [bce]}]}",
            "'bce' stands on both sides of 't'",
        ),
        (
            "corpora: [toy_text]\nlosses: 5\nreport: {claims: [{text: t, metric: mAP, better: [bce], worse: [reg]}]}",
            "losses: name at least one, as a list or as a mapping to arguments; it is 5",
        ),
        ("corpora: [toy_text]\nlosses: [bce]\ncorpora: [toy_images]", "stands here a second time"),
        ("corpora: [toy_text", "not valid YAML"),
        ("- corpora", "must be a mapping with the keys"),
    ],
)
def test_what_is_wrong_is_said_with_the_file_and_the_key(write, text, said):
    path = write(text)
    with pytest.raises(StudyError) as caught:
        load_study(path)
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_claim_means_the_metric_that_tables_print_by_either_of_its_names(write):
    claim = "{text: t, metric: test_macro_f1, better: [reg], worse: [bce]}"
    study = load_study(write(f"corpora: [toy_text]\nlosses: [bce, reg]\nreport: {{claims: [{claim}]}}"))
    assert [claim["metric"] for claim in study.report.claims] == ["macro_f1"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("seeds", "must be key=value"),
        ("sees=[1]", "no argument 'sees'"),
        ("corpora.toy_txt.max_length=3", "no name 'toy_txt'. Known, nearest first: toy_text"),
        ("seeds=[1", "not valid YAML"),
        ("name.x=1", "'name' is 'example' and has no 'x'"),
    ],
)
def test_a_wrong_change_is_named(write, change, said):
    with pytest.raises(StudyError, match="change") as caught:
        load_study(write(FILE), [change])
    assert said in str(caught.value)


def test_the_outline_is_the_study_without_its_runs(write):
    text = FILE + "description: Mine.\nkeep: results\nreport: {metrics: [mAP], level: 0.1}"
    assert load_outline(write(text)) == dataclasses.replace(load_study(write(text)), runs=())


def test_a_run_knows_the_kind_of_its_loss(write):
    runs = load_study(write(FILE), ["losses=[bce, reg, reg+zlpr]"]).runs
    kinds = {"bce": "logit", "reg": "contrastive", "reg+zlpr": "contrastive"}
    assert {run.loss: run.kind for run in runs} == kinds


def test_metrics_that_runs_have_may_be_reported(write):
    found = multilabel_metrics([[1, 0], [1, 1]], [[0.9, 0.6], [0.8, 0.7]])
    names = [*found, "accuracy", *(f"validation_{name}" for name in found), "alignment", "uniformity", "prr"]
    assert load_study(write(FILE), [f"report.metrics=[{', '.join(names)}]"]).report.metrics == tuple(names)


def test_checking_waits_for_no_other_process_and_leaves_nothing_behind(write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in LAUNCHER_VARIABLES:  # as a launcher of sixteen workers sets them
        monkeypatch.setenv(name, "16")
    before = dict(os.environ)
    path = write(FILE)
    load_study(path, ["fp16=true", "tf32=true", "deepspeed=zero.json"])  # which the machine with the runs has
    assert dict(os.environ) == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_trainer_of_the_same_process_goes_on_when_a_study_is_read(write, tmp_path):
    rows = text_rows(16)
    args = ContrastiveTrainingArguments(tmp_path / "run", bf16=True, use_cpu=True, report_to="none", disable_tqdm=True)
    trainer = ContrastiveMultiLabelTrainer(text_model(), args, train_dataset=rows)
    before = trainer.extract_features(rows)
    load_study(write(FILE))
    np.testing.assert_allclose(trainer.extract_features(rows), before, rtol=0, atol=3e-6)  # less than float32 differs


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(StudyError, match="There is no study file"):
        load_study(tmp_path / "none.yaml")
    with pytest.raises(StudyError, match="is a folder"):
        load_study(tmp_path)


def test_yaml_reads_numbers_and_words_as_people_mean_them():
    assert parse_yaml("[5e-5, 1E3, 1, -2.5, no, off, yes, true, 2024-01-01, null]") == [
        5e-5, 1000.0, 1, -2.5, "no", "off", "yes", True, "2024-01-01", None
    ]  # fmt: skip


OWN = """
corpora: {{mine: {{corpus: {path}, max_train_samples: 30}}}}
losses: [reg]
defaults: {{backbone: small, max_steps: 2, use_cpu: true, page: false}}
report: {{metrics: [tuned_test_macro_f1]}}
"""


def table_of(path, rows=60):
    words = ["cat|pet", "dog|pet", "cow"]
    path.write_text(
        "text,tags\n" + "".join(f"a {words[i % 3].split('|')[0]} {i},{words[i % 3]}\n" for i in range(rows))
    )


def test_data_of_your_own_are_a_corpus_with_the_settings_of_train(write, tmp_path, monkeypatch):
    table_of(tmp_path / "mine.csv")
    monkeypatch.setenv("DATA", str(tmp_path))
    (run,) = load_study(write(OWN.format(path="$DATA/mine.csv"))).runs
    result = run_experiment_of(run, tmp_path / "run")
    assert 0 <= result["metrics"]["tuned_test_macro_f1"] <= 1
    assert result["settings"]["protocol"] == "best"
    assert result["settings"]["corpus"] == "$DATA/mine.csv", "the same on any machine"
    assert run_cost(run).operations > 0
    assert dry_run_of(run).rows.train == 30


def test_data_of_your_own_that_are_not_there_or_settings_not_for_them_are_told_before_the_first_run(write, tmp_path):
    with pytest.raises(StudyError, match=r"no-such.*csv"):
        load_study(write(OWN.format(path=tmp_path / "no-such.csv")))
    with pytest.raises(StudyError, match=r"no corpus or file 'mine.csv'"):
        load_study(write(OWN.format(path="mine.csv")))
    table_of(tmp_path / "mine.csv")
    with pytest.raises(StudyError, match="image_size=64 is for images, but the data are texts"):
        load_study(write(OWN.format(path=tmp_path / "mine.csv")), ["image_size=64"])
