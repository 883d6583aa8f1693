"""The command line: `tabletune`, also installed as `dsd-tuner`.

Nothing is imported here but what every Python has: importing the commands takes most of a
second, and Ctrl-C must end the program without a traceback then, too.
"""

import signal
import threading


def main(arguments: list[str] | None = None) -> None:
    """Run a command and exit with its status; see commands/app.py."""
    quiet = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if quiet:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tabletune.commands.app import run_command

    if quiet:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run_command(arguments)


if __name__ == "__main__":
    main()
