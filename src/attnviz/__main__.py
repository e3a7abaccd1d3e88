"""``python -m attnviz`` is ``attnviz``."""

from __future__ import annotations

import sys

from attnviz.cli import main

sys.exit(main())
