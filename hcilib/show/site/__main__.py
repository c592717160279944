"""``python -m hcilib.show.site params/*.yaml --out out/report``."""

import sys

from hcilib.show.site.build import main

sys.exit(main())
