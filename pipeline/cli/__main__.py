"""``python -m pipeline.cli VERB``: the command line without the installed script."""

import sys

from pipeline.cli.main import main

sys.exit(main())
