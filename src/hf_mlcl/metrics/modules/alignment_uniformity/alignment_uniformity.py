"""Alignment and uniformity: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from hf_mlcl.metrics.evaluate_modules import AlignmentUniformity

if __name__ == "__main__":
    AlignmentUniformity.show()
