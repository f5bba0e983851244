"""Loading of untrusted trace files: types, sizes, positions, and the order of verdicts."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from specdemo.records.events import ids_in, shown_figures
from specdemo.records.figures import fold
from specdemo.records.limits import MAX_K, UserError, parse_config, show
from specdemo.records.trace import (
    BASELINE,
    DRAFT,
    MAX_VOCABULARY,
    SPECULATIVE,
    TRACE_VERSION,
    WATCHED_VERSION,
    Calibration,
    Lane,
    Round,
    Run,
    Status,
)

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_BYTES = 16_000_000
TOO_LARGE = f"The file is too large; choose a trace of at most {MAX_BYTES:,} bytes."
CHOOSE = "choose a file that specdemo saved from a run"
MAX_PIECE_BYTES = 1_024
MAX_NAMES = 256
MIN_S = 1e-12
"""Minimum number of seconds other than 0. No clock is finer, and smaller values could make rates overflow."""
MIN_COST = 1e-6
_PROBLEMS = {
    "missing": "is missing",
    "missing_argument": "is missing",
    "unexpected_positional_argument": "is one value too many",
    "unexpected_keyword_argument": "is a field that this program does not know",
    "dataclass_type": "must be an object",
    "mapping_type": "must be an object",
    "dict_type": "must be an object",
    "tuple_type": "must be a list",
    "too_long": "has more than {max_length:,} entries",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "string_too_long": "has more than {max_length:,} characters",
    "string_unicode": "contains a broken character (a lone surrogate)",
}
"""The ends of sentences for pydantic's types of errors. Its own message ends the sentence for the others."""


class MisfitError(ValueError):
    """An error whose sentence is the path of a value, such as ``.lanes.draft``, and a problem."""

    def __init__(self, problem: str, path: str = ""):
        super().__init__(f"{path.removeprefix('.') or 'the file'} {problem}")
        self.problem = problem
        self.path = path


def load(data: str | bytes) -> Run:
    """Return the run of a trace file, with all figures computed again; stored figures are ignored."""
    raw = _parse(data)
    try:
        run = _validated(raw)
        _check(run)
    except MisfitError as fault:
        raise _damaged(str(fault)) from fault
    totals = fold({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, run.calibration)
    return replace(run, totals=shown_figures(totals, run.watched))


def _parse(data: str | bytes) -> dict[str, Any]:
    """Parse the JSON and check that it is a trace of a version that this program reads."""
    if len(data) > MAX_BYTES:
        raise UserError(TOO_LARGE)
    large: list[dict[str, Any]] = []

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        parts = dict(pairs)
        if len(parts) < len(pairs):  # of the same names, programs could read different ones
            raise _damaged("an object contains the same name twice")
        if len(parts) > MAX_NAMES:
            large.append(parts)
        return parts

    try:
        text = data if isinstance(data, str) else data.decode()
        raw = json.loads(
            text.removeprefix("\ufeff"), parse_constant=_refuse_constant, object_pairs_hook=distinct
        )
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        where = f" (character {error.pos + 1:,})" if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(
            f"This file is not a trace, because the content is not valid JSON{where}; {CHOOSE}."
        ) from error
    version = raw.get("version") if type(raw) is dict else None
    if type(version) is not int:
        raise UserError(f"This file is not a trace; {CHOOSE}.")
    if version > WATCHED_VERSION:
        raise UserError(f"This trace has version {version}, which a newer specdemo wrote; update specdemo.")
    if version < TRACE_VERSION:
        raise UserError(
            f"This trace has version {version}, but specdemo reads only the versions {TRACE_VERSION} and "
            f"{WATCHED_VERSION}; {CHOOSE}."
        )
    if (version == WATCHED_VERSION) != (raw.get("watched") is not None):
        raise _damaged(f"only the trace of a watched server has version {WATCHED_VERSION}")
    # pydantic lists every unknown name, so a million of them would cost seconds and a gigabyte.
    if any(parts is not raw.get("pieces") for parts in large):
        raise _damaged(f"an object contains more than {MAX_NAMES} names")
    return raw


def _damaged(fault: str) -> UserError:
    return UserError(f"This trace is damaged: {fault}. Choose another file.")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _validated(raw: dict[str, Any]) -> Run:
    """Convert parsed JSON to a run. pydantic checks all fields except the settings and the pieces."""
    from pydantic import ValidationError

    checked: dict[str, Any] = {"totals": {}}
    if "config" in raw:
        checked["config"] = at(".config", _config, raw["config"])
    if "pieces" in raw:
        checked["pieces"] = at(".pieces", _pieces, raw["pieces"])
    try:
        return _adapter().validate_python(raw | checked, extra="forbid")
    except ValidationError as error:
        raise _misfit(error) from error


@cache
def _adapter() -> "TypeAdapter[Run]":
    from pydantic import TypeAdapter  # only when a trace is loaded, because the import takes a while

    return TypeAdapter(Run)


def _misfit(error: Any) -> MisfitError:
    """Return pydantic's first error with the path of the wrong value."""
    first = error.errors(include_url=False, include_input=False)[0]
    names = [name for name in first["loc"] if name != "[key]"]
    path = "".join(f"[{name}]" if isinstance(name, int) else _dotted(name) for name in names)
    problem = first["msg"].replace("Input should be", "must be")
    if known := _PROBLEMS.get(first["type"]):
        problem = known.format(**first.get("ctx", {}))
    return MisfitError(problem, path)


def _dotted(name: str) -> str:
    return f".{name}" if name.isascii() and name.isidentifier() and len(name) < 40 else f"[{show(name)}]"


def at(part: str, check: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``check(*arguments)``; prepend ``part`` to the path of its ``MisfitError``."""
    try:
        return check(*arguments)
    except MisfitError as fault:
        raise MisfitError(fault.problem, part + fault.path) from None


def _config(value: Any) -> Any:
    if type(value) is not dict:
        raise MisfitError("must be an object")
    try:
        return parse_config(value)
    except UserError as error:
        raise MisfitError(f"is refused: {str(error).rstrip('.')}") from error


def _pieces(value: Any) -> dict[int, str]:
    if type(value) is not dict:
        raise MisfitError("must be an object")
    if len(value) > MAX_VOCABULARY:
        raise MisfitError(f"has more than {MAX_VOCABULARY:,} entries")
    for name, piece in value.items():
        if not (name.isascii() and name.isdecimal() and len(name) <= 10 and str(int(name)) == name):
            raise MisfitError("is not a token id", f"[{show(name)}]")
        try:
            fits = len(base64.b64decode(piece, validate=True)) <= MAX_PIECE_BYTES
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise MisfitError(f"must be base64 of at most {MAX_PIECE_BYTES:,} bytes", f"[{name}]")
    return {int(name): piece for name, piece in value.items()}


def _check(run: Run) -> None:
    """Check the conditions that types and sizes cannot express."""
    for name in ("target", "draft"):
        if name not in run.pair:
            raise MisfitError("is missing", f".pair.{name}")
    if not run.prompt_ids:
        raise MisfitError("is empty", ".prompt_ids")
    for number, lanes in enumerate([run.lanes, *run.repeats]):
        where = f".repeats[{number - 1}]" if number else ".lanes"
        at(where, _check_lanes, lanes, run)
    if run.calibration:
        longest = max(len(round_.drafted) for lane in _all_lanes(run) for round_ in lane.rounds)
        at(".calibration", _check_calibration, run.calibration, longest)
    _check_pieces(run)


def _check_lanes(lanes: Mapping[str, Lane], run: Run) -> None:
    asked = {SPECULATIVE: True, BASELINE: run.config.baseline, DRAFT: run.config.draft_alone}
    for name, lane in lanes.items():
        if not asked.get(name):
            raise MisfitError("is a lane that the run's settings do not ask for", _dotted(name))
        at(f".{name}", _check_lane, lane, name, run)
    if not lanes.get(SPECULATIVE, Lane()).rounds:
        raise MisfitError("has no rounds", f".{SPECULATIVE}")


def _check_lane(lane: Lane, name: str, run: Run) -> None:
    start = position = len(run.prompt_ids)
    last = len(lane.rounds) - 1
    for index, round_ in enumerate(lane.rounds):
        where = f".rounds[{index}]"
        for field, expected in (("index", index), ("position", position)):
            if getattr(round_, field) != expected:
                raise MisfitError(f"must be {expected}", f"{where}.{field}")
        if round_.finish and index < last:
            raise MisfitError("ends the lane, but more rounds follow", where)
        if round_.drafted and name != SPECULATIVE:
            raise MisfitError("must be empty in this lane", f"{where}.drafted")
        for field in ("draft_s", "verify_s", "other_s", "prefill_s"):
            if 0 < getattr(round_, field) < MIN_S:
                raise MisfitError("must be 0 or a positive number of seconds", f"{where}.{field}")
        if run.watched is None:
            at(where, _check_complete, round_)
        at(where, _check_verdicts, round_, run.watched is not None)
        position += len(round_.emitted)
    if position - start > run.config.max_new_tokens:
        raise MisfitError(f"has more than the {run.config.max_new_tokens} tokens that the settings allow")


def _check_complete(round_: Round) -> None:
    """Check that the values are present that only a watched server may leave out."""
    if len(round_.drafted) > MAX_K:
        raise MisfitError(f"has more than {MAX_K} entries", ".drafted")
    for index, token in enumerate(round_.drafted):
        for name in ("q", "p"):
            if getattr(token, name) is None:
                raise MisfitError("is missing", f".drafted[{index}].{name}")
    if round_.emission and round_.emission.prob is None:
        raise MisfitError("is missing", ".emission.prob")


def _check_verdicts(round_: Round, is_watched: bool) -> None:
    """Check that accepted tokens come first, at most one token is rejected, and the emission matches."""
    kept = round_.accepted
    has_rejected = any(token.rejected for token in round_.drafted)
    # A watched server may report only the sums of several rounds.
    is_share = is_watched and len(round_.drafted) > 0 and not any(token.compared for token in round_.drafted)
    for index, token in enumerate(round_.drafted):
        here = has_rejected and index == kept
        status = Status.ACCEPTED if index < kept else Status.DISCARDED
        compared = not is_share and (index < kept or here)
        if (token.status, token.compared, token.rejected) != (status, compared, here):
            raise MisfitError(
                "has a verdict that contradicts the verdicts of the neighboring tokens", f".drafted[{index}]"
            )
    if round_.emission is None:
        if has_rejected or not round_.finish or not kept:
            raise MisfitError("is missing", ".emission")
        return
    if is_share:
        return
    if kept < len(round_.drafted) and not has_rejected:
        raise MisfitError("follows discarded tokens, but none of them was rejected", ".emission")
    expected = Status.CORRECTED if has_rejected else Status.BONUS
    if round_.emission.status is not expected:
        raise MisfitError(f"must be {expected} here", ".emission.status")


def _check_calibration(calibration: Calibration, longest_draft: int) -> None:
    if len(calibration.v) <= longest_draft:
        raise MisfitError(f"must have at least {longest_draft + 1} entries, for the longest draft", ".v")
    for name, costs in (("v", calibration.v), ("step_s", [calibration.step_s])):
        if min(costs) < MIN_COST:
            raise MisfitError("must be positive", f".{name}")
    if calibration.c < 0:
        raise MisfitError("must not be negative", ".c")
    if any(rows < tokens for tokens, rows in enumerate(calibration.rows, 1)):
        raise MisfitError("must be at least the number of tokens", ".rows")


def _all_lanes(run: Run) -> list[Lane]:
    return [lane for lanes in (run.lanes, *run.repeats) for lane in lanes.values()]


def _check_pieces(run: Run) -> None:
    shown = set(run.prompt_ids).union(*(ids_in(r) for lane in _all_lanes(run) for r in lane.rounds))
    for ids, name in ((shown, "the run shows"), (set(run.specials), "specials lists")):
        if lacking := ids - run.pieces.keys():
            raise MisfitError(f"has no entry for token {min(lacking)}, which {name}", ".pieces")
