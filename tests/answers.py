"""List every sentence of a built report by its kind, each fault of style below it: make answers.

``--draw N --seed S`` prints N texts drawn at random instead, for a reader who has not seen the project.
"""

import argparse
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup, Tag

from tests.style import faults, usual_length

KINDS = {
    "answer": "section.answer p",
    "fact": "section.facts li",
    "question": "main > p.quiet",
    "heading": "h2",
    "remark": "section.part:has(> div.said)",
    "text": "section.part > div.prose:not(.said)",
    "table": "table caption",
    "note": "p.footnotes",
    "row": "tr[data-note]",
    "nothing": "p.nothing",
    "caption": "figure > div.drawing:not(.narrow) svg g.caption",
}
"""Kind of text -> where a page has it."""
FIGURES = "figure > div.drawing:not(.narrow), figure > img"


def texts_of(page: Path) -> Iterator[tuple[str, str, str]]:
    """Yield kind, text and heading of everything that is generated for people on the page of a scenario."""
    soup = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    for found in soup.select(FIGURES):
        text = str(found.get("aria-label") or found.get("alt") or "")
        yield from (("figure", line, under(found)) for line in re.sub(r"^Figure \d+: ", "", text).splitlines())
    for kind, where in KINDS.items():
        for found in soup.select(where):
            text = {"row": lambda tag: str(tag.get("data-note")), "remark": remark_of}.get(kind, words_of)(found)
            lines = text.splitlines() if kind == "answer" else [text]
            yield from ((kind, re.sub(r"^\(\d+\) |\s+", " ", line).strip(), under(found)) for line in lines)


def remark_of(section: Tag) -> str:
    """Return the remark of a section: its first sentence, then the rest that a click opens."""
    parts = section.select(":scope > div.said, :scope > details.method > div.prose")
    return " ".join(part.get_text().strip() for part in parts)


def words_of(tag: Tag) -> str:
    """Return the text of an element; lines of a figure's caption are elements of their own."""
    return tag.get_text(" " if tag.name == "g" else "")


def under(found: Tag) -> str:
    """Return the heading below which a text is on its page."""
    heading = found.find_previous("h2")
    return heading.get_text().strip() if heading else "the top of the page"


def main(site: Path, draw: int = 0, seed: int = 0) -> int:
    """Print the texts of all scenarios of a site; return 1 where one breaks a rule of style."""
    pages = {path.stem: list(dict.fromkeys(texts_of(path))) for path in sorted(site.glob("*/*.*.html"))}
    found = {text: (kind, name, place) for name, texts in pages.items() for kind, text, place in texts if " " in text}
    if draw:
        for text in random.Random(seed).sample(sorted(found), min(draw, len(found))):
            print("{}\n    [{} of {}, under {!r}]".format(text, *found[text]))
        return 0
    broken = 0
    for name, texts in pages.items():
        print(f"\n{name}")
        for kind, text, _ in texts:
            own = faults(text)
            print(f"  {kind}: {text}", *(f"    ! {fault.partition(': ')[0]}" for fault in own), sep="\n")
            broken += len(own)
    print(f"\n{len(found)} texts, {usual_length(list(found)):g} words a sentence (median), {broken} faults")
    return int(broken > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--draw", type=int, default=0, help="so many texts, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    given = parser.parse_args()
    sys.exit(main(given.site, given.draw, given.seed))
