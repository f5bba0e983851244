"""Pairs of models with a short name, the memory that each needs, and the pairs that a page offers.

Does not import torch.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specdemo.asset_paths import BUILT_IN
from specdemo.pairs.sources import Sources
from specdemo.records.limits import unknown_pair

HEAVY = ("auto", "bf16", "fp32")
ALL = (*HEAVY, "int8")
# Bytes besides the weights: key/value caches of three lanes over some thousand positions, logits and their
# warped copies, and the libraries' own workspaces.
ALLOWANCE = 2**30
SLACK = 1.1  # for memory that allocators keep unused
# Bytes per parameter of a loaded model; for ``auto`` the maximum of the precisions that it may choose.
LOADED_BYTES = {"auto": 4, "bf16": 2, "fp32": 4, "int8": 2}

REVISIONS = {
    "Qwen/Qwen2.5-0.5B-Instruct": "7ae557604adf67be50417f59c2c2f167def9a775",
    "Qwen/Qwen2.5-1.5B-Instruct": "989aa7980e4cf806f80c7fef2b1adb7bc71aa306",
    "Qwen/Qwen2.5-7B-Instruct": "a09a35458c702b33eeacc393d103063234e8bc28",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "12fd25f77366fa6b3b4b768ec3050bf629380bac",
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": "31b70e2e869a7173562077fd711b654946d38674",
    "meta-llama/Llama-3.1-8B-Instruct": "0e9e39f249a16976918f6564b8830bc894c89659",
    "meta-llama/Llama-3.2-1B-Instruct": "9213176726f574b556790deb65791e0c5aa438b6",
    "openai-community/gpt2": "607a30d783dfa663caf39e06633721c8d4cfcd7e",
    "openai-community/gpt2-large": "32b71b12589c2f8d625668d2335a01cac3249519",
    "openai-community/gpt2-xl": "15ea56dee5df4983c59b2538573817e1667135e2",
    "EleutherAI/pythia-70m": "a39f36b100fe8a5377810d56c3f4789b9c53ac42",
    "EleutherAI/pythia-160m": "50f5173d932e8e61f858120bcb800b97af589f46",
    "EleutherAI/pythia-1.4b": "fedc38a16eea3bd36a96b906d78d11d2ce18ed79",
    "EleutherAI/pythia-2.8b": "2a259cdd96a4beb1cdf467512e3904197345f6a9",
}
"""The commit to load from each hub repository. Later commits do not change a preset.

Each is from a public record of its use:
- https://github.com/tmcarmichael/nn-observability, results/model_revisions.json (Qwen2.5, Llama 3.2, GPT-2,
  Pythia);
- https://github.com/togethercomputer/ssd, ssd/paths.py (Llama 3.1, Llama 3.2);
- https://github.com/tenseleyFlow/DocumentLanguageModel, src/dlm/base_models/registry.py (SmolLM2, Qwen2.5,
  Llama 3.2).
"""
_HUB_ID = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"
_ANY_PAIR = re.compile(rf"({_HUB_ID}), ?({_HUB_ID})", re.ASCII)
OWN = "own"
"""The name of the default pair if it is not a preset."""


@dataclass(frozen=True)
class Checkpoint:
    """One model on the hub."""

    name: str  # hub id, or ``built-in``
    parameters: int  # by the architecture in its ``config.json``
    embedding: int  # parameters of the embedding; the output layer has the same number
    tied: bool = True  # whether embedding and output layer are one matrix, counted once in ``parameters``

    @property
    def revision(self) -> str | None:
        """The commit to load; None for the built-in models."""
        return REVISIONS.get(self.name)


@dataclass(frozen=True)
class Preset:
    """A target and a draft that share a tokenizer."""

    name: str  # as used in web addresses
    title: str
    target: Checkpoint
    draft: Checkpoint
    precisions: tuple[str, ...] = ALL  # of the target; packed ones need linear layers

    @property
    def sources(self) -> Sources:
        """The argument of ``load.load_sources`` that loads this preset."""
        return Sources(
            self.target.name,
            self.draft.name,
            target_revision=self.target.revision,
            draft_revision=self.draft.revision,
        )

    def needed_bytes(self, precision: str) -> int:
        """Return the expected peak memory, in bytes, for loading and running the pair."""
        parameters = sum(
            model.parameters + (model.embedding if model.tied else 0) for model in (self.target, self.draft)
        )
        return ALLOWANCE + int(SLACK * LOADED_BYTES[precision] * parameters)


_QWEN_0_5B = Checkpoint("Qwen/Qwen2.5-0.5B-Instruct", 494_032_768, 151_936 * 896)
_GPT2 = Checkpoint("openai-community/gpt2", 124_439_808, 50_257 * 768)

PRESETS = (
    Preset(
        BUILT_IN,
        "SmolLM2 135M, distilled draft (built-in)",
        Checkpoint(BUILT_IN, 134_515_008, 49_152 * 576),
        Checkpoint(BUILT_IN, 14_158_656 + 12_167_424, 0),  # the draft and the feature draft
    ),
    Preset(
        "qwen2.5-7b",
        "Qwen2.5 7B Instruct, drafted by 0.5B",
        Checkpoint("Qwen/Qwen2.5-7B-Instruct", 7_615_616_512, 152_064 * 3_584, tied=False),
        _QWEN_0_5B,
    ),
    Preset(
        "qwen2.5-1.5b",
        "Qwen2.5 1.5B Instruct, drafted by 0.5B",
        Checkpoint("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, 151_936 * 1_536),
        _QWEN_0_5B,
    ),
    Preset(
        "smollm2-1.7b",
        "SmolLM2 1.7B Instruct, drafted by 135M",
        Checkpoint("HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384, 49_152 * 2_048),
        Checkpoint("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008, 49_152 * 576),
    ),
    Preset(
        "llama3.1-8b",
        "Llama 3.1 8B Instruct, drafted by Llama 3.2 1B (gated: needs an account with access)",
        Checkpoint("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248, 128_256 * 4_096, tied=False),
        Checkpoint("meta-llama/Llama-3.2-1B-Instruct", 1_235_814_400, 128_256 * 2_048),
    ),
    Preset(
        "gpt2-large",
        "GPT-2 large, drafted by GPT-2",
        Checkpoint("openai-community/gpt2-large", 774_030_080, 50_257 * 1_280),
        _GPT2,
        precisions=HEAVY,
    ),
    Preset(
        "gpt2-xl",
        "GPT-2 XL, drafted by GPT-2",
        Checkpoint("openai-community/gpt2-xl", 1_557_611_200, 50_257 * 1_600),
        _GPT2,
        precisions=HEAVY,
    ),
    Preset(
        "pythia-1.4b",
        "Pythia 1.4B, drafted by 70M",
        Checkpoint("EleutherAI/pythia-1.4b", 1_414_647_808, 50_304 * 2_048, tied=False),
        Checkpoint("EleutherAI/pythia-70m", 70_426_624, 50_304 * 512, tied=False),
    ),
    Preset(
        "pythia-2.8b",
        "Pythia 2.8B, drafted by 160M",
        Checkpoint("EleutherAI/pythia-2.8b", 2_775_208_960, 50_304 * 2_560, tied=False),
        Checkpoint("EleutherAI/pythia-160m", 162_322_944, 50_304 * 768, tied=False),
    ),
)


def preset_named(name: str) -> Preset:
    for preset in PRESETS:
        if preset.name == name:
            return preset
    raise unknown_pair(name, [preset.name for preset in PRESETS])


def fitting(free_bytes: int, precision: str) -> Sequence[Preset]:
    """Return the presets that run in ``precision`` and are expected to fit into ``free_bytes``, in order."""
    return [
        preset
        for preset in PRESETS
        if precision in preset.precisions and preset.needed_bytes(precision) <= free_bytes
    ]


@dataclass(frozen=True)
class OfferedPairs:
    """The pairs that visitors of one page may ask for."""

    default: str = BUILT_IN
    # The name of each pair, the default one included, and its title on the page.
    titles: Mapping[str, str] = field(default_factory=dict)
    # True if a request may name any two models of the hub.
    any_model: bool = False
    # The names in ``titles`` that are watched servers, which accept only jobs of kind ``RUN``.
    watched: frozenset[str] = frozenset()

    def named(self, asked: Any) -> str:
        """Return the name of the pair that a request asks for; None and "" mean the default pair."""
        if asked is None or asked in ("", self.default):
            return self.default
        if isinstance(asked, str):
            if asked in self.titles:
                return asked
            if self.any_model and (found := two_models(asked)):
                return ", ".join(found)
        any_two = ["or two hub ids, such as owner/target, owner/draft"] if self.any_model else []
        raise unknown_pair(asked, [*{self.default: "", **self.titles}, *any_two])


def two_models(name: str) -> tuple[str, str] | None:
    """Return target id and draft id if the name has the form ``TARGET/ID, DRAFT/ID``, else None."""
    found = _ANY_PAIR.fullmatch(name)
    return found and (found[1], found[2])
