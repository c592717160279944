"""YAML files checked against a model: what testbeds and systems have in common. No I/O beyond reading the file.

Every text of a file ends in a job file, on a command line or in somebody's page, so there is no plain ``str`` in a
model: each field has a `Form` that says what it may hold (tests/test_hostile_text.py walks the models and holds them to
it).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import core_schema

from hcilib.model.metrics import meant, parse_bytes
from hcilib.model.places import at_home

_SHOWN = 80  # characters of a wrong value that are repeated in the error: it may be a file of its own


class TestbedError(ValueError):
    """A testbed or system file that cannot be used; the message names the file, the field and what was expected."""

    __test__ = False  # not a test class, whatever its name

    def __init__(self, said: str):
        """What was found in a file is repeated so that it can be seen: a key may hold what moves a terminal's
        cursor."""
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in said))


Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0)]


def _amount(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1e15:
        raise ValueError(
            "expected a number above 0 and below 10^15, without a unit. Remove the field if it is not known"
        )
    return float(given)


Amount = Annotated[float, BeforeValidator(_amount)]
"""A price, a duration, a power: never 0, as a missing one is left out."""


@dataclass(frozen=True)
class Form:
    """What a text field may hold: all of it fits `pattern`, every character can be seen, and there are at most `most`.

    What can be seen is what `str.isprintable` calls so, and the characters of `also`: no control character, no line end
    of any alphabet (NEL, LS, PS), nothing that turns the direction of a text or hides in it. `expected` says all that
    in words.
    """

    expected: str
    pattern: str = ".*"
    most: int = 255
    also: str = ""
    known: tuple[str, ...] = ()

    def __call__(self, text: str) -> str:
        seen = text.translate(dict.fromkeys(map(ord, self.also)))
        visible = len(text) <= self.most and seen.isprintable()
        if not visible or not re.fullmatch(self.pattern, text, re.ASCII | re.DOTALL):
            raise ValueError(f"{meant(text, self.known)}expected {self.expected}")
        return text

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        """How pydantic asks an annotation what it adds: this check, of what is a text."""
        return core_schema.no_info_after_validator_function(self, handler(source))


def _compiles(expression: str) -> str:
    try:
        re.compile(expression)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return expression


_WORD = "[A-Za-z0-9][A-Za-z0-9._-]*"
# A name, an IPv4 or an IPv6 address; the last has two colons at least: one alone stands before a port, for Fabric too.
_HOST = rf"(?:{_WORD}|(?=(?:[0-9A-Fa-f.]*:){{2}})[0-9A-Fa-f:.]+(?:%{_WORD})?)"
_ACCOUNT = r"[A-Za-z0-9_][A-Za-z0-9._\\-]*"
Name = Annotated[str, Form("letters, digits, '.', '_' and '-', the first a letter or a digit", _WORD)]
Address = Annotated[str, Form("a host name or an IP address", f"{_HOST}?")]
Account = Annotated[str, Form("an account's name: letters, digits, '.', '_', '-' (DOMAIN\\name on Windows)", _ACCOUNT)]
Jump = Annotated[str, Form("a host to jump over, as [user@]host[:port]", rf"(?:{_ACCOUNT}@)?{_HOST}(?::[0-9]{{1,5}})?")]
_SERIAL = "a serial, a WWN or the name of a link under /dev/disk/by-id: letters, digits and ._:+@=,~-"
Serial = Annotated[str, Form(_SERIAL, r"[A-Za-z0-9][\w.:+@=,~-]*")]
_SERIALS = "a disk's serial, or a pattern of serials with * and ?, such as ceph-*"
SerialPattern = Annotated[str, Form(_SERIALS, r"[A-Za-z0-9*?][\w.:+@=,~*?-]*")]
_URIS = rf"nbd://{_HOST}(?::[0-9]{{1,5}})?/{_WORD}|nbd\+unix:///{_WORD}\?socket={_WORD}\.sock|rbd:/(?:/{_WORD}){{3}}"
Uri = Annotated[str, Form("nbd://host/export, nbd+unix:///export?socket=name.sock or rbd://cluster/pool/image", _URIS)]
FilePath = Annotated[str, Form("the path of a file on one line", "[^-].*", most=4096)]
Token = Annotated[str, Form("a token without blanks, of at most 255 characters", r"\S+")]
UtcOffset = Annotated[str, Form("hours and minutes ahead of UTC, such as +01:00", r"[+-](?:0\d|1[0-4]):[0-5]\d")]
Currency = Annotated[str, Form("a currency's three capital letters, such as EUR", "[A-Z]{3}")]
Colour = Annotated[str, Form("a colour as #RRGGBB, such as #004C8C", "#[0-9A-Fa-f]{6}")]
ActionName = Annotated[str, Form("lower-case words joined by -, e.g. cut-link", "[a-z0-9]+(-[a-z0-9]+)*", most=64)]
TenantName = Annotated[str, Form("lower-case words joined by -, without -rate", "(?!.*-rate)[a-z0-9]+(-[a-z0-9]+)*")]
Line = Annotated[str, Form("one line of text that can be seen, at most 1,000 characters", most=1000)]
Regex = Annotated[Line, AfterValidator(_compiles)]
Prose = Annotated[str, Form("text that can be seen, at most 20,000 characters", most=20_000, also="\n\t")]
Shell = Annotated[str, Form("a shell command of visible characters, at most 20,000", r".*\S.*", 20_000, also="\n\t")]
"""A user's own shell text by design: it runs as it is, where the file says, and nothing else of the file gets into
it."""


CHECKED = ConfigDict(extra="forbid")
Whole = Annotated[
    int,
    BeforeValidator(lambda given: int(given) if isinstance(given, Integral) and not isinstance(given, bool) else given),
    Field(strict=True, ge=1),
]
Seconds = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]


def listed(given: Any) -> Any:
    """Return what may be one or several as several."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | Mapping) else (given,)


def named(given: Any) -> Any:
    """Return names, each with what it has of its own; names alone have nothing."""
    pairs = given.items() if isinstance(given, Mapping) else ((name, {}) for name in listed(given))
    return tuple((name, own or {}) for name, own in pairs)


class Model(BaseModel):
    """What all files have in common: an unknown field is an error, and what was read does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


M = TypeVar("M", bound=Model)


def load(path: str | Path, model: type[M], live: Collection[str] = ()) -> M:
    """The model of a YAML file; TestbedError names the file, the field and what was expected.

    `live`: fields that only a running lab may set: a file that claimed to be one would open the guard's door to any
    path.
    """
    try:
        data = read_yaml(at_home(path))
    except FileNotFoundError:
        raise TestbedError(f"{path}: no such file; {_there_is(Path(path), model.__name__.lower())}") from None
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror}") from None
    except YamlError as error:
        raise TestbedError(f"{path}: {error}") from None
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise TestbedError(f"{path}: expected fields of a {model.__name__.lower()}, found {type(data).__name__}")
    if claimed := sorted(set(live) & data.keys()):
        raise TestbedError(f"{path}: field {claimed[0]}: set by a running lab, never in a file; remove it")
    return checked(model, data, TestbedError, f"{path}: ")


def _there_is(path: Path, kind: str) -> str:
    """What a file that is not there may have been meant to be: one beside it, else one of those that come along."""
    here, listed = Path("params") / f"{kind}s", ""
    for folder, called in ((path.parent, "its folder"), (here, str(here))):
        beside = sorted(file.name for file in at_home(folder).glob("*.yaml") if not file.name.startswith("."))
        if beside:
            listed = f"; in {called} are {', '.join(beside)}"
            break
    return f"{meant(path.name, beside)}a {kind} is a YAML file under params/{listed}"


def checked(model: Any, data: Any, error: type[Exception], where: str = "") -> Any:
    """Return the model of these data; the error names each wrong field, its value and what is expected.

    `model`: a Model, or a checked dataclass
    """
    try:
        return TypeAdapter(model).validate_python(data)
    except ValidationError as wrong:
        raise error(where + "; ".join(_explain(e, model) for e in wrong.errors())) from None


_IN_YAML = {
    "tuple_type": "expected a list",
    "dict_type": "expected names, each with its value",
    "model_type": "expected fields, each with its value",
    "string_type": "expected a text (in quotes, where it reads like a number)",
    "int_type": "expected a whole number",
}
"""What a file has where pydantic speaks of Python's types."""


def _explain(error, model) -> str:
    where = ".".join(shown_key(part) for part in error["loc"] if part != "[key]")
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known, given = _fields_at(model, error["loc"][:-1]), str(error["loc"][-1])
        return f"field {where}: unknown; {meant(given, known)}known fields are {', '.join(known)}"
    if error["type"] == "missing":
        return f"field {where}: {error['msg']}"
    said = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    said = _IN_YAML.get(error["type"], said)
    if error["type"] == "literal_error":
        said = meant(error["input"], re.findall("'([^']+)'", error["ctx"]["expected"])) + said
    if not where or where == "consent":  # a token is shown nowhere
        return f"field {where}: {said}" if where else said
    found = repr(error["input"])
    found = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}... ({len(found)} characters)"
    return f"field {where}: {said} (given: {found})"


def _fields_at(model: Any, path) -> list[str]:
    """Return the fields at a place of the file: ``vms.0.disks.1`` is a disk."""

    def inside(annotation: Any) -> Any:
        if hasattr(annotation, "__pydantic_fields__"):
            return annotation
        return next(filter(None, map(inside, get_args(annotation))), None)

    for part in path:
        field = model.__pydantic_fields__.get(part) if isinstance(part, str) else None
        model = (inside(field.annotation) if field else None) or model
    return list(model.__pydantic_fields__)


def digest(data) -> str:
    """Identity by content."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:16]


# ---- Every YAML file that anything here reads, within bounds: an alias that stands for a million values is refused


MOST_BYTES, MOST_NODES, MOST_DEPTH, MOST_DIGITS = 2**20, 100_000, 40, 100
"""Of a YAML file: a testbed of 1,000 VMs has 200 kB and 15,000 nodes."""


class YamlError(ValueError):
    """A text that is no YAML within the bounds; the message names the line, and nothing else of the text."""


class Yaml(yaml.SafeLoader):
    """YAML within bounds: so many values with every alias written out, so deep, numbers of so many digits.

    A key given twice is refused: PyYAML keeps the last, and half a testbed vanishes without a word.
    """

    def __init__(self, stream):
        super().__init__(stream)
        self._sizes: dict[int, int] = {}
        self._depth = self._nodes = 0

    def compose_node(self, parent, index):
        event = self.peek_event()
        self._depth, self._nodes = self._depth + 1, self._nodes + 1
        if self._depth > MOST_DEPTH:
            raise _over(f"more than {MOST_DEPTH} levels", event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if not isinstance(event, yaml.AliasEvent):
            inside = (part for child in node.value for part in (child if isinstance(child, tuple) else (child,)))
            plain = isinstance(node, yaml.ScalarNode)
            if plain and len(node.value) > MOST_DIGITS and not node.tag.endswith(":str"):
                raise _over(f"a number of more than {MOST_DIGITS} characters", event)
            self._sizes[id(node)] = 1 if plain else 1 + sum(self._sizes[id(part)] for part in inside)
        elif id(node) not in self._sizes:
            raise _over("an alias of the value that it stands in", event)
        if max(self._nodes, self._sizes[id(node)]) > MOST_NODES:
            raise _over(f"more than {MOST_NODES:,} values", event)
        return node

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != f"{PREFIX}merge":
                if key.value in seen:
                    raise YamlError(f"line {key.start_mark.line + 1}: field {shown_key(key.value)} is given twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


NUMBERS = {
    "bool": ("true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": ("[-+]?(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    "float": (
        r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9_]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
}
"""Kind of value -> what is one, and how it begins. ``no``, 010, 1:30 and 2024-09-12 are text: YAML 1.1 reads false, an
octal 8, 90 and a date, which nobody means."""
PREFIX = "tag:yaml.org,2002:"
Yaml.yaml_implicit_resolvers = {
    first: [(tag, known) for tag, known in kinds if tag.removeprefix(PREFIX) not in (*NUMBERS, "timestamp")]
    for first, kinds in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _kind, (_pattern, _first) in NUMBERS.items():
    Yaml.add_implicit_resolver(PREFIX + _kind, re.compile(f"^(?:{_pattern})$"), list(_first))


def shown_key(key: Any) -> str:
    """An unknown field's name as errors repeat it; of what no field is called like nothing, as the file may be any."""
    return str(key) if re.fullmatch(r"[\w.-]{1,64}", str(key)) else "(not a field's name)"


def _over(what: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    return yaml.composer.ComposerError(None, None, what, event.start_mark)


def read_yaml(given: Path | bytes | str) -> Any:
    """The values of a YAML file, or of its text: of every YAML that anything here reads.

    Raises
    ------
    OSError : there is no such file, or it cannot be read
    YamlError : its line and what is wrong there; nothing of the text is repeated, as it may be any file's
    """
    if isinstance(given, Path):
        with given.open("rb") as file:
            given = file.read(MOST_BYTES + 1)
    if len(given) > MOST_BYTES:
        raise YamlError(f"more than {MOST_BYTES:,} bytes, which no YAML file here has")
    try:
        return Yaml(given if isinstance(given, str) else given.decode("utf-8-sig")).get_single_data()
    except UnicodeDecodeError as error:
        raise YamlError(f"not YAML in UTF-8: byte {error.start} is no text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        problem = re.sub(r" '[^<'][^']+'", "", error.problem or error.context or "it ends early")
        raise YamlError(f"not YAML in UTF-8: {where}{problem}") from None
    except YamlError:
        raise
    except Exception as error:  # of a value that is not of its tag (!!timestamp x), PyYAML raises what comes
        raise YamlError(f"not YAML in UTF-8: a value cannot be read ({type(error).__name__})") from None
