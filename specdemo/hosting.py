"""From a host's settings to the service behind the page: which pairs there are, how they are loaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specdemo.fetch import Progress, printing
from specdemo.limits import UserError
from specdemo.line import Bounds
from specdemo.models import assemble_pair, best_device, load_pair, offered_drafters
from specdemo.offer import Offer, two_models
from specdemo.pair import Pair
from specdemo.placement import free_memory
from specdemo.presets import EMBEDDED, PRESETS, fitting, preset_named
from specdemo.service import Service, perform
from specdemo.startup import ZERO_GPU
from specdemo.zerogpu import on_calls


@dataclass(frozen=True)
class Hosting:
    """What a host decides.

    Attributes:
        pair: Name of the preset that is always there.
        target, draft, feature_draft: Models in its place, as for ``load_pair``.
        device, precision: Of all pairs, as for ``load_pair``.
        any_model: Whether visitors may name any two models of the hub.
        only_home: Whether no other pair is offered at all.
        bounds: How much of the device visitors can have.
    """

    pair: str = EMBEDDED
    target: str | None = None
    draft: str | None = None
    feature_draft: str | None = None
    device: str | None = None
    precision: str = "bf16"
    any_model: bool = False
    only_home: bool = False
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def sources(self) -> dict[str, Any]:
        """The pair at home as arguments of ``load_pair``.

        Raises:
            UserError: There is no such preset, or a target comes without its draft.
        """
        if self.target is None:
            if self.draft is None:
                return preset_named(self.pair).sources | {"feature_draft": self.feature_draft}
            return {"target": EMBEDDED, "draft": self.draft, "feature_draft": self.feature_draft}
        if self.draft is None:
            raise UserError("--target needs --draft with it: a model of the same family, or none.")
        return {"target": self.target, "draft": self.draft, "feature_draft": self.feature_draft}

    @property
    def drafters(self) -> tuple[str, ...]:
        """The drafter kinds of the pair at home."""
        return offered_drafters(**{name: self.sources[name] for name in ("target", "draft", "feature_draft")})

    def offer(self) -> Offer:
        """The pair at home, and beside it the presets that still fit the device."""
        chosen = self.target is None and self.draft is None
        home = self.pair if chosen else f"{self.sources['target']}, {self.sources['draft']}"
        titles = {home: preset_named(home).title if chosen else home}
        if not (self.only_home or ZERO_GPU):
            free = free_memory(self.device or best_device())
            if chosen:
                free -= preset_named(home).needed_bytes(self.precision)
            titles |= {preset.name: preset.title for preset in fitting(free, self.precision)}
        return Offer(home, titles, self.any_model and not ZERO_GPU)

    def service(self, offer: Offer) -> Service:
        """The service, nothing loaded; where the GPU is lent by the call, with the models in place."""
        if ZERO_GPU:
            return self._service_on_calls(offer)

        def load(name: str, progress: Progress) -> Pair:
            return load_pair(
                **self._sources_of(name, offer),
                device=self.device,
                precision=self.precision,
                progress=progress,
            )

        return Service(load, offer, self.bounds)

    def _sources_of(self, name: str, offer: Offer) -> Mapping[str, Any]:
        if name == offer.home:
            return self.sources
        if found := two_models(name):
            return {"target": found[0], "draft": found[1]}
        return preset_named(name).sources

    def _service_on_calls(self, offer: Offer) -> Service:
        import spaces

        # In the main thread, before the page is up: the host packs what is on the GPU by then.
        pair = assemble_pair(
            **self.sources,
            device="cuda",
            precision=self.precision,
            progress=printing(),
            checked_on="cpu",
        )
        performer = on_calls(pair, perform, spaces.GPU)
        return Service(lambda _name, _progress: pair, offer, self.bounds, performer)


NAMES = tuple(preset.name for preset in PRESETS)
