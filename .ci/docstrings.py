"""Show a docstring's sections on the site as they are written: text behind a parameter's colon describes it."""

import re
from textwrap import dedent, indent

import griffe

SECTION = re.compile(r"(?m)^(Parameters|Returns|Raises|Source|Notes|Yields|Attributes)\n-{3,}\n")
NAMED = re.compile(r"(?m)^(\*{0,2}\w[\w.*]*(?:, \*{0,2}\w+)*) : (.+(?:\n[ ]+.+)*)")


class Sections(griffe.Extension):
    """Called by griffe for each object."""

    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """Return a docstring with bold headings and lists in place of sections; Examples stays one."""
    text = NAMED.sub(item, text)
    return SECTION.sub(lambda match: f"**{match[1]}**\n\n", text)


def item(match: re.Match) -> str:
    """Return a named entry as a list item."""
    first, _, rest = match[2].partition("\n")
    return f"- `{match[1]}`: {first}\n{indent(dedent(rest), '    ')}".rstrip()
