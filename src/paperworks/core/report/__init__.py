"""Reports: one page builder for every result, and the ledger's pages."""

from paperworks.core.report.ledger import build
from paperworks.core.report.page import (
    Badge,
    Code,
    Columns,
    Details,
    Facts,
    Link,
    Notice,
    Number,
    Numbers,
    Picture,
    Section,
    Table,
    page,
)

__all__ = [
    "page",
    "Section",
    "Table",
    "Picture",
    "Numbers",
    "Number",
    "Facts",
    "Code",
    "Details",
    "Columns",
    "Notice",
    "Badge",
    "Link",
    "build",
]
