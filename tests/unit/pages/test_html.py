"""The exported page works offline, runs no foreign code and contains all data."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import attnviz.pages.html
import attnviz.pages.limits
from attnviz.record.attention import StoredWeights
from attnviz.record.record import AttentionRecord
from attnviz.record.stack import AttentionStack
from attnviz.record.tokens import Tokens
from attnviz.server.description import describe
from attnviz.views.head import HeadView
from unit.page_data import data_of, unpacked
from unit.records import (
    HOSTILE,
    captured_record,
    given_record,
    shares,
)


class Page(HTMLParser):
    """A parsed page: tags with their attributes, and the text inside scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = text
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, _tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data

    @property
    def policy(self) -> dict[str, str]:
        """Sources that the Content-Security-Policy allows for each kind of content."""
        [text] = [
            attributes["content"] or ""
            for tag, attributes in self.tags
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        ]
        return dict(rule.strip().split(" ", 1) for rule in text.split(";"))


TAGS = "html head meta meta meta meta title style".split()
TAGS += "body div p img p p span div script script script script p".split()


def hostile_record() -> AttentionRecord:
    count = len(HOSTILE)
    layer = {0: StoredWeights(torch.from_numpy(shares(2, count, count)))}
    # Bypass `Tokens.of`, which would make the invisible characters of `HOSTILE` visible.
    tokens = Tokens(tuple(HOSTILE), (False,) * count, (0,) * count)
    stack = AttentionStack("</script><script>alert(2)</script>", layer, tokens)
    return AttentionRecord(
        {stack.name: stack},
        model="</title><script>alert(3)</script>\"'<!--",
        notes=["</script><img src=x onerror=alert(4)>\ud800"],
    )


@pytest.mark.parametrize("make", [captured_record, hostile_record])
def test_the_page_has_only_its_own_tags(make: Any) -> None:
    record = make()
    view = HeadView(record)
    page = Page(view.to_html().encode().decode())
    tags = [tag for tag, _ in page.tags]
    layers = [layer for stack in record.stacks.values() for layer in stack.layers]
    # Each layer has one `<template>`.
    assert tags.count("template") == len(layers)
    assert [tag for tag in tags if tag != "template"] == TAGS
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        assert not {"href", "action"} & set(attributes), tag
        assert (attributes.get("src") or "data:image/png;base64,").startswith("data:image/png;")
    # The data has no "<", so no tag can start inside the data.
    assert "<" not in page.scripts[1]
    described = describe(record)
    for stack in described["stacks"]:
        names = ("previous token", "next token", "first token", "self", "same token", "induction")
        stack["patterns"] = [name for name in stack["patterns"] if name in names]
    assert data_of(page.text)["description"] == described
    kinds = [attributes.get("type") for tag, attributes in page.tags if tag == "script"]
    assert kinds == [None, "application/json", "text/plain", None]


def test_only_three_scripts_may_run_and_nothing_may_be_fetched() -> None:
    page = Page(HeadView(given_record()).to_html())
    note, _, packed, loader = page.scripts
    hashes = [
        base64.b64encode(hashlib.sha256(script).digest()).decode()
        for script in (note.encode(), loader.encode(), unpacked(packed))
    ]
    assert page.policy == {
        "default-src": "'none'",
        "script-src": " ".join(f"'sha256-{digest}'" for digest in hashes),
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    # The policy comes before the scripts and styles that it restricts.
    assert re.findall("Content-Security-Policy|<style>|<script", page.text)[0].startswith("Content")


def test_the_page_names_no_address() -> None:
    text = HeadView(given_record()).to_html()
    # Addresses at www.w3.org are XML namespaces, which are never fetched.
    assert re.findall(r"(?:https?|wss?)://(?!www\.w3\.org/)[\w.-]+[^\s\"'`)]*", text) == []
    assert "//cdn" not in text
    assert "sourceMappingURL" not in text


def test_scripts_with_a_hash_are_ascii() -> None:
    folder = Path(attnviz.pages.html.__file__).parent
    scripts = [folder / "note.js", folder / "loader.js", *folder.parent.glob("static/*-page.js")]
    assert len(scripts) >= 10
    # Old versions of WebKit hash characters outside ASCII in an encoding other than UTF-8. The hash
    # of a script with such characters would differ from the hash in the page.
    assert [path.name for path in scripts if not path.read_bytes().isascii()] == []


def test_a_bundle_cannot_end_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'const a = "</script><script>alert(1)</script><!--", b = "</SCRIPT >";'
    monkeypatch.setattr(attnviz.pages.html, "bundle", lambda *_: code)
    page = Page(attnviz.pages.html.make_page(given_record(), "head", {"layer": 0}))
    assert [tag for tag, _ in page.tags if tag != "template"] == TAGS
    assert unpacked(page.scripts[2]).decode() == code


def test_a_page_is_written_as_a_file(tmp_path: Path) -> None:
    view = HeadView(given_record())
    path = view.save(tmp_path / "x.HTML")
    assert path.read_text(encoding="utf-8") == view.to_html()
    with pytest.raises(ValueError, match=r"must end in \.html, \.svg, \.png or \.pdf"):
        view.save(tmp_path / "x.gif")
    with pytest.raises(ValueError, match="path='' is empty"):
        view.save("")
    with pytest.raises(OSError, match="cannot write path="):
        view.save(tmp_path / "none" / "x.html")
    assert list(tmp_path.iterdir()) == [path]


def test_a_page_has_the_scores_of_positions_and_those_of_its_order() -> None:
    record = given_record()
    pairs = ["previous token", "next token", "first token", "self"]
    for order, names in (("self", pairs), ("entropy", [*pairs, "entropy"])):
        data = data_of(HeadView(record, order=order).to_html())
        assert [entry["pattern"] for entry in data["scores"]] == names
        assert data["description"]["stacks"][0]["patterns"] == names
