"""Anchor any fixed-point or monotone-equation method: a last-iterate guarantee, and a check of its assumptions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
