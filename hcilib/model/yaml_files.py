"""Every YAML file that anything here reads, within bounds: an alias that stands for a million values is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

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
