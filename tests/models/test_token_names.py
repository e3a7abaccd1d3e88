"""Tokens have the names and words of the user's text, whatever the alphabet of the vocabulary."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import attnviz as av
from attnviz import AttentionRecord, Tokens
from attnviz.extraction.tokens.text import UNKNOWN_NOTE, read_tokens
from models.tiny import built

DIFFERS = "does not read the text as it is"
SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


def bert(size: int = 600, **options: Any) -> Any:
    config = {
        "vocab_size": size,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "max_position_embeddings": 64,
    }
    return built("BertModel", config | options)


def extracted(tokenizer: Any, inputs: Any, model: Any = None) -> tuple[Tokens, list[str]]:
    record = av.extract(model or bert(), inputs, tokenizer=tokenizer)
    assert isinstance(record, AttentionRecord)
    assert record.tokens is not None
    return record.tokens, list(record.notes)


def words(tokens: Tokens) -> list[list[str]]:
    """The names of the tokens of each word."""
    assert tokens.words is not None
    numbers = sorted({number for number in tokens.words if number is not None})
    return [
        [name for name, word in zip(tokens.text, tokens.words, strict=True) if word == number]
        for number in numbers
    ]


def parts(character: str) -> list[str]:
    count = len(character.encode())
    if count == 1:
        return [character.replace(" ", "·")]
    return [f"{character} {part}/{count}" for part in range(1, count + 1)]


@pytest.mark.parametrize("name", ["ByT5Tokenizer", "PerceiverTokenizer", "DiaTokenizer"])
@pytest.mark.parametrize("text", ["naïve cat", "日本 é"])
def test_bytes_are_shown_as_characters(name: str, text: str) -> None:
    tokenizer = getattr(transformers, name)()
    tokens, notes = extracted(tokenizer, text)
    regular = [name for name, special in zip(tokens, tokens.special, strict=True) if not special]
    assert regular == [part for character in text for part in parts(character)]
    # A space belongs to the word after it.
    expected = [
        [part for character in word for part in parts(character)]
        for word in ("|" + text.replace(" ", "| ")).split("|")[1:]
    ]
    assert words(tokens) == expected
    assert not any(DIFFERS in note for note in notes)


def test_characters_of_canine() -> None:
    tokenizer = transformers.CanineTokenizer()
    tokens, notes = extracted(tokenizer, "the cat\nis", bert(size=0xE010))
    assert list(tokens) == ["[CLS]", *"the·cat⏎is", "[SEP]"]
    assert [len(word) for word in words(tokens)] == [3, 4, 3]
    assert tokens.special == (True, *[False] * 10, True)
    assert not notes


def llama2(texts: Sequence[str]) -> Any:
    """A tokenizer with the normalizer and decoder of Llama 2, which does not split into words."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = sorted({character for text in texts for character in text.replace(" ", "▁")})
    kinds = ["<unk>", "<s>", "</s>", "<pad>", *byte_tokens, "▁", *letters]
    merges = [("c", "a"), ("ca", "t"), ("▁", "cat"), ("d", "o"), ("do", "g")]
    tokens = [token for token in kinds if token != "\n"]
    vocabulary = numbered([*tokens, *(first + second for first, second in merges)])
    backend = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, **SPECIAL)


@pytest.mark.parametrize(
    "text", ["cat\ndog\nhouse", "cat  dog\thouse", "cat dog house", " cat\n\ndog é house"]
)
def test_words_are_runs_between_any_white_space(text: str) -> None:
    tokens, _ = extracted(llama2(["house", " acdgot"]), text)
    expected = text.split()
    assert len(words(tokens)) == len(expected)
    for names, word in zip(words(tokens), expected, strict=True):
        joined = "".join(names).replace(" 1/2", "").replace("é 2/2", "")
        assert joined.strip("·⏎⇥") == word


def fast_bpe(folder: Path, tokens: Sequence[str]) -> tuple[str, str]:
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    vocabulary.write_text(json.dumps(numbered(tokens)))
    merges.write_text("t h 1\nth e</w> 1\nc a 1\nca t</w> 1\n")
    return str(vocabulary), str(merges)


@pytest.fixture
def moses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package sacremoses that splits at white space, if the real one is missing."""
    module: Any = ModuleType("sacremoses")

    class Splitter:
        def __init__(self, lang: str) -> None:
            del lang

        def tokenize(self, text: str, **options: Any) -> list[str]:
            del options
            return text.split()

        def detokenize(self, tokens: list[str]) -> str:
            return " ".join(tokens)

        def normalize(self, text: str) -> str:
            return text

    module.MosesTokenizer = module.MosesDetokenizer = module.MosesPunctNormalizer = Splitter
    monkeypatch.setitem(sys.modules, "sacremoses", module)


@pytest.mark.usefixtures("moses")
@pytest.mark.parametrize("kind", ["XLM", "FSMT"])
def test_a_bar_as_an_entry_does_not_hide_the_ends_of_words(kind: str, tmp_path: Path) -> None:
    entries = ["<s>", "</s>", "<pad>", "<unk>", "▁", "▁</w>", "the</w>", "cat</w>", "s", "s</w>"]
    vocabulary, merges = fast_bpe(tmp_path, [*entries, *"theca"])
    if kind == "XLM":
        tokenizer: Any = transformers.XLMTokenizer(vocabulary, merges)
    else:
        tokenizer = transformers.FSMTTokenizer(["en", "de"], vocabulary, vocabulary, merges)
    tokens, _ = extracted(tokenizer, "the cat")
    regular = [name for name, special in zip(tokens, tokens.special, strict=True) if not special]
    assert regular == ["the·", "cat·"]
    assert tokens.index("the") == list(tokens).index("the·")
    assert words(tokens) == [["the·"], ["cat·"]]


@pytest.fixture
def pieces(tmp_path: Path) -> str:
    """The file of a sentencepiece model with one piece per character, and some words."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat", "die Katze saß auf der Matte"] * 20),
        model_prefix=str(tmp_path / "pieces"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return str(tmp_path / "pieces.model")


def piece_vocabulary(pieces: str, first: Sequence[str], *, reverse: bool = False) -> dict[str, int]:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=pieces)
    own = [model.id_to_piece(number) for number in range(3, len(model))]
    return numbered([*first, *(own[::-1] if reverse else own)])


@pytest.fixture
def marian(pieces: str, tmp_path: Path) -> Any:
    """A tokenizer with two vocabularies. That of the target has 40 more entries."""
    special = ["</s>", "<unk>", "<pad>"]
    source, target = tmp_path / "source.json", tmp_path / "target.json"
    source.write_text(json.dumps(piece_vocabulary(pieces, special)))
    more = [f"word{number}" for number in range(40)]
    target.write_text(json.dumps(piece_vocabulary(pieces, [*special, *more], reverse=True)))
    return transformers.MarianTokenizer(
        source_spm=pieces,
        target_spm=pieces,
        vocab=str(source),
        target_vocab_file=str(target),
        separate_vocabs=True,
    )


def marian_model(tokenizer: Any) -> Any:
    config = {
        "vocab_size": len(tokenizer.get_src_vocab()),
        "decoder_vocab_size": len(tokenizer.target_encoder),
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
        "d_model": 8,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
        "pad_token_id": 2,
        "decoder_start_token_id": 2,
        "eos_token_id": 0,
    }
    return built("MarianMTModel", config)


def joined(tokens: Tokens) -> str:
    names = [name for name, flag in zip(tokens, tokens.special, strict=True) if not flag]
    return "".join(names).replace("·", " ").strip()


def test_each_side_of_a_translation_has_its_own_vocabulary(marian: Any) -> None:
    record = av.extract(marian_model(marian), "the cat sat", target="die Katze", tokenizer=marian)
    cross = record.stack("cross")
    assert joined(cross.key_tokens) == "the cat sat"
    assert joined(cross.query_tokens) == "die Katze"
    # The predictions are the tokens of the target.
    assert cross.query_tokens.predictions is not None
    names = [prediction.token.text for prediction in cross.query_tokens.predictions]
    assert "".join(names).replace("·", " ").removesuffix("</s>").strip() == "die Katze"
    assert not any(DIFFERS in note for note in record.notes)


def test_ids_of_the_larger_vocabulary_of_a_decoder_are_accepted(marian: Any) -> None:
    model = marian_model(marian)
    largest = len(marian.target_encoder) - 1
    record = av.extract(
        model, "the cat", decoder_input_ids=torch.tensor([[2, largest]]), tokenizer=marian
    )
    vocabulary = {number: entry for entry, number in marian.target_encoder.items()}
    name = record.stack("cross").query_tokens.text[-1]
    assert name.replace("·", "▁") == vocabulary[largest]
    with pytest.raises(ValueError, match=f"0 to {largest} in its decoder"):
        av.extract(
            model, "the cat", decoder_input_ids=torch.tensor([[2, largest + 1]]), tokenizer=marian
        )
    generated = av.extract(model, "the cat", generate=3, tokenizer=marian)
    target = generated.stack("cross").query_tokens
    assert target.ids is not None
    entries = [vocabulary[identifier] for identifier in target.ids]
    assert [name.replace("·", "▁") for name in target] == entries


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "."]


@pytest.fixture
def word_pieces() -> Any:
    return transformers.BertTokenizer(vocab=numbered(WORDS), do_lower_case=True)


@pytest.fixture
def byte_level() -> Any:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("d", "i"), ("di", "e"), ("Ġ", "di"), ("Ġ", "K")]
    backend = Tokenizer(models.BPE(numbered(["<|end|>", *alphabet, *map("".join, merges)]), merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>"
    )


def two_models(source: Any, target: Any) -> Any:
    encoder = transformers.BertConfig(
        vocab_size=len(source),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
    )
    decoder = transformers.GPT2Config(
        vocab_size=len(target),
        n_embd=8,
        n_layer=1,
        n_head=2,
        is_decoder=True,
        add_cross_attention=True,
    )
    config = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id = config.pad_token_id = 0
    return built("EncoderDecoderModel", config)


def test_two_tokenizers_of_an_encoder_decoder_model(word_pieces: Any, byte_level: Any) -> None:
    model = two_models(word_pieces, byte_level)
    both = (word_pieces, byte_level)
    record = av.extract(model, "the cats sat", target="die é K", tokenizer=both)
    cross = record.stack("cross")
    assert list(cross.key_tokens) == ["[CLS]", "the", "cat", "##s", "sat", "[SEP]"]
    assert list(cross.query_tokens)[:5] == ["<|end|>", "die", "·", "é 1/2", "é 2/2"]
    assert cross.query_tokens.predictions is not None
    actual = [entry.token.text for entry in cross.query_tokens.predictions]
    assert actual[0] == "die"
    generated = av.extract(model, "the cats sat", generate=2, tokenizer=both)
    new = generated.stack("cross").query_tokens
    assert new.ids is not None
    assert "".join(new).startswith("<|end|>")
    assert [name for name in new if name in WORDS] == []
    ids = byte_level("die")["input_ids"]
    given = av.extract(model, "the", decoder_input_ids=torch.tensor([ids]), tokenizer=both)
    assert list(given.stack("cross").query_tokens) == ["die"]


def test_one_tokenizer_of_two_models_names_only_its_own_side(
    word_pieces: Any, byte_level: Any
) -> None:
    model = two_models(word_pieces, byte_level)
    ids = torch.tensor([[0, 9, 20]])
    record = av.extract(model, "the cat", decoder_input_ids=ids, tokenizer=word_pieces)
    assert list(record.stack("cross").key_tokens) == ["[CLS]", "the", "cat", "[SEP]"]
    assert list(record.stack("cross").query_tokens) == ["#0", "#9", "#20"]
    assert any("tokenizer=(source, target)" in note for note in record.notes)
    with pytest.raises(ValueError, match=r"another vocabulary .* tokenizer=\(source, target\)"):
        av.extract(model, "the cat", target="sat", tokenizer=word_pieces)


def test_wrong_tuples_of_tokenizers_are_refused(word_pieces: Any) -> None:
    with pytest.raises(ValueError, match="BertModel is not an encoder-decoder model"):
        av.extract(bert(), "the cat", tokenizer=(word_pieces, word_pieces))
    for wrong in [(word_pieces,), (word_pieces, None), (word_pieces, word_pieces, word_pieces)]:
        with pytest.raises(TypeError, match=r"a tuple must be \(source, target\)"):
            av.extract(bert(), "the cat", tokenizer=wrong)
    with pytest.raises(TypeError, match=r"a tuple \(source, target\) of two; got dict"):
        av.extract(bert(), "the cat", tokenizer=(word_pieces, {}))


def test_codes_of_languages_are_special(pieces: str, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text(json.dumps(piece_vocabulary(pieces, ["<s>", "<pad>", "</s>", "<unk>"])))
    tokenizer = transformers.M2M100Tokenizer(vocab_file=str(vocabulary), spm_file=pieces)
    tokens, _ = extracted(tokenizer, "the cat")
    assert tokens.text[0] == "__en__"
    assert tokens.special[0]
    assert joined(tokens) == "the cat"
    assert tokens.text[1].startswith("·")
    pair, _ = extracted(tokenizer, ("the cat", "sat"))
    second = [name for name, text in zip(pair, pair.sequence, strict=True) if text == 1]
    assert "".join(second) == "·sat"
    # The decoder's text begins with the language of the target.
    german, _ = read_tokens([tokenizer.get_lang_id("de")], tokenizer=tokenizer)
    assert (german.text, german.special) == (("__de__",), (True,))


def test_a_table_has_readable_tokens(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", exc_type=ImportError)
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join([*WORDS, "[EMPTY]", "a", "b", "1", "2"]))
    tokenizer = transformers.TapasTokenizer(vocab_file=str(vocabulary))
    encoded = tokenizer(pandas.DataFrame({"a": ["1"], "b": ["2"]}), "the cats", return_tensors="pt")
    model = built(
        "TapasModel",
        {
            "vocab_size": 20,
            "hidden_size": 8,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 8,
        },
    )
    tokens, _ = extracted(tokenizer, dict(encoded), model)
    assert list(tokens) == ["[CLS]", "the", "cat", "##s", "[SEP]", "a", "b", "1", "2"]
    assert tokens.sequence == (None, 0, 0, 0, None, 1, 1, 1, 1)


def test_a_tokenizer_that_cannot_be_serialized(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("rjieba")

    def tokenize(text: str, **options: Any) -> list[tuple[str, int, int]]:
        del options
        return [(match[0], *match.span()) for match in re.finditer(r"\w+|\W", text)]

    module.tokenize = tokenize
    monkeypatch.setitem(sys.modules, "rjieba", module)
    tokenizer = transformers.RoFormerTokenizer(vocab=numbered(WORDS))
    with pytest.raises(Exception, match="Custom PreTokenizer cannot be serialized"):
        tokenizer.backend_tokenizer.pre_tokenizer.__getstate__()
    tokens, notes = extracted(tokenizer, "the cats sat.")
    assert list(tokens) == ["[CLS]", "the", "cat", "##s", "sat", ".", "[SEP]"]
    assert words(tokens) == [["the"], ["cat", "##s"], ["sat"], ["."]]
    assert notes == []


@pytest.mark.parametrize("text", ["xyz", "☃ ☃", "Ω"])
def test_a_text_of_unknown_words_only_has_a_note(word_pieces: Any, text: str) -> None:
    tokens, notes = extracted(word_pieces, text)
    assert set(tokens) == {"[CLS]", "[UNK]", "[SEP]"}
    assert UNKNOWN_NOTE in notes
    assert UNKNOWN_NOTE not in extracted(word_pieces, f"{text} cat")[1]


def test_what_a_tokenizer_replaces_has_a_note_that_quotes_both() -> None:
    backend = Tokenizer(models.WordLevel(numbered(["<unk>", "the", "cat", "N"]), "<unk>"))
    backend.normalizer = normalizers.Replace("7", "N")
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokens, notes = extracted(tokenizer, "the 7 cat")
    assert list(tokens) == ["the", "N", "cat"]
    [note] = [note for note in notes if DIFFERS in note]
    assert "“the 7 cat”" in note
    assert words(tokens) == [["the"], ["N"], ["cat"]]


@pytest.mark.parametrize(
    "text",
    ["The  CAT sat.", "thé cat\u0301 sat", "ｔｈｅ cat\nsat", "the snow cat", "the\u200b cat"],
)
def test_what_normalizers_do_has_no_note(word_pieces: Any, text: str) -> None:
    _, notes = extracted(word_pieces, text)
    assert notes == []


def test_unknown_words_between_spaces_have_no_note_of_a_difference() -> None:
    vocabulary = [("<unk>", 0.0), ("▁", -1.0), ("the", -2.0), ("cat", -2.0)]
    backend = Tokenizer(models.Unigram(vocabulary, 0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    tokens, notes = extracted(tokenizer, "the x yz cat ? [MASK]")
    assert notes == []
    names = [[name for name in word if name != "·"] for word in words(tokens)]
    known = [name for name in names if name]
    assert known == [["the"], ["<unk>"], ["<unk>"], ["cat"], ["<unk>"]]


def test_a_vocabulary_without_a_decoder_is_named_by_the_text() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "c"), ("Ġc", "a"), ("Ġca", "t")]
    backend = Tokenizer(models.BPE(numbered([*alphabet, *map("".join, merges)]), merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    tokens, notes = extracted(tokenizer, "a cat é")
    assert list(tokens) == ["a", "·cat", "·", "é 1/2", "é 2/2"]
    assert notes == []


def test_what_a_tokenizer_drops_at_the_end_has_a_note(word_pieces: Any) -> None:
    backend = Tokenizer(models.WordLevel(numbered(["<unk>", "the", "cat"]), "<unk>"))
    backend.normalizer = normalizers.Replace("!", "")
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    _, notes = extracted(tokenizer, "the cat!")
    [note] = [note for note in notes if DIFFERS in note]
    assert "“the cat!”" in note
    # Tokens that the caller truncates are not dropped by the tokenizer.
    record = av.extract(bert(), "the cats sat the cat", tokenizer=word_pieces, truncation=4)
    assert not any(DIFFERS in note for note in record.notes)


def test_names_of_a_batch_with_padding_are_those_of_each_text(word_pieces: Any) -> None:
    encoded = word_pieces(["the cats", "sat xyz the cat"], padding=True, return_tensors="pt")
    one, two = av.extract(bert(), encoded, tokenizer=word_pieces)
    assert list(one.tokens) == ["[CLS]", "the", "cat", "##s", "[SEP]"]
    assert list(two.tokens) == ["[CLS]", "sat", "[UNK]", "the", "cat", "[SEP]"]
    assert words(two.tokens) == [["sat"], ["[UNK]"], ["the"], ["cat"]]


def test_a_corpus_has_one_note_for_all_changed_texts() -> None:
    backend = Tokenizer(models.WordLevel(numbered(["<unk>", "the", "cat", "N"]), "<unk>"))
    backend.normalizer = normalizers.Replace(Regex("[0-9]"), "N")
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")
    corpus = av.extract_corpus(bert(), ["the 7 cat", "the cat 8", "the cat"], tokenizer=tokenizer)
    [note] = [note for note in corpus.notes if DIFFERS in note]
    assert note.startswith("Some texts: ")


def test_comparing_passes_a_tuple_of_tokenizers_on(word_pieces: Any, byte_level: Any) -> None:
    both = (word_pieces, byte_level)
    model = two_models(*both)
    # With a list, each of the two records would have one of the tokenizers.
    result = av.compare(model, "the cat", "the cats", target="die", tokenizer=both)
    for record in (result.a, result.b):
        assert list(record.stack("cross").key_tokens)[:2] == ["[CLS]", "the"]
        assert record.stack("cross").query_tokens.text[0] == "<|end|>"


def test_a_pair_and_words_of_the_caller(word_pieces: Any) -> None:
    tokens, _ = extracted(word_pieces, ("the cats", "sat the"))
    assert tokens.sequence == (None, 0, 0, 0, None, 1, 1, None)
    assert words(tokens) == [["the"], ["cat", "##s"], ["sat"], ["the"]]
    # A word of the caller may contain punctuation, at which the tokenizer splits.
    split = word_pieces(["the.cat", "sat"], is_split_into_words=True, return_tensors="pt")
    tokens, _ = extracted(word_pieces, split)
    assert words(tokens) == [["the", ".", "cat"], ["sat"]]


@pytest.mark.parametrize("text", ["the cats", "sat. the cat", "catsat"])
def test_generated_ids_are_named_as_the_tokenizer_decodes_them(word_pieces: Any, text: str) -> None:
    ids = word_pieces(text, add_special_tokens=False)["input_ids"]
    tokens, _ = read_tokens(ids, tokenizer=word_pieces)
    decoded = re.findall(r"\w+|[.]", word_pieces.decode(ids))
    assert tokens.words is not None
    starts = sum(one != other for one, other in pairwise(tokens.words)) + 1
    assert starts == len(decoded)
