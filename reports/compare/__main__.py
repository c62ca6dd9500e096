"""`python -m reports.compare OLD NEW`."""

import sys

from reports.compare.command import main

sys.exit(main())
