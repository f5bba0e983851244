"""The host's settings, and the service built from them: which pairs the page offers and how they load."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from specdemo.asset_paths import BUILT_IN
from specdemo.pairs.builtin_target import Progress, printing
from specdemo.pairs.hardware import chosen_device, free_memory
from specdemo.pairs.load import assemble_pair, load_sources
from specdemo.pairs.pair import Pair
from specdemo.pairs.presets import OWN, OfferedPairs, Preset, fitting, preset_named, two_models
from specdemo.pairs.sources import Sources
from specdemo.records.drafter_kinds import drafters_with
from specdemo.records.limits import AUTO_PRECISION, UserError, require_precision
from specdemo.service import ZERO_GPU
from specdemo.service.jobs import perform
from specdemo.service.queue import Bounds
from specdemo.service.service import Service, local_service
from specdemo.service.zerogpu import on_calls


@dataclass(frozen=True)
class Hosting:
    """The settings of a host. ``device``, ``precision`` and ``threads`` apply to all pairs."""

    # The preset that is the default pair and stays loaded; a target or a draft of the host's own replaces it.
    pair: str = BUILT_IN
    target: str | None = None
    draft: str | None = None
    feature_draft: str | None = None
    n_gram: str | None = None
    device: str | None = None
    precision: str = AUTO_PRECISION
    threads: int | None = None
    recalibrate: bool = False
    # True if visitors may name any two models of the hub.
    any_model: bool = False
    only_default: bool = False
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def default(self) -> tuple[str, str]:
        """The name and title of the default pair."""
        if preset := self._preset:
            return preset.name, preset.title
        return OWN, " with ".join(Path(name).name for name in (self.sources.target, self.sources.draft))

    @property
    def sources(self) -> Sources:
        """The models, device and precision of the default pair."""
        preset = self._preset
        own = Sources(self.target or BUILT_IN, self.draft or BUILT_IN) if preset is None else preset.sources
        return self._placed(replace(own, feature_draft=self.feature_draft, n_gram=self.n_gram))

    @property
    def _preset(self) -> Preset | None:
        """The preset that is the default pair; None if the host set its own target or draft."""
        return preset_named(self.pair) if self.target is None and self.draft is None else None

    @property
    def drafters(self) -> tuple[str, ...]:
        return drafters_with(*self.sources.parts)

    def offered_pairs(self) -> OfferedPairs:
        """Return the default pair, and the presets that fit on the device together with it.

        Next to the host's own models no presets are offered: the memory that those models need is unknown.
        """
        require_precision(self.precision)
        any_model = self.any_model and not ZERO_GPU
        name, title = self.default
        titles, preset = {name: title}, self._preset
        if preset is not None and not (self.only_default or ZERO_GPU):
            place = chosen_device(self.device)
            # On a GPU "auto" means bf16. It means fp32 on old GPUs, but those are too small for large models.
            counted = "bf16" if self.precision == AUTO_PRECISION and place.type != "cpu" else self.precision
            free = free_memory(str(place)) - preset.needed_bytes(counted)
            titles |= {preset.name: preset.title for preset in fitting(free, counted)}
        return OfferedPairs(name, titles, any_model)

    def service(self, offered: OfferedPairs) -> Service:
        """Return the service that runs jobs on the offered pairs.

        No models are loaded yet, except on ZeroGPU, where they must be loaded at the start.
        """
        if ZERO_GPU:
            import spaces  # pyright: ignore[reportMissingImports]

            # Load in the main thread, before the page starts: at that moment ZeroGPU saves the weights.
            sources = replace(self.sources, device="cuda")
            pair = assemble_pair(sources, progress=printing(), checked_on="cpu")
            performer = on_calls(pair, perform, spaces.GPU)
            return local_service(lambda _name, _progress: pair, offered, self.bounds, performer, self.threads)

        def load(name: str, progress: Progress) -> Pair:
            # While another pair runs, timings would be wrong. So a pair that is not the default is loaded
            # without measuring its pass costs; its first job measures them.
            sources = self.sources_of(name)
            if name != offered.default:
                return assemble_pair(sources, progress=progress)
            return load_sources(sources, progress=progress, recalibrate=self.recalibrate, alone=service.alone)

        service = local_service(load, offered, self.bounds, threads=self.threads)
        return service

    def sources_of(self, name: str) -> Sources:
        """Return the models, device and precision of an offered pair."""
        if name == self.default[0]:
            return self.sources
        if found := two_models(name):
            if folder := next((one for one in found if Path(one).exists()), None):
                raise UserError(
                    f"{folder} is a file or folder of this server; choose a model from the Hugging Face hub."
                )
            return self._placed(Sources(*found))
        return self._placed(preset_named(name).sources)

    def _placed(self, sources: Sources) -> Sources:
        return replace(sources, device=self.device, precision=self.precision)
