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


def _by(who: str, names: str, note: str = "") -> dict[str, Origin]:
    return dict.fromkeys(names.split(), Origin(who, note))


LINEAR = "linear_learning_rates linear_weight_decays linear_batch_size linear_optimizer"
ANY = {
    **_by(PAPER, "corpus size loss num_train_epochs learning_rate global_batch_size alpha"),
    **_by(AUTHORS, "beta", "the paper gives no number"),
    **_by(PAPER, "gamma_pos gamma_neg margin"),
    **_by(PAPER, "temperature", "0.1; a single 0.01 in its appendix is a slip"),
    **_by(PAPER, "optim lr_scheduler_type warmup_steps max_grad_norm"),
    **_by(AUTHORS, "drop_last_train_batch"),
    **_by(PAPER, "load_best_model_at_end metric_for_best_model"),
    **_by(OURS, "eval_strategy", "the paper does not say how often the best checkpoint is looked for"),
    **_by(PAPER, "backbone pretrained projection_dim"),
    **_by(PAPER, "projection_bias", "as printed; the authors' code has biases"),
    **_by(PAPER, "classifier_dropout", "as printed; the authors' code has 0.1"),
    **_by(PAPER, "evaluation"),
    **_by(AUTHORS, "thresholds", "0.5"),
    **_by(PAPER, f"{LINEAR} linear_heads"),
    **_by(AUTHORS, "linear_epochs"),
    **_by(PAPER, "protocol"),
    **_by(OURS, "labelled_only"),
    **_by(OURS, "draw_seed", "the authors draw anew for each seed: draw_seed=seed"),
    **_by(PAPER, "split", "of the layout of SGM; other files stay as they are"),
    **_by(AUTHORS, "difficult", "the challenge ignores difficult objects"),
    **_by(AUTHORS, "halves", "scikit-learn's, seed 42"),
}
"""Settings of the study for texts and images, in the order in which a dry run shows them."""
OF_KIND = {
    "text": {**_by(PAPER, "max_length pooling"), **_by(AUTHORS, "clean_text"), **_by(PAPER, "weight_decay")},
    "image": {
        **_by(PAPER, "backbone", "ImageNet weights; torchvision's, as the authors' code"),
        **_by(PAPER, "image_size"),
        **_by(AUTHORS, "optim_args", "the paper: with momentum"),
        **_by(OURS, "weight_decay", "the paper states none"),
        **_by(AUTHORS, "augmented_passes"),
    },
}
CONTRADICTED = _by(PAPER, "optim", "its text, for contrastive losses; its table says AdamW")
BORROWED = _by(
    OURS,
    f"num_train_epochs learning_rate global_batch_size alpha {LINEAR}",
    "the paper states none for this corpus: that of its other texts",
)
OF_CORPUS = {
    "voc2007": CONTRADICTED,
    "nuswide": CONTRADICTED,
    "newsgroups20": BORROWED,
    "semeval2018": {**BORROWED, **_by(PAPER, "labelled_only", "its sizes are those of labelled tweets")},
}


def origins(corpus: str, kind: Literal["text", "image"]) -> dict[str, Origin]:
    """The origin of every setting that the study, or this project in its place, has chosen for a corpus.

    Args:
        corpus: One of `list_corpora()`; others have settings of this project only.
        kind: Of its examples.

    Examples:
        >>> origins("aapd", "text")["weight_decay"].who, origins("voc2007", "image")["weight_decay"].who
        ('paper', 'ours')
    """
    from hf_mlcl.data.registry import corpus_facts, list_corpora

    known = {**ANY, **OF_KIND[kind], **OF_CORPUS.get(corpus, {})}
    of_study = corpus in list_corpora() and corpus_facts(corpus).study is not None
    return known if of_study else dict.fromkeys(known, Origin(OURS))
