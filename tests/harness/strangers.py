"""What somebody may name as an implementation although it is none, or declares what cannot be."""

from abc import ABC, abstractmethod

from harness.adapters.dense import Dense
from harness.implementation import Implementation


def factory():
    return Dense()


def forgetful():
    return None


def failing():
    raise RuntimeError("no device\nat all")


class Plain:
    pass


class Abstract(Dense, ABC):
    @abstractmethod
    def kernel_of(self, case): ...


class Unmakeable(Dense):
    def __init__(self):
        raise OSError("no license")


class Needy(Dense):
    def __init__(self, depth):
        self.depth = depth


class Bare(Implementation):
    pass


class LayoutAlone(Implementation):
    def layout(self, case, world):
        return []


class Outer:
    class Inner(Dense):
        pass


class Unreadable(Dense):
    @property
    def variants(self):
        raise KeyError("variants")


def declaring(**attributes):
    return type("Declaring", (Dense,), attributes)


Bogus = declaring(variants=frozenset({"window.bogus"}))
Word = declaring(variants="window.inclusive")
Listed = declaring(variants=["window.inclusive"])
Numbered = declaring(variants=frozenset({7}))
Several = declaring(variants={"dead.undefined", "window.inclusive"})
Nameless = declaring(name=7)
Perhaps = declaring(deterministic="yes")
Threaded = declaring(in_process=1)
Kernels = declaring(kernels="fa4")
Kernel = declaring(kernel=4)
Layout = declaring(own_layout=True)
