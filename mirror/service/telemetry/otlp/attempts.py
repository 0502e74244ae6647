"""The HTTP session of the exporter. It remembers why a request has failed, which the library does not always report."""

from typing import Any

import requests


class Attempts(requests.Session):
    """An HTTP session.

    Attributes:
        why_not: why the last request failed; empty if it did not.
    """

    why_not = ""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Sends a request."""
        try:
            response = super().send(request, **options)
        except requests.RequestException as error:
            # The text of urllib3's own error, without the error that wraps it.
            found = error.args[0] if error.args else error
            self.why_not = str(getattr(found, "reason", found))
            raise
        self.why_not = "" if response.ok else f"the answer is {response.status_code} {response.reason}"
        return response
