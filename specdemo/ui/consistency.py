"""Widgets that follow one another: a temperature brings its rule, a rule its temperature, auto its length.

What they hold comes from the browser and is checked like any request. Starts no job.
"""

import functools
from collections.abc import Callable
from typing import Any

import gradio as gr

from specdemo.records import limits
from specdemo.records.limits import UserError
from specdemo.records.trace import Rule
from specdemo.ui.jobs import QUIET

SAMPLING_TEMPERATURE = 0.8
"""Where the temperature goes when a visitor picks a sampling rule at temperature 0."""


def keep_consistent(temperature: gr.Slider, rule: gr.Radio, auto: gr.Checkbox, k: gr.Slider) -> None:
    """Have each of these widgets follow the others on the page that is being built."""
    temperature.input(
        with_refusals_shown(rule_for), [temperature, rule], rule, trigger_mode="always_last", **QUIET
    )
    auto.input(lambda auto: gr.Slider(interactive=not auto), auto, k, **QUIET)
    rule.input(with_refusals_shown(temperature_for), [rule, temperature], temperature, **QUIET)


def rule_for(temperature: Any, rule: Any) -> str:
    """The rule that suits a temperature the visitor just set.

    Args:
        temperature, rule: What the browser says the widgets hold, unchecked.

    Raises:
        UserError: It is out of bounds.
    """
    greedy = _temperature(temperature) < limits.GREEDY_BELOW
    chosen = _rule(rule)
    if greedy:
        return str(Rule.GREEDY)
    return str(Rule.REJECTION if chosen is Rule.GREEDY else chosen)


def temperature_for(rule: Any, temperature: Any) -> float:
    """The temperature that suits a rule the visitor just picked; otherwise as ``rule_for``."""
    set_to = _temperature(temperature)
    if _rule(rule) is Rule.GREEDY:
        return 0.0
    return set_to if set_to >= limits.GREEDY_BELOW else SAMPLING_TEMPERATURE


def _temperature(value: Any) -> float:
    return limits.number({"temperature": value}, "temperature", 0.0, 0.0, limits.MAX_TEMPERATURE)


def _rule(value: Any) -> Rule:
    return limits.choice({"rule": value}, "rule", Rule, Rule.GREEDY)


def with_refusals_shown(handler: Callable[..., Any]) -> Callable[..., Any]:
    """``handler`` for an event of the page: its ``UserError`` becomes a ``gr.Error`` that is not logged."""

    @functools.wraps(handler)
    def telling(*values: Any) -> Any:
        try:
            return handler(*values)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False) from error

    return telling
