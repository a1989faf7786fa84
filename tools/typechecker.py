"""The run-time type checker of `make test-types`: beartype, with int where float is annotated, as PEP 484 says."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
