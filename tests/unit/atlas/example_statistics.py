"""Statistics of heads from records and from `tests/fixtures/atlas.json`, for tests of the atlas.

The atlas is the view of the statistics of all heads.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np

from attnviz.corpus.edges import EdgeColumns, NearTokens
from attnviz.corpus.roles import Role, Roles
from attnviz.corpus.statistics import HeadStatistics
from attnviz.record.head_numbers import HeadNumbers
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Tokens
from unit.random_corpora import cross_record
from unit.records import vectors

FIXTURE = Path(__file__).parents[2] / "fixtures" / "atlas.json"


def fixture() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(FIXTURE.read_text(encoding="utf-8"))
    return data


class FixtureRoles(Roles):
    """The roles in ``atlas.json``, with the attributes of `Roles` that an atlas reads."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._stack = data["description"]["stacks"][0]
        self.layers, self.heads_per_layer = self._stack["layers"], self._stack["heads_per_layer"]
        self._roles = data["values"]["table"]["roles"]
        self.definitions = {entry["name"]: entry["definition"] for entry in self._stack["roles"]}
        self.margin, self.level = self._stack["margin"], self._stack["level"]

    def of(self, layer: int, head: int) -> list[Role]:
        index = self._stack["layers"].index(layer)
        names = list(self.definitions)
        roles = []
        for role_data in self._roles[index][head]:
            numbers = {name: role_data[name] for name in role_data if name not in ("role", "p")}
            roles.append(Role(name=names[role_data["role"]], p_value=role_data["p"], **numbers))
        return roles


class FixtureStack(HeadNumbers):
    """The stack in ``atlas.json``, with the attributes of `StackStatistics` that an atlas reads."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._values, self._stack = data["values"], data["description"]["stacks"][0]
        stack = self._stack
        super().__init__(stack["name"], stack["layers"], stack["heads_per_layer"])
        self.causal = self._stack["causal"]
        self.one_text, self.linear = self._stack["same_tokens"], self._stack["linear"]
        self.offset_labels = tuple(self._stack["offsets"])
        self.score_names = tuple(entry["name"] for entry in self._stack["statistics"])
        self._roles = FixtureRoles(data)

    def _rows(self, of: str, score: str) -> Any:
        rows = self._values["table"][of][self.score_names.index(score)]
        return [np.array(row, dtype=np.float64) for row in rows] or None

    def mean(self, score: str) -> Any:
        return self._rows("means", score)

    def standard_error(self, score: str) -> Any:
        return self._rows("standard_errors", score)

    def baseline(self, score: str) -> Any:
        return self._rows("baselines", score)

    def counts(self, score: str) -> Any:
        return [row.astype(np.int64) for row in self._rows("texts", score)]

    def roles(self) -> FixtureRoles:
        return self._roles

    def offsets(self, layer: int) -> Any:
        return np.array(self._values["offsets"][self.layers.index(layer)], dtype=np.float64)

    def edge_columns(self, layer: int, *, sampled: bool = False) -> EdgeColumns:
        kind = "sampled" if sampled else "strongest"
        columns = self._values["edges"][self.layers.index(layer)][kind]
        count = len(columns["head"])
        return EdgeColumns(
            np.zeros(count, np.uint64),
            np.array(columns["head"], np.int32),
            np.array(columns["text"], np.int64),
            np.array(columns["query"], np.int32),
            np.array(columns["key"], np.int32),
            np.array(columns["weight"], np.float32),
        )

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self._values["kept"]["vocabulary"])

    @property
    def kept_tokens(self) -> tuple[NearTokens, ...]:
        stored = self._values["kept"]
        tokens = stored["queries"]
        counts = [len(positions) for positions in tokens["positions"]]
        codes = np.concatenate(tokens["tokens"]).astype(np.int32)
        positions = np.concatenate(tokens["positions"]).astype(np.int32)
        text = np.repeat(np.array(stored["numbers"]), counts)
        return (NearTokens(text, positions, codes),)


class FixtureStatistics:
    """All data in ``atlas.json``, with the attributes of `HeadStatistics` that an atlas reads."""

    def __init__(self, data: dict[str, Any]) -> None:
        description = data["description"]
        self.model, self.texts = description["model"], description["texts"]
        self.tokens = description["tokens"]
        self.num_skipped, self.notes = description["num_skipped"], description["notes"]
        self._stack = FixtureStack(data)
        self.stack_names = (self._stack.name,)

    def stack(self, _name: str) -> FixtureStack:
        return self._stack


def fixture_statistics(data: dict[str, Any]) -> HeadStatistics:
    """Return statistics with the values of `data`, the contents of ``atlas.json``."""
    return cast("HeadStatistics", FixtureStatistics(data))


def causal_record(number: int, length: int = 9, layers: int = 2, heads: int = 3) -> AttentionRecord:
    """Return a causal record of random queries and keys, with the seed `number`."""
    queries, keys = 3 * vectors(2, layers, heads, length, 4, seed=number)
    tokens = Tokens.of([f"·w{(number * 7 + position) % 5}" for position in range(length)])
    return AttentionRecord.from_qk(queries, keys, tokens, causal=True, model="made")


def made_statistics(texts: int = 8, **shape: int) -> HeadStatistics:
    """Return statistics of `texts` records, made by `causal_record` with the options `shape`."""
    statistics = HeadStatistics(edges=20)
    for number in range(texts):
        statistics.add(causal_record(number, **shape))
    return statistics


def cross_statistics(texts: int = 6) -> HeadStatistics:
    statistics = HeadStatistics(edges=5)
    for number in range(texts):
        statistics.add(cross_record(4, 6, seed=number, decoder=True))
    return statistics
