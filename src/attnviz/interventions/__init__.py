"""Effects of attention and of input tokens on a model's answer, measured or estimated.

The answer is a number in the model's output, such as the logit of one token minus that of another.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
