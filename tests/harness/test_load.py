"""Whatever --impl names: an implementation, or one clear line why it is none."""

import pytest

from harness.implementation import Implementation, load

HERE = "tests.harness.strangers"


@pytest.mark.parametrize(("spec", "name"), [
    (f"{HERE}:factory", "dense"), (f"{HERE}:Outer.Inner", "dense"), (f"{HERE}:Several", "dense"), ("ring", "ring"),
    ("ring:reference", "ring:reference"),
])
def test_what_is_one_loads(spec, name):
    if spec == "ring:reference":
        spec = name = f"ring:{load('ring').kernels[0]}"
    made = load(spec)
    assert isinstance(made, Implementation) and made.name == name


@pytest.mark.parametrize(("spec", "words"), [
    ("os:path", "is a module, not a harness.implementation.Implementation"),
    ("os:getcwd", "is a builtin_function_or_method, not"),
    ("os:_exit", "is a builtin_function_or_method, not"),
    ("os:no_such", "module os has no 'no_such'"),
    ("os:path.no_such", "module os.path has no 'no_such'"),
    ("os:environ", "is a _Environ, not"),
    ("os:", "lacks the name: package.module:name"),
    (":name", "lacks the module: package.module:name"),
    (":", "lacks the module"),
    ("nowhere", "unknown implementation 'nowhere'"),
    ("no.such.module:x", "no module named 'no'"),
    ("dir/file.py:X", "no module named 'dir/file'"),
    (".relative:X", "cannot be imported: TypeError"),
    ("ring:", "ring has no kernel ''"),
    ("dense:x", "dense has no kernel 'x': it has none to choose from"),
    ("sabotage:", "unknown fault ''"),
    ("mutant:", "mutant"),
    ("tests.harness.broken:X", "cannot be imported: RuntimeError: no such driver in <module> (broken.py:3)"),
    (f"{HERE}:Plain", "is the class Plain, not"),
    (f"{HERE}:Outer", "is the class Outer, not"),
    (f"{HERE}:forgetful", "makes a NoneType, not"),
    (f"{HERE}:failing", "failing() raised RuntimeError: no device at all in failing (strangers.py:"),
    (f"{HERE}:declaring", "makes a type, not"),
    (f"{HERE}:Unmakeable", "Unmakeable() raised OSError: no license in __init__ (strangers.py:"),
    (f"{HERE}:Abstract", "Abstract() raised TypeError: Can't instantiate abstract class Abstract"),
    (f"{HERE}:Needy", "missing 1 required positional argument: 'depth'"),
    (f"{HERE}:Bare", "Bare must override layout"),
    (f"{HERE}:LayoutAlone", "LayoutAlone must override load or open"),
    ("harness.implementation:Implementation", "must override layout"),
])
def test_what_is_none_is_one_line(spec, words):
    with pytest.raises(ValueError) as raised:
        load(spec)
    assert words in str(raised.value) and "\n" not in str(raised.value)
    assert "(implementation.py" not in str(raised.value)


@pytest.mark.parametrize(("name", "words"), [
    ("Bogus", "it declares the unknown variant 'window.bogus': known are dead.singleton, dead.undefined, "),
    ("Numbered", "it declares the unknown variant 7"),
    ("Word", "its variants are 'window.inclusive', expected a frozenset of names"),
    ("Listed", "its variants are ['window.inclusive'], expected a frozenset"),
    ("Unreadable", "what it declares raises KeyError"),
    ("Nameless", "its name is 7, expected a string"),
    ("Perhaps", "its deterministic is 'yes', expected True or False"),
    ("Threaded", "its in_process is 1, expected True or False"),
    ("Kernels", "its kernels is 'fa4', expected a tuple of names"),
    ("Kernel", "its kernel is 4, expected a string or None"),
    ("Layout", "its own_layout is True, expected a string or None"),
])
def test_what_cannot_be_declared_is_one_line(name, words):
    with pytest.raises(ValueError) as raised:
        load(f"{HERE}:{name}")
    assert str(raised.value).startswith(f"implementation '{HERE}:{name}': {words}") and "\n" not in str(raised.value)
