"""The arguments that a file of settings or of a study may set, and whether a value fits one."""

from __future__ import annotations

import dataclasses
import numbers
import types
import typing
from typing import Any


def known_arguments() -> dict[str, Any]:
    """Every argument of an experiment and its training, with its type."""
    from hf_mlcl.experiments import ExperimentArguments
    from hf_mlcl.training import ContrastiveTrainingArguments

    known: dict[str, Any] = {}
    for arguments in (ContrastiveTrainingArguments, ExperimentArguments):
        hints = typing.get_type_hints(arguments)
        known |= {field.name: hints[field.name] for field in dataclasses.fields(arguments) if field.init}
    return known


def accepts(hint: Any, value: Any) -> bool:
    """Whether a value from YAML fits an argument's type; types that YAML cannot write (enumerations) take anything.

    Examples:
        >>> accepts(list[float], [0.1, 1]), accepts(list[float], ["0.1"]), accepts(int | None, 10.5)
        (True, False, False)
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(accepts(member, value) for member in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    plain = typing.get_origin(hint) or hint
    if plain is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if plain is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if plain is list:
        return isinstance(value, list) and all(accepts(item, one) for item in typing.get_args(hint) for one in value)
    if plain in (bool, str, dict, types.NoneType):
        return isinstance(value, plain)
    return True


def hint_name(hint: Any) -> str:
    """What a person would call a type.

    Examples:
        >>> hint_name(int | None)
        'a whole number or null'
    """
    names: dict[Any, str] = {
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        str: "text",
        dict: "a mapping",
    }
    names |= {list: "a list", types.NoneType: "null"}
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(hint_name(member) for member in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, typing.get_args(hint)))
    plain = typing.get_origin(hint) or hint
    if plain is list and typing.get_args(hint):
        return f"a list, each item {hint_name(typing.get_args(hint)[0])}"
    return names.get(plain, str(getattr(plain, "__name__", plain)))
