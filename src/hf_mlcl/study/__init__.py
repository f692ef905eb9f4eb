"""Studies: corpora x losses x seeds x settings as one file, resumable to the run, and what is printed of them.

A study's way: `specification` (file to runs) -> `running` (a pool of processes, or Ray) and `execution` (one run) ->
`results` (one row per run) -> `tables` (the paper's) and `figures`.
"""

from hf_mlcl._lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
