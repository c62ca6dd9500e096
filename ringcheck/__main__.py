"""`python -m ringcheck`, also under torchrun."""

import sys

from ringcheck.cli import main

if __name__ == "__main__":
    sys.exit(main())
