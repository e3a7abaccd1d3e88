"""Entry point of ``python -m attnviz``, which is equivalent to the command ``attnviz``."""

from __future__ import annotations

import sys

from attnviz.cli import main

sys.exit(main())
