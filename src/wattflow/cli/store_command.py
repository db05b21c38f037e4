"""`wattflow store`: check a server's store, back it up while the server runs, put a backup back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wattflow.cli import options as o
from wattflow.cli.live import HomeFolder, home_of
from wattflow.cli.screen import guarded, remark
from wattflow.model.errors import InvalidInput

if TYPE_CHECKING:
    from wattflow.runtime.home import Home

app = typer.Typer(help="A server's store: check, back up, restore.", no_args_is_help=True, rich_markup_mode=None)
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", envvar="WATTFLOW_STORE", help="postgresql://…; else the home's own file."),
]
ObjectsUrl = Annotated[
    str | None, typer.Option("--objects", metavar="DIR|s3://…", help="Where large data are kept; else in the home.")
]
FAILED = 1
"""Exit status of a check that found something."""


def check(
    home: HomeFolder = None,
    store: StoreUrl = None,
    objects: ObjectsUrl = None,
    mend: Annotated[
        bool, typer.Option("--mend", help="Make a journal with a gap anew from the tables; the server must be down.")
    ] = False,
    policy: Annotated[str, typer.Option("--policy", "-p", help="What decides after --mend.")] = "least-energy",
    quiet: o.Quiet = False,
) -> None:
    """Look for everything that is wrong with a store: its file, its journal, its snapshots, its objects.

    A server may be running; nothing is changed without --mend. Ends with 1 where something is wrong.
    """
    place = home_of(home)
    where = _there(place, store)
    # Before the check, which then looks at what was mended.
    if mend:
        remark(f"{_mended(where, policy)} open tasks are in the new journal", quiet)
    from wattflow.runtime.store_check import problems
    from wattflow.store.s3 import open_objects
    from wattflow.store.schema import read_store

    database = read_store(where)
    try:
        found = list(problems(database, open_objects(objects or place.objects), place.folder))
    finally:
        database.dispose()
    for problem in found:
        typer.echo(problem)
    if found:
        raise typer.Exit(FAILED)
    remark("nothing is wrong", quiet)


def backup(
    folder: Annotated[Path, typer.Argument(help="A new folder for it.")],
    home: HomeFolder = None,
    store: StoreUrl = None,
    objects: ObjectsUrl = None,
    quiet: o.Quiet = False,
) -> None:
    """Copy a store and its objects into a new folder; a server may be running and goes on.

    The rows are those of one moment. Output of tasks stays in the home and is no part of it.
    """
    place = home_of(home)
    from wattflow.runtime.recovery import wanted_objects
    from wattflow.store.backup import back_up
    from wattflow.store.s3 import open_objects
    from wattflow.store.schema import read_store

    database = read_store(_there(place, store))
    try:
        made = back_up(database, open_objects(objects or place.objects), folder, wanted_objects)
    finally:
        database.dispose()
    for name in made.missing:
        typer.echo(f"object {name} is missing or damaged: it is not in the backup")
    remark(f"{sum(made.rows.values())} rows and {made.objects} objects are in {folder}", quiet)
    # The backup is there, but not whole.
    if made.missing:
        raise typer.Exit(FAILED)


def restore(
    folder: Annotated[Path, typer.Argument(help="What `wattflow store backup` made.")],
    home: HomeFolder = None,
    store: StoreUrl = None,
    objects: ObjectsUrl = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where there is a store; one in a file is kept beside it.")
    ] = False,
    quiet: o.Quiet = False,
) -> None:
    """Put a backup back; the server must be down, agents may live: what they still run is stopped.

    Also into another database than it came from. Work that was submitted after the backup is not in it.
    """
    place = home_of(home)
    place.make()
    from wattflow.server.known_store import epoch_of, forget_later_output
    from wattflow.store.backup import put_back
    from wattflow.store.s3 import open_objects
    from wattflow.store.schema import read_store

    where = store or place.store
    made = put_back(folder, where, open_objects(objects or place.objects), replace, epoch_of(place))
    place.store_note.unlink(missing_ok=True)  # the next start notes this one
    database = read_store(where)
    forget_later_output(place, database)
    database.dispose()
    for name in made.missing:
        typer.echo(f"object {name} was missing when the backup was made")
    remark(f"{sum(made.rows.values())} rows and {made.objects} objects are back; `wattflow up` starts with them", quiet)


def _there(place: Home, store: str | None) -> str | Path:
    if store is None and not place.store.is_file():
        raise InvalidInput(str(place.store), "no store is there; name its home with --home, or a database with --store")
    return store or place.store


def _mended(store: str | Path, policy: str) -> int:
    from wattflow.runtime.store_check import mend
    from wattflow.store.claim import alone
    from wattflow.store.schema import open_store

    # Nobody else: a server that writes meanwhile would be overwritten.
    with alone(store):
        database = open_store(store)
        try:
            return mend(database, policy)
        finally:
            database.dispose()


for _command in (check, backup, restore):
    app.command(_command.__name__)(guarded(_command))
