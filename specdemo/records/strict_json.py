"""Conversion of untrusted JSON to frozen dataclasses, with strict types and bounded sizes.

Reading stops at the first error. Validators that collect all errors, such as pydantic, need 1.5 GB and 15
seconds for a hostile file of 16 MB.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from specdemo.records.limits import show

Reader = Callable[[Any], Any]

MAX_WHOLE = 2**32 - 1
MAX_SIZE = 1e9
"""Maximum absolute value of a float, so that sums and quotients of floats stay finite."""


class MisfitError(ValueError):
    """The error for JSON that does not match the expected type.

    Attributes:
        problem: The end of a sentence whose subject is the path, such as "must be text".
        path: Path of the wrong value, such as ``.lanes['speculative'].rounds[0]``; empty for the whole file.
    """

    def __init__(self, problem: str, path: str = ""):
        super().__init__(f"{path.removeprefix('.') or 'the file'} {problem}")
        self.problem = problem
        self.path = path


def at(part: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``read(*arguments)``. If it raises a ``MisfitError``, prepend ``part`` to the error's path."""
    try:
        return read(*arguments)
    except MisfitError as fault:
        raise MisfitError(fault.problem, part + fault.path) from None


class Rebuilder:
    """Creates readers. A reader converts parsed JSON to one type, or raises a ``MisfitError``.

    Args:
        max_entries: Maximum number of entries of each sequence or mapping, by the name of its field. All such
            fields of all dataclasses must be listed.
        max_text: Maximum number of characters of any string.
        special: Custom readers, by type.
    """

    def __init__(self, max_entries: Mapping[str, int], max_text: int, special: Mapping[Any, Reader]):
        self._max_entries = max_entries
        self._max_text = max_text
        self._readers = {int: _whole, float: number, bool: _truth, str: self._text, **special}

    def reader(self, kind: Any, name: str = "") -> Reader:
        """Return the reader for a type.

        Args:
            kind: A dataclass, a NamedTuple, or the type of a field.
            name: Name of the field, for ``max_entries``.
        """
        if kind in self._readers:
            return self._readers[kind]
        if is_dataclass(kind):
            return self._record(kind)
        origin, arguments = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            [given] = (one for one in arguments if one is not NoneType)
            read = self.reader(given, name)
            return lambda value: None if value is None else read(value)
        if origin is tuple and arguments[1:] == (...,):
            return _sequence(self.reader(arguments[0]), self._max_entries[name])
        if origin is Mapping:
            key = {str: self._text, int: _key}[arguments[0]]
            return _mapping(key, self.reader(arguments[1]), self._max_entries[name])
        if issubclass(kind, StrEnum):
            return _choice(kind)
        return self._named_tuple(kind)

    def _record(self, kind: Any) -> Reader:
        hints = get_type_hints(kind, include_extras=True)
        readers = {field.name: self.reader(hints[field.name], field.name) for field in fields(kind)}
        required = [
            field.name
            for field in fields(kind)
            if field.default is MISSING and field.default_factory is MISSING
        ]

        def read(value: Any) -> Any:
            parts = _object(value)
            for name in parts:
                if name not in readers:
                    raise MisfitError(f"has a field this program does not know, {show(name)}")
            for name in required:
                if name not in parts:
                    raise MisfitError("is missing", f".{name}")
            return kind(**{name: at(f".{name}", readers[name], part) for name, part in parts.items()})

        return read

    def _named_tuple(self, kind: Any) -> Reader:
        readers = [self.reader(hint) for hint in get_type_hints(kind, include_extras=True).values()]

        def read(value: Any) -> Any:
            if type(value) is not list or len(value) != len(readers):
                raise MisfitError(f"must be a list of {len(readers)}")
            return kind(*(at(f"[{i}]", readers[i], part) for i, part in enumerate(value)))

        return read

    def _text(self, value: Any) -> str:
        if type(value) is not str:
            raise MisfitError("must be text")
        if len(value) > self._max_text:
            raise MisfitError(f"has {len(value):,} characters; at most {self._max_text:,} are allowed")
        if not value.isascii() and any(0xD800 <= ord(char) <= 0xDFFF for char in value):
            raise MisfitError("has half of a character pair (a lone surrogate)")
        return value


def _object(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise MisfitError("must be an object")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAX_WHOLE:
        raise MisfitError(f"must be a whole number from 0 to {MAX_WHOLE}")
    return value


def number(value: Any) -> float:
    """Return ``value`` as a float; raise ``MisfitError`` unless it is a number from −MAX_SIZE to MAX_SIZE."""
    if type(value) not in (int, float) or not -MAX_SIZE <= value <= MAX_SIZE:  # false for NaN
        raise MisfitError(f"must be a number from {-MAX_SIZE:.0e} to {MAX_SIZE:.0e}")
    return float(value)


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise MisfitError("must be true or false")
    return value


def _key(value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 10 and str(int(value)) == value):
        raise MisfitError("is no whole number")
    return _whole(int(value))


def _choice(kind: type[StrEnum]) -> Reader:
    names = {str(member): member for member in kind}

    def read(value: Any) -> StrEnum:
        if type(value) is not str or value not in names:
            raise MisfitError(f"must be one of: {', '.join(names)}")
        return names[value]

    return read


def _sequence(read: Reader, max_entries: int) -> Reader:
    def read_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise MisfitError("must be a list")
        _require_few(value, max_entries)
        return tuple(at(f"[{i}]", read, part) for i, part in enumerate(value))

    return read_all


def _mapping(read_key: Reader, read: Reader, max_entries: int) -> Reader:
    def read_all(value: Any) -> dict[Any, Any]:
        parts = _object(value)
        _require_few(parts, max_entries)
        return {
            at(f"[{show(name)}]", read_key, name): at(f"[{show(name)}]", read, part)
            for name, part in parts.items()
        }

    return read_all


def _require_few(entries: list[Any] | dict[str, Any], max_entries: int) -> None:
    if len(entries) > max_entries:
        raise MisfitError(f"has {len(entries):,} entries; at most {max_entries:,} are allowed")
