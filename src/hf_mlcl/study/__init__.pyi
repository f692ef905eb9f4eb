from .results import planned_study as planned_study, study_table as study_table
from .running import Progress as Progress, run_study as run_study
from .specification import (
    ReportOptions as ReportOptions,
    Run as Run,
    Study as Study,
    StudyError as StudyError,
    load_outline as load_outline,
    load_study as load_study,
    ready_studies as ready_studies,
)
