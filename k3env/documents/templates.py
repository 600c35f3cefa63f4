"""Templates: Jinja2 in values, over variables that are read when they are needed.

A value that is exactly one `{{ expression }}` keeps the expression's type; anything else becomes text. A variable
may refer to others. Only text that a person wrote is rendered, never text from a node.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional

from k3env.documents import bounds, limits
from k3env.documents.nodes import Literal, Node, Position, Text, Vaulted, described, problem
from k3env.errors import DocumentError, nearest
from k3env.protocol.secret import Secret

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

MISSING = object()
"""What Scope.raw returns for a name that no source defines."""

MAX_DEPTH = 50
"""Variables that refer to one another in a row."""
LARGEST = f"at most {bounds.MAX_SIZE >> 20} MiB"

_MARKS = ("{{", "{%", "{#")
_NAME_ALONE = re.compile(r"\{\{ *([A-Za-z_][A-Za-z0-9_]*) *\}\}")
_WORDS = ("none", "true", "false", "not", "and", "or", "in", "is", "if", "else", "self", "loop")
_SCOPE = "(scope)"  # no name of Jinja's grammar, so no template can read it


class UndefinedVariable(DocumentError):
    """A template names a variable that no source defines; `default` and `is defined` allow for it."""


class UnfitValue(Exception):
    """A template gives something that no document can hold."""


def is_template(node: Node) -> bool:
    """Return whether a value, or a value within it, is to be rendered."""
    if isinstance(node.content, dict):
        return any(is_template(item) for item in node.content.values())
    if isinstance(node.content, list):
        return any(is_template(item) for item in node.content)
    return isinstance(node.content, Vaulted) or _has_marks(node.content)


def is_alone(node: Node) -> bool:
    """Return whether a value is one `{{ name }}` and nothing else."""
    return isinstance(node.content, str) and _has_marks(node.content) and bool(_NAME_ALONE.fullmatch(node.content))


def names_in(node: Node) -> tuple[str, ...]:
    """Return the names that the templates of a value, and of what is within it, ask for."""
    from jinja2 import TemplateSyntaxError, meta

    content = node.content
    if isinstance(content, (dict, list)):
        within = content.values() if isinstance(content, dict) else content
        return tuple(dict.fromkeys(name for item in within for name in names_in(item)))
    if not _has_marks(content):
        return ()
    try:
        return tuple(sorted(meta.find_undeclared_variables(_environment().parse(content))))
    except TemplateSyntaxError:
        return ()


def _has_marks(content: Any) -> bool:
    return isinstance(content, str) and type(content) is not Literal and any(mark in content for mark in _MARKS)


class Scope:
    """The variables that templates see. Values are rendered once, when they are first asked for."""

    def __init__(
        self,
        variables: Mapping[str, Node],
        remedies: Optional[Mapping[str, str]] = None,
        values: Optional[Mapping[str, Any]] = None,
    ) -> None:
        """`remedies` says what to do about a missing name; `values` are variables that are rendered already."""
        self.used: dict[str, object] = {}
        """Each name that was asked for, with its node or MISSING."""
        self._variables = variables
        self._remedies = remedies or {}
        self._values: dict[str, Any] = dict(values or {})
        self._path: list[str] = []

    def raw(self, name: str) -> object:
        """Return a variable's node as it was written, or MISSING."""
        return self._variables.get(name, MISSING)

    def get(self, name: str) -> Any:
        """Return a variable's value, or MISSING.

        Raises DocumentError where it stands when it can't be rendered or refers to itself.
        """
        if name in self._values:
            return self._values[name]
        node = self._variables.get(name)
        self.used[name] = MISSING if node is None else node
        if node is None:
            return MISSING
        if name in self._path:
            circle = " -> ".join([*self._path[self._path.index(name) :], name])
            raise problem(node, f"the variable {name} refers to itself", expected="no circle", found=circle)
        if len(self._path) >= MAX_DEPTH:
            expected = f"at most {MAX_DEPTH} variables that refer to one another"
            raise problem(node, f"the variable {name} is reached through too many others", expected=expected)
        self._path.append(name)
        try:
            value = self.render(node)
            bounds.Size().measure(value)
            self._values[name] = value
        except RecursionError:
            raise problem(node, f"the variable {name} is too deeply nested", expected="fewer levels") from None
        except bounds.TooLarge as error:
            raise problem(node, f"the variable {name} is too large: {error}", expected=LARGEST) from None
        finally:
            self._path.pop()
        return self._values[name]

    def render(self, node: Node) -> Any:
        """Return the plain value of a node, its templates rendered and `{secret: …}` made a Secret.

        Raises DocumentError where the template stands.
        """
        content = node.content
        if isinstance(content, dict):
            if set(content) == {"secret"}:
                return _secret(content["secret"])
            return {key: self.render(item) for key, item in content.items()}
        if isinstance(content, list):
            return [self.render(item) for item in content]
        if isinstance(content, Vaulted):
            remedy = "refer to the secret, {secret: file:PATH} or {secret: env:NAME}"
            raise problem(node, "this value is encrypted by ansible-vault, and is not read", remedy=remedy)
        if not _has_marks(content):
            return str(content) if isinstance(content, Literal) else content
        alone = _NAME_ALONE.fullmatch(content)
        if alone and alone[1].lower() not in _WORDS:
            return self._named(node, alone[1])
        value = self._evaluate(node, _compiled, content)
        return Text(value) if isinstance(content, Text) and type(value) is str else value

    def render_file(self, text: str, source: str) -> str:
        """Return a whole file of text, rendered: a line that holds nothing but a statement leaves none behind.

        Raises DocumentError at the line of the file.
        """
        from jinja2 import TemplateSyntaxError

        node = Node(text, Position(source, 1, 1))
        try:
            return str(self._evaluate(node, _file, text))
        except DocumentError as error:
            cause, found = error.__context__, error.finding
            line = cause.lineno if isinstance(cause, TemplateSyntaxError) else _line(cause)
            if found.subject != str(node.position) or line is None:
                raise
            raise type(error)(
                found.message,
                subject=str(Position(source, line, 1)),
                expected=found.expected,
                found=described((text.splitlines() or [""])[min(line, text.count("\n") + 1) - 1].strip()),
                remedy=found.remedy,
            ) from None

    def _named(self, node: Node, name: str) -> Any:
        """Return a variable's value without Jinja, whose import and compiler cost more than the rest of a play."""
        value = self.get(name)
        if value is MISSING:
            raise self._undefined(node, f"'{name}' is undefined")
        return value

    def holds(self, condition: Node) -> bool:
        """Return the truth of a `when` expression, or of all expressions of a list.

        Raises DocumentError for an expression that is neither true nor false.
        """
        return all(self._holds(item) for item in condition.entries("a condition"))

    def _holds(self, condition: Node) -> bool:
        if isinstance(condition.content, bool):
            return condition.content
        source = condition.text("a condition")
        if any(mark in source for mark in _MARKS):
            raise problem(
                condition,
                "a condition is an expression, without braces",
                found=source,
                remedy=f"write {source.strip('{% }')}",
            )
        value = self._evaluate(condition, _expression, source)
        value = value.parsed() if isinstance(value, Text) else value
        if not isinstance(value, bool):
            raise problem(
                condition,
                f"the condition {source} is neither true nor false",
                expected="true or false",
                found=described(value),
                remedy='compare: "x is defined", "x is not none", "x | length > 0", "x == 1"',
            )
        return value

    def _evaluate(self, node: Node, compiler: Callable[[str], Callable[[Scope], Any]], source: str) -> Any:
        from jinja2 import TemplateSyntaxError, UndefinedError

        try:
            with limits.limited():
                return _fit(compiler(source)(self), bounds.Size())
        except DocumentError:
            raise
        except UndefinedError as error:
            raise self._undefined(node, str(error)) from None
        except TemplateSyntaxError as error:
            raise problem(node, f"this is no template: {error.message}", found=described(source)) from None
        except MemoryError:
            raise problem(node, f"the expression fails: {bounds.TooLarge()}", found=described(source)) from None
        except Exception as error:  # an expression can raise whatever its operators and filters raise
            text = str(error) or type(error).__name__
            raise problem(node, f"the expression fails: {text}", found=described(source)) from None

    def _undefined(self, node: Node, message: str) -> DocumentError:
        name = message.split("'")[1] if message.startswith("'") and message.endswith("is undefined") else ""
        if not name or self.raw(name) is not MISSING:
            return UndefinedVariable(message, subject=str(node.position))
        meant = nearest(name, list(self._variables))
        remedy = self._remedies.get(name) or (f"did you mean {meant}?" if meant else "define it, or use default(…)")
        return UndefinedVariable(
            f"the variable {name} is not defined",
            subject=str(node.position),
            expected=f"a value for {name} in the inventory, the play or --extra-vars",
            remedy=remedy,
        )


def _secret(node: Node) -> Secret:
    reference = node.text("a secret")
    kind, _, rest = reference.partition(":")
    if reference == "prompt" or (kind in ("env", "file") and rest):
        return Secret(reference)
    meant = nearest(kind, ("env", "file", "prompt"))
    raise problem(
        node,
        "this refers to no secret",
        expected="env:NAME, file:PATH or prompt",
        found=described(kind),
        remedy=f"did you mean {meant}?" if meant else "write where the secret is kept, never the secret itself",
    )


def _fit(value: Any, size: bounds.Size) -> Any:
    """Return a value made of the types of JSON, and Secret.

    Raises UnfitValue for anything else, TooLarge for too much of it, UndefinedError for an undefined part.
    """
    from jinja2 import StrictUndefined, Undefined

    size.add(value)
    if isinstance(value, StrictUndefined):
        return str(value)  # which raises
    if isinstance(value, Undefined):
        return None  # Jinja's value of an if without else
    if isinstance(value, int) and not isinstance(value, bool):
        return bounds.number(value)
    if isinstance(value, str):
        return _fit_text(value)
    if value is None or isinstance(value, (bool, float, Secret)):
        return value
    if isinstance(value, Mapping):
        return {_fit_key(key, size): _fit(item, size) for key, item in value.items()}
    if isinstance(value, (list, tuple, range, types.GeneratorType)):
        return [_fit(item, size) for item in value]
    raise UnfitValue(f"it gives a {type(value).__name__}, not a value")


def _fit_key(key: Any, size: bounds.Size) -> str:
    if isinstance(key, str):
        size.add(key)
        return _fit_text(key)
    raise UnfitValue(f"it gives a mapping with the key {key!r}, which is not text")


def _fit_text(text: str) -> str:
    """Return a text that can be passed on: to no file and no program can a NUL or half a character be given."""
    if "\0" in text or (not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text)):
        raise UnfitValue("it gives text with a NUL or half a character")
    return text


def _into_text(value: Any) -> Any:
    """Let a value into text, unless the text would be wrong in silence."""
    if value is None:
        raise UnfitValue("null can't stand within text; use default('…', true) or an if with else")
    if isinstance(value, Secret):
        raise UnfitValue("a secret can't stand within other text; let it be the whole value")
    _refuse_in_text(value)
    return value


def _refuse_in_text(value: Any) -> None:
    """Refuse what has no text of its own, such as a method, and a secret within a list or a mapping."""
    from jinja2 import Undefined

    if isinstance(value, Secret):
        raise UnfitValue("a secret can't stand within other text; let it be the whole value")
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_in_text(key)
            _refuse_in_text(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _refuse_in_text(item)
    elif value is not None and not isinstance(value, (str, int, float, range, Undefined)):
        remedy = "; write | list behind it" if isinstance(value, types.GeneratorType) else ""
        raise UnfitValue(f"a {type(value).__name__} can't stand within text{remedy}")


@functools.cache
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2 import StrictUndefined
    from jinja2.runtime import Context
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import missing

    class Lookup(Context):
        """Asks the scope for names. Jinja asks for all names of a template, also those of a branch not taken."""

        def resolve_or_missing(self, key: str) -> Any:
            if key in self.vars:
                return self.vars[key]
            try:
                value = self.parent[_SCOPE].get(key)
            except UndefinedVariable as error:
                later = error
                return StrictUndefined(name=key, exc=lambda _message: later)  # type: ignore[arg-type]
            if value is not MISSING:
                return value
            return self.parent[key] if key in self.environment.globals else missing

    class Bounded(ImmutableSandboxedEnvironment):
        """Refuses what would make too much of a little."""

        intercepted_binops = frozenset(("**", "*", "%", "+"))

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            return bounds.operate(operator, left, right, self.binop_table[operator])

        def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
            bounds.called(__obj, args, kwargs)
            return super().call(__context, __obj, *args, **kwargs)

    environment = Bounded(undefined=StrictUndefined, finalize=_into_text, keep_trailing_newline=True, autoescape=False)
    environment.context_class = Lookup
    filters = environment.filters
    environment.filters |= {
        "center": _bounded(filters["center"], lambda text, width=80: bounds.width(1, width)),
        "indent": _bounded(
            filters["indent"], lambda text, width=4, *_, **__: bounds.replaced(text, "\n", _indent(width))
        ),
        "format": _bounded(filters["format"], lambda text, *args, **named: bounds.formatted(text, args, named)),
        "sum": _bounded(filters["sum"], lambda _env, items, attribute=None, start=0: bounds.summed(start)),
        "replace": _bounded(filters["replace"], lambda _eval, text, old, new, *_: bounds.replaced(text, old, new)),
    }
    # Equal input gives equal plans: nothing random.
    del environment.globals["lipsum"], environment.filters["random"]
    return environment


def _bounded(function: Callable[..., Any], refuse: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(function)
    def bounded(*args: Any, **named: Any) -> Any:
        refuse(*args, **named)
        return function(*args, **named)

    return bounded


def _indent(width: Any) -> str:
    bounds.width(1, width)
    return " " * width if isinstance(width, int) else str(width)


def _text(template: Template, scope: Scope) -> str:
    """Return what a template gives, which is given up when it gets too large."""
    size, parts = bounds.Size(), []
    for part in template.generate({_SCOPE: scope}):
        size.add(part)
        parts.append(part)
    return "".join(parts)


@functools.lru_cache(maxsize=4096)
def _compiled(source: str) -> Callable[[Scope], Any]:
    expression = _sole_expression(source)
    if expression is not None:
        return _expression(expression)
    template = _environment().from_string(source)
    return lambda scope: _text(template, scope)


@functools.lru_cache(maxsize=64)
def _file(source: str) -> Callable[[Scope], Any]:
    template = _environment().overlay(trim_blocks=True).from_string(source)
    return lambda scope: _text(template, scope)


def _line(error: Optional[BaseException]) -> Optional[int]:
    """Return the line of a template that an error came from, as Jinja rewrites its trace."""
    at, found = error.__traceback__ if error is not None else None, None
    while at is not None:
        found = at.tb_lineno if at.tb_frame.f_code.co_filename in ("<template>", "<unknown>") else found
        at = at.tb_next
    return found


@functools.lru_cache(maxsize=4096)
def _expression(source: str) -> Callable[[Scope], Any]:
    evaluate = _environment().compile_expression(source, undefined_to_none=False)
    return lambda scope: evaluate({_SCOPE: scope})


def _sole_expression(source: str) -> Optional[str]:
    """Return the expression of a template that consists of one `{{ expression }}` and nothing else."""
    from jinja2 import nodes

    if not (source.startswith("{{") and source.endswith("}}")):
        return None
    body = _environment().parse(source).body
    if len(body) != 1 or not isinstance(body[0], nodes.Output) or len(body[0].nodes) != 1:
        return None
    return source[2:-2].removeprefix("-").removeprefix("+").removesuffix("-").removesuffix("+")
