"""Classifiers as models that transformers and timm have by themselves, wherever one computes exactly the same.

Those have one linear layer, so only a classifier with one head can become one. In timm, and in most of transformers'
vision models, that layer sits directly on the features. Most of its text models put a dense layer and a function f
between the first token and the linear layer, which does not stand in the way:

- tanh (BERT, RoBERTa, XLM-R, MPNet, ...) is a straight line near zero. The dense layer scales features to 2^-12 and
  the linear layer scales them up again. Powers of two cost no precision, and tanh(x) / x differs from 1 by x^2 / 3,
  which there is less than the last bit of a float32; and float16 still has room for both layers.
- f(z) - f(-z) = z where f is GELU (ELECTRA, DeBERTa) or ReLU (DistilBERT). The dense layer computes every logit and its
  opposite, the linear layer subtracts them; with up to half as many labels as features there is room for all.

ModernBERT's head does bend, since it normalises, and few heads look at the mean of all tokens. Whether a head can do it
is not looked up but tried: its logits are compared with the original's.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification, TimmWrapperConfig

from hf_mlcl.hub.examples import example_inputs
from hf_mlcl.metrics import DecisionRule
from hf_mlcl.models import MLCLModel
from hf_mlcl.models.classification import LARGEST_LOGIT

SMALL = 12
"""Features are scaled down to 2^-12, or to 2^-9 at most, where that is needed for weights that float16 can hold."""
TOLERANCE = 1e-5
"""The largest difference of logits, in units of the largest where that is above 1, that counts as rounding."""
POOLING_WORDS = {"first": "bos", "mean": "mean"}
"""EuroBERT can pool as we do, in these words."""


class NoCounterpartError(ValueError):
    """No model of transformers or timm computes what a classifier does."""


def native_classifier(classifier: Any) -> Any:
    """A model of transformers, or of timm for its architectures, with the same logits; an error where none has them."""
    if classifier.config.normalize_features:
        instead = " Train with --normalize_features no (normalize_features=False) for one that they have."
        images = classifier.main_input_name == "pixel_values"  # means of texts have no counterpart either way
        raise NoCounterpartError(
            "The features of this classifier are scaled to length 1, and no model of transformers or timm does that."
            + (instead if images else "")
        )
    weight, bias = one_linear_layer(classifier)
    is_timm = isinstance(classifier.config.backbone_config, TimmWrapperConfig)
    return (_timm_classifier if is_timm else _transformers_classifier)(classifier, weight, bias)


def one_linear_layer(classifier: Any) -> tuple[Tensor, Tensor]:
    """Weight (labels, features) and bias (labels,) of a classifier that is one linear layer, temperature included."""
    if isinstance(classifier, MLCLModel):
        if classifier.classifier is None:
            raise ValueError("This MLCLModel has no classifier: export trainer.linear_evaluate(...).classifier.")
        return classifier.classifier.weight, classifier.classifier.bias
    heads = classifier.heads
    if len(heads.weight) != 1:
        raise NoCounterpartError(
            f"This classifier averages the probabilities of {len(heads.weight)} linear heads, and no model of "
            "transformers or timm does. Evaluate with LinearEvaluationConfig(heads=1) or protocol='best' for a "
            "classifier with one head."
        )
    temperature = classifier.config.logit_temperature
    return heads.weight[0] / temperature, heads.bias[0] / temperature


def decision_settings(config: Any) -> dict[str, Any]:
    """What a plain configuration says of labels, and of when they are given: `DecisionRule.of` reads it again."""
    settings: dict[str, Any] = {"problem_type": "multi_label_classification"}
    if config.thresholds is not None:
        settings["thresholds"] = list(config.thresholds)
    if DecisionRule.of(config).single_label:
        settings["single_label"] = True
    return settings


def _timm_classifier(classifier: Any, weight: Tensor, bias: Tensor) -> Any:
    import timm

    config = classifier.config.backbone_config
    name, arguments = config.architecture, config.model_args or {}
    model: Any = timm.create_model(name, num_classes=len(weight), **arguments).eval()
    layer = model.get_classifier()
    if not isinstance(layer, nn.Linear) or layer.weight.shape != weight.shape:
        raise NoCounterpartError(f"The classifier of {name} is {layer}, not one linear layer on its features.")
    missing, unexpected = model.load_state_dict(classifier.backbone.timm_model.state_dict(), strict=False)
    own = {key for key, parameter in model.named_parameters() if parameter is layer.weight or parameter is layer.bias}
    if unexpected or set(missing) - own:
        raise NoCounterpartError(f"{name} has another structure with a classifier than without.")
    layer.bias.copy_(bias)
    _fit(classifier, name, [layer], [[weight]], lambda inputs: model(inputs["pixel_values"]))
    return model


def _transformers_classifier(classifier: Any, weight: Tensor, bias: Tensor) -> Any:
    config, ours = copy.deepcopy(classifier.config.backbone_config), classifier.config
    config.id2label, config.label2id = dict(ours.id2label), {name: i for i, name in ours.id2label.items()}
    for name, value in decision_settings(ours).items():
        setattr(config, name, value)
    if config.model_type == "eurobert":
        config.classifier_pooling = POOLING_WORDS.get(ours.pooling, config.classifier_pooling)
    reads_images = classifier.main_input_name == "pixel_values"
    kind = AutoModelForImageClassification if reads_images else AutoModelForSequenceClassification
    try:
        model = kind.from_config(config, trust_remote_code=False).eval()
    except ValueError as error:
        raise NoCounterpartError(f"transformers has no classification model for {config.model_type!r}.") from error
    name = type(model).__name__
    _, unexpected = model.base_model.load_state_dict(classifier.backbone.state_dict(), strict=False)
    unused = [key for key in unexpected if not key.startswith("pooler.")]  # of a backbone that was given as an object
    head, size = _head(model, classifier.backbone), weight.shape[1]
    if unused or [layer.weight.shape for layer in head] not in ([weight.shape], [(size, size), weight.shape]):
        raise NoCounterpartError(f"The classification head of {name} is not one that we know.")
    if any(layer.bias is None for layer in head):
        raise NoCounterpartError(f"The classification head of {name} has no bias.")
    features = classifier.features_of(example_inputs(classifier, rows=3, length=9))
    candidates = [[weight]] if len(head) == 1 else _two_layers(weight, features)
    for layer in head:
        layer.bias.zero_()
    head[-1].bias.copy_(bias)
    _fit(classifier, name, head, candidates, lambda inputs: model(**inputs).logits)
    return model


def _two_layers(weight: Tensor, features: Tensor) -> list[list[Tensor]]:
    """Weights of a dense and a linear layer that are one linear layer together: with tanh between them, with GELU."""
    labels, size = weight.shape
    largest = features.abs().amax(0)
    largest = largest.clamp(min=max(float(largest.max()) / 64, 1e-6))  # one that is near zero here need not stay there
    fits_float16 = torch.log2(2.0**15 / weight.abs().amax(0).clamp(min=1e-6)).floor()
    down_to_one = torch.log2(largest).ceil()
    scale = 2.0 ** fits_float16.clamp(down_to_one + SMALL - 3, down_to_one + SMALL)
    found = [[torch.diag(1 / scale), weight * scale]]
    if 2 * labels <= size:
        opposites, signs = torch.zeros(size, size), torch.zeros(labels, size)
        opposites[: 2 * labels] = torch.cat([weight, -weight])
        signs[:, : 2 * labels] = torch.cat([torch.eye(labels), -torch.eye(labels)], dim=1)
        found.append([opposites, signs])
    return found


def _head(model: Any, backbone: nn.Module) -> list[nn.Linear]:
    """The layers that a classification model puts on its backbone; none where they are not all linear."""
    known = {f"{model.base_model_prefix}.{name}" for name, _ in backbone.named_modules()}
    new = [module for name, module in model.named_modules() if name not in known and not list(module.children())]
    layers = [module for module in new if list(module.parameters())]
    return layers if all(isinstance(layer, nn.Linear) for layer in layers) else []


def _fit(
    classifier: Any, name: str, head: list[nn.Linear], candidates: list[list[Tensor]], predict: Callable[..., Any]
) -> None:
    """Give the layers of a model's head the weights with which it agrees with the original, or refuse it."""
    inputs = example_inputs(classifier, rows=3, length=9)
    expected, difference = classifier(**inputs).logits, math.inf
    for weights in candidates:
        for layer, weight in zip(head, weights, strict=True):
            layer.weight.copy_(weight)
        difference = logit_difference(expected, predict(inputs))
        if difference <= TOLERANCE:
            return
    raise NoCounterpartError(
        f"{name} cannot hold this classifier exactly: its head does more than a linear layer on what the classifier "
        f"looks at (pooling={classifier.config.pooling!r}), and logits differ by up to {difference:.2g}."
    )


def logit_difference(expected: Tensor, found: Tensor) -> float:
    """The largest difference, in units of the largest logit where that is above 1; infinite where it is none."""
    difference = float((expected - found.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)).abs().max())
    return difference / max(1.0, float(expected.abs().max())) if math.isfinite(difference) else math.inf
