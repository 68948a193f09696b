"""The JSON Schema of `cmf.yaml`, with a description of each setting. Spec: docs/spec/gateway.md [GW-9]."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from typing import Any

from pipeline.gateway.config.settings import Settings
from pipeline.gateway.config.settings_base import Section


def settings_schema() -> dict[str, Any]:
    """The schema. Descriptions are the docstrings under the fields of `Settings` and its sections."""
    schema = Settings.model_json_schema()
    del schema["required"]  # the store has a default beside the file
    known = {one.__name__: one for one in _sections(Section)}
    for name, own in {**schema["$defs"], Settings.__name__: schema}.items():
        texts = _descriptions(known[name]) if name in known else {}
        for field, described in own.get("properties", {}).items():
            if field in texts:
                described["description"] = texts[field]
    return schema


def _sections(base: type[Section]) -> list[type[Section]]:
    return [one for each in base.__subclasses__() for one in (each, *_sections(each))]


def _descriptions(section: type[Section]) -> dict[str, str]:
    """The docstrings under the fields of a section and of those that it extends."""
    found: dict[str, str] = {}
    for cls in (one for one in reversed(section.__mro__) if issubclass(one, Section)):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        body = definition.body if isinstance(definition, ast.ClassDef) else []
        for field, text in itertools.pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                    found[name] = inspect.cleandoc(docstring).replace("\n", " ")
    return found
