"""Owns the rewriting of a parsed chat template so that its loops are counted and what it names is weighed."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer

from turnscript.engine.template.sandbox import CHEAP, CHECKED, COUNTED, WEIGHED

_GROWTH = 16
"""An expression may be as many times as large as what it is made of before it is looked at."""
_OPERATIONS = 32
"""So many operations are done between two looks at the clock."""
_MADE_OF_MANY = (nodes.Add, nodes.Concat)
_ONE_OF_MANY = (nodes.CondExpr, nodes.And, nodes.Or, nodes.Filter)
_OPERATION = (nodes.BinExpr, nodes.Compare, nodes.Concat, nodes.Filter, nodes.Test)
_SCALAR = (nodes.Const, nodes.TemplateData, nodes.Compare, nodes.Not, nodes.Test, nodes.NSRef)
_PART = (nodes.Getattr, nodes.Getitem)


_NODES = 12_000
"""Of a template: nine times as many as the largest one that is known has."""
_DEEP = 120
"""Nodes within nodes: four times as many. jinja2 takes the square of it to compile a template."""


class Bounds(NodeTransformer):
    """Rewrites one template. Each node is visited once, members before what they are in."""

    def __init__(self) -> None:
        self._growth: dict[int, int] = {}
        # Nodes are held, so that no other one gets the identity of one that is gone.
        self._held: list[nodes.Node] = []
        self._operations = self._nodes = self._depth = 0

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        self._nodes += 1
        self._depth += 1
        if self._nodes > _NODES or self._depth > _DEEP:
            raise ValueError("it is too large" if self._nodes > _NODES else "it is nested too deeply")
        found = super().visit(node, *args, **kwargs)
        self._depth -= 1
        return self._bounded(found) if isinstance(found, nodes.Expr) else found

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 (jinja2 finds it by this name)
        self.generic_visit(node)
        node.iter = _wrapped(_weighed(node.iter), COUNTED)
        return node

    def visit_Assign(self, node: nodes.Assign) -> nodes.Node:  # noqa: N802
        node.node = _weighed(self.visit(node.node))
        return node

    def visit_With(self, node: nodes.With) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.values = [_weighed(value) for value in node.values]
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.defaults = [_weighed(value) for value in node.defaults]
        return node

    def visit_Call(self, node: nodes.Call) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.args = [_weighed(value) for value in node.args]
        for keyword in node.kwargs:
            keyword.value = _weighed(keyword.value)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        while sum(self._growth.get(id(part), 1) for part in node.nodes) > _GROWTH < len(node.nodes):
            groups = [node.nodes[start : start + _GROWTH] for start in range(0, len(node.nodes), _GROWTH)]
            node.nodes = [_wrapped(nodes.Concat(group, lineno=node.lineno), CHECKED) for group in groups]
        return node

    def visit_FilterBlock(self, node: nodes.FilterBlock) -> nodes.Node:  # noqa: N802
        node.body = [self.visit(one) for one in node.body]
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.Node:  # noqa: N802
        node.body = [self.visit(one) for one in node.body]
        return node

    def _bounded(self, node: nodes.Expr) -> nodes.Expr:
        if not isinstance(node, _OPERATION + _ONE_OF_MANY):
            return node
        parts = [self._growth.get(id(part), 1) for part in node.iter_child_nodes()]
        if isinstance(node, _MADE_OF_MANY):
            growth = sum(parts)
        elif isinstance(node, _ONE_OF_MANY):
            growth = max(parts, default=1)
        else:
            growth = 1
        self._operations += max(len(parts) - 1, 1)
        if growth > _GROWTH or (self._operations > _OPERATIONS and isinstance(node, _OPERATION)):
            self._operations = 0
            return _wrapped(node, CHECKED)
        self._held.append(node)
        self._growth[id(node)] = growth
        return node


def _weighed(node: Any) -> Any:
    return node if _plain(node) else _wrapped(node, WEIGHED)


def _plain(node: nodes.Node) -> bool:
    """Tell that a value is a part of what was weighed before, or so small that it need not be."""
    if isinstance(node, nodes.Name):
        return node.name not in ("varargs", "kwargs")
    if isinstance(node, _PART):
        return _plain(node.node)
    if isinstance(node, (nodes.CondExpr, nodes.And, nodes.Or)):
        return all(_plain(one) for one in node.iter_child_nodes())
    if isinstance(node, nodes.Filter):
        return node.name in CHEAP and all(_plain(one) for one in node.iter_child_nodes())
    if isinstance(node, (nodes.List, nodes.Tuple, nodes.Dict)):
        return all(isinstance(one, nodes.Const) for one in node.iter_child_nodes())
    return isinstance(node, _SCALAR)


def _wrapped(node: Any, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
