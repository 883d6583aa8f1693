"""The plugin's errors: each says what was expected, what was found and what to do next."""


class PluginError(Exception):
    """Base of the plugin's errors.

    Attributes: expected, found (a repr where it is a value), do (the next step), and
    status, the HTTP status an endpoint answers with.
    """

    status = 400

    def __init__(self, expected: str, found: str, do: str) -> None:
        super().__init__(f"expected {expected}; found {found}; {do}")
        self.expected = expected
        self.found = found
        self.do = do

    def as_reply(self) -> dict[str, object]:
        """The plain dict that crosses the process border and becomes the HTTP error body."""
        error = {"expected": self.expected, "found": self.found, "do": self.do}
        return {"status": self.status, "error": error}


class SettingsError(PluginError):
    """An environment variable named TABLETUNE_* is unknown or has a bad value."""


class SeamError(PluginError):
    """vLLM does not look as the seam knows it: another version, signature or attribute."""


class RequestError(PluginError):
    """A request to an endpoint is malformed or asks for what the engine cannot do."""


class ForbiddenError(PluginError):
    """The client may not use the endpoints."""

    status = 403


class InactiveError(PluginError):
    """The plugin is off in this engine, so it cannot do what was asked."""

    status = 409


class TooLargeError(PluginError):
    """A request body exceeds the size cap."""

    status = 413


class EngineUnavailableError(PluginError):
    """The engine core did not answer, or not in time."""

    status = 503
