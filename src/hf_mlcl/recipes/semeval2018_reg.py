"""SemEval-2018 Task 1 E-c: English tweets, 11 emotions. RoBERTa-base.

    accelerate launch recipes/semeval2018_reg.py              # reg; the official file is downloaded
    accelerate launch recipes/semeval2018_reg.py --loss zlpr  # with the settings for losses on logits

The study reports scores of this corpus but not its settings: these are the ones of its other texts.

Every argument of the training can be set; --help lists them. A tuple holds what the study tried: the first is used.
"""

from accelerate import PartialState

from hf_mlcl.experiments import Recipe, parse_experiment, print_summary, run_experiment

RECIPE = Recipe(
    corpus="semeval2018",
    loss="reg",
    settings={
        "backbone": "roberta-base",
        "corpus_options": {"labelled_only": True},  # the tweets that the paper counts
        "max_length": 220,
        "clean_text": True,
        "optim": "adamw_torch",
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "per_device_eval_batch_size": 128,
        "save_total_limit": 1,
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
    experiment, training = parse_experiment(RECIPE, description=__doc__)
    result = run_experiment(experiment, training)  # train, linear evaluation (losses on logits: directly), save
    print_summary(result)
    PartialState().destroy_process_group()  # a rank that leaves without it may crash on its way out
