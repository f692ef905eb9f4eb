"""toy_text: generated documents with 28 labels, built in. A small encoder that learns from nothing, minutes on a CPU.

python recipes/toy_text_reg.py
python recipes/toy_text_reg.py --loss zlpr --num_train_epochs 20
"""

from hf_mlcl.experiments import Recipe, run_recipe

RECIPE = Recipe(
    corpus="toy_text",
    loss="reg",
    settings={
        "backbone": "small",
        "max_length": 96,
        "num_train_epochs": 5,
        "learning_rate": 1e-3,
        "global_batch_size": 64,
        "per_device_eval_batch_size": 256,
        "logging_steps": 50,
        "report_to": "none",
        "linear_learning_rates": [0.1, 0.01],
        "linear_weight_decays": [1e-1, 1e-2, 1e-4],
    },
    logit={"eval_strategy": "epoch"},
)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__)  # train, linear evaluation (losses on logits: directly), save, sum up
