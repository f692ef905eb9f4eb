"""20 Newsgroups: posts, one of 20 groups each. RoBERTa-base; SupCon with and without regulariser, and cross-entropy.

    accelerate launch recipes/newsgroups20_supcon.py --loss supcon_reg     # the study's regulariser in SupCon
    accelerate launch recipes/newsgroups20_supcon.py --loss supcon
    accelerate launch recipes/newsgroups20_supcon.py --loss cross_entropy  # with the settings for losses on logits

The study reports accuracies of this corpus but not its settings: these are the ones of its other texts.
"""

from hf_mlcl.experiments import Recipe, run_recipe

RECIPE = Recipe(
    corpus="newsgroups20",
    loss="supcon_reg",
    settings={
        "backbone": "roberta-base",
        "max_length": 220,
        "pooling": "first",
        "clean_text": True,
        "single_label": True,  # the largest score counts; accuracy is reported
        "optim": "adamw_torch_fused",
        "weight_decay": 0.01,
        "per_device_eval_batch_size": 128,
    },
    contrastive={
        "num_train_epochs": (320, 640),
        "learning_rate": (5e-5, 2e-5),
        "global_batch_size": 256,
        "temperature": 0.1,
        "save_steps": 0.05,  # a share of all steps
        "linear_learning_rates": [1.0, 0.1],
        "linear_weight_decays": [1.0, 1e-1, 1e-2, 1e-4, 1e-6],
        "linear_batch_size": 256,
        "linear_optimizer": "adamw",
    },
    logit={
        "num_train_epochs": (40, 10, 80, 160),
        "learning_rate": (5e-5, 2e-5),
        "global_batch_size": (32, 64),
        "eval_strategy": "epoch",  # the checkpoint with the best validation micro-F1 is kept
    },
)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__)  # train, linear evaluation (losses on logits: directly), save, sum up
