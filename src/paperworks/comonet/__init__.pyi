from .auditing import AuditReport, ColumnAudit, audit
from .certificates import Certificate, ColumnCertificate, ShapeGuaranteeError, Witness, certify
from .data import (
    black_scholes,
    eight_regimes,
    load_abalone,
    load_auto_mpg,
    load_compas,
    load_diabetes,
    load_electricity,
    load_heart,
    load_ordinal,
    load_rice_farms,
    make_black_scholes,
    make_cobb_douglas,
    make_eight_regimes,
    make_saddle,
)
from .estimators import COMONetClassifier, COMONetRegressor, ShapeDomainWarning
from .fitting import FitLog, fit_adam, fit_lbfgs
from .network import COMONet
from .products import ProductBank, shape_basis
from .shapes import Shape, resolve_shapes
from .units import ROUTING, PositiveLinear, group_max, group_min, init_log_normal, positive_map, relu_n

__all__ = [
    "ROUTING",
    "AuditReport",
    "COMONet",
    "COMONetClassifier",
    "COMONetRegressor",
    "Certificate",
    "ColumnAudit",
    "ColumnCertificate",
    "FitLog",
    "PositiveLinear",
    "ProductBank",
    "Shape",
    "ShapeDomainWarning",
    "ShapeGuaranteeError",
    "Witness",
    "audit",
    "black_scholes",
    "certify",
    "eight_regimes",
    "fit_adam",
    "fit_lbfgs",
    "group_max",
    "group_min",
    "init_log_normal",
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
    "positive_map",
    "relu_n",
    "resolve_shapes",
    "shape_basis",
]
