"""The kinds of job that visitors may ask for. Plain names: what each is done by, ``jobs.KINDS`` says."""

from enum import StrEnum

from specdemo.records.limits import UserError


class JobKind(StrEnum):
    """What a job does; its value is also the name that waits and reservations are learned under."""

    RUN = "run"
    """Decodes a prompt: the events of ``pairs.live.LiveRun``."""
    PROVE = "prove"
    """An audit or a test of distributions: the events of ``proof.events.proof_events``."""
    PLAY = "play"
    """One turn of a game: the events of ``play.turn.play_turn``."""
    CLASS = "class"
    """The drafts of a class: the events of ``play.class_drafts.judge_class``."""
    QUIZ = "quiz"
    """What answers one question: the events of ``quiz.quiz.quiz_events``."""
    MEASURE = "measure"
    """One experiment of the lab: the events of ``lab.events.lab_events``."""
    CALIBRATE = "calibrate"
    """Measures the pair's pass costs again: the events of ``pairs.live.calibration_events``."""


class Outcome(StrEnum):
    """How a job ended; the log has one line for each job."""

    DONE = "done"
    STOPPED = "stopped"
    """By its visitor, by the time limit, or because the program ends."""
    REFUSED = "refused"
    """Before it began."""
    FAILED = "failed"


class CutShortError(UserError):
    """A job was ended before it was done; what it did until then is kept."""


class FailedError(UserError):
    """A job failed, or the models it needs could not be loaded; not the visitor's fault."""
