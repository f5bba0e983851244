"""The bounds of a proof and the names of the wrong rules. No torch: a bad request is refused at once."""

from enum import StrEnum

from specdemo.records.limits import UserError

DRAWS = 2_000
MOST_DRAWS = 10_000


class Control(StrEnum):
    """Ways of getting rejection sampling wrong. No request names one: a test of sameness must notice them."""

    ACCEPT_EVERYTHING = "accept-everything"
    NO_RESIDUAL = "no-residual"


def control_named(name: str | None) -> Control | None:
    """Return the wrong rule of that name, None for None.

    Raises:
        UserError: There is no such rule.
    """
    if name is None:
        return None
    try:
        return Control(name)
    except ValueError:
        raise UserError(f"Unknown control {name[:40]!r}; choose one of: {', '.join(Control)}.") from None


def require_draws(draws: int) -> None:
    """Raise ``UserError`` if the distribution test cannot make so many draws."""
    if not 1 <= draws <= MOST_DRAWS:
        raise UserError(f"The number of draws must be from 1 to {MOST_DRAWS:,}.")


def require_prompts(prompts: int) -> None:
    """Raise ``UserError`` if an audit cannot go through so many prompts."""
    if prompts < 1:
        raise UserError("An audit needs at least 1 prompt.")
