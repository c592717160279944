"""What a comparison is worth: coverage, false finds and power of the campaigns that can be run, simulated.

    .venv/bin/python bench/characteristics.py data/samples/characteristics.csv

Nothing is measured, so the table is the same on every machine; it takes a few minutes. docs/METHODS.md section 7 says what it means.
"""

import sys

import hcilib as hci


def main(out: str) -> None:
    hci.characteristics(draws=60).round(4).to_csv(out, index=False)


if __name__ == "__main__":
    main(sys.argv[1])
