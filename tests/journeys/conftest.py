import pytest

from specdemo.records import recordings

SHIPPED = recordings.FOLDER


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Offer the recordings of the package; the shared page offers one of its own."""
    monkeypatch.setattr(recordings, "FOLDER", SHIPPED)
