"""Loading of untrusted trace files.

Loading checks types, sizes, positions, and the order of accepted and rejected tokens. Code that replays runs
may rely on these checks. Stored figures are ignored and computed again.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specdemo.records.events import ids_in, shown_figures
from specdemo.records.figures import fold, without_early_speedup
from specdemo.records.limits import (
    MAX_K,
    MAX_NEW_TOKENS,
    MAX_PROMPT_CHARS,
    MAX_WATCHED_K,
    UserError,
    parse_config,
)
from specdemo.records.strict_json import MisfitError, Rebuilder, at, number
from specdemo.records.trace import (
    BASELINE,
    DRAFT,
    SPECULATIVE,
    TRACE_VERSION,
    WATCHED_VERSION,
    Calibration,
    Lane,
    Probability,
    Round,
    Run,
    RunConfig,
    Seconds,
    Status,
)

MAX_BYTES = 16_000_000
TOO_LARGE = f"The file is too large; a trace has at most {MAX_BYTES:,} bytes."
MAX_PIECE_BYTES = 1_024
MAX_PROMPT_TOKENS = 4 * MAX_PROMPT_CHARS + 1_024
"""At most four byte tokens for each character, and 1,024 tokens for a chat template."""
MAX_VOCABULARY = 2**18
MAX_TOP = 5
MAX_ENTRIES = {
    "prompt_ids": MAX_PROMPT_TOKENS,
    "pair": 8,
    "versions": 32,
    "v": 256,
    "rows": 256,
    "lanes": 3,
    "rounds": MAX_NEW_TOKENS,
    "drafted": MAX_WATCHED_K,
    "draft_top": MAX_TOP,
    "target_top": MAX_TOP,
    "top": MAX_TOP,
    "pieces": MAX_VOCABULARY,
    "specials": MAX_VOCABULARY,
    "silent": 8,
}
MAX_PROBABILITY = 1.001
"""Slightly more than 1, because a rounded sum of probabilities may exceed 1."""
MIN_S = 1e-12
"""Minimum number of seconds other than 0. No clock is finer, and smaller values could make rates overflow."""
MIN_COST = 1e-6


def load(data: str | bytes) -> Run:
    """Check the content of a trace file and return its run, with all figures computed again.

    Raises:
        UserError: The data is not a trace, has an unknown version, is too large, or is damaged. For damage,
            the message names the first wrong value.
    """
    raw = _parse(data)
    try:
        run = _READ(raw)
        _check(run)
    except MisfitError as fault:
        raise UserError(f"This trace is damaged: {fault}.") from fault
    totals = fold({name: lane.rounds for name, lane in run.lanes.items()}, run.config.rule, run.calibration)
    return replace(run, totals=shown_figures(without_early_speedup(totals), run.watched))


def _parse(data: str | bytes) -> dict[str, Any]:
    """Parse the JSON and check that it is a trace of a version that this program reads."""
    if len(data) > MAX_BYTES:
        raise UserError(TOO_LARGE)
    try:
        text = data if isinstance(data, str) else data.decode()
        raw = json.loads(
            text.removeprefix("\ufeff"), parse_constant=_refuse_constant, object_pairs_hook=_distinct
        )
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        where = f" from character {error.pos + 1:,} on" if isinstance(error, json.JSONDecodeError) else ""
        raise UserError(f"This file is not a specdemo trace, or damaged: it is no JSON{where}.") from error
    version = raw.get("version") if type(raw) is dict else None
    if type(version) is not int:
        raise UserError("This file is not a specdemo trace; choose one that was saved from a run.")
    if version > WATCHED_VERSION:
        raise UserError(f"This trace has version {version}, made by a newer specdemo; update this one.")
    if version < TRACE_VERSION:
        readable = f"{TRACE_VERSION} and {WATCHED_VERSION}"
        raise UserError(f"This trace has version {version}; this program reads version {readable}.")
    if (version == WATCHED_VERSION) != (raw.get("watched") is not None):
        raise UserError("This trace is damaged: its version is not that of its kind of run.")
    return raw


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict. Refuse duplicate names, of which programs could read different ones."""
    parts = dict(pairs)
    if len(parts) < len(pairs):
        raise UserError("This trace is damaged: one of its objects has the same name twice.")
    return parts


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _config(value: Any) -> RunConfig:
    if type(value) is not dict:
        raise MisfitError("must be an object")
    try:
        return parse_config(value)
    except UserError as error:
        raise MisfitError(f"is refused: {str(error).rstrip('.')}") from error


def _probability(value: Any) -> float:
    found = number(value)
    if not 0.0 <= found <= MAX_PROBABILITY:
        raise MisfitError("must be a probability, from 0 to 1")
    return found


def _seconds(value: Any) -> float:
    found = number(value)
    if found and found < MIN_S:
        raise MisfitError("must be 0 or a positive number of seconds")
    return found


# Run.totals is the only field of type Mapping[str, Any]. Its stored value is ignored.
_SPECIAL = {RunConfig: _config, Probability: _probability, Seconds: _seconds, Mapping[str, Any]: lambda _: {}}
_READ = Rebuilder(MAX_ENTRIES, MAX_PROMPT_CHARS, _SPECIAL).reader(Run)


def _check(run: Run) -> None:
    """Check the conditions that types and sizes cannot express.

    Raises:
        MisfitError: A condition fails; the error names the first wrong value.
    """
    for name in ("target", "draft"):
        if name not in run.pair:
            raise MisfitError("is missing", f".pair['{name}']")
    if not run.prompt_ids:
        raise MisfitError("is empty", ".prompt_ids")
    asked = {SPECULATIVE: True, BASELINE: run.config.baseline, DRAFT: run.config.draft_alone}
    for name, lane in run.lanes.items():
        if not asked.get(name):
            raise MisfitError("names a lane that the run's settings do not ask for", f".lanes[{name!r:.40}]")
        at(f".lanes['{name}']", _check_lane, lane, name, run)
    if not run.lanes.get(SPECULATIVE, Lane()).rounds:
        raise MisfitError("has no rounds", f".lanes['{SPECULATIVE}']")
    if run.calibration:
        longest = max(len(round_.drafted) for lane in run.lanes.values() for round_ in lane.rounds)
        at(".calibration", _check_calibration, run.calibration, longest)
    _check_pieces(run)


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
        if run.watched is None:
            at(where, _check_complete, round_)
        at(where, _check_verdicts, round_)
        position += len(round_.emitted)
    if position - start > run.config.max_new_tokens:
        raise MisfitError(f"has more than the {run.config.max_new_tokens} tokens the run asked for")


def _check_complete(round_: Round) -> None:
    """Check that the values are present that only a watched server may leave out."""
    if len(round_.drafted) > MAX_K:
        raise MisfitError(f"has {len(round_.drafted)} entries; at most {MAX_K} are allowed", ".drafted")
    for index, token in enumerate(round_.drafted):
        for name in ("q", "p"):
            if getattr(token, name) is None:
                raise MisfitError("is missing", f".drafted[{index}].{name}")
    if round_.emission and round_.emission.prob is None:
        raise MisfitError("is missing", ".emission.prob")


def _check_verdicts(round_: Round) -> None:
    """Check that accepted tokens come first, at most one token is rejected, and the emission matches."""
    kept = round_.accepted
    has_rejected = any(token.rejected for token in round_.drafted)
    for index, token in enumerate(round_.drafted):
        here = has_rejected and index == kept
        status = Status.ACCEPTED if index < kept else Status.DISCARDED
        if (token.status, token.compared, token.rejected) != (status, index < kept or here, here):
            raise MisfitError("has a verdict that contradicts its neighbours'", f".drafted[{index}]")
    if round_.emission is None:
        if has_rejected or not round_.finish or not kept:
            raise MisfitError("is missing", ".emission")
        return
    if kept < len(round_.drafted) and not has_rejected:
        raise MisfitError("follows discarded tokens of which none was rejected", ".emission")
    expected = Status.CORRECTED if has_rejected else Status.BONUS
    if round_.emission.status is not expected:
        raise MisfitError(f"must be {expected} here", ".emission.status")


def _check_calibration(calibration: Calibration, longest_draft: int) -> None:
    if len(calibration.v) <= longest_draft:
        raise MisfitError(f"must have {longest_draft + 1} entries at least, for the longest draft", ".v")
    for name, costs in (("v", calibration.v), ("step_s", [calibration.step_s])):
        if min(costs) < MIN_COST:
            raise MisfitError("must be positive", f".{name}")
    if calibration.c < 0:
        raise MisfitError("must not be negative", ".c")
    if any(rows < tokens for tokens, rows in enumerate(calibration.rows, 1)):
        raise MisfitError("must be at least the number of tokens", ".rows")


def _check_pieces(run: Run) -> None:
    for token, piece in run.pieces.items():
        try:
            fits = len(base64.b64decode(piece, validate=True)) <= MAX_PIECE_BYTES
        except ValueError:
            fits = False
        if not fits:
            raise MisfitError(f"must be base64 of at most {MAX_PIECE_BYTES:,} bytes", f".pieces['{token}']")
    shown = set(run.prompt_ids).union(*(ids_in(r) for lane in run.lanes.values() for r in lane.rounds))
    for ids, name in ((shown, "the run shows"), (set(run.specials), "specials names")):
        if lacking := ids - run.pieces.keys():
            raise MisfitError(f"has no entry for token {min(lacking)}, which {name}", ".pieces")
