"""Draft steps as a part of a recorded round on a GPU."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdemo.engine.drafter import Draft, PickingRule

if TYPE_CHECKING:  # needs Triton
    from specdemo.models.gpu.stack import GpuCache, GpuStack


def launch_steps(
    stack: "GpuStack",
    cache: "GpuCache",
    k: int,
    rule: PickingRule,
    position: Tensor,
    id_map: Tensor | None,
    name: str,
) -> Draft:
    """Start k draft steps over the ids in ``cache``, each of which reads the token of the step before it.

    ``position`` [1] is that of the first draft token in the text.
    """
    buffers, uniforms = cache.buffers, rule.uniforms(k)
    picks = []
    for step in range(k):
        stack.launch(cache, step)
        if not rule.picks_best:
            uniform = None if uniforms is None else uniforms[step : step + 1]
            pick = rule.pick(buffers.logits[step], position + step, uniform, id_map)
            buffers.chosen[step : step + 1].copy_(pick.row if id_map is None else id_map[pick.row])
            picks.append(pick)
        stack.advance(cache, step, rule.picks_best)
    return Draft(
        ids=buffers.chosen[:k].long(),
        probs=torch.stack([pick.probs for pick in picks]) if picks else None,
        rows=torch.cat([pick.row for pick in picks]) if picks else None,
        logits=buffers.logits[:k],
        id_map=id_map,
        steps=k,
        by=name,
    )
