"""Rebuild frozen dataclasses from parsed JSON that nobody vouches for.

Exact types, no field missing or extra, sizes bounded, and an end at the first fault: gathering every
fault of a hostile file, as validators usually do, can take a thousand times its size. Knows nothing
of what the dataclasses mean.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

Reader = Callable[[Any], Any]

MAX_WHOLE = 2**32 - 1
MAX_SIZE = 1e9
"""Largest size of a number with a fraction; leaves room for every sum and quotient of such numbers."""


class MisfitError(ValueError):
    """Data that does not fit: ``problem`` says what is wrong at ``path``."""

    def __init__(self, problem: str, path: str = ""):
        super().__init__(f"{path.removeprefix('.') or 'the file'} {problem}")
        self.problem = problem
        self.path = path

    def under(self, part: str) -> "MisfitError":
        """The same fault seen from one level up."""
        return MisfitError(self.problem, part + self.path)


def at(part: str, read: Callable[..., Any], *arguments: Any) -> Any:
    """``read(*arguments)``, with ``part`` in front of the path of whatever does not fit there."""
    try:
        return read(*arguments)
    except MisfitError as fault:
        raise fault.under(part) from None


def fitting(read: Callable[[Any], Any], value: Any) -> Any:
    """``read(value)``; None where it does not fit."""
    try:
        return read(value)
    except MisfitError:
        return None


def show(name: str) -> str:
    """An untrusted name for a message: short, printable, on one line."""
    text = repr(name)
    return text if len(text) <= 40 else text[:37] + "..."


class Rebuilder:
    """Makes readers: functions from parsed JSON to an instance, or a ``MisfitError``.

    Args:
        longest: Field name -> most entries of the sequence or mapping it holds. Every such field of the
            dataclasses to be read must be named.
        longest_text: Most characters of any string.
        special: Readers of types that have one of their own.
    """

    def __init__(self, longest: Mapping[str, int], longest_text: int, special: Mapping[Any, Reader]):
        self._longest = longest
        self._longest_text = longest_text
        self._special = special

    def reader(self, kind: Any, name: str = "") -> Reader:
        """The reader of ``kind``: a dataclass, a NamedTuple, or the type of a field called ``name``."""
        if kind in self._special:
            return self._special[kind]
        simple = {int: _whole, float: _real, bool: _truth, str: self._text}
        if kind in simple:
            return simple[kind]
        if is_dataclass(kind):
            return self._record(kind)
        origin, arguments = get_origin(kind), get_args(kind)
        if isinstance(kind, UnionType):
            [given] = (one for one in arguments if one is not NoneType)
            return _optional(self.reader(given, name))
        if origin is tuple and arguments[1:] == (...,):
            return _sequence(self.reader(arguments[0]), self._longest[name])
        if origin is Mapping:
            key = {str: self._text, int: _key}[arguments[0]]
            return _mapping(key, self.reader(arguments[1]), self._longest[name])
        if issubclass(kind, StrEnum):
            return _choice(kind)
        return self._named_tuple(kind)

    def _record(self, kind: Any) -> Reader:
        hints = get_type_hints(kind)
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
        readers = [self.reader(hint) for hint in get_type_hints(kind).values()]

        def read(value: Any) -> Any:
            if type(value) is not list or len(value) != len(readers):
                raise MisfitError(f"must be a list of {len(readers)}")
            return kind(*(at(f"[{i}]", readers[i], part) for i, part in enumerate(value)))

        return read

    def _text(self, value: Any) -> str:
        if type(value) is not str:
            raise MisfitError("must be text")
        if len(value) > self._longest_text:
            raise MisfitError(f"has {len(value):,} characters; at most {self._longest_text:,} are allowed")
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


def _real(value: Any) -> float:
    if type(value) not in (int, float) or not -MAX_SIZE <= value <= MAX_SIZE:  # NaN neither
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


def _optional(read: Reader) -> Reader:
    return lambda value: None if value is None else read(value)


def _choice(kind: type[StrEnum]) -> Reader:
    names = {str(member): member for member in kind}

    def read(value: Any) -> StrEnum:
        if type(value) is not str or value not in names:
            raise MisfitError(f"must be one of: {', '.join(names)}")
        return names[value]

    return read


def _sequence(read: Reader, longest: int) -> Reader:
    def read_all(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise MisfitError("must be a list")
        _bound(len(value), longest)
        return tuple(at(f"[{i}]", read, part) for i, part in enumerate(value))

    return read_all


def _mapping(read_key: Reader, read: Reader, longest: int) -> Reader:
    def read_all(value: Any) -> dict[Any, Any]:
        parts = _object(value)
        _bound(len(parts), longest)
        return {
            at(f"[{show(name)}]", read_key, name): at(f"[{show(name)}]", read, part)
            for name, part in parts.items()
        }

    return read_all


def _bound(size: int, longest: int) -> None:
    if size > longest:
        raise MisfitError(f"has {size:,} entries; at most {longest:,} are allowed")
