from .exceptions import BadInput as BadInput
from .exceptions import DeviceLost as DeviceLost
from .exceptions import Error as Error
from .exceptions import JobFailed as JobFailed
from .exceptions import NotCompiled as NotCompiled
from .exceptions import WrongUsage as WrongUsage
from .llm import LLM as LLM
from .llm import Answer as Answer
from .llm import Stream as Stream

__version__: str
