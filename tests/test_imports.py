"""What importing the package costs, and what works afterwards."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import hf_mlcl
from hub.fresh import run

HEAVY = ("transformers", "datasets", "timm", "torchvision", "accelerate", "pandas", "matplotlib", "sklearn")


def test_losses_need_torch_alone_and_the_package_nothing():
    code = f"""
        import sys
        import hf_mlcl
        assert "torch" not in sys.modules
        import hf_mlcl.losses
        hf_mlcl.build_loss("reg+zlpr", gather_across_devices=True)
        print(sorted(set({HEAVY!r}) & set(sys.modules)))
    """
    assert run(code).stdout.strip() == "[]"


@pytest.mark.parametrize(
    "before",
    [
        "import hf_mlcl; from transformers import PreTrainedModel, AutoConfig, AutoModel",
        "from transformers import AutoConfig, AutoModel, pipeline; import hf_mlcl",
        "import hf_mlcl; from importlib.util import find_spec; find_spec('transformers.pipelines'); "
        "find_spec('transformers.models.auto.configuration_auto'); from transformers import AutoConfig, AutoModel",
    ],
)
def test_auto_classes_and_pipelines_know_the_models_whoever_is_imported_first(before):
    code = f"""
        {before}
        import pickle
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        assert pickle.loads(pickle.dumps(CONFIG_MAPPING)).keys() == CONFIG_MAPPING.keys()
        backbone = {{"model_type": "mlcl_features", "feature_dim": 8}}
        config = AutoConfig.for_model("mlcl", backbone_config=backbone, num_labels=3)
        assert type(config) is hf_mlcl.MLCLConfig
        assert type(AutoModel.from_config(config)) is hf_mlcl.MLCLModel
        from transformers.pipelines import PIPELINE_REGISTRY

        assert "multilabel-text-classification" in PIPELINE_REGISTRY.get_supported_tasks()
    """
    run(code)


ROOT = Path(hf_mlcl.__file__).parent
PACKAGES = [".".join(("hf_mlcl", *stub.parent.relative_to(ROOT).parts)) for stub in sorted(ROOT.rglob("*.pyi"))]


@pytest.mark.parametrize("package", PACKAGES)
def test_names_that_are_imported_lazily_are_there_and_type_checkers_see_the_same(package):
    module = importlib.import_module(package)
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    seen = {alias.asname: node.module for node in stub.body if node.module for alias in node.names}
    assert sorted(seen) == module.__all__
    for name, home in seen.items():
        assert getattr(module, name) is getattr(importlib.import_module(f"{package}.{home}"), name)
        assert name in dir(module)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing
