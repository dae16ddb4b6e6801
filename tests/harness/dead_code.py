"""Finds code that nothing uses: definitions whose name is mentioned nowhere else in the same sources.

It looks at the functions, classes and constants of modules, and at the methods and constants of classes. Annotated
fields of classes are left out: they are data that is sent to others, who read them.

A bare name is followed through the imports of its file to the module that defines it. A name after a dot is not
followed, since that would need a type checker: it counts as a use of every definition of that name. So the finder may
miss a dead method that has the name of one that is called, but it reports nothing that is used. An import alone is not
a use, nor is `__all__`, a mention within the definition itself, or a mention in other dead code.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

# Decorators that register a function with a library, which then calls it.
REGISTERING = frozenset({"command", "group", "rule", "invariant", "initialize", "fixture"})


class Definition(NamedTuple):
    module: str
    owner: str
    name: str
    first_line: int
    last_line: int

    def __str__(self) -> str:
        return ".".join(filter(None, (self.module, self.owner, self.name)))


class Use(NamedTuple):
    """A use of a name that is defined in a module; if `defined_in` is empty, a use of everything with this name."""

    defined_in: str
    name: str
    module: str
    line: int


def dead(sources: Mapping[str, str], spared: Collection[str] = ()) -> list[str]:
    """The definitions that nothing uses, and those that only such definitions use. `sources` are modules by name.

    `spared` are dotted names, such as `package.module.Class`: they and everything within them count as used.
    """
    trees = {module: ast.parse(source) for module, source in sources.items()}
    definitions = [one for module, tree in trees.items() for one in _definitions(module, tree.body)]
    suspects = [one for one in definitions if not any(f"{one}.".startswith(f"{name}.") for name in spared)]
    uses = defaultdict[str, list[Use]](list)
    for use in _uses(trees, {(one.module, one.name) for one in definitions if not one.owner}):
        uses[use.name].append(use)
    found = defaultdict[str, list[Definition]](list)
    while True:
        unused = [one for one in suspects if not any(_is_alive(use, one, found) for use in uses[one.name])]
        if not unused:
            return sorted(str(one) for ones in found.values() for one in ones)
        for one in unused:
            found[one.module].append(one)
        suspects = [one for one in suspects if one not in found[one.module]]


def _is_alive(use: Use, definition: Definition, found: Mapping[str, Sequence[Definition]]) -> bool:
    """Whether this is a use of the definition, by something else that is not dead itself."""
    means_it = not use.defined_in or (use.defined_in == definition.module and not definition.owner)
    return means_it and not any(_within(use, one) for one in (definition, *found.get(use.module, ())))


def _within(use: Use, definition: Definition) -> bool:
    return use.module == definition.module and definition.first_line <= use.line <= definition.last_line


def _definitions(module: str, body: Sequence[ast.stmt], owner: str = "") -> Iterator[Definition]:
    for node in body:
        for name in _names_defined(node, owner):
            if not (name.startswith("__") and name.endswith("__")):
                yield Definition(module, owner, name, node.lineno, node.end_lineno or node.lineno)
        if isinstance(node, ast.ClassDef):
            yield from _definitions(module, node.body, node.name)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _definitions(module, node.body, owner)


def _names_defined(node: ast.stmt, owner: str) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [] if any(map(_registers, node.decorator_list)) else [node.name]
    if isinstance(node, ast.AnnAssign) and not owner:
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        named = (leaf for target in node.targets for leaf in ast.walk(target))
        return [leaf.id for leaf in named if isinstance(leaf, ast.Name) and isinstance(leaf.ctx, ast.Store)]
    return []


def _registers(decorator: ast.expr) -> bool:
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(named, ast.Attribute | ast.Name) and _last_name(named) in REGISTERING


def _last_name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def _uses(trees: Mapping[str, ast.Module], defined: set[tuple[str, str]]) -> list[Use]:
    imported = {module: dict(_imported(tree)) for module, tree in trees.items()}

    def home_of(module: str, name: str) -> str:
        """The module that defines what `name` means in `module`: itself, or one that it is imported from."""
        while (module, name) not in defined and name in imported.get(module, {}):
            module, name = imported[module][name]
        return module

    uses = []
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                uses.append(Use("", node.attr, module, node.lineno))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                name = imported[module].get(node.id, (module, node.id))[1]
                uses.append(Use(home_of(module, node.id), name, module, node.lineno))
    return uses


def _imported(tree: ast.Module) -> Iterator[tuple[str, tuple[str, str]]]:
    """What the names that a file imports are in the module that they come from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((alias.asname or alias.name, (node.module, alias.name)) for alias in node.names)
