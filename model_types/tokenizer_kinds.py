"""Small tokenizers of every class of transformers, whose vocabularies are trained on a few texts.

Each builder returns a tokenizer. Classes without a builder here get the vocabulary of their kind
(WordPiece, byte-level BPE, BPE or unigram of sentencepiece) from the type of their model.
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

CORPUS = [
    "The animal didn't cross the street because it was too tired.",
    "Hello, world! (yes?) The café is naïve, déjà vu, cost 3.14 and 2021.",
    "the cat sat on the mat and saw the dog in the house",
    "日本語 と 中文 の 言葉。 我们 在 这里。",
    "x = [1, 2]; print(a_b) two spaces and three emoji ok tab cat dog house",
    "user assistant system says hello 0123456789",
    "&apos;t &apos;s &apos;re &quot; &#91; &#93; &amp; &apos; &#91;1 &#93;1 &apos;a",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ abcdefghijklmnopqrstuvwxyz",
] * 4

_BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
# First entries of the vocabularies of some classes, which state the ids of their special tokens.
_ALBERT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
_PIECES = ["<unk>", "<s>", "</s>", "<pad>", "<mask>"]
_FIRST = {
    "AlbertTokenizer": _ALBERT,
    "FNetTokenizer": _ALBERT,
    "DebertaV2Tokenizer": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "RemBertTokenizer": ["<pad>", "[PAD]", "<unk>", "[CLS]", "[SEP]", "[MASK]"],
    "T5Tokenizer": ["<pad>", "</s>", "<unk>"],
    "VideoPrismTokenizer": ["<pad>", "</s>", "<unk>"],
    "CpmTokenizerFast": _PIECES,
    "MLukeTokenizer": _PIECES,
    "ParakeetTokenizer": _PIECES,
    "XLNetTokenizer": _PIECES,
    "PegasusTokenizer": ["<pad>", "</s>", "<mask_1>", "<mask_2>", "<unk>"],
}
_GPT = ["<|endoftext|>", "<unk>", "<pad>"]


@cache
def _folder() -> Path:
    return Path(mkdtemp(prefix="tokenizers-"))


def _json(name: str, value: object) -> str:
    path = _folder() / name
    path.write_text(json.dumps(value))
    return str(path)


def _lines(name: str, lines: list[str]) -> str:
    path = _folder() / name
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(dict.fromkeys(tokens))}


@cache
def _word_pieces(*, lower: bool = True) -> list[str]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=320, special_tokens=_BERT, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _trained_bpe(setup: Callable[[Tokenizer], None], special: list[str], **options: Any) -> Any:
    tokenizer = Tokenizer(models.BPE(unk_token=options.pop("unk_token", None)))
    setup(tokenizer)
    trainer = trainers.BpeTrainer(
        vocab_size=480, special_tokens=special, show_progress=False, **options
    )
    tokenizer.train_from_iterator(CORPUS * 5, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


@cache
def _byte_bpe() -> Any:
    def setup(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)

    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _trained_bpe(setup, [*_SPECIAL, *_GPT], initial_alphabet=alphabet)


@cache
def _clip_bpe() -> Any:
    """Byte-level BPE whose entries end with "</w>" at the end of a word."""

    def setup(tokenizer: Tokenizer) -> None:
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(False, use_regex=False)]
        )

    special = ["<|startoftext|>", "<|endoftext|>", *_SPECIAL]
    vocabulary, merges = _trained_bpe(
        setup,
        special,
        end_of_word_suffix="</w>",
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    for byte in pre_tokenizers.ByteLevel.alphabet():
        vocabulary.setdefault(byte + "</w>", len(vocabulary))
    return vocabulary, merges


@cache
def _end_of_word_bpe() -> Any:
    """BPE of characters whose entries end with "</w>" at the end of a word."""

    def setup(tokenizer: Tokenizer) -> None:
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Split(Regex(r"&#?\w+;\w*|\w+|[^\w\s]"), "isolated"),
            ]
        )

    return _trained_bpe(
        setup,
        ["<s>", "</s>", "<pad>", "<unk>", "<special1>"],
        end_of_word_suffix="</w>",
        unk_token="<unk>",
    )


@cache
def _at_bpe() -> Any:
    """BPE whose entries end with "@@" inside of a word, for the classes of fastBPE."""
    vocabulary, merges = _end_of_word_bpe()
    tokens = [
        token.removesuffix("</w>") if token.endswith("</w>") else f"{token}@@"
        for token in vocabulary
    ]
    return tokens, merges


@cache
def _metaspace_bpe() -> Any:
    def setup(tokenizer: Tokenizer) -> None:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()

    special = ["<unk>", "<s>", "</s>", "<pad>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary, merges = _trained_bpe(setup, [*special, "▁"], unk_token="<unk>")
    for count in (2, 3):
        vocabulary.setdefault("▁" * count, len(vocabulary))
        merges.append(("▁" * (count - 1), "▁"))
    return vocabulary, merges


@cache
def _pieces(kind: str, *, byte_fallback: bool = False, lower: bool = False) -> str:
    """Return the file of a model of sentencepiece."""
    import sentencepiece

    prefix = _folder() / f"{kind}-{byte_fallback}-{lower}"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_prefix=str(prefix),
        model_type=kind,
        vocab_size=700 if byte_fallback else 330,
        byte_fallback=byte_fallback,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc_cf" if lower else "nmt_nfkc",
        minloglevel=2,
    )
    return f"{prefix}.model"


def _unigram(special: list[str]) -> list[tuple[str, float]]:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=_pieces("unigram"))
    pieces = [(model.id_to_piece(i), model.get_score(i)) for i in range(3, len(model))]
    return [*((token, 0.0) for token in special), *pieces]


def _fast(backend: Tokenizer, **options: Any) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        **{"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "</s>"} | options,
    )


def _llama2() -> Any:
    """Build a tokenizer like those of Llama 2, Mistral 7B and Phi 3: a text is one word of it."""
    vocabulary, merges = _metaspace_bpe()
    backend = Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return _fast(backend, bos_token="<s>")


_PATTERNS = {
    "Llama 3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "GPT-4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "BLOOM": r" ?[^(\s|[.,!?…。，、।۔،])]+",
}


def _byte_level(pattern: str | None = None, **options: Any) -> Any:
    vocabulary, merges = _byte_bpe()
    backend = Tokenizer(models.BPE(vocabulary, merges, **options))
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    backend.pre_tokenizer = (
        split
        if pattern is None
        else pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(_PATTERNS[pattern]), "isolated"), split]
        )
    )
    backend.decoder = decoders.ByteLevel()
    return _fast(backend)


def _deepseek() -> Any:
    vocabulary, merges = _byte_bpe()
    backend = Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[\r\n]"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
            pre_tokenizers.Split(Regex(r"\s?\p{P}+"), "isolated"),
            pre_tokenizers.Split(Regex(r"[一-龥ࠀ-一가-퟿]+"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return _fast(backend)


def _characters() -> Any:
    """Build a tokenizer with one token for each character."""
    tokens = ["<unk>", "<pad>", "</s>", *sorted(set("".join(CORPUS)))]
    backend = Tokenizer(models.WordLevel(_numbered(tokens), unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return _fast(backend)


def _whole_words() -> Any:
    words = " ".join(CORPUS).replace(".", " .").split()
    backend = Tokenizer(
        models.WordLevel(_numbered(["<unk>", "<pad>", "</s>", *words]), unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return _fast(backend)


def _unigram_bytes() -> Any:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=_pieces("unigram", byte_fallback=True))
    pieces = [(model.id_to_piece(number), model.get_score(number)) for number in range(len(model))]
    backend = Tokenizer(models.Unigram([*pieces, ("<pad>", 0.0)], unk_id=0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first"), decoders.Fuse()]
    )
    return _fast(backend)


def _without_decoder(backend_of: Callable[[], Any]) -> Any:
    """Build a tokenizer that has no decoder, such as one from a file that was written by hand."""
    tokenizer = backend_of()
    backend = Tokenizer.from_str(
        json.dumps(json.loads(tokenizer.backend_tokenizer.to_str()) | {"decoder": None})
    )
    return _fast(backend)


def _named(name: str, *args: Any, **options: Any) -> Any:
    return getattr(transformers, name)(*args, **options)


def _end_of_word_files(name: str, *, extra: list[str]) -> tuple[str, str]:
    vocabulary, merges = _end_of_word_bpe()
    tokens = [*vocabulary, *extra]
    lines = [" ".join(merge) + " 1" for merge in merges]
    return _json(f"{name}.json", _numbered(tokens)), _lines(f"{name}.txt", lines)


def _at_files(name: str, *, as_json: bool) -> tuple[str, str]:
    tokens, merges = _at_bpe()
    tokens = [token.removesuffix("@@") if token.startswith("<") else token for token in tokens]
    lines = [" ".join(merge) for merge in merges]
    if as_json:
        vocabulary = _json(f"{name}.json", _numbered(tokens))
        return vocabulary, _lines(f"{name}.txt", ["#version: 0.2", *lines])
    plain = [f"{token} 1" for token in tokens if not token.startswith("<")]
    return _lines(f"{name}.dict", plain), _lines(f"{name}.codes", [f"{line} 1" for line in lines])


def _spm(name: str, file: Callable[[], str], **options: Any) -> Any:
    return _named(name, vocab_file=file(), **options)


def _spm_vocabulary(special: list[str]) -> dict[str, int]:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=_pieces("unigram"))
    return _numbered([*special, *(model.id_to_piece(number) for number in range(3, len(model)))])


def _marian(*, separate: bool = False) -> Any:
    source = _json("marian.json", _spm_vocabulary(["</s>", "<unk>", "<pad>"]))
    target = _json("marian-target.json", _spm_vocabulary(["</s>", "<unk>", "<pad>", "extra"]))
    pieces = _pieces("unigram")
    files = {"target_vocab_file": target, "separate_vocabs": True} if separate else {}
    return transformers.MarianTokenizer(source_spm=pieces, target_spm=pieces, vocab=source, **files)


def _bartpho() -> Any:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=_pieces("unigram"))
    tokens = [f"{model.id_to_piece(number)} 1" for number in range(3, len(model))]
    return transformers.BartphoTokenizer(
        vocab_file=_pieces("unigram"), monolingual_vocab_file=_lines("dict.txt", tokens)
    )


def _roc_bert() -> Any:
    tokens = _word_pieces()
    shapes = _json("shapes.json", dict.fromkeys(tokens, 0))
    return transformers.RoCBertTokenizer(
        vocab_file=_lines("roc.txt", tokens), word_shape_file=shapes, word_pronunciation_file=shapes
    )


def _tapas() -> Any:
    return transformers.TapasTokenizer(vocab_file=_lines("tapas.txt", [*_word_pieces(), "[EMPTY]"]))


def _letters(name: str, extra: list[str], letters: str, **options: Any) -> Any:
    tokens = [*extra, *dict.fromkeys(letters)]
    return _named(name, vocab_file=_json(f"{name}.json", _numbered(tokens)), **options)


_UPPER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ'"
_LOWER = _UPPER.lower()


def _builders() -> dict[str, Callable[[], Any]]:
    """Return the builders of tokenizers that need their own files, or variants of a class."""
    uncased = _lines("uncased.txt", _word_pieces())
    ctrl = _at_files("ctrl", as_json=True)
    fast_bpe = _at_files("phobert", as_json=False)
    ends = _end_of_word_files("ends", extra=["\n</w>"])
    ends_bar = _end_of_word_files("ends-bar", extra=["▁", "▁</w>"])
    clip_vocabulary, clip_merges = _clip_bpe()
    clip = (
        _json("clip.json", clip_vocabulary),
        _lines("clip.txt", ["#version: 0.2", *(" ".join(merge) for merge in clip_merges)]),
    )
    unigram, bpe = partial(_pieces, "unigram"), partial(_pieces, "bpe")
    with_bytes = partial(_pieces, "bpe", byte_fallback=True)
    esm = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<mask>"]
    japanese = ["<|endoftext|>", "<|startoftext|>", "<SP>", "<BR>", "<TAB>", "<BLOCK>"]
    japanese += [*(f"<|byte{byte}|>" for byte in range(256)), *dict.fromkeys("".join(CORPUS))]
    return {
        "BertTokenizer (cased)": lambda: transformers.BertTokenizer(
            vocab=_numbered(_word_pieces(lower=False)), do_lower_case=False
        ),
        "BertTokenizerLegacy": lambda: importlib.import_module(
            "transformers.models.bert.tokenization_bert_legacy"
        ).BertTokenizerLegacy(vocab_file=uncased),
        "BertJapaneseTokenizer": lambda: transformers.BertJapaneseTokenizer(
            vocab_file=uncased, word_tokenizer_type="basic"
        ),
        "BertJapaneseTokenizer (characters)": lambda: transformers.BertJapaneseTokenizer(
            vocab_file=_lines("chars.txt", [*_BERT, *dict.fromkeys("".join(CORPUS).lower())]),
            word_tokenizer_type="basic",
            subword_tokenizer_type="character",
        ),
        "ProphetNetTokenizer": lambda: transformers.ProphetNetTokenizer(vocab_file=uncased),
        "RoCBertTokenizer": _roc_bert,
        "TapasTokenizer": _tapas,
        "CTRLTokenizer": lambda: transformers.CTRLTokenizer(*ctrl),
        "BlenderbotSmallTokenizer": lambda: transformers.BlenderbotSmallTokenizer(
            vocab_file=_json(
                "small.json",
                _numbered([*_at_bpe()[0], "__start__", "__end__", "__unk__", "__null__"]),
            ),
            merges_file=ctrl[1],
        ),
        "PhobertTokenizer": lambda: transformers.PhobertTokenizer(*fast_bpe),
        "BertweetTokenizer": lambda: transformers.BertweetTokenizer(*fast_bpe),
        "BertweetTokenizer (normalized)": lambda: transformers.BertweetTokenizer(
            *fast_bpe, normalization=True
        ),
        "XLMTokenizer": lambda: transformers.XLMTokenizer(*ends),
        "XLMTokenizer (a bar in the vocabulary)": lambda: transformers.XLMTokenizer(*ends_bar),
        "FlaubertTokenizer": lambda: transformers.FlaubertTokenizer(*ends),
        "BioGptTokenizer": lambda: transformers.BioGptTokenizer(*ends),
        "FSMTTokenizer": lambda: transformers.FSMTTokenizer(
            langs=["en", "de"], src_vocab_file=ends[0], tgt_vocab_file=ends[0], merges_file=ends[1]
        ),
        "FSMTTokenizer (a bar in the vocabulary)": lambda: transformers.FSMTTokenizer(
            langs=["en", "de"],
            src_vocab_file=ends_bar[0],
            tgt_vocab_file=ends_bar[0],
            merges_file=ends_bar[1],
        ),
        "OpenAIGPTTokenizer": lambda: transformers.OpenAIGPTTokenizer(
            vocab=_end_of_word_bpe()[0], merges=_end_of_word_bpe()[1]
        ),
        "HerbertTokenizer": lambda: transformers.HerbertTokenizer(
            vocab=_end_of_word_bpe()[0], merges=_end_of_word_bpe()[1]
        ),
        "CLIPTokenizer": lambda: transformers.CLIPTokenizer(
            vocab=clip_vocabulary, merges=clip_merges
        ),
        "ClvpTokenizer": lambda: transformers.ClvpTokenizer(*clip),
        "ByT5Tokenizer": transformers.ByT5Tokenizer,
        "PerceiverTokenizer": transformers.PerceiverTokenizer,
        "CanineTokenizer": transformers.CanineTokenizer,
        "DiaTokenizer": transformers.DiaTokenizer,
        "MyT5Tokenizer": lambda: transformers.MyT5Tokenizer(
            vocab_file=_json("bytes.json", {"decompose_map": {}, "merge_map": {}})
        ),
        "EsmTokenizer": lambda: transformers.EsmTokenizer(vocab_file=_lines("esm.txt", esm)),
        "EsmcTokenizer": transformers.EsmcTokenizer,
        "CpmAntTokenizer": lambda: transformers.CpmAntTokenizer(
            vocab_file=_lines(
                "ant.txt",
                [
                    "<d>",
                    "</d>",
                    "<s>",
                    "</s>",
                    "<pad>",
                    "<unk>",
                    "</n>",
                    "</_>",
                    *dict.fromkeys("".join(CORPUS).replace(" ", "")),
                ],
            )
        ),
        "CpmTokenizer": lambda: _spm("CpmTokenizer", unigram),
        "GPTNeoXJapaneseTokenizer": lambda: transformers.GPTNeoXJapaneseTokenizer(
            vocab_file=_lines("japanese.txt", japanese),
            emoji_file=_json("emoji.json", {"emoji": {}, "emoji_inv": {}}),
        ),
        "MgpstrTokenizer": lambda: _letters(
            "MgpstrTokenizer", ["[GO]", "[s]"], _LOWER + "0123456789"
        ),
        "VitsTokenizer": lambda: _letters(
            "VitsTokenizer", ["<pad>", "<unk>"], _LOWER + " ", phonemize=False, add_blank=False
        ),
        "Wav2Vec2CTCTokenizer": lambda: _letters(
            "Wav2Vec2CTCTokenizer", ["<pad>", "<s>", "</s>", "<unk>", "|"], _UPPER + _LOWER
        ),
        "Wav2Vec2PhonemeCTCTokenizer": lambda: _letters(
            "Wav2Vec2PhonemeCTCTokenizer",
            ["<pad>", "<s>", "</s>", "<unk>"],
            _LOWER,
            do_phonemize=False,
        ),
        "BartphoTokenizer": _bartpho,
        "BertGenerationTokenizer": lambda: _spm("BertGenerationTokenizer", unigram),
        "GPTSw3Tokenizer": lambda: _spm("GPTSw3Tokenizer", with_bytes),
        "SiglipTokenizer": lambda: _spm("SiglipTokenizer", unigram),
        "PLBartTokenizer": lambda: _spm("PLBartTokenizer", bpe),
        "SpeechT5Tokenizer": lambda: _spm("SpeechT5Tokenizer", partial(_pieces, "char")),
        "Speech2TextTokenizer": lambda: transformers.Speech2TextTokenizer(
            vocab_file=_json("s2t.json", _spm_vocabulary(_SPECIAL)), spm_file=_pieces("unigram")
        ),
        "M2M100Tokenizer": lambda: transformers.M2M100Tokenizer(
            vocab_file=_json("m2m.json", _spm_vocabulary(_SPECIAL)), spm_file=_pieces("unigram")
        ),
        "MarianTokenizer": _marian,
        "MarianTokenizer (two vocabularies)": lambda: _marian(separate=True),
        "LlamaTokenizer (no prefix space)": lambda: transformers.LlamaTokenizer(
            vocab=_metaspace_bpe()[0], merges=_metaspace_bpe()[1], add_prefix_space=False
        ),
        "GPT2Tokenizer (prefix space)": lambda: transformers.GPT2Tokenizer(
            vocab=_byte_bpe()[0], merges=_byte_bpe()[1], add_prefix_space=True
        ),
        "RobertaTokenizer (offsets not trimmed)": lambda: transformers.RobertaTokenizer(
            vocab=_byte_bpe()[0], merges=_byte_bpe()[1], trim_offsets=False
        ),
        "MarkupLMTokenizer": lambda: transformers.MarkupLMTokenizer(
            tags_dict={"html": 0}, vocab=_byte_bpe()[0], merges=_byte_bpe()[1]
        ),
        "Llama 2": _llama2,
        "Llama 2 (without decoder)": lambda: _without_decoder(_llama2),
        "Llama 3": lambda: _byte_level("Llama 3", ignore_merges=True),
        "GPT-4o": lambda: _byte_level("GPT-4o"),
        "BLOOM": lambda: _byte_level("BLOOM"),
        "Byte level without decoder": lambda: _without_decoder(_byte_level),
        "DeepSeek": _deepseek,
        "One token per character": _characters,
        "Whole words": _whole_words,
        "Unigram with bytes": _unigram_bytes,
    }


def _classes() -> Iterator[type[PreTrainedTokenizerBase]]:
    """Yield the tokenizer classes of transformers."""
    import transformers.models as packages

    for package in pkgutil.iter_modules(packages.__path__):
        folder = Path(packages.__path__[0]) / package.name
        for file in sorted(folder.glob("tokenization_*.py")):
            try:
                module = importlib.import_module(f"transformers.models.{package.name}.{file.stem}")
            except Exception:  # noqa: BLE001, S112 - a package of this class is missing
                continue
            for value in vars(module).values():
                if (
                    inspect.isclass(value)
                    and issubclass(value, PreTrainedTokenizerBase)
                    and value.__module__ == module.__name__
                ):
                    yield value


def _from_class(owner: Any) -> Any:
    """Build a tokenizer of the tokenizers library with the vocabulary of its kind."""
    parameters = inspect.signature(owner.__init__).parameters
    if owner.__bases__[0].__name__ == "BertTokenizer":
        return owner(vocab=_numbered(_word_pieces()))
    kind = getattr(getattr(owner, "model", None), "__name__", "Unigram")
    if kind == "WordPiece" or "RoFormer" in owner.__name__:
        return owner(vocab=_numbered(_word_pieces()))
    if kind == "Unigram":
        return owner(vocab=_unigram(_FIRST.get(owner.__name__, _SPECIAL)))
    if "merges" not in parameters:
        return owner()
    decoder = str(owner(vocab=dict(_byte_bpe()[0]), merges=[]).backend_tokenizer.decoder)
    vocabulary, merges = _byte_bpe() if "ByteLevel" in decoder else _metaspace_bpe()
    return owner(vocab=dict(vocabulary), merges=list(merges))


def tokenizer_kinds() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each kind of tokenizer, and a function that builds it."""
    builders = _builders()
    yield from builders.items()
    names = set(builders)
    for owner in _classes():
        if owner.__name__ not in names:
            names.add(owner.__name__)
            yield owner.__name__, partial(_from_class, owner)
