"""Names of patches and frames are places in the image or sound, or a note says why they are not.

`places_of` changes a part of an image or sound and finds the token that moves. It knows nothing of
how attnviz finds places.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from attnviz import extract
from attnviz.extraction.tokens import patches
from attnviz.record import PatchGrid
from model_types.build import tiny_model
from model_types.cases import Case, override_of
from model_types.inputs import find_inputs
from model_types.places import places_of
from model_types.reference import run
from models.test_kinds_audio import RATE, sound
from models.tiny import SIZE, built, changed_queries, picture, with_patch


def made(model_type: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return a tiny model, inputs that it accepts, and the override of the model type."""
    override = override_of(Case(model_type))
    model = tiny_model(model_type, override["class"], override["config"])
    return (
        model,
        find_inputs(model, lambda inputs: run(model, inputs), override["inputs"]),
        override,
    )


@pytest.mark.parametrize(
    "model_type",
    [
        "vit",
        "detr",
        "llava",
        "qwen2_vl",
        "minicpmv4_6",
        "wav2vec2",
        "sew",
        "moonshine",
        "parakeet_ctc",
        "lasr_ctc",
        "seamless_m4t",
        "whisper",
        "voxtral",
        "qwen3_asr",
        "clvp",
        "mimi_encoder",
        "phi4_multimodal_vision",
        "video_llama_3_vision",
        "t5gemma2",
        "patchtst",
        "time_series_transformer",
        "timesfm",
        "timesfm2_5",
        "llava_next",
        "llava_next_video",
        "llava_onevision",
        "mistral3",
        "hunyuan_vl",
        "hy_v4_vl",
        "pix2struct",
        "gemma4_vision",
        "videoprism_vision_model",
        "audio-spectrogram-transformer",
        "bridgetower",
        "chameleon",
        "eomt",
        "mllama",
        "got_ocr2",
    ],
)
def test_a_changed_part_has_the_place_that_the_record_names(model_type: str) -> None:
    model, inputs, override = made(model_type)
    assert places_of(model_type, model, inputs, override) == ("whole", "")


@pytest.mark.parametrize(
    ("model_type", "result"),
    [
        ("granite4_vision", "in part"),
        ("minicpmv4_6_vision", "in part"),
        ("granite_speech", "in part"),
        ("superglue", "none"),
        ("aria", "in part"),
        ("instructblip", "in part"),
        ("idefics2", "in part"),
        ("udop", "none"),
        ("hiera", "none"),
        ("informer", "in part"),
        ("vjepa2", "in part"),
    ],
)
def test_a_note_says_why_tokens_have_no_place(model_type: str, result: str) -> None:
    model, inputs, override = made(model_type)
    record = extract(model, inputs, progress=False)
    assert sum("The tokens of the" in note for note in record.notes) == 1
    # The result would be "wrong" without the note.
    assert places_of(model_type, model, inputs, override)[0] == result


@pytest.mark.parametrize("model_type", ["bert", "vit", "llava", "detr", "whisper", "t5"])
def test_records_with_all_places_have_no_such_note(model_type: str) -> None:
    model, inputs, _ = made(model_type)
    assert not any("The tokens of the" in note for note in extract(model, inputs).notes)


def test_the_probe_notices_wrong_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that count columns first, and are right for no image that is wide or tall."""
    model, inputs, override = made("vit")
    names = patches._cell_names
    monkeypatch.setattr(
        patches,
        "_cell_names",
        lambda grids: [
            [f"{column},{row}" for row, column in (name.split(",") for name in part)]
            for part in names(grids)
        ],
    )
    result, reason = places_of("vit", model, inputs, override)
    assert result == "wrong"
    assert "moves and not" in reason


def test_patches_side_by_side_in_one_row() -> None:
    """MiniCPM-V gets one row of patches, and the numbers of rows and columns beside it."""
    model, _, _ = made("minicpmv4_6_vision")
    processor = transformers.MiniCPMV4_6ImageProcessorPil(
        patch_size=8, do_resize=False, slice_mode=False
    )
    image = picture(32, 48)
    images = (image, with_patch(image, (8, 0), 8))
    inputs = [dict(processor(images=pixels, return_tensors="pt")) for pixels in images]
    inputs = [
        {name: encoded[name] for name in ("pixel_values", "target_sizes")} for encoded in inputs
    ]
    rows, columns = inputs[0]["target_sizes"][0].tolist()
    record = extract(model, inputs[0], processor=processor)
    tokens = record.stacks["vision stage 1"].query_tokens
    changed = changed_queries(model, processor, (inputs[0], inputs[1]), "vision stage 1", 0)
    assert [tokens.text[token] for token in changed] == ["1,0"]
    assert (rows, columns) == (4, 6)
    assert (tokens.grids[0].rows, tokens.grids[0].columns) == (rows, columns)
    assert np.abs(record.images[0].astype(int) - image).max() <= 1


@pytest.mark.parametrize("tiles", [[32, 64], [64, 64]])
def test_tiles_of_an_image_are_joined_without_padding(tiles: list[int]) -> None:
    """The image is twice as wide as it is high, and is padded above and below to a square."""
    override = override_of(Case("llava_next"))
    config = override["config"] | {"image_grid_pinpoints": [tiles]}
    model = tiny_model("llava_next", override["class"], config)
    processor = transformers.LlavaNextImageProcessorPil(
        size={"height": 32, "width": 32},
        crop_size={"height": 32, "width": 32},
        image_grid_pinpoints=[tiles],
    )
    image = picture(32, 64)
    encoded = processor(images=image, return_tensors="pt")
    inputs = {name: encoded[name] for name in ("pixel_values", "image_sizes")}
    # A small picture of 4 x 4 patches, and 4 x 8 patches with a token after each row.
    placeholder = model.config.image_token_id
    inputs["input_ids"] = torch.tensor([[5, *[placeholder] * (16 + 4 * 9), 6]])
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    record = extract(model, inputs, processor=processor)
    small, joined = record.stacks["self"].query_tokens.grids
    assert (small.start, small.rows, small.columns, small.gap) == (1, 4, 4, 0)
    assert (joined.start, joined.rows, joined.columns, joined.gap) == (17, 4, 8, 1)
    assert record.stacks["self"].query_tokens.text[16:26] == (
        "small 3,3",
        *(f"0,{column}" for column in range(8)),
        "[newline]",
    )
    # The joined tiles without padding are the image.
    assert joined.image is not None
    assert np.abs(record.images[joined.image].astype(int) - image).max() <= 1


def test_joined_tiles_that_the_model_shrinks() -> None:
    """LLaVA-OneVision shrinks 16 x 16 patches of 16 tiles to as many as four tiles have."""
    override = override_of(Case("llava_onevision"))
    config = override["config"] | {
        "image_grid_pinpoints": [[128, 128]],
        "vision_aspect_ratio": "anyres_max_4",
    }
    model = tiny_model("llava_onevision", override["class"], config)
    # A small picture and 16 tiles: 4 x 4 patches, and 8 x 8 patches with a token after each row.
    pixels = torch.randn(1, 17, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([[5, *[model.config.image_token_id] * (16 + 8 * 9), 6]])
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": pixels,
        "image_sizes": torch.tensor([[128, 128]]),
    }
    assert places_of("llava_onevision", model, inputs, override) == ("whole", "")
    grids = extract(model, inputs).stacks["self"].query_tokens.grids
    assert [(grid.rows, grid.columns) for grid in grids] == [(4, 4), (8, 8)]


def test_rows_of_patches_with_a_token_after_each_row() -> None:
    """Pixtral's processor puts a break after each row of patches in the text of Mistral 3."""
    model, inputs, _ = made("mistral3")
    image = model.config.image_token_id
    ids = [5, image, image, 7, image, image, 8]
    inputs["input_ids"] = torch.tensor([ids])
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    tokens = extract(model, inputs).stacks["self"].query_tokens
    assert tokens.grids == (PatchGrid(0, start=1, rows=2, columns=2, gap=1),)
    assert [tokens.text[position] for position in tokens.grids[0].positions] == [
        *("0,0", "0,1", "1,0", "1,1")
    ]


def test_frames_of_a_film_have_their_time() -> None:
    model, inputs, _ = made("qwen2_5_vl")
    # Two frames of 4 x 4 patches. A token of the text stands for 2 x 2 patches of a frame.
    patches_of_film = torch.randn(32, *inputs["pixel_values"].shape[1:])
    ids = torch.tensor([[5, *[model.config.video_token_id] * 8, 6]])
    film = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": 2 * (ids == model.config.video_token_id).int(),
        "pixel_values_videos": patches_of_film,
        "video_grid_thw": torch.tensor([[2, 4, 4]]),
        "second_per_grid_ts": torch.tensor([0.5]),
    }
    record = extract(model, film)
    for name, size in (("self", 2), ("vision", 4)):
        grids = record.stacks[name].query_tokens.grids
        assert [(grid.name, grid.rows) for grid in grids] == [("0.0s", size), ("0.5s", size)]


def test_seconds_of_a_model_that_joins_frames() -> None:
    """SEW joins two frames of 0.02 s."""
    config = transformers.SEWConfig(**SIZE, conv_dim=[16] * 13, squeeze_factor=2)
    model = built("SEWModel", config, factor=2.0)
    extractor = transformers.Wav2Vec2FeatureExtractor()
    tokens = extract(model, sound(2), processor=extractor).tokens
    assert tokens.text[-1] == "1.92s"


@pytest.mark.parametrize("with_extractor", [True, False])
def test_seconds_of_a_sound_with_fewer_vectors_than_bins(with_extractor: bool) -> None:
    """The axis of time of a short sound is shorter than that of bins."""
    model, _, _ = made("parakeet_ctc")
    bins = model.config.encoder_config.num_mel_bins
    extractor = transformers.ParakeetFeatureExtractor(feature_size=bins)
    features = extractor(sound(0.4), sampling_rate=RATE, return_tensors="pt")
    assert features["input_features"].shape[1] < bins
    record = extract(model, dict(features), processor=extractor if with_extractor else None)
    # Eight vectors of 0.01 s are one frame.
    frames = -(-features["input_features"].shape[1] // 8)
    assert record.tokens.text == tuple(f"{index * 0.08:.2f}s" for index in range(frames))


def test_two_images_of_one_text_in_a_model_with_a_resampler() -> None:
    model, _, _ = made("blip-2")
    ids = torch.tensor([[50, *[10] * 5, 60, *[10] * 5, 70]])
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    record = extract(
        model, {"input_ids": ids, "pixel_values": pixels, "decoder_input_ids": ids[:, :3]}
    )
    towers = record.stacks["vision"].query_tokens
    assert [grid.image for grid in towers.grids] == [0, 1]


def test_seconds_of_few_frames_after_some_of_the_convolutions() -> None:
    """The adapter of SeamlessM4T pads a short sound, and the vocoder has convolutions, too."""
    model, inputs, _ = made("seamless_m4t")
    features = torch.randn(1, 48, inputs["input_features"].shape[2])
    record = extract(model, inputs | {"input_features": features})
    step = 0.01 * model.config.adaptor_stride
    names = record.stacks["encoder adapter"].query_tokens.text
    assert names == tuple(f"{index * step:.2f}s" for index in range(len(names)))


@pytest.mark.parametrize(
    ("model_type", "assumed"),
    [
        ("wav2vec2", "16,000 samples per second"),
        ("whisper", "10 ms per feature vector"),
        ("qwen3_asr", "10 ms per feature vector"),
        ("vit", None),
    ],
)
def test_a_note_says_what_seconds_assume(model_type: str, assumed: str | None) -> None:
    model, inputs, _ = made(model_type)
    notes = [note for note in extract(model, inputs).notes if "assume" in note]
    expected = f"Seconds assume {assumed}, because no processor was passed."
    assert notes == ([expected] if assumed else [])


def test_no_note_on_seconds_that_the_processor_defines() -> None:
    config = transformers.Wav2Vec2Config(**SIZE, conv_dim=[16] * 7)
    extractor = transformers.Wav2Vec2FeatureExtractor()
    record = extract(built("Wav2Vec2Model", config), sound(1), processor=extractor)
    assert record.tokens.text[1] == "0.02s"
    assert not any("assume" in note for note in record.notes)


def test_layers_after_a_merger_are_known_by_number_and_not_by_count() -> None:
    """Without a merging layer, a quarter of the number of patches gives no rows and columns."""
    model, inputs, _ = made("minicpmv4_6_vision")
    side = int(inputs["target_sizes"][0, 0]) // 2
    names = tuple(f"{row},{column}" for row in range(side) for column in range(side))
    assert extract(model, inputs).stacks["vision stage 2"].query_tokens.text == names

    def change_setting(*_: object) -> None:
        model.config.insert_layer_id = -1

    # The merger has run when the hook changes the setting that attnviz would read.
    model.register_forward_hook(change_setting)
    assert extract(model, inputs).stacks["vision stage 2"].query_tokens.text[0] == "[0]"


def test_patches_have_names_without_a_picture() -> None:
    """The patches of ColQwen2 are padded, so that pictures cannot be rebuilt from them."""
    model, inputs, _ = made("colqwen2")
    record = extract(model, inputs)
    tokens = record.stack("self").query_tokens
    assert not record.images
    assert not tokens.grids
    assert any(re.fullmatch(r"(\d+: )?\d+,\d+", text) for text in tokens.text)


def patch_tst(**settings: Any) -> Any:
    sizes = {"d_model": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "ffn_dim": 16}
    lengths = {"context_length": 32, "patch_length": 4, "patch_stride": 4}
    config = transformers.PatchTSTConfig(num_input_channels=3, **(sizes | lengths | settings))
    torch.manual_seed(0)
    return transformers.PatchTSTModel(config).eval()


def series(steps: int = 32, channels: int = 3) -> torch.Tensor:
    return torch.randn(1, steps, channels, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("settings", "first", "last"),
    [
        ({}, "x1 0-3", "x3 28-31"),
        # Patches overlap.
        ({"patch_stride": 2}, "x1 0-3", "x3 28-31"),
        # The model drops the first step.
        ({"context_length": 33}, "x1 1-4", "x3 29-32"),
        ({"use_cls_token": True}, "[CLS]", "x3 28-31"),
    ],
)
def test_channels_of_a_series_are_apart(settings: dict[str, Any], first: str, last: str) -> None:
    model = patch_tst(**settings)
    inputs = {"past_values": series(model.config.context_length)}
    assert places_of("patchtst", model, inputs, {}) == ("whole", "")
    tokens = extract(model, inputs).tokens
    assert (tokens.text[0], tokens.text[-1]) == (first, last)
    assert [grid.name for grid in tokens.grids] == ["x1", "x2", "x3"]
    weights = extract(model, inputs).to_numpy()[0]
    apart = weights[:, list(tokens.grids[0].positions)][:, :, list(tokens.grids[1].positions)]
    assert np.array_equal(apart, np.zeros_like(apart))


def test_channels_that_attend_to_each_other_have_no_steps() -> None:
    record = extract(patch_tst(channel_attention=True), {"past_values": series()})
    notes = [note for note in record.notes if "have no steps" in note]
    assert record.tokens.text[0] == "[0]"
    assert len(notes) == 1
    assert "from channels to channels" in notes[0]


def test_a_series_is_named_by_dates() -> None:
    days = np.arange("2024-01-01", "2024-02-02", dtype="datetime64[D]")
    tokens = extract(patch_tst(), {"past_values": series()}, index=days).tokens
    assert tokens.text[1] == "x1 2024-01-05 – 2024-01-08"
    hours = [f"2024-01-{day:02} 00:00:00" for day in range(1, 33)]
    tokens = extract(patch_tst(), {"past_values": series()}, index=hours).tokens
    assert tokens.text[1] == "x1 2024-01-05 – 2024-01-08"


def test_dates_of_predicted_steps() -> None:
    model, inputs, _ = made("time_series_transformer")
    steps = inputs["past_values"].shape[1] + model.config.prediction_length
    dates = [f"day {number}" for number in range(steps)]
    record = extract(model, inputs, index=dates)
    assert record.stacks["decoder"].query_tokens.text == tuple(dates[-4:])
    assert record.stacks["cross"].key_tokens.text == tuple(dates[3:-4])


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (
            range(31),
            ValueError,
            "index has 31 entries, but the series has 32 steps.* one entry per",
        ),
        ("2024", TypeError, "index='2024' must be a sequence"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(
    index: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        extract(patch_tst(), {"past_values": series()}, index=index)


def test_an_index_needs_a_series() -> None:
    model, inputs, _ = made("bert")
    with pytest.raises(ValueError, match=r"no past_values\. Remove index="):
        extract(model, inputs, index=["a"])


def test_the_time_before_a_short_series_is_padding() -> None:
    """TimesFM fills a series of 30 steps up to its context of 64, and has patches of 8 steps."""
    config = transformers.TimesFmConfig(
        context_length=64,
        patch_length=8,
        horizon_length=8,
        hidden_size=16,
        num_attention_heads=2,
        head_dim=8,
        num_hidden_layers=2,
        intermediate_size=16,
    )
    model = transformers.TimesFmModelForPrediction(config).eval()
    record = extract(model, {"past_values": series(30, 1)[..., 0], "freq": [0]})
    tokens = record.stacks["self"].query_tokens
    assert tokens.text == ("[PAD]",) * 4 + ("0-5", "6-13", "14-21", "22-29")
    assert tokens.special == (True,) * 4 + (False,) * 4
    assert tokens.grids[0].start == 4
