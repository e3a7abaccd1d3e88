"""Build hook of hatch, which builds the front-end (src/attnviz/static) before the package.

Hatch calls the hook when it builds a wheel or a source distribution, and for an editable install.
Set ATTNVIZ_SKIP_JS_BUILD=1 to use the existing bundles in src/attnviz/static.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))

import front_end


class FrontEndHook(BuildHookInterface[Any]):
    """Build hook that builds outdated bundles before hatch collects the files of the package."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Return the PyPI package of Node if bundles must be built and the machine has no Node."""
        if _is_skipped() or not front_end.is_out_of_date() or front_end.find_npm():
            return []
        return [front_end.NODE_PACKAGE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundles if any of them is out of date.

        Hatch calls this method, with a `version` of "standard" or "editable". Exit with a message
        if the build fails, or if it is skipped and bundles are missing.
        """
        if _is_skipped():
            missing = [bundle.name for bundle in front_end.bundles() if not bundle.is_file()]
            if missing or not front_end.bundles():
                sys.exit(
                    "ATTNVIZ_SKIP_JS_BUILD is set and src/attnviz/static lacks "
                    f"{', '.join(missing) or 'its bundles'}: run `make front-end` first, or "
                    "unset it."
                )
            return
        try:
            if front_end.is_out_of_date():
                front_end.build()
        except front_end.FrontEndError as error:
            # pip prints the message of `sys.exit`, which is clearer than a traceback.
            sys.exit(str(error))


def _is_skipped() -> bool:
    return os.environ.get("ATTNVIZ_SKIP_JS_BUILD", "") not in {"", "0"}
