"""From a host's settings to the service behind the page: the pairs that it offers and loads."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from specdemo.models.n_gram import LearningTable, Visit, empty_table
from specdemo.pairs.embedded import Progress, printing
from specdemo.pairs.hardware import chosen_device
from specdemo.pairs.load import assemble_pair, load_sources
from specdemo.pairs.pair import Pair
from specdemo.pairs.placement import free_memory
from specdemo.pairs.presets import Preset, fitting, preset_named
from specdemo.pairs.sources import Sources
from specdemo.records.drafter_kinds import N_GRAM_TABLE, drafters_with
from specdemo.records.limits import AUTO_PRECISION, UserError, require_precision
from specdemo.service.jobs import perform
from specdemo.service.offered_pairs import OWN, OfferedPairs, two_models
from specdemo.service.queue import Bounds
from specdemo.service.service import Service, local_service
from specdemo.service.startup import ZERO_GPU
from specdemo.service.zerogpu import on_calls
from specdemo.shipped import EMBEDDED


class Learner:
    """The table of n-grams of the pair at home, which learns from runs, in memory alone.

    Only drafts change by it. The page shows them, rejected ones too, so a visitor may read text that was
    written for another one.
    """

    def __init__(self) -> None:
        self._table: LearningTable | None = None

    def pupil(self, pair: Pair) -> Pair:
        """Return ``pair`` with a learning table: its own, or an empty one if it has none.

        The same pair, loaded again, keeps the table that has learned.
        """
        if self._table is None:
            assert not isinstance(pair.n_gram, LearningTable)
            self._table = LearningTable(pair.n_gram or empty_table(pair.vocab))
        return replace(pair, n_gram=self._table)

    @property
    def visits(self) -> list[Visit]:
        """The latest runs, oldest first."""
        return self._table.visits if self._table else []

    @property
    def contexts(self) -> int:
        """The number of learned contexts in the table."""
        return len(self._table) if self._table else 0


@dataclass(frozen=True)
class Hosting:
    """The settings of a host.

    Attributes:
        pair: The name of the preset at home, which is always there.
        target, draft, feature_draft, n_gram: Models in its place, as for ``load_pair``.
        device, precision, recalibrate: Settings of all pairs, as for ``load_sources``.
        any_model: Whether visitors may name any two models of the hub.
        only_home: Whether no other pair is offered.
        bounds: The limits of the queue and of each job.
        learner: The learner of the pair at home; None if it does not learn.
    """

    pair: str = EMBEDDED
    target: str | None = None
    draft: str | None = None
    feature_draft: str | None = None
    n_gram: str | None = None
    device: str | None = None
    precision: str = AUTO_PRECISION
    recalibrate: bool = False
    any_model: bool = False
    only_home: bool = False
    bounds: Bounds = field(default_factory=Bounds)
    learner: Learner | None = None

    @property
    def home(self) -> tuple[str, str]:
        """The name and title of the pair at home."""
        if preset := self._preset:
            return preset.name, preset.title
        return OWN, " with ".join(Path(name).name for name in (self.sources.target, self.sources.draft))

    @property
    def sources(self) -> Sources:
        """The pair at home.

        Raises:
            UserError: There is no such preset.
        """
        preset = self._preset
        own = Sources(self.target or EMBEDDED, self.draft or EMBEDDED) if preset is None else preset.sources
        return self._placed(replace(own, feature_draft=self.feature_draft, n_gram=self.n_gram))

    @property
    def _preset(self) -> Preset | None:
        """The preset at home; None if the host has its own models there."""
        return preset_named(self.pair) if self.target is None and self.draft is None else None

    @property
    def drafters(self) -> tuple[str, ...]:
        """The drafter kinds of the pair at home."""
        learned = () if self.learner is None else (N_GRAM_TABLE,)
        return drafters_with(*self.sources.parts, *learned)

    def offered_pairs(self) -> OfferedPairs:
        """Return the pair at home, and the presets that fit on the device next to it.

        Next to the host's own models there are no presets, because the memory that those need is unknown.

        Raises:
            UserError: There is no such device or precision.
        """
        require_precision(self.precision)
        any_model = self.any_model and not ZERO_GPU
        name, title = self.home
        titles, home = {name: title}, self._preset
        if home is not None and not (self.only_home or ZERO_GPU):
            place = chosen_device(self.device)
            # On a GPU that is bf16, or fp32 on one that is too old for large models anyway.
            counted = "bf16" if self.precision == AUTO_PRECISION and place.type != "cpu" else self.precision
            free = free_memory(str(place)) - home.needed_bytes(counted)
            titles |= {preset.name: preset.title for preset in fitting(free, counted)}
        return OfferedPairs(name, titles, any_model)

    def service(self, offered: OfferedPairs) -> Service:
        """Return the service around the offered pairs.

        It loads nothing yet, except if the GPU is lent by the call: then it places the models.

        Raises:
            UserError: The models could not be placed, or cannot learn because nothing is kept between calls.
        """
        if ZERO_GPU and self.learner is not None:
            raise UserError("This hardware keeps nothing between calls; start without --learn.")
        if ZERO_GPU:
            import spaces  # pyright: ignore[reportMissingImports]

            # In the main thread, before the page is up: the host packs the content of the GPU then.
            sources = replace(self.sources, device="cuda")
            pair = assemble_pair(sources, progress=printing(), checked_on="cpu")
            performer = on_calls(pair, perform, spaces.GPU)
            return local_service(lambda _name, _progress: pair, offered, self.bounds, performer)

        def load(name: str, progress: Progress) -> Pair:
            # Next to a run of another pair nothing can be measured, so a guest's first job does that.
            sources = self.sources_of(name)
            if name != offered.home:
                return assemble_pair(sources, progress=progress)
            pair = load_sources(sources, progress=progress, recalibrate=self.recalibrate, alone=service.alone)
            return pair if self.learner is None else self.learner.pupil(pair)

        service = local_service(load, offered, self.bounds)
        return service

    def sources_of(self, name: str) -> Sources:
        """Return the sources of an offered pair.

        Raises:
            UserError: There is no such pair, or a folder has the name of one of its models.
        """
        if name == self.home[0]:
            return self.sources
        if found := two_models(name):
            if any(Path(one).exists() for one in found):
                raise UserError("Models are named by hub id here; a folder of this machine has that name.")
            return self._placed(Sources(*found))
        return self._placed(preset_named(name).sources)

    def _placed(self, sources: Sources) -> Sources:
        """Return ``sources`` with this host's device and precision."""
        return replace(sources, device=self.device, precision=self.precision)
