"""Studies: corpora x losses x seeds x settings as one file, resumable to the run, and what is printed of them.

A study's way: `specification` (file to runs) -> `running` (a pool of processes, or Ray) and `execution` (one run) ->
`results` (one row per run) -> `tables` (the paper's) and `figures`.
"""

from hf_mlcl.study.results import planned_study, study_table
from hf_mlcl.study.running import Progress, run_study
from hf_mlcl.study.specification import ReportOptions, Run, Study, StudyError, load_outline, load_study, ready_studies

__all__ = [
    "Progress",
    "ReportOptions",
    "Run",
    "Study",
    "StudyError",
    "load_outline",
    "load_study",
    "planned_study",
    "ready_studies",
    "run_study",
    "study_table",
]
