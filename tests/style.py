"""Plain English (docs/DEVELOPING.md section 8): what a sentence for people may not hold, by rules that count."""

import re
from statistics import median

LONGEST, MEDIAN, NUMBERS, BRACKETS = 30, 16, 6, 2
PHRASES = (
    "told apart",
    "stands beside",
    "stand beside",
    "stood beside",
    "nobody",
    "anew",
    "nowhere shown",
    "nothing that",
    "hollow",
    "dialled",
    "silent for",
    "not looked at",
    "is not said",
    "of its own accord",
    "by itself, which",
    "what was asked",
    "lower IOPS",
    "higher IOPS",
)
"""Phrases that the trade does not use (rule 4), and counts without their nouns (rule 8)."""
FREE_RELATIVE = re.compile(r"^(What|Who|Whoever|Whatever) (?!.*\?$)")
WORD = re.compile(r"[\w\-+%°±/.,:'’`=<>]*[^\W_][\w\-+%°±/.,:'’`=<>]*")
NUMBER = re.compile(r"(?<![\w/+.-])\d[\d,]*(?:\.\d+)?(?![\w/+-])")
BOUNDARY = re.compile(r"(?<=[.?!])\s+(?=[A-Z0-9`\"(])|\n+")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text; a line ends one."""
    parts = (part.strip() for part in BOUNDARY.split(text))
    return [part for part in parts if len(WORD.findall(part)) > 1]


def length(sentence: str) -> int:
    """Return how many words a sentence has; a number with its unit or a label counts as it is read."""
    return len(WORD.findall(sentence))


def faults(text: str) -> list[str]:
    """Return each rule of STYLE that a text breaks, with the sentence that breaks it."""
    found = []
    for sentence in sentences(text):
        plain = re.sub(r"`[^`]*`", "CODE", sentence)
        if length(plain) > LONGEST:
            found.append(f"{length(plain)} words: {sentence}")
        if ";" in plain:
            found.append(f"a semicolon: {sentence}")
        if plain.count("(") + plain.count("[") > BRACKETS:
            found.append(f"more than {BRACKETS} pairs of brackets: {sentence}")
        if len(NUMBER.findall(plain)) > NUMBERS:
            found.append(f"{len(NUMBER.findall(plain))} numbers: {sentence}")
        if FREE_RELATIVE.search(plain):
            found.append(f"a free relative as subject: {sentence}")
        found += [f"{phrase!r}: {sentence}" for phrase in PHRASES if phrase.lower() in plain.lower()]
    return found


def usual_length(texts: list[str]) -> float:
    """Return the median of words a sentence."""
    return median(length(sentence) for text in texts for sentence in sentences(text))
