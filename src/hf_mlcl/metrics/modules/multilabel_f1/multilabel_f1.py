"""Multi-label F1: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from hf_mlcl.metrics.evaluate_modules import MultilabelF1

if __name__ == "__main__":
    MultilabelF1.show()
