"""Pipelines as users write them: subclasses that change the text, or call the model otherwise."""

from __future__ import annotations

from typing import Any

import torch
import transformers


class Shouting(transformers.TextClassificationPipeline):  # type: ignore[misc]
    """Pipeline that changes the text."""

    def preprocess(self, inputs: Any, **options: Any) -> Any:
        return super().preprocess(f"hello world , {inputs}", **options)


class WithOptions(transformers.FeatureExtractionPipeline):  # type: ignore[misc]
    """Pipeline with a setting that cuts the text."""

    def _sanitize_parameters(self, words: int | None = None, **options: Any) -> Any:
        before, during, after = super()._sanitize_parameters(**options)
        return before | ({} if words is None else {"words": words}), during, after

    def preprocess(self, inputs: Any, words: int = 3, **options: Any) -> Any:
        return super().preprocess(" ".join(inputs.split()[:words]), **options)


class Calling(transformers.TextClassificationPipeline):  # type: ignore[misc]
    """Pipeline that changes the text in `__call__`."""

    def __call__(self, inputs: Any, *args: Any, **options: Any) -> Any:
        return super().__call__(f"translate this : {inputs}", *args, **options)


class Never(transformers.TextClassificationPipeline):  # type: ignore[misc]
    """Pipeline whose forward does not run the model."""

    def _forward(self, model_inputs: Any) -> Any:
        del model_inputs
        return {"logits": torch.zeros(1, 2)}


class NeverReached(transformers.TextClassificationPipeline):  # type: ignore[misc]
    """Pipeline that answers without its model."""

    def __call__(self, *_inputs: Any, **_options: Any) -> Any:
        return [{"label": "none", "score": 1.0}]


class Raising(transformers.TextClassificationPipeline):  # type: ignore[misc]
    """Pipeline that refuses a text."""

    def preprocess(self, *_inputs: Any, **_options: Any) -> Any:
        raise RuntimeError("the text has no date")


class Twice(transformers.FeatureExtractionPipeline):  # type: ignore[misc]
    """Pipeline that reads the text and then the reversed text."""

    def _forward(self, model_inputs: Any) -> Any:
        self.model(**model_inputs)
        reversed_ids = {**model_inputs, "input_ids": model_inputs["input_ids"].flip(1)}
        return self.model(**reversed_ids)


class Chunks(transformers.pipelines.base.ChunkPipeline):  # type: ignore[misc]
    """Pipeline that reads each half of a text."""

    def _sanitize_parameters(self, **_options: Any) -> Any:
        return {}, {}, {}

    def preprocess(self, inputs: Any, **_options: Any) -> Any:
        parts = inputs.split()
        half = len(parts) // 2
        for number, part in enumerate((parts[:half], parts[half:])):
            encoded_part = self.tokenizer(" ".join(part), return_tensors="pt")
            yield {"is_last": number == 1, **encoded_part}

    def _forward(self, model_inputs: Any) -> Any:
        is_last = model_inputs.pop("is_last")
        return {"is_last": is_last, "output": self.model(**model_inputs)[0]}

    def postprocess(self, outputs: Any, **_options: Any) -> Any:
        return [output["output"] for output in outputs]


class OwnKeys(transformers.Pipeline):  # type: ignore[misc]
    """Pipeline of a question and a context with its own names."""

    def _sanitize_parameters(self, **_options: Any) -> Any:
        return {}, {}, {}

    def preprocess(self, inputs: Any, **_options: Any) -> Any:
        return self.tokenizer(inputs["question"], inputs["passage"], return_tensors="pt")

    def _forward(self, model_inputs: Any) -> Any:
        return self.model(**model_inputs)

    def postprocess(self, outputs: Any, **_options: Any) -> Any:
        return outputs[0]


class Embedded(transformers.FeatureExtractionPipeline):  # type: ignore[misc]
    """Pipeline that passes embeddings instead of ids."""

    def _forward(self, model_inputs: Any) -> Any:
        embeddings = self.model.get_input_embeddings()(model_inputs["input_ids"])
        return self.model(
            inputs_embeds=embeddings * 0.5, attention_mask=model_inputs["attention_mask"]
        )


class Continuing(transformers.TextGenerationPipeline):  # type: ignore[misc]
    """Pipeline that adds words to the prompt."""

    def preprocess(self, prompt_text: Any, *args: Any, **options: Any) -> Any:
        return super().preprocess(f"hello {prompt_text} and", *args, **options)


class Cropping(transformers.ImageClassificationPipeline):  # type: ignore[misc]
    """Pipeline that reads the left half of an image."""

    def preprocess(self, image: Any, **options: Any) -> Any:
        return super().preprocess(image.crop((0, 0, image.width // 2, image.height)), **options)


class AgainAfter(transformers.FeatureExtractionPipeline):  # type: ignore[misc]
    """Pipeline that runs the model a second time after the first answer."""

    def postprocess(self, outputs: Any, **options: Any) -> Any:
        self.model(input_ids=torch.tensor([[2, 9, 3]]))
        return super().postprocess(outputs, **options)


class Suffixed(transformers.FeatureExtractionPipeline):  # type: ignore[misc]
    """Pipeline with an argument of the call that adds words."""

    def _sanitize_parameters(self, suffix: str | None = None, **options: Any) -> Any:
        before, during, after = super()._sanitize_parameters(**options)
        return before | ({} if suffix is None else {"suffix": suffix}), during, after

    def preprocess(self, inputs: Any, suffix: str = "", **options: Any) -> Any:
        return super().preprocess(f"{inputs} {suffix}", **options)


class Both(transformers.FeatureExtractionPipeline):  # type: ignore[misc]
    """Pipeline that reads a text and a question about it in one batch."""

    def preprocess(self, inputs: Any, **_options: Any) -> Any:
        return self.tokenizer([inputs, "the cat ?"], padding=True, return_tensors="pt")
