"""Neural networks with a guaranteed shape per variable: monotone, convex, concave and combinations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
