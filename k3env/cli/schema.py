"""invoke schema: JSON Schemas of what people write, for editors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from k3env.cli.command import command
from k3env.cli.options import Option, parse_choice
from k3env.errors import UsageError

_OPTIONS = (
    Option("only", "print one to stdout: playbook, tasks, site, variables or run"),
    Option("directory", "where the files go (default: schema)", "schema"),
)


@command(*_OPTIONS)
def schema(**raw: Any) -> int:
    """Write the JSON Schemas of playbooks, site files and variables, for editors."""
    from k3env.playbook import schemas

    if raw["only"] is not None:
        name = parse_choice("only", str(raw["only"]), tuple(schemas.ALL))
        print(_text(schemas.ALL[name]()), end="")
        return 0
    directory = Path(str(raw["directory"]))
    for name, make in schemas.ALL.items():
        path = directory / f"k3env-{name}.json"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            path.write_text(_text(make()), encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"{path} can't be written: {error.strerror}",
                expected="a directory",
                found=str(directory),
                remedy="give another one: --directory DIR",
            ) from None
        print(path)
    print(f"in a playbook's first line: # yaml-language-server: $schema={directory}/k3env-playbook.json")
    return 0


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


TASKS = (schema,)
