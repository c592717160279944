"""``python -m hcilib.show.report params/*.yaml --out out/report``."""

import sys

from hcilib.show.report.report import main

sys.exit(main())
