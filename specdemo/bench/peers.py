"""What people would use instead: other libraries on the same models, each behind one call.

Peers are optional: one that is not installed, or that does not run, is named with its reason and left
out. They get the target in the same precision as transformers loads it, the settings they choose
themselves, and the same draft model as far as they can use it: in the target's precision and with a
head over the whole vocabulary, where ours is rounded further and its head reduced.
"""

import copy
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from specdemo.bench.peer import Generate, Peer, PeerModels, versioned
from specdemo.bench.peer_engines import ENGINES
from specdemo.models.attention import ATTENTION
from specdemo.models.draft_files import place_like
from specdemo.models.layer_views import input_embedding, output_layer
from specdemo.models.packed_linear import CPU_PRECISIONS, DTYPES
from specdemo.models.reduced_draft import is_reduced_draft, load_draft
from specdemo.pairs.embedded import embedded_gguf, embedded_target
from specdemo.pairs.model_loader import loading
from specdemo.pairs.pair import Pair
from specdemo.pairs.sources import NONE
from specdemo.records.limits import UserError
from specdemo.shipped import EMBEDDED, EMBEDDED_DRAFT

HF_LOOKUP_TOKENS = 10
"""Length of a copied draft, as transformers' documentation has it."""


@contextmanager
def peer_models(pair: Pair, target: str, draft: str, gguf: Path | None) -> Iterator[PeerModels]:
    """A second copy of ``pair`` on CPU, as transformers loads it, while the context is open.

    Args:
        target, draft, gguf: As named by the user; the embedded models are found.

    Raises:
        UserError: The pair cannot be compared.
    """
    if pair.device.type != "cpu":
        raise UserError("Peers are compared on the CPU; add --device cpu.")
    if draft == NONE:
        raise UserError("Peers are compared with a draft model; name one with --draft.")
    if target == EMBEDDED:
        target, gguf = str(embedded_target()), gguf or embedded_gguf()
    draft_path = EMBEDDED_DRAFT if draft == EMBEDDED else Path(draft)
    dtype = DTYPES[pair.precision]
    model = loading(AutoModelForCausalLM.from_pretrained, target, dtype=dtype).eval()
    if is_reduced_draft(draft_path):
        small = full_vocabulary(draft_path, model)
    else:
        small = loading(AutoModelForCausalLM.from_pretrained, draft, dtype=dtype).eval()
    with tempfile.TemporaryDirectory() as folder:
        small.save_pretrained(folder)
        pair.tokenizer.save_pretrained(folder)
        # fp16 is a way of ours to store the same numbers; what it computes in is what others run in.
        precision = "fp32" if pair.precision == "fp16" else pair.precision
        threads = torch.get_num_threads()
        yield PeerModels(model, small, Path(folder), gguf, pair.eos_ids, precision, threads)


@torch.no_grad()
def full_vocabulary(folder: Path, host: PreTrainedModel) -> PreTrainedModel:
    """A reduced draft of the target ``host`` as a plain model, for programs that know no id map.

    Rows outside the map are zero; a score of 0 lies below what our drafts give their best token.
    """
    draft = load_draft(folder, host, ATTENTION)
    config = copy.deepcopy(draft.config)
    config.vocab_size = input_embedding(host).num_embeddings
    config.tie_word_embeddings = False
    config.architectures = None
    full = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    place_like(full, input_embedding(host).weight)
    full.base_model.load_state_dict(draft.model.state_dict())
    head = output_layer(full).weight.zero_()
    head[draft.id_map] = draft.lm_head.weight
    full.generation_config = copy.deepcopy(host.generation_config)
    return full


def available_peers(models: PeerModels, report: Callable[[str], None]) -> list[Peer]:
    """Every peer that can be set up here, in a fixed order; ``report`` is told of those that cannot."""
    found: list[Peer] = []
    # Of what int8 and int4 round to, transformers knows nothing.
    everywhere = () if models.precision in CPU_PRECISIONS else (_transformers, _flashspec, _economize)
    for kind in (*everywhere, *ENGINES):
        try:
            found += list(kind(models))
        except Exception as error:  # a foreign library may fail in any way; the others still run
            report(f"{kind.__name__.lstrip('_')} is left out: {type(error).__name__}: {error}")
    return found


def _transformers(models: PeerModels) -> Iterator[Peer]:
    library = versioned("transformers")

    def with_options(**options: Any) -> Generate:
        def generate(ids: list[int], tokens: int) -> list[int]:
            # Assisted generation keeps its tuned number of draft tokens from call to call.
            for name, value in drafting.items():
                setattr(models.draft.generation_config, name, value)
            prompt = torch.tensor([ids])
            output = models.target.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=tokens,
                eos_token_id=list(models.eos_ids),
                **options,
            )
            return output[0, len(ids) :].tolist()

        return generate

    names = ("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold")
    drafting = {name: getattr(models.draft.generation_config, name) for name in names}
    yield Peer(library, "generate", True, with_options(), models.precision)
    assisted = with_options(assistant_model=models.draft)
    yield Peer(library, "assisted generation", False, assisted, models.precision)
    lookup = with_options(prompt_lookup_num_tokens=HF_LOOKUP_TOKENS)
    yield Peer(library, "prompt lookup", False, lookup, models.precision)


def _flashspec(models: PeerModels) -> Iterator[Peer]:
    import flashspec  # pyright: ignore[reportMissingImports]
    from flashspec.engine import HuggingFaceDrafter, TargetModel  # pyright: ignore[reportMissingImports]

    library = versioned("flashspec")
    cpu, dtype = torch.device("cpu"), DTYPES[models.precision]

    def engine(strategy: str) -> Generate:
        target = TargetModel("target", cpu, dtype, model=models.target)
        drafter = HuggingFaceDrafter("draft", cpu, dtype, model=models.draft, temperature=0.0)
        config = flashspec.FlashSpecConfig(
            device="cpu",
            sampling=flashspec.SamplingConfig(temperature=0.0),
            drafter_strategy=strategy,
            bandit=flashspec.BanditConfig(n_arms=1),
            eos_token_ids=tuple(models.eos_ids),
        )
        made = flashspec.SpeculativeEngine(config, [drafter], target)

        def generate(ids: list[int], tokens: int) -> list[int]:
            result = made.generate(torch.tensor([ids]), max_new_tokens=tokens)
            return result.output_ids[0, : result.n_tokens_generated].tolist()

        return generate

    yield Peer(library, "draft model", False, engine("bandit"), models.precision)
    yield Peer(library, "its default: lookup or model", False, engine("auto"), models.precision)


def _economize(models: PeerModels) -> Iterator[Peer]:
    import economize  # pyright: ignore[reportMissingImports]
    from economize.techniques.draft_model import DraftModelConfig  # pyright: ignore[reportMissingImports]
    from economize.techniques.lookup import LookupConfig  # pyright: ignore[reportMissingImports]

    library = versioned("economize")

    def decoder(*techniques: Any) -> Generate:
        model = economize.apply(copy.copy(models.target), *techniques)

        def generate(ids: list[int], tokens: int) -> list[int]:
            prompt = torch.tensor([ids])
            output = model.generate(
                prompt, do_sample=False, max_new_tokens=tokens, eos_token_id=list(models.eos_ids)
            )
            return output[0, len(ids) :].tolist()

        return generate

    yield Peer(library, "plain decoding", True, decoder(), models.precision)
    small = DraftModelConfig(model=str(models.folder))
    yield Peer(library, "draft model", False, decoder(small), models.precision)
    yield Peer(library, "prompt lookup", False, decoder(LookupConfig()), models.precision)
