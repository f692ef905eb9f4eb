"""The program `hf-mlcl`."""
