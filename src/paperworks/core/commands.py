"""What every command line shares: lazy mounting, exit codes, one-line errors, atomic output."""

from __future__ import annotations

import contextlib
import importlib
import json as jsonlib
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from paperworks.core.paper import systems

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = [
    "DebugOption",
    "JobsOption",
    "JsonOption",
    "OutOption",
    "ReportOption",
    "SeedOption",
    "SystemsGroup",
    "read_frame",
    "run",
    "write_frame",
    "write_json",
    "write_output",
    "write_report",
]

OutOption = Annotated[Path | None, typer.Option("-o", "--out", help="Write here instead of standard output ('-').")]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON instead of CSV.")]
ReportOption = Annotated[Path | None, typer.Option("--report", metavar="FILE.html", help="Also write an HTML report.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of all randomness.")]
JobsOption = Annotated[int | None, typer.Option("--jobs", min=1, help="Worker processes; by default one a core.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class SystemsGroup(TyperGroup):
    """A command group that also holds one command a system, whose code is loaded only when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the own commands, then of the systems that have a command line."""
        return [*super().list_commands(ctx), *self._mounted()]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return an own command, or a light stand-in that holds a system's line of help."""
        own = super().get_command(ctx, cmd_name)
        slug = cmd_name.replace("-", "_")
        mounted = self._mounted()
        if own is not None or slug not in mounted:
            return own
        stand_in = typer.Typer(help=mounted[slug], rich_markup_mode=self.rich_markup_mode)
        stand_in.command()(lambda: None)
        command = typer.main.get_group(stand_in)
        command.name = slug
        command.rich_help_panel = "Systems"
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command line of the system that is called."""
        slug = args[0].replace("-", "_")
        if super().get_command(ctx, args[0]) is None and slug in self._mounted():
            app = importlib.import_module(f"paperworks.{slug}.cli").app
            return slug, typer.main.get_group(app), args[1:]
        return super().resolve_command(ctx, args)

    @staticmethod
    def _mounted() -> dict[str, str]:
        import paperworks

        return {
            slug: paper.does
            for slug, paper in systems().items()
            if any(Path(root, slug, "cli.py").is_file() for root in paperworks.__path__)
        }


def run(app: typer.Typer, argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit with the code that says how it ended.

    0 done; 1 the answer is no; 2 bad input or usage; 3 something is not available; 130 interrupted. An error is one
    line on standard error; ``--debug``, anywhere in the command, shows its traceback instead.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = typer.main.get_command(app)(words, prog_name="paperworks", standalone_mode=False)
            sys.stdout.flush()
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError:
            # The reader (head, less) has gone; Python must not complain about it once more when it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        except Exception as error:
            code = _report_error(error, debug)
    if code == 130:
        print("interrupted", file=sys.stderr)
    raise SystemExit(code if isinstance(code, int) else 0)


def _report_error(error: Exception, debug: bool) -> int:
    """Write an error as one line and return its exit code; what is not a known kind of error is raised again."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return 2
    usage = hasattr(error, "format_message") and hasattr(error, "exit_code")
    if debug and not usage:
        raise error
    code = getattr(error, "exit_code", 2 if isinstance(error, (ValueError, TypeError, OSError)) else None)
    if code is None:
        raise error
    text = error.format_message() if usage else str(error)  # type: ignore[attr-defined]
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    line = " ".join(text.split()) or type(error).__name__
    print(f"paperworks: {line}", file=sys.stderr)
    return int(code)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"paperworks: warning: {' '.join(str(message).split())}", file=sys.stderr)


def read_frame(path: Path, **options: Any) -> pd.DataFrame:
    """Read a CSV file, or standard input for ``-``, into a DataFrame.

    Raises
    ------
    ValueError
        The file is empty or is not a CSV table; the message names it.
    """
    import pandas as pd

    with contextlib.ExitStack() as stack:
        source: IO[str] = sys.stdin if str(path) == "-" else stack.enter_context(open(path, encoding="utf-8-sig"))
        try:
            frame: pd.DataFrame = pd.read_csv(source, **options)
        except ValueError as error:
            raise ValueError(f"{path} is not a CSV table: {error}") from error
    if "index_col" not in options and not isinstance(frame.index, pd.RangeIndex):
        # pandas would take the first column for row labels and give every name to the column right of its own.
        raise ValueError(
            f"{path} has more cells in row 2 than the header, which is {', '.join(map(str, frame.columns))}"
        )
    return frame


def write_output(text: str, out: Path | None) -> None:
    """Write text to a file, atomically, or to standard output for None and ``-``."""
    if out is None or str(out) == "-":
        sys.stdout.write(text)
        return
    from paperworks.core.atomic import write_text

    write_text(out, text)


def write_frame(frame: pd.DataFrame, out: Path | None, *, as_json: bool = False) -> None:
    """Write a table as CSV, or as a JSON list of rows with `as_json` or for a file named ``*.json``."""
    if as_json or (out is not None and out.suffix == ".json"):
        text = frame.to_json(orient="records", indent=1, double_precision=15) + "\n"
    else:
        text = frame.to_csv(index=False)
    write_output(text, out)


def write_json(content: Mapping[str, Any], out: Path | None) -> None:
    """Write facts and tables as a JSON object: a table is a list of rows, NaN and infinities are null.

    Examples
    --------
    >>> import pandas as pd
    >>> write_json({"best": float("nan"), "rows": pd.DataFrame({"x": [1]})}, None)
    {
     "best": null,
     "rows": [
      {
       "x": 1
      }
     ]
    }
    """
    import pandas as pd

    from paperworks.core.results import finite

    plain = {
        name: value.to_dict(orient="records") if isinstance(value, pd.DataFrame) else value
        for name, value in content.items()
    }
    text = jsonlib.dumps(finite(plain), indent=1, ensure_ascii=False, default=lambda value: value.tolist())
    write_output(text + "\n", out)


def write_report(
    path: Path,
    title: str,
    slug: str,
    facts: Mapping[str, Any],
    table: pd.DataFrame,
    pictures: Sequence[Figure] = (),
    more: Sequence[Any] = (),
) -> None:
    """Write an HTML page: facts and a table, a section a picture under the picture's own title, and more sections."""
    from paperworks.core.report.page import Facts, Picture, Section, Table, page

    shown = [
        Section(picture.get_suptitle() or title, Picture(picture, alt=picture.get_suptitle() or title))
        for picture in pictures
    ]
    write_output(page(f"{title} — {slug}", [Section("Result", Facts(facts), Table(table)), *shown, *more]), path)
