"""Studies: corpora x losses x seeds x settings as one file, resumable to the run, and what is printed of them.

A study's way: `specification` (file to runs) -> `worklist` (who does what, as plain files) -> `runner` (workers) ->
`table` (every run a row) -> `report` (the paper's tables) and `figures`.
"""

from hf_mlcl.study.runner import Progress, run_study
from hf_mlcl.study.specification import ReportOptions, Run, Study, StudyError, load_outline, load_study, ready_studies
from hf_mlcl.study.worklist import WorkList

__all__ = [
    "Progress",
    "ReportOptions",
    "Run",
    "Study",
    "StudyError",
    "WorkList",
    "load_outline",
    "load_study",
    "ready_studies",
    "run_study",
]
