"""Check the style of comments, docstrings and documentation: `python scripts/prose.py [PATH ...]`.

Each rule is a regular expression for a phrase or name that is hard to read, with a remedy. Without
PATH, the script checks the whole repository, and fails if a folder has more matches than `ALLOWED`.
With PATH, it prints every match in these files.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".ts", ".tsx", ".md"}
# Files that are not checked: this file quotes the phrases, and titles in the gallery are questions.
EXEMPT = ("scripts/prose.py", "CHANGELOG.md", "site/gallery/questions/")

# Start of a docstring or a comment.
_START = r'(?:"""|/\*\* |# |// )'

RULES = {
    "question": (
        r'(?:"""|/\*\* )(?:What|How|Where|Which|Whose|Why|From|For|With|In) ',
        "start with a verb or a noun",
    ),
    "of": (r"(?:^|[^A-Za-z-])Of [a-z`]|; of [a-z]", "put the subject first"),
    "where": (
        r"\b(?:None|null|NaN|empty|True|False|[A-Za-z]*[Ee]rrors?|left out|but|only|also|even)"
        r" where\b",
        "write if, when or unless for a condition",
    ),
    "so many": (r"\b[Ss]o (?:many|much|few)\b", "write at most, at least or up to"),
    "pronoun": (
        _START + r"(?:The same|Those|That|They|These|It|Its|Them|Theirs|Others|Itself|As|So|Then) ",
        "name the subject",
    ),
    "verb": (
        r"\b(?:told|tells|hears?|heard|believed?|forgets?|forgotten|lets? go|(?:held|hold) against"
        r"|gone (?:over|through)|looked (?:at|through)|goe?s? on|gives? up|given up"
        r"|tak(?:en|es?) back)\b",
        "use a literal verb: return, send, store, drop, continue, compare",
    ),
    "semicolon": (_START + r'[^"*]*; ', "one statement per sentence"),
    "rare word": (
        r"\b(?:lately|meanwhile|wholly|anew|likeliest|whichever|likewise|for good|for ever"
        r"|once more|any more|all but|but for|as good as|(?:at|in) hand|farther|farthest|nobody"
        r"|of (?:its|their) own|by (?:itself|themselves)"
        r"|behind (?:an?|the|it|every|those|its|their|what))\b",
        "use the common word",
    ),
    "name": (
        r"(?:^|[ (,*])(?:place|places|found|said|told|here|there|its|some)(?:: [^=]+)? = ",
        "name the contents",
    ),
    "limit": (r"\b_?(?:MOST|LEAST|FEWEST)_", "name a limit MAX_ or MIN_"),
}
_PATTERNS = {rule: re.compile(pattern) for rule, (pattern, _) in RULES.items()}

# Maximum number of matches by folder and rule. It is 0 for folders and rules that are not listed.
# Matches are allowed in texts that a model reads, in names of folders and in labels on the screen.
ALLOWED = {
    ("docs", "rare word"): 1,
    # These are variables of JavaScript in strings.
    ("tests/browser", "verb"): 6,
    ("tests/fixtures", "rare word"): 1,
    ("tests/models", "rare word"): 2,
    ("tests/models", "verb"): 5,
}


def folder_of(path: str) -> str:
    """Return the folder by which matches in `path` are counted, such as "src/attnviz/record"."""
    parts = Path(path).parts
    depth = {"src": 3, "js": 4, "tests": 2}.get(parts[0], 1)
    return "/".join(parts[: min(depth, len(parts) - 1)]) or parts[0]


def matches(name: str) -> list[tuple[int, str, str]]:
    """Return (line number, rule, line) of every match in a file."""
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [
        (number, rule, line.strip())
        for number, line in enumerate(lines, 1)
        for rule, pattern in _PATTERNS.items()
        if pattern.search(line)
    ]


def files(paths: list[str]) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [
        name for name in listed if Path(name).suffix in SUFFIXES and not name.startswith(EXEMPT)
    ]


def main(paths: list[str]) -> int:
    counts: Counter[tuple[str, str]] = Counter()
    for name in files(paths):
        for number, rule, line in matches(name):
            counts[folder_of(name), rule] += 1
            if paths:
                print(f"{name}:{number}: {rule}: {line}")
    for (folder, rule), count in sorted(counts.items()):
        excess = count > ALLOWED.get((folder, rule), 0)
        if paths or excess:
            allowed = ALLOWED.get((folder, rule), 0)
            print(f"{folder}: {rule}: {count} ({allowed} allowed): {RULES[rule][1]}")
    if paths:
        return 0
    return int(any(count > ALLOWED.get(key, 0) for key, count in counts.items()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
