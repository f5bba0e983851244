"""``python -m specdemo.training``: from prompts or a corpus to a draft folder that the app can load."""

import argparse
import random
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdemo.draft_model import save_draft, slice_of_target
from specdemo.fetch import embedded_target, printing
from specdemo.limits import UserError
from specdemo.training.corpus import frequent_ids, read_corpus
from specdemo.training.distil import Recipe, distil
from specdemo.training.generate import generate_corpus
from specdemo.training.labels import label_corpus, read_labels


def main() -> int:
    """Run the stages; each resumes from what a killed run left in ``--work``."""
    options = _parser().parse_args()
    try:
        _train(options)
    except UserError as error:
        print(f"specdemo: {error}", file=sys.stderr)
        return 2
    return 0


def _train(options: argparse.Namespace) -> None:
    options.work.mkdir(parents=True, exist_ok=True)
    path = options.target or embedded_target(printing())
    teacher = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()
    corpus_file = options.corpus or options.work / "corpus.jsonl"
    if options.prompts:
        tokenizer = AutoTokenizer.from_pretrained(path)
        generate_corpus(
            teacher, tokenizer, options.prompts, corpus_file, options.max_new_tokens, options.seed
        )
    corpus = read_corpus(corpus_file)
    random.Random(options.seed).shuffle(corpus)
    label_corpus(teacher, corpus, options.work / "labels")
    id_map, coverage = frequent_ids(corpus, options.head)
    print(f"head: {len(id_map)} tokens cover {coverage:.1%} of the target's text")
    torch.manual_seed(options.seed)
    draft = slice_of_target(teacher.float(), options.layers, id_map)
    recipe = Recipe(steps=options.steps, seed=options.seed)
    quality = distil(draft, read_labels(options.work / "labels"), recipe, options.work)
    save_draft(draft, options.out)
    print(
        f"held-out agreement {quality.agreement:.3f}, overlap {quality.overlap:.3f}; saved to {options.out}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specdemo.training", description="Distil a draft from a target.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--prompts", type=Path, help='lines of {"mode", "prompt"} for the target to continue')
    source.add_argument("--corpus", type=Path, help="the target's continuations, .jsonl or .jsonl.gz")
    parser.add_argument("--target", help="Llama-type checkpoint (default: the embedded target)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the finished draft")
    parser.add_argument("--work", type=Path, required=True, help="folder for corpus, labels and checkpoints")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--layers", type=_numbers, default=[0, 29], help="target layers to start from")
    parser.add_argument("--head", type=int, default=7680, help="size of the draft's vocabulary")
    parser.add_argument("--max-new-tokens", type=int, default=192)
    parser.add_argument("--seed", type=int, default=0)
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


raise SystemExit(main())
