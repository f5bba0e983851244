"""The differences between the tensors in a model's files and those of its architecture, for messages."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from transformers import PreTrainedModel

from specdemo.records.limits import first_names

NAMED = 3
"""Maximum number of tensors that a message names for each kind of fault."""
OLD_BUFFER = re.compile(r"attn\.masked_bias$")
"""A constant in GPT-2 files of older versions of transformers, which the current one does not declare."""


def loading_faults(model: PreTrainedModel, found: Mapping[str, Any]) -> str:
    """Return the faults of a loaded model as :func:`listed_faults` does.

    A tensor that transformers declares optional or redundant for the architecture is no fault.

    Args:
        model: A model that ``from_pretrained`` loaded with ``ignore_mismatched_sizes``.
        found: The second result of ``from_pretrained`` with ``output_loading_info``.
    """
    # transformers leaves weights untied that should be one matrix but are stored with different values.
    tied = model.get_expanded_tied_weights_keys(all_submodels=True)
    return listed_faults(
        {
            "missing": found["missing_keys"],
            "unexpected": {name for name in found["unexpected_keys"] if not OLD_BUFFER.search(name)},
            "of another shape": {name for name, *_ in found["mismatched_keys"]},
            "stored twice with different values": tied.keys() - model.all_tied_weights_keys.keys(),
        }
    )


def listed_faults(faults: Mapping[str, Iterable[str]]) -> str:
    """Return a list such as "missing: a, b, c and 4 more; unexpected: d"; empty if there are no faults.

    Args:
        faults: The names of the tensors with each kind of fault.
    """
    kinds = []
    for kind, names in faults.items():
        found = [name[:80] for name in sorted(names)]
        kinds += [f"{kind}: {first_names(found, NAMED)}"] if found else []
    return "; ".join(kinds)
