"""Graph networks with random logits: calibrated node classification, OOD scores and robustness from one representation."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
