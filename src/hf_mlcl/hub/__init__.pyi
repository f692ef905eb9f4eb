from .exporting import export_classifier as export_classifier, export_encoder as export_encoder
from .model_card import (
    DataFacts as DataFacts,
    LossFacts as LossFacts,
    ModelReport as ModelReport,
    SplitScores as SplitScores,
    report_of_model as report_of_model,
    write_model_card as write_model_card,
)
from .onnx import export_onnx as export_onnx
from .publishing import export_model as export_model
from .push import intended_files as intended_files, push_folder as push_folder
from .space import push_space as push_space, write_space as write_space
