"""The grammar of the command line: nouns with their short names, options that may be anywhere, help with examples.

Owns the way from what a user types to the form in which the commands are declared. `canonical` rewrites the words of a
command line before they are parsed, so no command knows of it:

- `get co`, `get connector`, `get connector/orders` are `get connectors`, with `orders` as its argument;
- `topic list`, `contexts list` are `topics list`, `context list`;
- `pause connector orders`, `pause co/orders` are `pause orders`; `restart task orders/0` is `restart orders --task 0`;
- an option that many commands have (`--herder`, `-o`, ...) may stand before the command; one of the whole program
  (`--no-headers`, `--context`, ...) may stand anywhere.

Does not parse values. Invariant: words that are in declared form already are not changed, and nothing after `--` is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from herdmesh.cli.examples import EXAMPLES, examples_text, group_examples_text

#: Every kind of object: singular, plural, short name.
NOUNS: Final[dict[str, tuple[str, str, str]]] = {
    "connector": ("connector", "connectors", "co"),
    "task": ("task", "tasks", "ta"),
    "worker": ("worker", "workers", "wo"),
    "plugin": ("plugin", "plugins", "pl"),
    "topic": ("topic", "topics", "to"),
    "logger": ("logger", "loggers", "lo"),
}
#: Options of single commands that may stand before the command.
_MOVED: Final = frozenset(
    {"--herder", "-o", "--output", "--config-store", "--status-store", "--bootstrap-servers", "--command-config"}
)
#: Groups that are named by a noun: its other forms.
_GROUP_FORMS: Final = {
    "topic": "topics",
    "to": "topics",
    "plugins": "plugin",
    "contexts": "context",
    "examples": "example",
    "offset": "offsets",
}
#: Groups whose commands are nouns.
_OF_NOUNS: Final = frozenset({"get", "describe", "drain", "undrain", "logs"})
#: Groups whose commands take a connector's name first, as most commands that are in no group do.
_OF_CONNECTORS: Final = frozenset({"dlq", "offsets"})


#: Sections of `herd -h`, and their commands.
_SECTIONS: Final = {
    "Begin": ("up", "down", "run", "demo", "example", "paths", "version", "help"),
    "Look": ("get", "describe", "watch", "doctor", "logs", "events", "top", "history"),
    "Change connectors": ("apply", "create", "patch", "edit", "restore", "delete"),
    "Check before a change": ("validate", "plan", "diff", "transform"),
    "Run and stop": ("pause", "resume", "stop", "restart", "drain", "undrain", "set-logger"),
    "Topics, records, offsets": ("topics", "produce", "consume", "dlq", "offsets"),
    "Set up": ("context", "plugin"),
}
#: A line's end within a sentence: rich would print it.
_IN_SENTENCE: Final = re.compile(r"(?<!\n)\n(?=[\w`])")
_SECTION_OF: Final = {name: section for section, names in _SECTIONS.items() for name in names}
#: Options that may stand alone, with the value that they then have; another value needs the equals sign.
_ALONE: Final = {"--wait": "--wait=ready", "--dry-run": "--dry-run=server"}


class HerdCommand(TyperCommand):
    """A command whose help names the kinds of values as a user writes them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.help = _IN_SENTENCE.sub(" ", self.help or "")
        _name_values(self.params)

    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_values(self.params, args))


class HerdGroup(TyperGroup):
    """A group of commands, with errors that list its nouns."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _name_values(self.params)

    def get_help_option(self, ctx: Any) -> Any:
        return _without_type(super().get_help_option(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if self.name in _OF_NOUNS and args and args[0] not in self.commands and not ctx.resilient_parsing:
            kinds = ", ".join(_kind_text(name) for name in self.commands)
            first = next(iter(self.commands))
            ctx.fail(f"{args[0]!r} is no kind of object. Kinds: {kinds}. Example: herd {self.name} {first} {args[0]}")
        return super().resolve_command(ctx, args)


class HerdRoot(HerdGroup):
    """`herd` itself: all words of a command line pass through here first."""

    def get_params(self, ctx: Any) -> Any:
        _name_values(self.params)  # typer adds the options of completion once the group is made
        return super().get_params(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, canonical(self, args))


def prepare(app: typer.Typer, path: tuple[str, ...] = ()) -> None:
    """Give every command below an application this grammar's class, and examples to it and to every group."""
    app.info.epilog = group_examples_text(path)
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        command.cls = HerdCommand
        command.epilog = _with_examples(command.epilog, (*path, name))
        if not path:
            command.rich_help_panel = _SECTION_OF[name]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        group.cls = HerdGroup
        if not path:
            group.rich_help_panel = _SECTION_OF[str(group.name)]
        prepare(group.typer_instance, (*path, str(group.name)))


def _with_examples(epilog: str | None, path: tuple[str, ...]) -> str | None:
    parts = [epilog or "", examples_text(path) if path in EXAMPLES else ""]
    return "\n\n".join(filter(None, parts)) or None


def with_values(params: Sequence[Any], args: Sequence[str]) -> list[str]:
    """The words of a command with the value of each option that stands alone though it takes one."""
    flags = {name for one in params if getattr(one, "is_flag", False) for name in one.opts}
    end = list(args).index("--") if "--" in args else len(args)
    return [*(_ALONE[one] if one in _ALONE and one not in flags else one for one in args[:end]), *args[end:]]


def canonical(root: TyperGroup, args: Sequence[str]) -> list[str]:
    """The words of a command line in the form in which the commands are declared."""
    words = list(args)
    of_root: list[str] = []
    moved: list[str] = []
    done: list[str] = []
    group, path, at = root, list[str](), 0
    while at < len(words) and words[at] != "--":
        word = words[at]
        if _is_option(word):
            count = _words_of_option(word, (*root.params, *group.params), _MOVED)
            taken = words[at : at + count]
            (of_root if _names_one(word, _root_options(root)) else moved if _names_one(word, _MOVED) else done).extend(
                taken
            )
            at += count
            continue
        name, rest = _named(group, word, noun=bool(path) and path[-1] in _OF_NOUNS)
        if name is None:
            break
        at += 1
        words[at:at] = rest
        path.append(name)
        done.append(name)
        command = group.commands[name]
        if not isinstance(command, TyperGroup):
            of_leaf = list(_without_root_options(root, command, words[at:], of_root))
            return [*of_root, *done, *moved, *_without_nouns(path, command, of_leaf)]
        group = command
    return [*of_root, *done, *words[at:]]


def _named(group: TyperGroup, word: str, *, noun: bool) -> tuple[str | None, list[str]]:
    """The declared name of a command, and the word that is left of `connector/orders`."""
    if word in group.commands:
        return word, []
    if not noun:
        other = _GROUP_FORMS.get(word)
        return (other, []) if other in group.commands else (None, [])
    form, slash, rest = word.partition("/")
    for forms in NOUNS.values():
        if form in forms:
            for name in forms:
                if name in group.commands:
                    return name, [rest] if slash else []
    return None, []


def _without_root_options(root: TyperGroup, command: Any, words: Sequence[str], of_root: list[str]) -> Iterator[str]:
    """The words of a command without the options of the whole program, which are added to `of_root`."""
    known = _root_options(root) - _options(command.params).keys()
    at = 0
    while at < len(words):
        if words[at] == "--":
            yield from words[at:]
            return
        count = _words_of_option(words[at], (*command.params, *root.params), frozenset())
        if _is_option(words[at]) and _names_one(words[at], known):
            of_root += words[at : at + count]
        else:
            yield from words[at : at + count]
        at += count


def _without_nouns(path: Sequence[str], command: Any, words: list[str]) -> list[str]:
    """The words of a command without the noun before its names: `connector orders`, `co/orders`, `task orders/0`."""
    noun = _noun_of(path, command)
    places = list(_places(command, words))
    if noun is None or not places:
        return words
    first = words[places[0]]
    if path == ["restart"] and (first in NOUNS["task"] or first.partition("/")[0] in NOUNS["task"]):
        return _of_task(words, places)
    if first in NOUNS[noun] and len(places) > 1:
        del words[places[0]]
        places = list(_places(command, words))
    many = any(one.param_type_name == "argument" and one.name == "names" for one in command.params)
    for place in places if many else places[:1]:
        form, slash, name = words[place].partition("/")
        if slash and name and form in NOUNS[noun]:
            words[place] = name
    return words


def _of_task(words: list[str], places: Sequence[int]) -> list[str]:
    """`restart task orders/0` -> `restart orders --task 0`; left as it is when no task is named."""
    separate = words[places[0]] in NOUNS["task"]
    if separate and len(places) < 2:
        return words
    place = places[1] if separate else places[0]
    named = words[place] if separate else words[place].partition("/")[2]
    connector, slash, number = named.rpartition("/")
    if not slash or not connector:
        return words
    words[place : place + 1] = [connector, "--task", number]
    if separate:
        del words[places[0]]
    return words


def _noun_of(path: Sequence[str], command: Any) -> str | None:
    """The kind of object that a command's first argument names."""
    first = next((one.name for one in command.params if one.param_type_name == "argument"), None)
    if path[0] in _OF_NOUNS and path[-1] not in NOUNS["topic"]:
        return next((noun for noun, forms in NOUNS.items() if path[-1] in forms), None)
    named = first in ("name", "names")
    return "connector" if named and (len(path) == 1 or path[0] in _OF_CONNECTORS or path[0] == "get") else None


def _places(command: Any, words: Sequence[str]) -> Iterator[int]:
    """The places of words that are no options and no values of options."""
    at = 0
    while at < len(words) and words[at] != "--":
        if _is_option(words[at]):
            at += _words_of_option(words[at], command.params, frozenset())
        else:
            yield at
            at += 1


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-"


def _words_of_option(word: str, params: Sequence[Any], with_value: frozenset[str]) -> int:
    """1, or 2 where the next word is the option's value."""
    if word in _ALONE:
        return 1
    options = _options(params) | dict.fromkeys(with_value, True)
    if word.startswith("--"):
        return 1 if "=" in word or not options.get(word, False) else 2
    for at, letter in enumerate(word[1:], 1):
        if options.get(f"-{letter}", False):
            return 2 if at == len(word) - 1 else 1
    return 1


def _options(params: Sequence[Any]) -> dict[str, bool]:
    """Each spelling of an option, and whether a value follows it."""
    return {
        spelling: not (one.is_flag or one.count)
        for one in params
        if one.param_type_name == "option"
        for spelling in (*one.opts, *one.secondary_opts)
    }


def _names_one(word: str, options: frozenset[str] | set[str]) -> bool:
    return word.partition("=")[0] in options if word.startswith("--") else word[:2] in options


def _root_options(root: TyperGroup) -> set[str]:
    """The options of the whole program that may stand anywhere."""
    return {one for one in _options(root.params) if one.startswith("--")} - _MOVED


def _kind_text(name: str) -> str:
    forms = next((forms for forms in NOUNS.values() if name in forms), None)
    return f"{name} ({forms[2]})" if forms else name


def _name_values(params: Sequence[Any]) -> None:
    """Name each option's value by the option where its author gave no name; a flag has no value.

    An argument's name says its type. typer writes the brackets of one that is not required.
    """
    for one in params:
        if one.param_type_name == "argument":
            one.display_type_rich = _no_type
            if not one.required and one.metavar and one.metavar.startswith("["):
                one.metavar = one.metavar.removesuffix("...")[1:-1]
        elif one.metavar is not None:
            continue
        elif one.is_flag or one.count:
            one.metavar = ""
        elif choices := getattr(getattr(one, "type_descriptor", None), "choices", None):
            one.metavar = "|".join(str(getattr(choice, "value", choice)) for choice in choices)
        else:
            one.metavar = max(one.opts, key=len).lstrip("-").upper()


def _no_type(ctx: Any) -> str:
    return ""


def _without_type(option: Any) -> Any:
    if option is not None:
        option.metavar = ""
    return option
