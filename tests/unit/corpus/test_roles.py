"""Test the roles of heads, such as "induction", and compare significance tests with SciPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from attnviz.corpus.parses import pairs_of_relations
from attnviz.corpus.roles import (
    Evidence,
    Roles,
    benjamini_hochberg,
    definition_of,
    student_above,
    student_quantile,
)
from attnviz.corpus.statistics import HeadStatistics
from attnviz.record.record import AttentionRecord
from attnviz.record.tokens import Tokens
from unit.records import shares


@pytest.mark.parametrize("freedom", [1, 2, 7, 99, 100, 5000])
def test_students_distribution(freedom: int) -> None:
    for t in (-3.0, -0.5, 0.0, 0.7, 2.0, 4.5):
        expected = scipy.stats.t.sf(t, freedom)
        assert student_above(t, freedom) == pytest.approx(expected, abs=2e-8, rel=1e-5)
    assert student_quantile(0.025, freedom) == pytest.approx(
        scipy.stats.t.isf(0.025, freedom), rel=1e-5
    )


def test_corrected_p_values() -> None:
    p_values = np.random.default_rng(0).random((7, 11)) ** 3
    p_values[2, 5] = np.nan
    finite = np.isfinite(p_values)
    expected = scipy.stats.false_discovery_control(p_values[finite], method="bh")
    assert_allclose(benjamini_hochberg(p_values)[finite], expected)
    assert np.isnan(benjamini_hochberg(p_values)[2, 5])
    assert benjamini_hochberg(np.zeros(0)).size == 0


def evidence(
    differences: list[float], *, standard_error: float = 0.01, texts: int = 20
) -> Evidence:
    count = len(differences)
    return Evidence(
        texts=np.full(count, texts),
        baseline_texts=np.full((1, count), texts),
        score=np.array(differences) + 0.1,
        standard_error=np.full(count, standard_error),
        baseline=np.full((1, count), 0.1),
        difference=np.array([differences]),
        difference_standard_error=np.full((1, count), standard_error),
    )


def roles_of(scores: dict[str, Evidence], heads: int, **options: float) -> Roles:
    return Roles([3], [heads], scores, **{"margin": 0.1, "level": 0.05, **options})


def test_roles_follow_the_margin_and_the_texts() -> None:
    weights = [[[[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 0.9, 0.1]]]]
    record = AttentionRecord.from_weights(weights, ["a", "b", "c"])
    statistics = HeadStatistics()
    for _ in range(6):
        statistics.add(record)
    stack = statistics.stack()
    roles = stack.roles()
    assert roles.names == [["previous token"]]
    assert stack.roles(margin=0.99).names == [[None]]
    statistics.add(record)
    assert statistics.stack().roles().of(0, 0)[0].texts == 7
    assert roles.of(0, 0)[0].texts == 6
    with pytest.raises(ValueError, match=r"margin=1\.5 must be at least 0 and below 1"):
        stack.roles(margin=1.5)
    with pytest.raises(ValueError, match=r"level=0\.7 must be at least 0 and below 0\.5"):
        stack.roles(level=0.7)


def test_the_baseline_with_the_larger_p_value_counts() -> None:
    """Head 0 differs more from the second baseline, but with a larger p-value."""
    differences = np.array([[0.30, 0.30, 0.30, np.nan], [0.35, 0.35, np.nan, np.nan]])
    errors = np.array([[0.01, 0.01, 0.01, np.nan], [0.20, 0.005, np.nan, np.nan]])
    scores = Evidence(
        texts=np.full(4, 20),
        baseline_texts=np.full((2, 4), 20),
        score=np.full(4, 0.5),
        standard_error=np.full(4, 0.01),
        baseline=0.5 - differences,
        difference=differences,
        difference_standard_error=errors,
    )
    roles = roles_of({"induction": scores}, 4)
    assert roles.names == [[None, "induction", "induction", None]]
    raw = np.nanmax(scipy.stats.t.sf((differences - 0.1) / errors, 19)[:, :3], axis=0)
    expected = scipy.stats.false_discovery_control(raw, method="bh")
    tests = [roles.tested(3, head)[0] for head in range(3)]
    assert_allclose([test.p_value for test in tests], expected, rtol=1e-9, atol=1e-15)
    assert_allclose([test.difference for test in tests], [0.35, 0.30, 0.30])
    assert_allclose([test.baseline for test in tests], [0.15, 0.20, 0.20])
    half = scipy.stats.t.isf(0.025, 19) * 0.2
    assert_allclose([tests[0].low, tests[0].high], [0.35 - half, 0.35 + half])


def test_a_role_needs_its_margin_and_its_certainty() -> None:
    roles = roles_of({"induction": evidence([0.5, 0.11, 0.09, np.nan])}, 4)
    assert roles.names == [["induction", None, None, None]]
    [role] = roles.of(3, 0)
    half = scipy.stats.t.isf(0.025, 19) * 0.01
    assert_allclose([role.low, role.high], [0.5 - half, 0.5 + half])
    raw = [scipy.stats.t.sf((value - 0.1) / 0.01, 19) for value in (0.5, 0.11, 0.09)]
    expected = scipy.stats.false_discovery_control(raw, method="bh")
    p_values = [roles.tested(3, head)[0].p_value for head in range(3)]
    assert_allclose(p_values, expected, atol=1e-15)
    assert roles.label(3, 0) == "induction 0.60 ± 0.01"
    assert roles.label(-1, 1) == ""
    assert roles_of({"induction": evidence([0.5])}, 1, margin=0.6).names == [[None]]
    assert roles_of({"induction": evidence([0.5], texts=4)}, 1).names == [[None]]
    assert roles_of({"induction": evidence([0.5], texts=5)}, 1).names == [["induction"]]
    assert roles_of({"induction": evidence([0.5], standard_error=0.2)}, 1).names == [[None]]
    assert roles_of({"induction": evidence([0.5, 0.05], standard_error=0.0)}, 2).names == [
        ["induction", None]
    ]


def test_the_role_of_the_first_token_comes_last() -> None:
    roles = roles_of(
        {
            "first token": evidence([0.7, 0.7]),
            "same token": evidence([0.2, 0.0]),
            "previous token": evidence([0.3, 0.0]),
        },
        2,
    )
    assert roles.names == [["previous token", "first token"]]
    assert [role.name for role in roles.of(3, 0)] == ["previous token", "same token", "first token"]
    assert repr(roles) == "<Roles of 2 of 2 heads: 1 previous token, 1 first token>"
    table = roles.to_pandas()
    assert len(table) == 6
    assert table["holds"].sum() == 4


def test_a_baseline_of_few_texts_does_not_decide() -> None:
    """Four texts have the second baseline, and their scores are equal to it by chance."""
    scores = Evidence(
        texts=np.full(1, 20),
        baseline_texts=np.array([[20], [4]]),
        score=np.full(1, 0.9),
        standard_error=np.full(1, 0.01),
        baseline=np.array([[0.1], [0.9]]),
        difference=np.array([[0.8], [0.0]]),
        difference_standard_error=np.array([[0.01], [0.01]]),
    )
    assert roles_of({"induction": scores}, 1).names == [["induction"]]
    [role] = roles_of({"induction": scores}, 1).of(3, 0)
    assert (role.difference, role.texts) == (0.8, 20)
    enough = replace(scores, baseline_texts=np.array([[20], [5]]))
    assert roles_of({"induction": enough}, 1).names == [[None]]


def sink_weights(sink: float, *, own: float = 0.0) -> NDArray[np.float32]:
    """Return causal weights (8, 8): `sink` on the first key, `own` on the query's previous token.

    The rest is spread evenly over the allowed keys.
    """
    weights = np.tri(8, dtype=np.float32)
    weights *= (1 - sink - own) / weights.sum(axis=1, keepdims=True)
    weights[:, 0] += sink
    weights[range(8), np.maximum(np.arange(8) - 1, 0)] += own
    return weights


def test_a_sink_is_no_subword_joiner() -> None:
    """The first word has two pieces, and its first piece is a sink. Other words have one piece.

    Head 0 attends to the sink. Head 1 attends to the previous token, head 2 to the sink and to the
    previous token. Head 3 attends to the sink only in the second piece of the first word.
    """
    statistics = HeadStatistics()
    for text in range(12):
        joiner = sink_weights(0.0)
        joiner[1] = [0.95, 0.05, 0, 0, 0, 0, 0, 0]
        heads = [sink_weights(0.9), sink_weights(0, own=0.9), sink_weights(0.5, own=0.45), joiner]
        words = ["O", "scar", *(f" w{text}{number}" for number in range(6))]
        statistics.add(AttentionRecord.from_weights([np.stack(heads)], Tokens.of(words)))
    stack = statistics.stack()
    assert stack.mean("same word")[0][0] > 0.9
    roles = stack.roles()
    assert roles.names == [["first token", "previous token", "previous token", "subword joiner"]]
    assert [role.name for role in roles.of(0, 0)] == ["first token"]
    assert [role.name for role in roles.of(0, 2)][-1] == "first token"


def test_syntactic_roles_have_a_definition() -> None:
    assert definition_of("syntactic: nsubj (reversed)") == "attends from a word to its nsubj"


class TestParses:
    TOKENS = Tokens.of(
        ["[CLS]", "the", "cat", "##s", "don", "'", "t", "sleep", "[SEP]"],
        special=[True] + [False] * 7 + [True],
    )
    WORDS = ("The", "cats", "don't", "sleep")
    HEADS = (1, 3, 3, -1)
    RELATIONS = ("det", "nsubj", "aux", "root")

    def test_words_of_a_parse_are_matched_by_their_letters(self) -> None:
        pairs = pairs_of_relations((self.WORDS, self.HEADS, self.RELATIONS), self.TOKENS)
        named = {name: list(zip(*map(list, both), strict=True)) for name, both in pairs.items()}
        assert named == {
            "syntactic: det": [(1, 2), (1, 3)],
            "syntactic: det (reversed)": [(2, 1), (3, 1)],
            "syntactic: nsubj": [(2, 7), (3, 7)],
            "syntactic: nsubj (reversed)": [(7, 2), (7, 3)],
            "syntactic: aux": [(4, 7), (5, 7), (6, 7)],
            "syntactic: aux (reversed)": [(7, 4), (7, 5), (7, 6)],
        }

    def test_words_of_the_tokenizer_are_used_if_their_number_fits(self) -> None:
        tokens = Tokens.of(["Un", "do", " ït"])
        pairs = pairs_of_relations(([-1, 0], ["root", "obj"]), tokens)
        assert [indices.tolist() for indices in pairs["syntactic: obj"]] == [[2, 2], [0, 1]]
        mapping = {"heads": [None, 0], "relations": ["root", "obj"], "words": ["undo", "it"]}
        again = pairs_of_relations(mapping, tokens)
        assert [indices.tolist() for indices in again["syntactic: obj"]] == [[2, 2], [0, 1]]

    def test_invalid_parses_are_refused(self) -> None:
        for parse, message in (
            (([0, 1], ["a"]), r"have \[2, 1\] entries\. Pass one of each"),
            (([7], ["a"]), r"heads\[0\]=7 must be the index of a word"),
            (([-1], ["root"]), "parse has 1 words, but the tokens of the text form 6"),
            ((["dogs"], [-1], ["root"]), "At token 1, 'the', the words continue with"),
        ):
            with pytest.raises(ValueError, match=message):
                pairs_of_relations(parse, self.TOKENS)

    def test_a_head_of_a_relation_is_found(self) -> None:
        """Head 0 attends from subjects to verbs at random offsets. Head 1 has random weights."""
        generator = np.random.default_rng(0)
        statistics = HeadStatistics()
        for text in range(20):
            order = generator.permutation(6)
            subject, verb = order[:2].tolist()
            weights = shares(2, 6, 6, seed=text) * 0.1
            weights[0, :, :] += 0.9 / 6
            weights[0, subject] = 0.02
            weights[0, subject, verb] = 0.9
            weights[1] *= 10
            heads = [-1] * 6
            heads[subject] = verb
            relations = ["root"] * 6
            relations[subject] = "nsubj"
            words = [f" w{number}" for number in range(6)]
            statistics.add(
                AttentionRecord.from_weights([weights], Tokens.of(words)),
                parse=(heads, relations),
            )
        roles = statistics.stack().roles()
        assert roles.names == [["syntactic: nsubj", None]]
        [role] = roles.of(0, 0)
        assert role.score == pytest.approx(0.9)
        assert role.texts == 20
        assert "syntactic: nsubj (reversed)" in roles.candidates


def test_a_relation_at_one_offset_is_not_syntactic() -> None:
    """Each verb comes right after its subject, so a next-token head also attends to verbs."""
    statistics = HeadStatistics()
    for text in range(12):
        weights = 0.05 * shares(1, 6, 6, seed=text)
        weights[0] += 0.95 * np.eye(6, k=1, dtype=np.float32)
        weights[0, 5, 5] += 0.95
        words = Tokens.of([f" w{number}" for number in range(6)])
        parse = ([1, -1, -1, 4, -1, -1], ["nsubj", "root", "root", "nsubj", "root", "root"])
        statistics.add(AttentionRecord.from_weights([weights], words), parse=parse)
    assert statistics.stack().mean("syntactic: nsubj")[0][0] > 0.9
    assert statistics.stack().roles().names == [["next token"]]
    assert [role.name for role in statistics.stack().roles().of(0, 0)] == ["next token"]
