"""Hamming loss: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from hf_mlcl.metrics.evaluate_modules import HammingLoss

if __name__ == "__main__":
    HammingLoss.show()
