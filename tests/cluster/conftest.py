"""A stand-in for the driver, which every link of a test starts."""

import pytest
from helpers.stand_in_driver import StandInDriver

from specdemo.cluster import link


@pytest.fixture
def driver(monkeypatch) -> StandInDriver:
    driver = StandInDriver()
    monkeypatch.setattr(link, "RETRY_S", 0.05)
    monkeypatch.setattr(link, "start_driver", driver.start)
    return driver
