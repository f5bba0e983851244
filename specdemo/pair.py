"""A loaded pair of models: what a run needs of them, and the lanes it races.

Loading is in ``models``, decoding in ``engine``. Knows no UI.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from specdemo import __version__
from specdemo.calibrate import find_row_floor, measure
from specdemo.drafters import DraftModelDrafter
from specdemo.engine import autoregress, never, run_capacity, speculate
from specdemo.limits import UserError
from specdemo.race import race
from specdemo.runtime import ModelRuntime
from specdemo.text import PieceTable
from specdemo.trace import BASELINE, SPECULATIVE, Calibration, Mode, Round, Run, RunConfig

UNPADDED = 1

Stop = Callable[[], bool]


@dataclass
class Pair:
    """A target and a draft on one device, with their tokeniser.

    Attributes:
        target_name, draft_name: What the page calls them.
        target, draft: The modules; the draft may score fewer tokens (``id_map``).
        id_map: Target id of each draft output row, shape [H]; None where both score the same ids.
        calibrations: Pass costs by cache length, measured when a length is first used.
    """

    target_name: str
    draft_name: str
    target: nn.Module
    draft: nn.Module
    id_map: torch.Tensor | None
    tokenizer: Any
    precision: str
    pieces: PieceTable
    calibrations: dict[int, Calibration] = field(default_factory=dict)

    @property
    def device(self) -> torch.device:
        """Where both models are."""
        return next(self.target.parameters()).device

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text."""
        configured = self.target.generation_config.eos_token_id
        ids = configured if isinstance(configured, list) else [configured]
        return frozenset(token for token in [*ids, self.tokenizer.eos_token_id] if token is not None)

    def prompt_ids(self, config: RunConfig) -> list[int]:
        """The prompt as the target reads it.

        Raises:
            UserError: The target has no chat template, or nothing is left of the prompt.
        """
        if config.mode is Mode.RAW:
            ids = self.tokenizer(config.prompt)["input_ids"]
        elif self.tokenizer.chat_template is None:
            raise UserError(f"{self.target_name} has no chat template; choose raw continuation.")
        else:
            message = [{"role": "user", "content": config.prompt}]
            ids = self.tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)[
                "input_ids"
            ]
        if not ids:
            raise UserError("The prompt is empty; write something for the models to continue.")
        return list(ids)

    def calibrate(self, prompt_tokens: int, max_new_tokens: int) -> Calibration:
        """Row floor and pass costs for a run of this size, measured on first use of its cache length."""
        capacity = run_capacity(prompt_tokens, max_new_tokens)
        if capacity not in self.calibrations:
            vocab = self.target.get_input_embeddings().num_embeddings
            floor = find_row_floor(self.target, capacity, vocab)
            draft = ModelRuntime(self.draft, id_map=self.id_map)
            target = ModelRuntime(self.target, row_floor=floor or UNPADDED)
            self.calibrations[capacity] = measure(target, draft, capacity, vocab, floor)
        return self.calibrations[capacity]

    def speculative_lane(
        self, config: RunConfig, prompt_ids: list[int], stop: Stop = never
    ) -> Iterator[Round]:
        """A fresh speculative decoder."""
        drafter = DraftModelDrafter(ModelRuntime(self.draft, id_map=self.id_map))
        return speculate(self._target(config, prompt_ids), drafter, prompt_ids, config, self.eos_ids, stop)

    def baseline_lane(self, config: RunConfig, prompt_ids: list[int], stop: Stop = never) -> Iterator[Round]:
        """A fresh decoder of the target alone."""
        return autoregress(self._target(config, prompt_ids), prompt_ids, config, self.eos_ids, stop)

    def race(
        self, config: RunConfig, prompt_ids: list[int], stop: Stop = never
    ) -> Iterator[tuple[str, Round]]:
        """Run the speculative lane and, if asked for, the baseline, interleaved by their own clocks."""
        lanes = {SPECULATIVE: self.speculative_lane(config, prompt_ids, stop)}
        if config.baseline:
            lanes[BASELINE] = self.baseline_lane(config, prompt_ids, stop)
        return race(lanes)

    def warm_up(self) -> None:
        """Run every kind of pass once, so that no visitor's first run pays for it."""
        config = RunConfig(prompt="", mode=Mode.RAW, max_new_tokens=8)
        for _ in self.race(config, self.tokenizer("The sky is")["input_ids"]):
            pass

    def blank_run(self, config: RunConfig, prompt_ids: list[int]) -> Run:
        """A ``Run`` with everything but its rounds."""
        return Run(
            config=config,
            prompt_ids=tuple(prompt_ids),
            pair={"target": self.target_name, "draft": self.draft_name},
            device=device_name(self.device),
            precision=self.precision,
            versions=versions(),
            started_at=datetime.now(UTC).isoformat(timespec="seconds"),
            calibration=self.calibrate(len(prompt_ids), config.max_new_tokens),
            lanes={},
            pieces=self.pieces.encoded(prompt_ids),
            specials=tuple(sorted(self.pieces.specials & set(prompt_ids))),
        )

    def _target(self, config: RunConfig, prompt_ids: list[int]) -> ModelRuntime:
        floor = self.calibrate(len(prompt_ids), config.max_new_tokens).row_floor
        return ModelRuntime(self.target, row_floor=floor or UNPADDED)


def device_name(device: torch.device) -> str:
    """What the page calls the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} threads"


def versions() -> Mapping[str, str]:
    """Program and library versions, for the run's record."""
    return {
        "specdemo": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
