"""Rules and exceptions: exact theory of relational generalisation, and a ranker that remembers upsets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
