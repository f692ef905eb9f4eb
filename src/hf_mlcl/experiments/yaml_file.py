"""YAML as its version 1.2 reads it, strictly: ``5e-5`` is a number, ``no`` is a word, a key stands once."""

from __future__ import annotations

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML follows YAML 1.1, where 5e-5 is text, `no` and `off` are false, and a key's last value wins silently."""

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
    """The value of a YAML text.

    Raises:
        yaml.YAMLError: With the line and column of what is wrong.

    Examples:
        >>> parse_yaml("{learning_rate: 5e-5, save_strategy: no, seeds: [0, 1]}")
        {'learning_rate': 5e-05, 'save_strategy': 'no', 'seeds': [0, 1]}
    """
    return yaml.load(text, Loader=_Loader)
