"""Who runs a command, for the records of promotions."""

import getpass


def user_name(given: str | None) -> str:
    """The name given, else the user's; ``unknown`` where the system has none."""
    if given:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
