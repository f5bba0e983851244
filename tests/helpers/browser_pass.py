"""A small pair as files for a browser, with the logits of this program's passes over four lanes.

``python -m helpers.browser_pass FOLDER once|twice``: a product is rounded once with its sum, or also before.
"""

import base64
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from helpers.compiled_code import CODE
from helpers.llamas import MODELS, VOCAB, llama_of

from specdemo.models.compiled import compilation, vectors

if sys.argv[2] == "twice":
    vectors.multiply_add = lambda b, x, y, z: b.fadd(b.fmul(x, y), z)
else:
    compilation.keep_in(CODE)

from specdemo.models.compiled.llama import CompiledLlama
from specdemo.models.reduced_draft import fit_screen, slice_of_target
from specdemo.pairs.browser_files import PLAN, write_pair

CAPACITY, PROMPT, ROWS, STEPS = 150, 60, 5, 6


def main(folder: Path) -> None:
    model = llama_of(*MODELS["groups of two"], torch.bfloat16)
    kept = torch.arange(0, VOCAB, 2)
    small = slice_of_target(model, [0, 2], kept)
    small.screen = fit_screen(
        small.lm_head.weight.float(), torch.randn(400, model.config.hidden_size), rank=6
    )
    target = CompiledLlama(model)
    draft = CompiledLlama(small, rounded=True, embedding=target.stack.embedding)
    pair = SimpleNamespace(target=target, draft=draft, id_map=kept)
    ids = torch.randint(VOCAB, (PROMPT + ROWS,), generator=torch.Generator().manual_seed(1))
    logits = {}
    for lane, compiled in {"speculative": target, "draft": draft}.items():
        cache = compiled.stack.open(CAPACITY)
        compiled.stack.run(cache, ids[:PROMPT], 0, 0, 1)
        found = compiled.stack.run(cache, ids[PROMPT:], PROMPT, ROWS, 1).logits
        logits[lane] = base64.b64encode(found.contiguous().numpy().tobytes()).decode()
    cache = draft.stack.open(CAPACITY)
    draft.stack.run(cache, ids[:-1], 0, 0, 1)
    written, _ = draft.stack.write(cache, ids[-1:], len(ids) - 1, 0, STEPS, 1, kept)
    plan = write_pair(folder, pair, {}, CAPACITY)
    plan["expected"] = {"ids": ids.tolist(), "prompt": PROMPT, "logits": logits, "written": written.tolist()}
    (folder / PLAN).write_text(json.dumps(plan), encoding="utf-8")


if __name__ == "__main__":
    with torch.inference_mode():
        main(Path(sys.argv[1]))
