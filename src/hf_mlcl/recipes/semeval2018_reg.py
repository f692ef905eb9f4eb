"""SemEval-2018 Task 1 E-c: English tweets, 11 emotions. RoBERTa-base.

    accelerate launch recipes/semeval2018_reg.py              # reg; the official file is downloaded
    accelerate launch recipes/semeval2018_reg.py --loss zlpr  # with the settings for losses on logits

The study reports scores of this corpus but not its settings: these are the ones of its other texts.
"""

from hf_mlcl.experiments import Recipe, run_recipe

RECIPE = Recipe(
    corpus="semeval2018",
    loss="reg",
    settings={
        "backbone": "roberta-base",
        "corpus_options": {"labelled_only": True},  # the tweets that the paper counts
        "max_length": 220,
        "pooling": "first",
        "clean_text": True,
        "optim": "adamw_torch_fused",
        "weight_decay": 0.01,
        "per_device_eval_batch_size": 128,
    },
    contrastive={
        "num_train_epochs": (320, 640),
        "learning_rate": (5e-5, 2e-5),
        "global_batch_size": 256,
        "alpha": (0.0, 1.0),
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
