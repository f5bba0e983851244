"""Pairs of models to choose from by a short name, and what each needs of a machine's memory.

A list of facts: nothing is loaded or fetched here, and neither torch nor transformers is imported.

Revisions are commits of the hub's repositories, so that a preset stays what it was when somebody else
pushes to one. Each was taken from a public record of somebody who used it:

* https://github.com/tmcarmichael/nn-observability, ``results/model_revisions.json`` (Qwen2.5, Llama 3.2,
  GPT-2, Pythia);
* https://github.com/togethercomputer/ssd, ``ssd/paths.py`` (Llama 3.1, and Llama 3.2 again);
* https://github.com/tenseleyFlow/DocumentLanguageModel, ``src/dlm/base_models/registry.py`` (SmolLM2, and
  Qwen2.5 and Llama 3.2 again).

Where a revision is None, the newest is taken when the model is loaded; the run records which that was.

Numbers of parameters are what the architectures of the models' own ``config.json`` add up to, a matrix
that serves as embedding and as output layer counted once; a test builds each of them and counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specdemo.pairs.sources import Sources
from specdemo.records.limits import unknown_pair
from specdemo.shipped import EMBEDDED

HEAVY = ("auto", "bf16", "fp32")
ALL = (*HEAVY, "fp16", "int8", "int4")
ALLOWANCE = 2**30
"""Bytes for what is no weight: key/value caches of three lanes over some thousand positions, logits and
their warped copies, and the libraries' own workspaces."""
SLACK = 1.1
"""Allocators keep some memory that nobody uses, and a layer is there twice while it is packed."""


@dataclass(frozen=True)
class _Cost:
    """Bytes of a parameter: as loaded, and once in place in the layers, the output layer, the embedding.

    int4 has a scale and an offset of two bytes each per group of 32 inputs (``packed_linear``).
    """

    loaded: float
    layers: float
    head: float
    embedding: float


COSTS = {
    "auto": _Cost(4, 4, 4, 4),  # whatever will be chosen, it is no more than this
    "bf16": _Cost(2, 2, 2, 2),
    "fp16": _Cost(4, 2, 2, 4),
    "fp32": _Cost(4, 4, 4, 4),
    "int8": _Cost(2, 1, 1, 2),
    "int4": _Cost(2, 0.5 + 4 / 32, 1, 2),
}


@dataclass(frozen=True)
class Checkpoint:
    """One model on the hub.

    Attributes:
        name: Its hub id, or ``embedded``.
        parameters: How many numbers its weights are.
        embedding: How many of them are its embedding, and as many its output layer.
        tied: Whether both are the same matrix, counted once in ``parameters``.
        revision: The commit to load, 40 hexadecimal digits; None for the newest.
    """

    name: str
    parameters: int
    embedding: int
    tied: bool = True
    revision: str | None = None

    def loading_bytes(self, precision: str) -> int:
        """Bytes of the weights as they come from the file, before anything is packed."""
        return int(self.parameters * COSTS[precision].loaded)

    def kept_bytes(self, precision: str) -> int:
        """Bytes of the weights in place: a tied output layer in the order the CPU reads is a second copy."""
        cost = COSTS[precision]
        layers = self.parameters - self.embedding * (1 if self.tied else 2)
        return int(layers * cost.layers + self.embedding * (cost.head + cost.embedding))


@dataclass(frozen=True)
class Preset:
    """A target and a draft that share a tokeniser.

    Attributes:
        name: Short, as it stands in an address.
        title: What a page calls it.
        target, draft: The models.
        gated: Whether the hub asks for an account that has accepted the models' licence.
        precisions: Those in which the target can run; the packed ones are for linear layers only.
    """

    name: str
    title: str
    target: Checkpoint
    draft: Checkpoint
    gated: bool = False
    precisions: tuple[str, ...] = ALL

    @property
    def sources(self) -> Sources:
        """The preset as ``load.load_pair`` takes it."""
        return Sources(
            self.target.name,
            self.draft.name,
            target_revision=self.target.revision,
            draft_revision=self.draft.revision,
        )

    def needed_bytes(self, precision: str) -> int:
        """Memory that loading and running the pair is expected to take at its peak.

        Both models are loaded before either is packed, so int8 and int4 need what bf16 does at first.
        """
        models = (self.target, self.draft)
        loading = sum(model.loading_bytes(precision) for model in models)
        kept = sum(model.kept_bytes(precision) for model in models)
        return ALLOWANCE + int(SLACK * max(loading, kept))


_QWEN_0_5B = Checkpoint(
    "Qwen/Qwen2.5-0.5B-Instruct",
    494_032_768,
    151_936 * 896,
    revision="7ae557604adf67be50417f59c2c2f167def9a775",
)
_GPT2 = Checkpoint(
    "openai-community/gpt2",
    124_439_808,
    50_257 * 768,
    revision="607a30d783dfa663caf39e06633721c8d4cfcd7e",
)

PRESETS = (
    Preset(
        EMBEDDED,
        "SmolLM2 135M, distilled draft (built in)",
        Checkpoint(EMBEDDED, 134_515_008, 49_152 * 576),
        Checkpoint(EMBEDDED, 14_158_656 + 12_167_424, 0),  # the draft and the feature draft
    ),
    Preset(
        "qwen2.5-7b",
        "Qwen2.5 7B Instruct, drafted by 0.5B",
        Checkpoint(
            "Qwen/Qwen2.5-7B-Instruct",
            7_615_616_512,
            152_064 * 3_584,
            tied=False,
            revision="a09a35458c702b33eeacc393d103063234e8bc28",
        ),
        _QWEN_0_5B,
    ),
    Preset(
        "qwen2.5-1.5b",
        "Qwen2.5 1.5B Instruct, drafted by 0.5B",
        Checkpoint(
            "Qwen/Qwen2.5-1.5B-Instruct",
            1_543_714_304,
            151_936 * 1_536,
            revision="989aa7980e4cf806f80c7fef2b1adb7bc71aa306",
        ),
        _QWEN_0_5B,
    ),
    Preset(
        "smollm2-1.7b",
        "SmolLM2 1.7B Instruct, drafted by 135M",
        Checkpoint(
            "HuggingFaceTB/SmolLM2-1.7B-Instruct",
            1_711_376_384,
            49_152 * 2_048,
            revision="31b70e2e869a7173562077fd711b654946d38674",
        ),
        Checkpoint(
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            134_515_008,
            49_152 * 576,
            revision="12fd25f77366fa6b3b4b768ec3050bf629380bac",
        ),
    ),
    Preset(
        "llama3.1-8b",
        "Llama 3.1 8B Instruct, drafted by Llama 3.2 1B (gated: needs an account with access)",
        Checkpoint(
            "meta-llama/Llama-3.1-8B-Instruct",
            8_030_261_248,
            128_256 * 4_096,
            tied=False,
            revision="0e9e39f249a16976918f6564b8830bc894c89659",
        ),
        Checkpoint(
            "meta-llama/Llama-3.2-1B-Instruct",
            1_235_814_400,
            128_256 * 2_048,
            revision="9213176726f574b556790deb65791e0c5aa438b6",
        ),
        gated=True,
    ),
    Preset(
        "gpt2-large",
        "GPT-2 large, drafted by GPT-2",
        Checkpoint(
            "openai-community/gpt2-large",
            774_030_080,
            50_257 * 1_280,
            revision="32b71b12589c2f8d625668d2335a01cac3249519",
        ),
        _GPT2,
        precisions=HEAVY,
    ),
    Preset(
        "gpt2-xl",
        "GPT-2 XL, drafted by GPT-2",
        Checkpoint(
            "openai-community/gpt2-xl",
            1_557_611_200,
            50_257 * 1_600,
            revision="15ea56dee5df4983c59b2538573817e1667135e2",
        ),
        _GPT2,
        precisions=HEAVY,
    ),
    Preset(
        "pythia-1.4b",
        "Pythia 1.4B, drafted by 70M",
        Checkpoint(
            "EleutherAI/pythia-1.4b",
            1_414_647_808,
            50_304 * 2_048,
            tied=False,
            revision="fedc38a16eea3bd36a96b906d78d11d2ce18ed79",
        ),
        Checkpoint(
            "EleutherAI/pythia-70m",
            70_426_624,
            50_304 * 512,
            tied=False,
            revision="a39f36b100fe8a5377810d56c3f4789b9c53ac42",
        ),
    ),
    Preset(
        "pythia-2.8b",
        "Pythia 2.8B, drafted by 160M",
        Checkpoint(
            "EleutherAI/pythia-2.8b",
            2_775_208_960,
            50_304 * 2_560,
            tied=False,
            revision="2a259cdd96a4beb1cdf467512e3904197345f6a9",
        ),
        Checkpoint(
            "EleutherAI/pythia-160m",
            162_322_944,
            50_304 * 768,
            tied=False,
            revision="50f5173d932e8e61f858120bcb800b97af589f46",
        ),
    ),
)


def preset_named(name: str) -> Preset:
    """The preset of that name.

    Raises:
        UserError: There is none.
    """
    for preset in PRESETS:
        if preset.name == name:
            return preset
    raise unknown_pair(name, [preset.name for preset in PRESETS])


def fitting(free_bytes: int, precision: str) -> Sequence[Preset]:
    """The presets that run in a precision and are expected to fit into ``free_bytes``, in their order."""
    return [
        preset
        for preset in PRESETS
        if precision in preset.precisions and preset.needed_bytes(precision) <= free_bytes
    ]
