"""toy_text: generated documents with 28 labels, built in. A small encoder that learns from nothing, minutes on a CPU.

python recipes/toy_text_reg.py
python recipes/toy_text_reg.py --loss zlpr --num_train_epochs 20
"""

from accelerate import PartialState

from hf_mlcl.experiments import Recipe, parse_experiment, print_summary, run_experiment

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
        "save_total_limit": 1,
        "report_to": "none",
        "linear_learning_rates": [0.1, 0.01],
        "linear_weight_decays": [1e-1, 1e-2, 1e-4],
    },
    logit={"eval_strategy": "epoch"},
)

if __name__ == "__main__":
    experiment, training = parse_experiment(RECIPE, description=__doc__)
    result = run_experiment(experiment, training)  # train, linear evaluation (losses on logits: directly), save
    print_summary(result)
    PartialState().destroy_process_group()  # a rank that leaves without it may crash on its way out
