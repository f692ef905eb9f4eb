"""RCV1-v2: Reuters news, 91 topics. RoBERTa-base with the study's settings.

accelerate launch recipes/rcv1_reg.py --data_dir reuters/               # reg; docs/corpora.md: how to get the files
accelerate launch recipes/rcv1_reg.py --data_dir reuters/ --size small  # RCV1(S)
accelerate launch recipes/rcv1_reg.py --data_dir reuters/ --loss zlpr   # with the settings for losses on logits
"""

from hf_mlcl.experiments import Recipe, run_recipe

RECIPE = Recipe(
    corpus="rcv1",
    loss="reg",
    settings={
        "backbone": "roberta-base",
        "max_length": 220,
        "pooling": "first",
        "clean_text": True,
        "optim": "adamw_torch_fused",
        "weight_decay": 0.01,
        "per_device_eval_batch_size": 128,
    },
    contrastive={
        "num_train_epochs": 320,
        "learning_rate": (5e-5, 2e-5),
        "global_batch_size": 256,
        "alpha": (0.0, 1.0),
        "temperature": 0.1,
        "save_steps": 0.05,  # a share of all steps
        "linear_learning_rates": [1.0, 0.1],
        "linear_weight_decays": [1e-1, 1e-2, 1e-4],
        "linear_batch_size": 256,
        "linear_optimizer": "adamw",
    },
    contrastive_small={
        "num_train_epochs": (320, 640),
        "global_batch_size": (128, 256),
        "linear_learning_rates": [1.0],
        "linear_weight_decays": [1e-2],
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
