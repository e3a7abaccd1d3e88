"""What a page does to readers who hear it, who type, or who need contrast: axe-core's rules."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

AXE = Path(__file__).parents[2] / "js" / "node_modules" / "axe-core" / "axe.min.js"

# WCAG 2.1, levels A and AA: text stands out by 4.5 to 1, controls have names and roles, ...
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
    """Fail, with a list to read, where an element of a page breaks one of axe-core's rules.

    Parameters
    ----------
    element : Locator
        What is checked, with all that is in it, as it stands now. Text on a canvas is not seen:
        `js/test/ui/colors/contrast.test.ts` holds its colours against the same rule.
    """
    # The page's policy lets no script in; what the debugger evaluates needs no leave of it.
    element.page.evaluate(f"() => {{ if (!window.axe) {{ {_axe()} }} }}")
    violations: list[dict[str, Any]] = element.evaluate(
        "async (element, rules) => (await axe.run(element, rules)).violations", RULES
    )
    if violations:
        pytest.fail("The page shuts readers out:\n" + readable(violations), pytrace=False)


def readable(violations: list[dict[str, Any]]) -> str:
    """Violations as lines: the rule, each element that breaks it, and what would mend it."""
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
