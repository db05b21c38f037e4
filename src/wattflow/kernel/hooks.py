"""Hooks: calls of compiled code whose body depends on the type of the tables that they are given.

The engine's life of an attempt is one piece of code for the simulator and for a live engine; what only one of them has
(joules; an action that a driver is asked for) is a hook. The choice is made by type when the caller is compiled, so a
kernel holds one body of each hook and no test; uncompiled code looks at the argument's class.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from wattflow.kernel.jit import COMPILED, inner


def hook(function: Any) -> Any:
    """Declare a hook ``function(state, tables, …)``.

    The body given here is for ``None`` and for tables without a body of their own. ``made.of(World)`` decorates the
    body for tables of that class and of its subclasses.
    """
    return _CompiledHook(function).dispatcher if COMPILED else _Hook(function)


def bodies_of(made: Any) -> dict[str, Any]:
    """Name the classes for which a hook has a body of its own, with these bodies."""
    return dict(made.bodies)


def class_name(kind: type) -> str:
    """Name a class of tables so that two of one name in different modules are two."""
    return f"{kind.__module__}.{kind.__qualname__}"


def ancestry(kind: type) -> tuple[str, ...]:
    """Name a class and those that it descends from, nearest first."""
    # Without `object`, which every class descends from.
    return tuple(class_name(one) for one in kind.__mro__[:-1])


class _Bodies:
    """The bodies of one hook by class."""

    def __init__(self, function: Any) -> None:
        self.declared, self.bodies = function, dict[str, Any]()

    def of(self, *kinds: type) -> Callable[[Any], Any]:
        """Decorate the body for tables of these classes."""

        def give(function: Any) -> Any:
            _same_parameters(self.declared, function)
            made = self._made(function)
            self.bodies.update(dict.fromkeys(map(class_name, kinds), made))
            return made

        return give

    def chosen(self, names: tuple[str, ...]) -> Any:
        """Return the body for tables of a class; None for the declared one."""
        return next((self.bodies[name] for name in names if name in self.bodies), None)

    def _made(self, function: Any) -> Any:
        return function


class _Hook(_Bodies):
    """A hook where nothing is compiled."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, state: Any, tables: Any, *more: Any) -> Any:
        body = None if tables is None else self.chosen(ancestry(type(tables)))
        return (body or self.declared)(state, tables, *more)


class _CompiledHook(_Bodies):
    """A hook as a dispatcher whose call template is that of the body which the second argument's type chooses."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        made = self.dispatcher = inner(function)
        self._template, self._overload = made.get_call_template, made.get_overload
        # numba asks a dispatcher twice, while it types a call and while it lowers it: both must name the same body.
        made.get_call_template, made.get_overload = self._resolve, self._find
        made.of, made.bodies = self.of, self.bodies

    def _made(self, function: Any) -> Any:
        return function if hasattr(function, "get_call_template") else inner(function)

    def _resolve(self, args: Any, kws: Any) -> Any:
        body = self.chosen(getattr(args[1], "ancestry", ()))
        return self._template(args, kws) if body is None else body.get_call_template(args, kws)

    def _find(self, args: Any) -> Any:
        body = self.chosen(getattr(args[1], "ancestry", ()))
        return self._overload(args) if body is None else body.get_overload(args)


def _same_parameters(declared: Any, given: Any) -> None:
    names = [list(inspect.signature(getattr(f, "py_func", f)).parameters) for f in (declared, given)]
    # The second parameter goes by what the tables are: a hook's driver is a body's world.
    if names[0][:1] + names[0][2:] != names[1][:1] + names[1][2:]:
        raise TypeError(f"{declared.__name__} is declared with {names[0]}, its body has {names[1]}")


__all__ = ["ancestry", "bodies_of", "class_name", "hook"]
