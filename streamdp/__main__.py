"""`python -m streamdp` is the `streamdp` command."""

import sys

from streamdp.cli import main

sys.exit(main())
