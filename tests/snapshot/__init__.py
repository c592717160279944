"""Save every table and figure of a checkout, and compare two saves by content.

    python -m tests.snapshot save OUT [--tree CHECKOUT] [--only '04*'] [--jobs 2]
    python -m tests.snapshot compare BEFORE AFTER

The tool runs the notebooks of any checkout with its own code, so that an older revision can be
saved too. What readers return, hosts are told and the guard refuses is committed in tests/data/nets
instead: `python -m tests.snapshot.readers` and `python -m tests.snapshot.drive`.
"""
