"""What a file of settings, or of a study, may hold: strict YAML, known arguments, values that fit them."""

from __future__ import annotations

import dataclasses
import json
import numbers
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

import yaml

NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "a mapping",
    list: "a list",
    types.NoneType: "null",
}


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML as its version 1.2 reads it: ``5e-5`` is a number, ``no`` is a word; and a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands here a second time", key_node.start_mark
                )
            seen.add(key)
        return dict(super().construct_mapping(node, deep))


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":bool", ":float", ":timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|false|False)$"), list("tTfF"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$|^[-+]?\.(?:inf|Inf)$|^\.(?:nan|NaN)$"),
    list("-+0123456789."),
)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; a `yaml.YAMLError` names line and column of what is wrong.

    Examples:
        >>> parse_yaml("{learning_rate: 5e-5, save_strategy: no, seeds: [0, 1]}")
        {'learning_rate': 5e-05, 'save_strategy': 'no', 'seeds': [0, 1]}
    """
    return yaml.load(text, Loader=_Loader)


def read_settings(path: str) -> dict[str, Any]:
    """The settings of a file whose name ends in .yaml, .yml or .json."""
    file = Path(path)
    if file.suffix not in (".yaml", ".yml", ".json") or not file.is_file():
        raise ValueError(f"--config must name a YAML or JSON file (.yaml, .yml, .json) that is there; got {path!r}.")
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text) if file.suffix == ".json" else parse_yaml(text)
    except (json.JSONDecodeError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"--config {path} must hold settings as `name: value`; got {type(content).__name__}.")
    return content


def known_arguments() -> dict[str, Any]:
    """Every argument of an experiment and its training, with its type."""
    from hf_mlcl.experiments import ExperimentArguments
    from hf_mlcl.training import ContrastiveTrainingArguments

    known: dict[str, Any] = {}
    for arguments in (ContrastiveTrainingArguments, ExperimentArguments):
        hints = typing.get_type_hints(arguments)
        known |= {field.name: hints[field.name] for field in dataclasses.fields(arguments) if field.init}
    return known | {"bf16": bool | Literal["auto"]}  # where it is faster: `hf_mlcl.experiments.parsing` finds out


def accepts(hint: Any, value: Any) -> bool:
    """Whether a value from YAML fits an argument's type; types that YAML cannot write (enumerations) take anything.

    It is our own because huggingface_hub's `type_validator` refuses a 1 where a float is expected.

    Examples:
        >>> accepts(list[float], [0.1, 1]), accepts(list[float], ["0.1"]), accepts(int | None, 10.5)
        (True, False, False)
    """
    plain, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if plain in (typing.Union, types.UnionType):
        return any(accepts(member, value) for member in parts)
    if plain is typing.Literal:
        return value in parts
    if plain in (int, float):
        number = numbers.Integral if plain is int else numbers.Real
        return isinstance(value, number) and not isinstance(value, bool)
    if plain is list:
        return isinstance(value, list) and all(accepts(item, one) for item in parts for one in value)
    return isinstance(value, plain) if plain in NAMES else True


def hint_name(hint: Any) -> str:
    """What a person would call a type.

    Examples:
        >>> hint_name(int | None)
        'a whole number or null'
    """
    plain, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if plain in (typing.Union, types.UnionType):
        return " or ".join(map(hint_name, parts))
    if plain is typing.Literal:
        return " or ".join(map(str, parts))
    if plain is list and parts:
        return f"a list, each item {hint_name(parts[0])}"
    return NAMES.get(plain) or str(getattr(plain, "__name__", plain))  # not every type of typing has a name
