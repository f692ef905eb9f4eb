"""Encoders: any text encoder, any timm model or precomputed features, with projection head and label prototypes."""

from hf_mlcl.models.backbones import FeatureBackbone
from hf_mlcl.models.classification import MLCLForImageClassification, MLCLForSequenceClassification
from hf_mlcl.models.configuration import FeatureBackboneConfig, MLCLConfig
from hf_mlcl.models.modeling import MLCLModel, MLCLOutput
from hf_mlcl.models.pipelines import MultiLabelImageClassificationPipeline, MultiLabelTextClassificationPipeline

__all__ = [
    "FeatureBackbone",
    "FeatureBackboneConfig",
    "MLCLConfig",
    "MLCLForImageClassification",
    "MLCLForSequenceClassification",
    "MLCLModel",
    "MLCLOutput",
    "MultiLabelImageClassificationPipeline",
    "MultiLabelTextClassificationPipeline",
]
