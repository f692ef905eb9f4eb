"""toy_images: generated pictures with 15 kinds of shapes, built in. A small network that learns from nothing.

python recipes/toy_images_reg.py
python recipes/toy_images_reg.py --loss zlpr --num_train_epochs 20
"""

from hf_mlcl.experiments import Recipe, run_recipe

RECIPE = Recipe(
    corpus="toy_images",
    loss="reg",
    settings={
        "backbone": "small",
        "image_size": 32,
        "num_train_epochs": 10,
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
