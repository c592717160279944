"""YAML files checked against a model: what testbeds and systems have in common. No I/O beyond reading the file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from fractions import Fraction
from pathlib import Path
from typing import Annotated, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

_UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
          "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_SIZE = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})")


class TestbedError(ValueError):
    """A testbed or system file that cannot be used; the message names the file, the field and what was expected."""

    __test__ = False  # not a test class, whatever its name


class _Yaml12(yaml.SafeLoader):
    """YAML with the booleans of version 1.2: in 1.1 the field name `on` and a host called `no` are truth values.

    A key given twice is refused: PyYAML keeps the last, and half a testbed vanishes without a word.
    """

    def construct_mapping(self, node, deep=False):
        keys = [key.value for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        for key, _ in reversed(node.value):
            if keys.count(key.value) > 1:
                raise TestbedError(f"line {key.start_mark.line + 1}: field {key.value} is given twice")
        return super().construct_mapping(node, deep)


_Yaml12.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml12.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def parse_bytes(value: int | str) -> int:
    """Bytes from an integer or from text with a unit, ``"100 GiB"``. TB and TiB are never mixed: the unit is required."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(str(value).replace("_", "").strip())
    if not match:
        raise ValueError(f"{value!r} is not a size; expected bytes or a number with one of {', '.join(_UNITS)}")
    return int(Fraction(match[1]) * _UNITS[match[2]])


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]


class Model(BaseModel):
    """What all files have in common: an unknown field is an error, and what was read does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=Model)


def load(path: str | Path, model: type[M], live: Collection[str] = ()) -> M:
    """The model of a YAML file; TestbedError names the file, the field and what was expected.

    `live`: fields that only a running lab may set: a file that claimed to be one would open the guard's door to any path.
    """
    try:
        data = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Yaml12)
    except FileNotFoundError:
        beside = ", ".join(sorted(file.name for file in Path(path).parent.glob("*.yaml")))
        raise TestbedError(
            f"{path}: no such file; a {model.__name__.lower()} is a YAML file under params/"
            + (f"; in its folder are {beside}" if beside else "")
        ) from None
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror}") from None
    except TestbedError as error:
        raise TestbedError(f"{path}: {error}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TestbedError(f"{path}: not YAML in UTF-8: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise TestbedError(f"{path}: expected fields of a {model.__name__.lower()}, found {type(data).__name__}")
    if claimed := sorted(set(live) & data.keys()):
        raise TestbedError(f"{path}: field {claimed[0]}: set by a running lab, never in a file; remove it")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise TestbedError(f"{path}: " + "; ".join(_explain(e, model) for e in error.errors())) from None


def _explain(error, model) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = model.model_fields if len(error["loc"]) == 1 else ()
        return f"field {where}: unknown" + (f"; known fields are {', '.join(known)}" if known else "")
    given = "" if error["type"] == "missing" else f" (given: {error['input']!r})"
    return f"field {where}: {error['msg']}{given}" if where else f"{error['msg'].removeprefix('Value error, ')}"


def digest(data) -> str:
    """Identity by content."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:16]
