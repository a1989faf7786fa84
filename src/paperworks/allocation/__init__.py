"""Uniform-price allocation of a divisible resource: the α-proportional family of mechanisms."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
