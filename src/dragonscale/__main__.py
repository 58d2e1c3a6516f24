"""`python -m dragonscale …` is `dscale …`."""

import sys

from dragonscale.faces.cli import main

if __name__ == "__main__":
    sys.exit(main())
