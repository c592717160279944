"""The parts of a fio document that comes in pieces: text, fields, and its reports, each or some together.

Where a report ends is known by its brackets outside of strings. fio's own layout shows it sooner: what begins behind
some blanks ends with a brace behind as many. Several reports are cut out so. They are that if they decode as a list,
because a JSON value that is whole has one end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, NamedTuple

MOST_BYTES = 2**33
"""Of a stream."""
MOST_OF_ONE = 2**26
"""Bytes of one report, or of any other value, text or blanks between them: fio's largest report has 2 MB."""
TOGETHER = 2**22
"""Bytes of reports that are cut out at once."""
LISTS = frozenset({"jobs", "client_stats"})
_BEGIN = re.compile(rb'^(?:\xef\xbb\xbf)?\{(?=\s*")|\{(?=\s*"fio version")', re.MULTILINE)
_BLANK = re.compile(rb"\s*(?=\S)")
_KEY = re.compile(rb'\s*"((?:[^"\\]++|\\.)*+)"\s*:\s*(?=\S)', re.DOTALL)
_MARK = re.compile(rb"\s*([^\s])")
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SCALAR = re.compile(_STRING + rb'|[^\s,\]}\[{"]++(?=[\s,\]}])', re.DOTALL)
_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|' + _STRING + rb")*+", re.DOTALL)


class BrokenStream(ValueError):
    """What no document of fio's has; the sentence says where."""


Kind = Enum("Kind", "TEXT OPEN FIELD LIST REPORTS REPORT CLOSE")


class Event(NamedTuple):
    """A part: `name` of its field; `content` its bytes, or what was made of several reports together."""

    kind: Kind
    name: str = ""
    content: Any = b""


class _Text:
    """The part of the stream that is looked at: `held` from `at` on."""

    def __init__(self, stream: Iterator[bytes]):
        self.held, self.at, self._stream, self._read = b"", 0, stream, 0

    @property
    def place(self) -> int:
        """In the whole stream."""
        return self._read - len(self.held) + self.at

    def more(self) -> bool:
        """Whether there was more of it."""
        parts, size = [self.held[self.at :]], 0
        while size < TOGETHER and (piece := next(self._stream, None)) is not None:
            parts.append(piece)
            size += len(piece)
        if len(parts[0]) > MOST_OF_ONE:
            raise BrokenStream(f"one report or value has more than {MOST_OF_ONE:,} bytes; fio's largest has 2 MB. ")
        if not size:
            return False
        self.held, self.at, self._read = b"".join(parts), 0, self._read + size
        if self._read > MOST_BYTES:
            raise BrokenStream(f"it has more than {MOST_BYTES:,} bytes, unpacked, which no output of fio has. ")
        return True

    def match(self, regex: re.Pattern[bytes], expected: str) -> re.Match[bytes]:
        """What is here, to be gone behind."""
        while not (found := regex.match(self.held, self.at)):
            rest = self.held[self.at : self.at + 2**16]
            ends = len(rest) < 2**16 or not rest.lstrip() or rest.lstrip().startswith(b'"')
            if not (ends and self.more()):
                raise self.broken(expected)
        self.at = found.end()
        return found

    def broken(self, expected: str) -> BrokenStream:
        rest = self.held[self.at : self.at + 40].strip().decode(errors="replace")
        if not rest or (not self.held[self.at + 40 :].strip() and rest[0] not in "[]{},:"):
            return BrokenStream(f"the fio document is broken off at byte {self.place:,}: the file ends. Repeat it.")
        return BrokenStream(f"at byte {self.place:,} of the fio document is {rest!r}, where {expected} is due. ")

    def value(self) -> bytes:
        """The JSON value that begins here, whatever stands in its strings."""
        if self.held[self.at : self.at + 1] not in (b"{", b"["):
            return self.match(_SCALAR, "a value")[0]
        depth, upto = 0, self.at
        while True:
            place = _TO_BRACKET.match(self.held, upto).end()  # type: ignore[union-attr]  # at least nothing
            bracket = self.held[place : place + 1]
            if bracket in (b"", b'"'):  # the end of what is held, in a string or not
                done = upto - self.at
                if not self.more():
                    self.at = len(self.held)
                    raise self.broken("a bracket")
                upto = self.at + done
                continue
            depth += 1 if bracket in b"{[" else -1
            upto = place + 1
            if not depth:
                raw, self.at = self.held[self.at : upto], upto
                return raw


def events(stream: Iterator[bytes], together: Callable[[bytes], Any] | None = None) -> Iterator[Event]:
    """The parts of a stream in their order.

    Parameters
    ----------
    together : what makes one content of several reports, which come as ``[...]``; None where they are none. Without it
        each comes alone

    Raises
    ------
    BrokenStream
    """
    text = _Text(stream)
    while True:
        before = _to_document(text)
        if before.strip(b"\xef\xbb\xbf \t\r\n"):
            yield Event(Kind.TEXT, "", before)
        if text.at == len(text.held):
            return
        yield Event(Kind.OPEN)
        mark = text.match(_MARK, "a brace")[1]
        while mark != b"}":
            name = text.match(_KEY, "a field's name")[1].decode(errors="replace")
            if name in LISTS and text.held[text.at : text.at + 1] == b"[":
                yield Event(Kind.LIST, name)
                yield from _reports(text, name, together)
            else:
                yield Event(Kind.FIELD, name, text.value())
            mark = _mark(text, b",}")
        yield Event(Kind.CLOSE)


def _mark(text: _Text, due: bytes) -> bytes:
    mark = text.match(_MARK, "a comma")[1]
    if mark not in due:
        text.at -= 1
        raise text.broken("a comma")
    return mark


def _to_document(text: _Text) -> bytes:
    """What stands before the next document, or before the end."""
    if not text.held:
        text.more()
    if text.held.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise BrokenStream("it is UTF-16, which is read up to 256 MiB: save it as UTF-8. ")
    searched = text.at
    while not (found := _BEGIN.search(text.held, searched)):
        searched = max(len(text.held) - 64, text.at) - text.at  # one may begin at the end of what is held
        if not text.more():
            before, text.at = text.held[text.at :], len(text.held)
            return before
        searched += text.at
    before, text.at = text.held[text.at : found.start()], found.end() - 1
    return before


def _reports(text: _Text, name: str, together: Callable[[bytes], Any] | None) -> Iterator[Event]:
    """The reports of a list: many at once where they are laid out as fio does it and are clean."""
    text.at += 1
    each_upto, mark = 0, b"["
    while mark != b"]":
        blank = text.match(_BLANK, "a report")[0]
        if mark == b"[" and text.held[text.at : text.at + 1] == b"]":
            text.at += 1
            return
        if text.held[text.at : text.at + 1] != b"{":
            raise text.broken("a report")
        if together and text.place >= each_upto and b"\n" in blank:
            while len(text.held) - text.at < TOGETHER and text.more():
                pass
            closing = b"\n" + blank.rpartition(b"\n")[2] + b"}"
            end = text.held.rfind(closing, text.at) + len(closing)
            several = together(b"[" + text.held[text.at : end] + b"]") if end > text.at else None
            if several is not None:
                text.at = end
                yield Event(Kind.REPORTS, name, several)
                mark = _mark(text, b",]")
                continue
            each_upto = text.place + max(end - text.at, 1)
        yield Event(Kind.REPORT, name, text.value())
        mark = _mark(text, b",]")
