"""Output for people: results on stdout, progress and remarks on stderr."""

from __future__ import annotations

import codecs
import contextlib
import io
import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from wattflow.cli.options import OutputForm
from wattflow.files.whole import check_writable, expect_free
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from wattflow.lab.show.result_tables import Row


import functools
import os
from typing import ParamSpec, TypeVar

from wattflow.files.whole import tell_of_races
from wattflow.model.errors import WattflowError, own_fault, own_place

# Lone carriage returns overwrite a line; the pairs that end lines on Windows may stay.
_CONTROL = re.compile("\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""All but tab and line ends, with what turns the direction of text and what no encoding has."""


def clean(text: str) -> str:
    """Make control characters in a text visible."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


_PLAIN = {"₂": "2", "²": "2", "±": "+-", "–": "-", "−": "-", "…": "...", "×": "x", "→": "->", "≤": "<=", "≥": ">=",
          "µ": "u", "·": "*", "Δ": "d"}  # fmt: skip
"""Characters of our own texts where an encoding lacks them."""


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """Write what an encoding lacks by what it has: an error handler of codecs."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(one, "?") for one in error.object[error.start : error.end]), error.end


codecs.register_error("wattflow.plain", _plainly)


class CleanStream(io.TextIOBase):
    """A stream to which only clean text is written.

    Attributes:
        terminal: The stream below, for what draws by itself.
    """

    def __init__(self, terminal: TextIO) -> None:
        self.terminal = terminal

    def write(self, text: str) -> int:
        """Write it clean."""
        if not isinstance(text, str):
            raise TypeError("text is written here; bytes go to `buffer`")
        self.terminal.write(clean(text))
        return len(text)

    # Anything that is not about text (`buffer` above all) is the stream's own.
    def __getattr__(self, name: str) -> Any:
        return getattr(self.terminal, name)

    @property
    # Properties, since `TextIOBase` defines them itself and `__getattr__` would never be asked.
    def encoding(self) -> str:  # type: ignore[override]
        return self.terminal.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.terminal.errors

    def flush(self) -> None:
        """Flush the stream below."""
        self.terminal.flush()

    def isatty(self) -> bool:
        """Tell whether the stream below is a terminal."""
        return self.terminal.isatty()

    def fileno(self) -> int:
        """Return the number of the stream below."""
        return self.terminal.fileno()

    # Closing stdout would take it away from everybody else.
    def close(self) -> None:
        """Leave the stream below open: it is not this one's."""


@contextlib.contextmanager
def clean_output() -> Iterator[None]:
    """Print clean text within."""
    # Commands may call one another.
    if isinstance(sys.stdout, CleanStream):
        yield
        return
    for stream in (sys.stdout, sys.stderr):
        # A terminal or a file of another encoding than UTF-8: no result is worth losing for a sign.
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="wattflow.plain")
    with contextlib.redirect_stdout(CleanStream(sys.stdout)), contextlib.redirect_stderr(CleanStream(sys.stderr)):
        yield


@contextlib.contextmanager
def as_it_is() -> Iterator[None]:
    """Print anything within: what a user's own program prints is its own."""
    out, err = (getattr(stream, "terminal", stream) for stream in (sys.stdout, sys.stderr))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def console(*, stderr: bool = False, **options: Any) -> Console:
    """Make a rich console that prints clean text: what it draws itself, it may draw as it likes."""
    from rich.console import Console

    class Clean(Console):
        # Every text of a table passes here, before rich adds its own control characters.
        def render_str(self, text: str, **given: Any) -> Text:
            return super().render_str(clean(text), **given)

        # Called where it is caught; rich would end with 1, `guarded` knows better.
        def on_broken_pipe(self) -> None:
            raise

    stream = sys.stderr if stderr else sys.stdout
    # Below the clean stream: rich's colours are control characters too.
    return Clean(file=getattr(stream, "terminal", stream), **options)


LONG_S = 0.7
"""Work shorter than this shows no bar."""


LINE_S = 20.0
"""Where stderr is no terminal, a line at most so often."""


def progress_lines(every_s: float = LINE_S) -> Callable[[float, str], None]:
    """Make a progress function that writes a line to stderr now and then: share done, time taken, time left."""
    began = told = time.monotonic()

    def show(share: float, text: str) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told < every_s:
            return
        told = now
        # As if the rest took as long per share as what is done.
        left = (now - began) * (1.0 - share) / share if share > 0 else math.inf
        still = f", about {left / 60.0:.1f} left" if math.isfinite(left) else ""
        remark(f"{100.0 * share:3.0f} % after {(now - began) / 60.0:.1f} minutes{still}: {text}")

    return show


@contextmanager
def progress_bar(quiet: bool, lines: bool = False) -> Iterator[Callable[[float, str], None] | None]:
    """Show a bar on stderr for work that takes a while; None when quiet or when nobody is looking.

    With ``lines`` somebody may read it later: lines now and then where stderr is no terminal.
    """
    # Nobody is looking: a bar would fill a log with control characters.
    if quiet or not sys.stderr.isatty():
        yield progress_lines() if lines and not quiet else None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console(stderr=True), transient=True)
    task, began = bar.add_task("", total=1.0), time.monotonic()
    started = False

    def show(share: float, text: str) -> None:
        nonlocal started
        # Started late, so that short work shows nothing.
        if not started and time.monotonic() - began > LONG_S:
            bar.start()
            started = True
        bar.update(task, completed=share, description=text)

    try:
        yield show
    finally:
        if started:
            bar.stop()


def plain_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str] = (), **about: Any) -> Table:
    """Make a table of rows: numbers on the right, unknown a dash, the first column on one line."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title_justify="left", **about)
    for number, column in enumerate(columns or rows[0]):
        numbers = any(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column, no_wrap=number == 0, justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*("–" if row.get(column) is None else str(row.get(column)) for column in columns or rows[0]))
    return table


def print_tables(tables: Sequence[Table]) -> None:
    """Print tables on stdout, titles on lines of their own; without a terminal as wide as they need to be."""
    # Without a terminal the width is ours: tables in files must not depend on it.
    wide = console() if sys.stdout.isatty() else console(width=220, no_color=True)
    for table in tables:
        # Printed apart: rich would wrap a title to the table's width.
        title, table.title = table.title, None
        if title is not None:
            wide.print(clean(str(title)), style="bold", soft_wrap=True, markup=False, highlight=False)
        wide.print(table)
        wide.print()


def fitting(metrics: tuple[str, ...], policies: int) -> tuple[str, ...]:
    """Return the usual figures, or fewer where a table of many policies would not fit the terminal."""
    from wattflow.lab.figures.metrics import HEADLINE, NARROW

    if metrics != HEADLINE or policies <= 4 or not sys.stdout.isatty() or shutil.get_terminal_size().columns >= 150:
        return metrics
    remark("the terminal is narrow: fewer figures are shown; --metrics all, -o json or the report have the rest")
    return NARROW


def remark(text: str, quiet: bool = False) -> None:
    """Write a line for the person on stderr."""
    if not quiet:
        typer.echo(text, err=True)


def offer_to_open(page: Path, quiet: bool = False) -> None:
    """Ask a person at a terminal whether the page shall be opened; without one, or when quiet, nothing happens."""
    if quiet or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    if typer.confirm(f"open {page} in a browser?", default=False):
        open_page(page)


def open_page(page: Path) -> None:
    """Open a page where a person sits at a terminal and a browser is found; else say where it is."""
    import webbrowser

    # Without a terminal no browser is opened: scripts and tests would hang on one.
    if not (sys.stdout.isatty() and webbrowser.open(page.resolve().as_uri())):
        remark(f"the page is {page.resolve().as_uri()}")


def chosen_form(form: OutputForm | None, out: Path | None, force: bool = False) -> OutputForm:
    """Choose the form asked for, else by the file's ending, else a table; refuse at once what could not be written."""
    if form is OutputForm.parquet and out is None:
        raise InvalidInput("-o parquet", "needs a file: add --out FILE")
    # At once, before any work is done.
    check_outputs(force, out)
    if out is None:
        return form or OutputForm.table
    ending = out.suffix.lstrip(".")
    if form is None and ending in (OutputForm.json, OutputForm.csv, OutputForm.parquet):
        return OutputForm(ending)
    if form is None or form is OutputForm.table:
        raise InvalidInput(f"--out {out}", "does not say which form: end it in .json, .csv or .parquet, or add -o json")
    return form


def check_places(*paths: Path | None) -> None:
    """Check that files can be written there."""
    for path in paths:
        if path is not None:
            check_writable(path)


def check_outputs(force: bool, *paths: Path | None) -> None:
    """Check that files can be written here, and none is written over without ``--force``."""
    check_places(*paths)
    for path in paths:
        if path is not None and path.is_file() and not force:
            raise InvalidInput(str(path), "exists already; add --force to write over it")
        if path is not None:
            expect_free(path, not force)


def check_target(force: bool, path: Path) -> None:
    """Check the same for what may be a folder: one with something in it is kept without ``--force``."""
    # A folder is asked about below.
    check_outputs(force, None if path.is_dir() else path)
    if path.is_dir() and any(path.iterdir()) and not force:
        raise InvalidInput(str(path), "is a folder with files in it; add --force to write over it")
    if path.is_dir():
        check_writable(path / "file")


def never_onto(inputs: Sequence[str | Path], *outputs: Path | None) -> None:
    """Refuse to write over what is read."""
    # Resolved: links and "./" must not hide that they are the same file.
    read = {Path(source).resolve() for source in inputs if Path(source).exists()}
    for path in outputs:
        if path is not None and path.resolve() in read:
            raise InvalidInput(str(path), "is read by this command; name another file to write")


def deliver(rows: Sequence[Row], form: OutputForm, out: Path | None, about: Mapping[str, object]) -> None:
    """Write rows as JSON, CSV or parquet, to the file or to stdout."""
    from wattflow.lab.show.result_tables import as_text, write_rows

    if out is not None:
        write_rows(out, rows, form.value, about)
    else:
        typer.echo(as_text(rows, form.value, about), nl=False)


P = ParamSpec("P")
R = TypeVar("R")

BAD_INPUT, INTERRUPTED = 2, 130
LONGEST_NAME = 200


def guarded(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command so that what its user did or gave ends in a message, not in a traceback."""

    @functools.wraps(command)
    # Two functions: the clean stream must still be there when the error is printed.
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        with clean_output():
            return told(*args, **kwargs)

    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            answer = command(*args, **kwargs)
            # After its last file: what another command wrote first is no reason to lose the others.
            tell_of_races()
            return answer
        except WattflowError as error:
            # A WattflowError that wraps an error of the user's own code names the place in it.
            place = own_place(error.__cause__) if error.__cause__ is not None else None
            typer.echo(f"error: {error}" + (f" ({place})" if place else ""), err=True)
            raise typer.Exit(BAD_INPUT) from None
        except BrokenPipeError:
            sys.stderr.close()
            # The reader has left (`| head`): no failure, and nothing more to flush.
            os._exit(0)
        except OSError as error:
            where = str(error.filename or "")
            shown = where if len(where) <= LONGEST_NAME else f"{where[:LONGEST_NAME]}…"
            # A full disk below `> file` has no name.
            typer.echo(f"error: {shown + ': ' if shown else ''}{error.strerror or error}", err=True)
            raise typer.Exit(BAD_INPUT) from None
        # Files are written whole or not at all (`files.whole`), so this is true.
        except KeyboardInterrupt:
            typer.echo("stopped; no file is left half-written", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            # Errors of ours keep their traceback: it is what a report needs.
            if (told := own_fault(error)) is None or os.environ.get("WATTFLOW_TRACE"):
                raise
            typer.echo(f"error: {told}\n(WATTFLOW_TRACE=1 shows the whole traceback)", err=True)
            raise typer.Exit(BAD_INPUT) from None

    return run
