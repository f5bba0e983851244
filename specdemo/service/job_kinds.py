"""The kinds of job that visitors may ask for. Plain names: what each is done by, ``jobs.KINDS`` says."""

from enum import StrEnum


class JobKind(StrEnum):
    """What a job does; its value is also the name that waits and reservations are learned under."""

    RUN = "run"
    """Decodes a prompt: the events of ``pairs.live.LiveRun``."""
    PROVE = "prove"
    """An audit or a test of distributions: the events of ``proof.events.proof_events``."""
    PLAY = "play"
    """One turn of a game: the events of ``play.turn.play_turn``."""
    CLASS = "class"
    """The drafts of a class, judged at once: the events of ``play.class_drafts.judge_class``."""
    QUIZ = "quiz"
    """What answers one question: the events of ``quiz.quiz.quiz_events``."""
    MEASURE = "measure"
    """One experiment of the lab: the events of ``lab.events.lab_events``."""
