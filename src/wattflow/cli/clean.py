"""Clean what commands print: control characters in names, reasons and files are shown, never sent to a terminal.

A name must not move the cursor, hide a line or set a window's title. All text that a command writes goes through one
stream, whoever prints it; rich draws its colours on the terminal itself and cleans the text in its tables first.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# Lone carriage returns overwrite a line; the pairs that end lines on Windows may stay.
_CONTROL = re.compile("\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""All but tab and line ends, with what turns the direction of text and what no encoding has."""


def clean(text: str) -> str:
    """Make control characters in a text visible."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


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

    stream = sys.stderr if stderr else sys.stdout
    # Below the clean stream: rich's colours are control characters too.
    return Clean(file=getattr(stream, "terminal", stream), **options)
