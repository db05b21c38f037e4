"""Errors a person can act on become one message on stderr and an exit code; Ctrl-C becomes 130."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from wattflow.cli.screen import clean_output
from wattflow.files.whole import tell_of_races
from wattflow.model.errors import WattflowError, own_fault, own_place

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
