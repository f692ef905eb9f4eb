"""The closing lines of a run."""

from __future__ import annotations

import torch.distributed as dist

from hf_mlcl.experiments.running import ExperimentResult

METRICS = ("micro_f1", "macro_f1", "hamming_loss", "mAP", "accuracy")


def print_summary(result: ExperimentResult) -> None:
    """Print scores, times and where everything is; one process of many does."""
    if dist.is_initialized() and dist.get_rank() > 0:
        return
    shown = [name for name in METRICS if f"test_{name}" in result.metrics]
    print(f"\n{result.settings['corpus']}, {result.settings['loss']}, seed {result.settings['seed']}")
    print(f"{'':<12}" + "".join(f"{name:>14}" for name in shown))
    for split in ("validation", "test"):
        print(f"{split:<12}" + "".join(f"{result.metrics[f'{split}_{name}']:>14.4f}" for name in shown))
    if "tuned_test_micro_f1" in result.metrics:
        found = (result.metrics.get(f"tuned_test_{name}") for name in shown)
        print(f"{'test, tuned':<12}" + "".join(f"{'' if value is None else f'{value:.4f}':>14}" for value in found))
    times = ", ".join(f"{name} {value:.0f} s" for name, value in result.seconds.items())
    print(f"{times}\nEncoder, classifier and metrics.json are in {result.folder}")
