"""Which optional packages are here; looked up once, and not imported by looking."""

from functools import cache
from importlib.util import find_spec


@cache
def missing(module: str) -> str | None:
    """A reason when `module` cannot be imported, None when it can."""
    package = module.partition(".")[0]
    found = find_spec(package) is not None and find_spec(module) is not None
    return None if found else f"needs the module {module}, which is not installed"
