"""How to use what is in a model's folder: the lines of code that its card shows, found by looking into it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from hf_mlcl.hub.encoder import PROTOTYPES_FILE
from hf_mlcl.hub.report import ModelReport

Kind = Literal["encoder", "classifier", "plain encoder", "plain classifier", "onnx"]


class Use(NamedTuple):
    """One way to use a model."""

    title: str
    code: str


@dataclass(frozen=True)
class Contents:
    """What a model's folder holds.

    Attributes:
        kind: ``"encoder"`` and ``"classifier"`` load with this package, the plain ones without; ``"onnx"`` is a graph
            with no model of torch beside it.
        library: Which one loads it, as the Hub spells it.
        task: The Hub's name of what it is for, where the folder tells it.
        files: All names.
    """

    kind: Kind
    library: str
    task: str | None
    files: frozenset[str]


def look_into(folder: str | os.PathLike[str], modality: str) -> Contents:
    """Find out what kind of model a folder holds."""
    root = Path(folder)
    path = root / "config.json"
    config = json.loads(path.read_text()) if path.is_file() else {}
    files = frozenset(item.name for item in root.iterdir())
    if not config:
        return Contents("onnx", "onnx", None, files)
    architecture = (config.get("architectures") or [""])[0]
    image = modality == "image"
    classification = "image-classification" if image else "text-classification"
    extraction = "image-feature-extraction" if image else "feature-extraction"
    if config.get("model_type") == "mlcl":
        is_classifier = architecture.endswith("Classification")
        task = classification if is_classifier else extraction
        return Contents("classifier" if is_classifier else "encoder", "transformers", task, files)
    if "architecture" in config:  # timm's own layout
        labelled = bool(config.get("num_classes"))
        task = classification if labelled else extraction
        return Contents("plain classifier" if labelled else "plain encoder", "timm", task, files)
    if architecture.endswith("Classification"):
        return Contents("plain classifier", "transformers", classification, files)
    if "modules.json" in files:
        return Contents("plain encoder", "sentence-transformers", "sentence-similarity", files)
    return Contents("plain encoder", "transformers", extraction, files)


def uses(contents: Contents, report: ModelReport, model_id: str, pooling: str) -> list[Use]:
    """The ways to use a model, as code that runs."""
    image = report.modality == "image"
    inputs = '"photo.jpg"' if image else '"A text to be labelled."'
    if contents.kind == "onnx":
        return _uses_of_onnx(model_id, contents, report.modality)
    if report.modality == "features":
        return _uses_of_features(model_id)
    if contents.kind == "encoder":
        found = _uses_of_encoder(model_id, inputs, report.prototypes)
    elif contents.kind == "classifier":
        found = _uses_of_classifier(model_id, inputs, image, len(report.label_names))
        if any(name.endswith(".onnx") for name in contents.files):
            found.pop()  # it has been exported already
    elif contents.kind == "plain classifier":
        found = _uses_of_plain_classifier(model_id, inputs, image, contents.library, len(report.label_names))
    else:
        found = _uses_of_plain_encoder(model_id, image, contents, pooling)
    return found + _uses_of_onnx(model_id, contents, report.modality)


def _uses_of_features(model_id: str) -> list[Use]:
    code = f"""
import torch
from hf_mlcl import MLCLModel

model = MLCLModel.from_pretrained("{model_id}").eval()
output = model(feature_values=torch.randn(2, model.config.backbone_config.feature_dim))  # vectors of the same origin
features, embeddings = output.features, output.embeddings
"""
    return [Use("Features", code)]


def _uses_of_encoder(model_id: str, inputs: str, prototypes: bool) -> list[Use]:
    features = f"""
from hf_mlcl.inference import Encoder

encoder = Encoder.from_pretrained("{model_id}")
features = encoder.features([{inputs}])
"""
    zero_shot = f"""
from hf_mlcl.inference import Encoder, PrototypeClassifier

classify = PrototypeClassifier.from_model(Encoder.from_pretrained("{model_id}"))
print(classify({inputs}, top_k=3))
"""
    nearest = f"""
from hf_mlcl.inference import Encoder, ExampleIndex

encoder = Encoder.from_pretrained("{model_id}")
index = ExampleIndex(encoder.features([{inputs}]))  # your examples
print(index.search(encoder.features({inputs}), k=1).rows)
"""
    found = [Use("Features", features), Use("The nearest examples", nearest)]
    return [found[0], Use("Labels by similarity to prototypes", zero_shot), found[1]] if prototypes else found


def _uses_of_classifier(model_id: str, inputs: str, image: bool, labels: int) -> list[Use]:
    task = "image-classification" if image else "text-classification"
    every = f"top_k={labels}" if image else "top_k=None"
    probabilities = f"""
import hf_mlcl
from transformers import pipeline

classify = pipeline("{task}", model="{model_id}")
print(classify({inputs}, {every}))
"""
    decisions = f"""
import hf_mlcl
from transformers import pipeline

classify = pipeline("multilabel-{task}", model="{model_id}")
print(classify({inputs}))
"""
    found = [Use("Probabilities of all labels", probabilities), Use("Labels that reach their thresholds", decisions)]
    name = "MLCLForImageClassification" if image else "MLCLForSequenceClassification"
    export = f"""
from hf_mlcl import {name}
from hf_mlcl.hub import export_onnx

export_onnx({name}.from_pretrained("{model_id}"), "model.onnx")
"""
    return [*found, Use("As an ONNX graph, for programs without torch", export)]


def _uses_of_plain_classifier(model_id: str, inputs: str, image: bool, library: str, labels: int) -> list[Use]:
    task = "image-classification" if image else "text-classification"
    every = f'top_k={labels}, function_to_apply="sigmoid"' if image else "top_k=None"
    code = f"""
from transformers import pipeline

classify = pipeline("{task}", model="{model_id}")
print(classify({inputs}, {every}))
"""
    found = [Use("Probabilities of all labels", code)]
    return [*found, _timm_use(model_id, "probabilities = model(pixels).sigmoid()")] if library == "timm" else found


def _timm_use(model_id: str, last: str) -> Use:
    classes = "" if "sigmoid" in last else ", num_classes=0"
    code = f"""
import timm
from PIL import Image

model = timm.create_model("hf-hub:{model_id}", pretrained=True{classes}).eval()
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
pixels = transform(Image.open("photo.jpg").convert("RGB")).unsqueeze(0)
{last}
"""
    return Use("With timm", code)


def _uses_of_plain_encoder(model_id: str, image: bool, contents: Contents, pooling: str) -> list[Use]:
    if image:
        code = f"""
from PIL import Image
from transformers import AutoImageProcessor, AutoModel

name = "{model_id}"
prepare, model = AutoImageProcessor.from_pretrained(name), AutoModel.from_pretrained(name).eval()
pixels = prepare(Image.open("photo.jpg").convert("RGB"), return_tensors="pt")
features = model(**pixels).pooler_output.flatten(1)
"""
        found = [_timm_use(model_id, "features = model(pixels)"), Use("With transformers", code)]
    else:
        vector = "hidden[:, 0]"
        if pooling == "mean":
            vector = '(hidden * (mask := batch["attention_mask"].unsqueeze(-1))).sum(1) / mask.sum(1)'
        code = f"""
from transformers import AutoModel, AutoTokenizer

name = "{model_id}"
tokenizer, model = AutoTokenizer.from_pretrained(name), AutoModel.from_pretrained(name).eval()
batch = tokenizer(["A text to be labelled."], padding=True, truncation=True, return_tensors="pt")
hidden = model(**batch).last_hidden_state
features = {vector}
"""
        sentence = f"""
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("{model_id}")
features = model.encode(["A text to be labelled."])
"""
        found = [Use("With transformers", code)]
        if "modules.json" in contents.files:
            found = [Use("With sentence-transformers", sentence), *found]
    if PROTOTYPES_FILE in contents.files:
        found.append(
            Use(
                "Labels by similarity to prototypes, after the lines above",
                _PROTOTYPES.format(model_id, PROTOTYPES_FILE),
            )
        )
    return found


_PROTOTYPES = """
import json
import torch
from huggingface_hub import hf_hub_download
from safetensors import safe_open

with safe_open(hf_hub_download("{}", "{}"), "pt") as file:
    names = json.loads(file.metadata()["labels"])
    weights = {{key: file.get_tensor(key) for key in file.keys()}}
hidden = torch.relu(torch.as_tensor(features) @ weights["projection_hidden"].T)
embeddings = hidden @ weights["projection_out"].T
scores = torch.cosine_similarity(embeddings[:, None], weights["prototypes"], dim=2)
print(names[scores[0].argmax()])
"""


def _uses_of_onnx(model_id: str, contents: Contents, modality: str) -> list[Use]:
    graphs = sorted(name for name in contents.files if name.endswith(".onnx"))
    if not graphs:
        return []
    imports, prepare = {
        "text": (
            "from transformers import AutoTokenizer",
            f"""tokenizer = AutoTokenizer.from_pretrained("{model_id}")
inputs = tokenizer(["A text to be labelled."], return_tensors="np")""",
        ),
        "image": (
            "from PIL import Image\nfrom transformers import AutoImageProcessor",
            f"""prepare = AutoImageProcessor.from_pretrained("{model_id}")
inputs = prepare(Image.open("photo.jpg").convert("RGB"), return_tensors="np")""",
        ),
        "features": (
            "import numpy",
            """size = session.get_inputs()[0].shape[1]
inputs = {"feature_values": numpy.zeros((1, size), dtype="float32")}  # vectors of the same origin""",
        ),
    }[modality]
    code = f"""
import json
import onnxruntime
from huggingface_hub import hf_hub_download
{imports}

session = onnxruntime.InferenceSession(hf_hub_download("{model_id}", "{graphs[0]}"))
{prepare}
wanted = {{item.name: inputs[item.name] for item in session.get_inputs()}}
names = json.loads(session.get_modelmeta().custom_metadata_map["labels"])
outputs = [item.name for item in session.get_outputs()]
found = dict(zip(outputs, session.run(outputs, wanted)))
"""
    return [Use("With onnxruntime, without torch", code)]
