"""What the files of a run directory are called (docs/DESIGN.md): one place for whoever writes them and whoever reads
them. No I/O."""

PLAN = "plan.json"
JOURNAL = "journal.jsonl"
LOCK = ".lock"
FACTS = "facts"
NETWORK = f"{FACTS}/network.csv"
WEAR = f"{FACTS}/wear"
"""Of each node what its drives say of themselves, at the start and the end of every session."""
POOL_FILL = f"{FACTS}/pools/fill.json"
"""What each system says of how full its pool is, before the first run and after the last of every session."""
WORK = "work"
"""The attempt that is under way; it leaves by one rename, for `STEPS` or for `FAILED`."""
STEPS = "steps"
FAILED = "failed"
TABLES = "tables"
"""A cache of what was read; it may be deleted at any time."""

# Of one step
RECORD = "step.json"
OUTPUT = "fio.json.zst"
STDERR = "fio.stderr"
COUNTERS = "counters.csv"
DRIVES = "drives.csv"
JOB = "job.fio"
LOGS = "logs"

# Of stamped blocks, below the run directory
INTEGRITY = "integrity"
WRITES, BLOCKS, WRITERS = "writes.csv", "blocks.csv", "writers.json"

TEMPORARY = ".tmp"
"""What a file is called while it is written: ``.name.<process>.tmp`` beside its place. A kill may leave one; nobody
reads it."""
