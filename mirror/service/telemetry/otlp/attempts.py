"""The HTTP session of the exporter, which remembers why an attempt has failed: the library says so only at times."""

from typing import Any

import requests


class Attempts(requests.Session):
    """A session.

    Attributes:
        why_not: why the last request failed; empty: it has not.
    """

    why_not = ""

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Sends a request."""
        try:
            response = super().send(request, **options)
        except requests.RequestException as error:
            # What urllib3 found, without what it is wrapped in.
            found = error.args[0] if error.args else error
            self.why_not = str(getattr(found, "reason", found))
            raise
        self.why_not = "" if response.ok else f"the answer is {response.status_code} {response.reason}"
        return response
