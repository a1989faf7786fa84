from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from paperworks.core.validation import check_choice, check_integer, check_names, check_real, check_vector

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


@given(
    value=FINITE | st.integers(-(2**1000), 2**1000) | st.fractions(), low=FINITE, high=FINITE, open_low=st.booleans()
)
def test_a_real_number_passes_exactly_when_it_is_in_the_range(
    value: float | Fraction, low: float, high: float, open_low: bool
) -> None:
    number = float(value)
    if (low < number if open_low else low <= number) and number <= high:
        result = check_real(value, "x", low=low, high=high, open_low=open_low)
        assert type(result) is float
        assert result == number
    else:
        with pytest.raises(ValueError, match=r"^x must be in [\[(]"):
            check_real(value, "x", low=low, high=high, open_low=open_low)


@pytest.mark.parametrize("value", [np.float32(0.5), np.float64(0.5), Fraction(1, 2)])
def test_every_kind_of_real_number_passes(value: Any) -> None:
    assert check_real(value, "alpha", low=0, high=1) == 0.5
    assert check_real(np.int8(3), "n") == 3.0


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("value", "limits", "error", "message"),
    [
        (-1, {"low": 0}, ValueError, "x must be non-negative, got -1"),
        (0, {"low": 0, "open_low": True}, ValueError, "x must be positive, got 0"),
        (2, {"low": 3}, ValueError, "x must be at least 3, got 2"),
        (1.5, {"low": 0, "high": 1}, ValueError, "x must be in [0, 1], got 1.5"),
        (0, {"low": 0, "high": 1, "open_low": True}, ValueError, "x must be in (0, 1], got 0"),
        (math.nan, {}, ValueError, "x must be a finite number, got nan"),
        (math.inf, {}, ValueError, "x must be a finite number, got inf"),
        (math.inf, {"low": 0}, ValueError, "x must be non-negative and finite, got inf"),
        (math.inf, {"low": 0, "open_low": True}, ValueError, "x must be positive and finite, got inf"),
        (math.inf, {"low": 0, "high": 1}, ValueError, "x must be in [0, 1], got inf"),
        (math.nan, {"low": 0, "high": 1}, ValueError, "x must be in [0, 1], got nan"),
        (True, {"low": 0, "high": 1}, ValueError, "x must be in [0, 1], got True"),
        (np.True_, {"low": 0}, ValueError, "x must be non-negative, got np.True_"),
        ("1", {"low": 0}, TypeError, "x must be non-negative, got '1'"),
        (None, {}, TypeError, "x must be a finite number, got None"),
        (1j, {}, TypeError, "x must be a finite number, got 1j"),
        (Decimal(1), {}, TypeError, "x must be a finite number, got Decimal('1')"),
        ([1.0], {}, TypeError, "x must be a finite number, got [1.0]"),
    ],
)
def test_a_bad_number_is_named(value: Any, limits: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=exactly(message)):
        check_real(value, "x", **limits)


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(10**400)])
def test_an_integer_beyond_float_is_a_value_error(value: int | Fraction) -> None:
    with pytest.raises(ValueError, match=r"^x must be a finite number, got "):
        check_real(value, "x")


@given(value=st.integers(), low=st.integers())
def test_an_integer_passes_exactly_when_it_is_not_below(value: int, low: int) -> None:
    if value >= low:
        assert check_integer(value, "n", low=low) == value
    else:
        with pytest.raises(ValueError, match=exactly(f"n must be at least {low}, got {value}")):
            check_integer(value, "n", low=low)
    assert check_integer(value, "n") == value


def test_a_numpy_integer_becomes_an_int() -> None:
    assert type(check_integer(np.int16(3), "n")) is int


@pytest.mark.untyped
@pytest.mark.parametrize("value", [True, np.False_, 1.0, np.float64(1), "1", None])
def test_what_is_no_integer_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError, match=exactly(f"n must be an integer, got {value!r}")):
        check_integer(value, "n", low=0)


def test_a_choice_passes_or_the_choices_are_listed() -> None:
    assert check_choice("b", "mode", iter(["a", "b"])) == "b"
    with pytest.raises(ValueError, match=exactly("mode must be one of 'a', 1, got 'c'")):
        check_choice("c", "mode", ["a", 1])


REAL_VECTORS = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.int32, np.uint8]), st.integers(0, 5), elements=st.integers(0, 100)
)


@given(values=REAL_VECTORS)
def test_a_good_vector_comes_back_as_a_new_float64_array(values: NDArray[Any]) -> None:
    result = check_vector(values, "bids", low=0, length=len(values))
    assert result.dtype == np.float64
    assert not np.shares_memory(result, values)
    np.testing.assert_array_equal(result, values)
    np.testing.assert_array_equal(check_vector(values.tolist(), "bids"), values)


@given(
    values=hnp.arrays(np.float64, st.integers(1, 5), elements=st.floats(-2, 2) | st.just(math.inf) | st.just(math.nan)),
    low=st.sampled_from([-math.inf, -1.0, 0.0]),
    allow_inf=st.booleans(),
)
def test_the_first_bad_entry_is_named(values: NDArray[np.float64], low: float, allow_inf: bool) -> None:
    good = [v >= low and (allow_inf or v != math.inf) for v in values]
    if all(good):
        np.testing.assert_array_equal(check_vector(values, "bids", low=low, allow_inf=allow_inf), values)
    else:
        i = good.index(False)
        with pytest.raises(ValueError, match=rf"^bids must be .*, got {re.escape(str(values[i]))} for entry {i}$"):
            check_vector(values, "bids", low=low, allow_inf=allow_inf)


@pytest.mark.untyped
@pytest.mark.parametrize(
    ("values", "options", "error", "message"),
    [
        ([1, -2], {"low": 0}, ValueError, "bids must be non-negative, got -2.0 for entry 1"),
        ([1, -2], {"low": 0, "labels": ["a", "b"]}, ValueError, "bids must be non-negative, got -2.0 for 'b'"),
        ([1, math.inf], {"low": 0}, ValueError, "bids must be non-negative and finite, got inf for entry 1"),
        ([1, math.nan], {"low": 0}, ValueError, "bids must be non-negative, got nan for entry 1"),
        ([math.nan], {}, ValueError, "bids must be finite, got nan for entry 0"),
        ([math.inf], {}, ValueError, "bids must be finite, got inf for entry 0"),
        ([-math.inf], {"allow_inf": True}, ValueError, "bids must be finite, got -inf for entry 0"),
        ([1, 2], {"low": 1.5}, ValueError, "bids must be at least 1.5, got 1.0 for entry 0"),
        ([1, 2], {"length": 3}, ValueError, "bids must have length 3, got 2"),
        ([[1, 2]], {}, ValueError, "bids must be one-dimensional, got shape (1, 2)"),
        (3.0, {}, ValueError, "bids must be one-dimensional, got shape ()"),
        ([[1], [1, 2]], {}, ValueError, "bids must be one-dimensional, got entries of different lengths"),
        (["1", "2"], {}, TypeError, "bids must be numeric, got dtype <U1"),
        ([1, None], {}, TypeError, "bids must be numeric, got dtype object"),
        ([True, False], {}, TypeError, "bids must be numeric, got dtype bool"),
        ([1j], {}, TypeError, "bids must be numeric, got dtype complex128"),
    ],
)
def test_a_bad_vector_is_named(values: Any, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=exactly(message)):
        check_vector(values, "bids", **options)


@given(names=st.lists(st.text("ab", max_size=2), max_size=5))
def test_names_pass_exactly_when_they_are_distinct(names: list[str]) -> None:
    if not names:
        with pytest.raises(ValueError, match=exactly("teams must not be empty")):
            check_names(names, "teams")
    elif len(set(names)) == len(names):
        assert check_names(iter(names), "teams", length=len(names)) == tuple(names)
    else:
        second = next(n for i, n in enumerate(names) if n in names[:i])
        with pytest.raises(ValueError, match=exactly(f"teams must be distinct, got {second!r} twice")):
            check_names(names, "teams")


@pytest.mark.untyped
def test_names_of_a_wrong_number_or_kind() -> None:
    assert check_names([1, "a"]) == ("1", "a")
    with pytest.raises(ValueError, match=exactly("names must have length 3, got 2")):
        check_names(["a", "b"], length=3)
    with pytest.raises(ValueError, match=exactly("names must be distinct, got '1' twice")):
        check_names([1, "1"])
    with pytest.raises(TypeError, match=exactly("names must be several names, got one string 'abc'")):
        check_names("abc")
