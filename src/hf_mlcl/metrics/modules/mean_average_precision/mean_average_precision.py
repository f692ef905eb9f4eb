"""Mean average precision: a module of the `evaluate` library over `hf_mlcl.metrics`."""

from hf_mlcl.metrics.evaluate_modules import MeanAveragePrecision

if __name__ == "__main__":
    MeanAveragePrecision.show()
