"""What goes wrong with `LLM`, in the words of the program."""


class Error(Exception):
    """Any of them."""


class JobFailed(Error):
    """The input is fine, but it could not be done here."""


class WrongUsage(Error, ValueError):
    """An argument is wrong."""


class BadInput(Error, ValueError):
    """A file, text or token that was given is wrong."""


class DeviceLost(Error):
    """A GPU failed and is of no use to this process any more."""


class NotCompiled(BadInput):
    """What was to be loaded is no package."""


# By the status of the C API, which is also the program's exit code.
BY_STATUS = {1: JobFailed, 2: WrongUsage, 3: BadInput, 4: DeviceLost, 5: NotCompiled}
