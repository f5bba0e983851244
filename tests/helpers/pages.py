"""Pages of the demo in a browser, each as if in its own profile."""

from typing import Any

from helpers.waiting import PATIENCE_S

# The stage's JavaScript sets this attribute; its template does not.
MOUNTED = "[data-role=scrub][aria-valuetext]"
SKIP_PREDICTION = "localStorage.setItem('specdemo-prediction', 'skipped')"
PATIENCE_MS = 1000 * PATIENCE_S


class Visitors:
    """Idle pages, each in a profile of its own; a test gets one without data from earlier tests.

    A page that has been here has compiled the scripts, which is most of what opening costs.
    """

    def __init__(self, browser: Any, url: str):
        self._browser = browser
        self._own = (url, "data:", "blob:")
        self._lobby = f"{url}specdemo-static/common/dom.js"  # a document of the same origin that does nothing
        self._resting: list[Any] = []

    def come(self) -> Any:
        if self._resting:
            return self._resting.pop()
        context = self._browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.faults = []
        page.on("pageerror", lambda error: page.faults.append(str(error)))
        page.on("dialog", lambda dialog: (page.faults.append("dialog"), dialog.dismiss()))
        page.on("request", lambda request: self._check(page, request.url))
        page.goto(self._lobby)
        return page

    def _check(self, page: Any, address: str) -> None:
        if not address.startswith(self._own):
            page.faults.append(f"a request to {address}")

    def leave(self, page: Any) -> None:
        """Take the page back, unless the test closed it or it had an error."""
        if page.is_closed() or page.faults:
            page.context.close()
            return
        page.goto(self._lobby)
        page.evaluate("localStorage.clear(), sessionStorage.clear()")
        page.unroute_all()
        page.context.clear_cookies()
        page.context.clear_permissions()
        page.emulate_media(media="null", reduced_motion="null", forced_colors="null")
        self._resting.append(page)

    def close(self) -> None:
        for page in self._resting:
            page.context.close()


class Pages:
    """Opens pages, each as if in a fresh profile, and leaves them together."""

    def __init__(self, visitors: Visitors, url: str):
        self._visitors = visitors
        self._url = url
        self._open: list[Any] = []

    def open(
        self,
        width: int = 1280,
        height: int = 720,
        theme: str = "light",
        pace: float | None = 0.25,
        query: str = "",
        predicts: bool = False,
    ) -> Any:
        """Open the page at ``?query`` and wait until it is ready.

        ``pace`` is the choice of an earlier visit, if any. Unless the visitor ``predicts``, an earlier visit
        has skipped the prediction card.
        """
        page = self._visitors.come()
        self._open.append(page)
        page.set_viewport_size({"width": width, "height": height})
        if pace is not None:
            page.evaluate("pace => localStorage.setItem('specdemo-pace', pace)", f"{pace:g}")
        if not predicts:
            page.evaluate(SKIP_PREDICTION)
        page.goto(f"{self._url}?__theme={theme}{query and '&'}{query}")
        page.wait_for_selector(MOUNTED, state="attached")
        return page

    def close(self) -> None:
        """Leave all pages; fail if one had an error or asked another server."""
        faults = [fault for page in self._open for fault in page.faults]
        for page in self._open:
            self._visitors.leave(page)
        self._open.clear()
        assert faults == []
