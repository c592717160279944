"""Save every table, figure and refusal of a checkout, and compare two saves by content.

    python -m tests.snapshot save OUT [--tree CHECKOUT] [--only 'params/04*'] [--jobs 2]
    python -m tests.snapshot compare BEFORE AFTER

The tool runs the notebooks and the guard of any checkout with its own code, so that an older
revision can be saved too. It imports no private part of hcilib except the guard's. Where a notebook
calls a function, and under which of the names in renames.csv, does not matter.
"""
