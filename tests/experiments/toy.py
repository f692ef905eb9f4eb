"""An experiment of half a second on a built-in corpus, for tests of what is left in its folder."""

from __future__ import annotations

from hf_mlcl.experiments import build_experiment, run_experiment, study_recipe

SETTINGS = {
    "backbone": "small",
    "max_train_samples": 48,
    "max_eval_samples": 24,
    "max_length": 12,
    "max_steps": 4,
    "save_steps": 2,
    "save_total_limit": 2,
    "global_batch_size": 12,
    "linear_epochs": 1,
    "linear_learning_rates": [0.1],
    "linear_weight_decays": [0.01],
    "use_cpu": True,
    "report_to": "none",
    "export": False,
}


def build(folder, **settings):
    best = settings.get("protocol") == "best"  # which has no settings of the study's heads
    chosen = {name: value for name, value in SETTINGS.items() if not (best and name.startswith("linear_"))}
    return build_experiment(study_recipe("toy_text"), {**chosen, "output_dir": str(folder), **settings})


def run(folder, **settings):
    return run_experiment(*build(folder, **settings), quiet=True)


def contents(folder):
    """Every file below a folder with its bytes, but for the files about it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".hf-mlcl" not in path.parts
    }
