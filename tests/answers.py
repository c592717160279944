"""Print every answer and fact of a built report in one list, each fault of style below its sentence: make answers."""

import json
import sys
from pathlib import Path

from tests.style import faults, usual_length


def main(site: Path) -> int:
    """Print the texts of all scenarios of a site; return 1 where one breaks a rule of style."""
    texts, broken = [], 0
    for path in sorted(site.glob("*/*.json")):
        page = json.loads(path.read_text("utf-8"))
        said = [*page["answer"].splitlines(), *page["facts"]]
        print(f"\n{page['name']}")
        for text in said:
            print(f"  {text}", *(f"    ! {fault.partition(': ')[0]}" for fault in faults(text)), sep="\n")
            broken += len(faults(text))
        texts += said
    print(f"\n{len(texts)} texts, {usual_length(texts):g} words a sentence (median), {broken} faults")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
