"""``python -m hf_mlcl`` is ``hf-mlcl``."""

from hf_mlcl.cli.app import app

app(prog_name="hf-mlcl")
