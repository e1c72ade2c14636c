"""The ways a capture can fail, each with the exit code that the command line gives it."""


class CaptureError(Exception):
    """The model was read, but something in it cannot be captured."""

    exit_code = 1


class WrongUsage(CaptureError):
    """The command line makes no sense."""

    exit_code = 2


class BadInput(CaptureError):
    """The source itself is missing, broken or contradicts itself."""

    exit_code = 3


LIBRARIES = ("site-packages", "/agentcompile/", "<frozen", "/lib/python")


def first_line(error: BaseException) -> str:
    """An exception in one line: its type and the first line of its text that says anything."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def innermost_frame(error: BaseException) -> str:
    """The line that raised, whoever's it is (" at file.py:12")."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" at {trace.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}"


def user_frame(error: BaseException) -> str:
    """Where in the user's own code an exception came from (" at file.py:12"), or nothing."""
    place, trace = "", error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not any(part in file for part in LIBRARIES):
            place = f" at {file.rsplit('/', 1)[-1]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
