"""Entry point of ``python -m attnviz``, the same as the command ``attnviz``."""

from __future__ import annotations

import sys

from attnviz.cli import main

sys.exit(main())
