"""Check of a page against the accessibility rules of axe-core."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

AXE = Path(__file__).parents[2] / "js" / "node_modules" / "axe-core" / "axe.min.js"

# WCAG 2.1, levels A and AA: text has a contrast of at least 4.5:1, controls have names and roles.
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
}


@cache
def _axe() -> str:
    if not AXE.exists():
        pytest.fail("axe-core is missing: run `npm ci` in js", pytrace=False)
    return AXE.read_text(encoding="utf-8")


def check(element: Locator) -> None:
    """Fail with a list of violations if an element or its contents break a rule of axe-core.

    Parameters
    ----------
    element : Locator
        The element, checked in its current state. Text on a canvas is not checked here.
        `js/test/ui/colors` checks the contrast of its colours.
    """
    # The page's Content-Security-Policy blocks scripts, but not what the debugger evaluates.
    element.page.evaluate(f"() => {{ if (!window.axe) {{ {_axe()} }} }}")
    violations: list[dict[str, Any]] = element.evaluate(
        "async (element, rules) => (await axe.run(element, rules)).violations", RULES
    )
    if violations:
        pytest.fail("The page shuts readers out:\n" + readable(violations), pytrace=False)


def readable(violations: list[dict[str, Any]]) -> str:
    """Return the violations as text: the rule, the elements that break it, and the fixes."""
    lines = []
    for violation in violations:
        lines.append(f"{violation['id']} ({violation['impact']}): {violation['help']}")
        for node in violation["nodes"]:
            lines.append(f"  {' '.join(map(str, node['target']))}: {node['html'][:120]}")
            lines += [
                f"    {reason['message']}"
                for kind in ("any", "all", "none")
                for reason in node[kind]
            ]
    return "\n".join(lines)
