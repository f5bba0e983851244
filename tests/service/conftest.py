import pytest


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch):
    """Visitors who wait look often whether it is their turn."""
    monkeypatch.setattr("specdemo.service.queue.POLL_S", 0.02)
    monkeypatch.setattr("specdemo.service.pair_pool.POLL_S", 0.02)
