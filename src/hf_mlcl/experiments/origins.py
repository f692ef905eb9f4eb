"""Where each setting of a recipe comes from: the paper, the authors' code, or this project.

`docs/paper_index.md` says what the paper leaves open or contradicts, and why each choice was made.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

PAPER, AUTHORS, OURS = "paper", "authors' code", "ours"
FILE, COMMAND_LINE, LAUNCHER, LIBRARY = "configuration file", "command line", "accelerate launch", "transformers"


class Origin(NamedTuple):
    """Who chose a setting, and what there is to say about it."""

    who: str
    note: str = ""


ANY = {
    "corpus": Origin(PAPER),
    "size": Origin(PAPER),
    "loss": Origin(PAPER),
    "num_train_epochs": Origin(PAPER),
    "learning_rate": Origin(PAPER),
    "global_batch_size": Origin(PAPER),
    "alpha": Origin(PAPER),
    "beta": Origin(AUTHORS, "the paper gives no number"),
    "gamma_pos": Origin(PAPER),
    "gamma_neg": Origin(PAPER),
    "margin": Origin(PAPER),
    "temperature": Origin(PAPER, "0.1; a single 0.01 in its appendix is a slip"),
    "optim": Origin(PAPER),
    "lr_scheduler_type": Origin(PAPER),
    "warmup_steps": Origin(PAPER),
    "max_grad_norm": Origin(PAPER),
    "drop_last_train_batch": Origin(AUTHORS),
    "load_best_model_at_end": Origin(PAPER),
    "metric_for_best_model": Origin(PAPER),
    "eval_strategy": Origin(OURS, "the paper does not say how often the best checkpoint is looked for"),
    "backbone": Origin(PAPER),
    "pretrained": Origin(PAPER),
    "projection_dim": Origin(PAPER),
    "projection_bias": Origin(PAPER, "as printed; the authors' code has biases"),
    "classifier_dropout": Origin(PAPER, "as printed; the authors' code has 0.1"),
    "evaluation": Origin(PAPER),
    "thresholds": Origin(AUTHORS, "0.5"),
    "linear_learning_rates": Origin(PAPER),
    "linear_weight_decays": Origin(PAPER),
    "linear_batch_size": Origin(PAPER),
    "linear_optimizer": Origin(PAPER),
    "linear_heads": Origin(PAPER),
    "linear_epochs": Origin(AUTHORS),
    "protocol": Origin(PAPER),
    "labelled_only": Origin(OURS),
    "draw_seed": Origin(OURS, "the authors draw anew for each seed: draw_seed=seed"),
    "split": Origin(PAPER, "of the layout of SGM; other files stay as they are"),
    "difficult": Origin(AUTHORS, "the challenge ignores difficult objects"),
    "halves": Origin(AUTHORS, "scikit-learn's, seed 42"),
}
"""Settings of the study for texts and images, in the order in which a dry run shows them."""

TEXT = {
    "max_length": Origin(PAPER),
    "pooling": Origin(PAPER),
    "clean_text": Origin(AUTHORS),
    "weight_decay": Origin(PAPER),
}
IMAGE = {
    "backbone": Origin(PAPER, "ImageNet weights; torchvision's, as the authors' code"),
    "image_size": Origin(PAPER),
    "optim_args": Origin(AUTHORS, "the paper: with momentum"),
    "weight_decay": Origin(OURS, "the paper states none"),
    "augmented_passes": Origin(AUTHORS),
}
CONTRADICTED = {
    corpus: {"optim": Origin(PAPER, "its text, for contrastive losses; its table says AdamW")}
    for corpus in ("voc2007", "nuswide")
}
BORROWED = {
    name: Origin(OURS, "the paper states none for this corpus: that of its other texts")
    for name in (
        *("num_train_epochs", "learning_rate", "global_batch_size", "alpha"),
        *("linear_learning_rates", "linear_weight_decays", "linear_batch_size", "linear_optimizer"),
    )
}
LABELLED = {"labelled_only": Origin(PAPER, "its sizes are those of labelled tweets")}


def origins(corpus: str, kind: Literal["text", "image"]) -> dict[str, Origin]:
    """The origin of every setting that the study, or this project in its place, has chosen for a corpus.

    Args:
        corpus: One of `list_corpora()`; others have settings of this project only.
        kind: Of its examples.

    Examples:
        >>> origins("aapd", "text")["weight_decay"].who, origins("voc2007", "image")["weight_decay"].who
        ('paper', 'ours')
        >>> origins("semeval2018", "text")["learning_rate"].who
        'ours'
    """
    from hf_mlcl.data.registry import corpus_facts, list_corpora

    known = {**ANY, **(TEXT if kind == "text" else IMAGE)}
    if corpus not in list_corpora() or corpus_facts(corpus).study is None:
        return dict.fromkeys(known, Origin(OURS))
    known |= CONTRADICTED.get(corpus, {})
    if corpus in ("semeval2018", "newsgroups20"):
        known |= BORROWED
    return {**known, **(LABELLED if corpus == "semeval2018" else {})}
