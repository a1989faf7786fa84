"""The systems of research papers, usable on your own data, each with a ledger of measured claims."""

import pkgutil

# A folder `paperworks/<slug>/` anywhere on the import path adds a system; nothing else has to know it.
__path__ = pkgutil.extend_path(__path__, __name__)

__version__ = "0.1.0"
