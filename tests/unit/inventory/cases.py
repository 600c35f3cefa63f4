"""Inventories that differ in kind, on which Ansible and we must agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Case:
    """The files of a site, and what is asked about them."""

    files: Mapping[str, str | bytes]
    sources: tuple[str, ...] = ("hosts.yml",)
    playbook_dir: str | None = None
    limit: str | None = None
    extra: tuple[str, ...] = field(default=())

    def write(self, top: Path) -> list[Path]:
        """Write the files, programs with a run bit; return the paths of the sources."""
        for name, content in self.files.items():
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            if path.read_bytes().startswith(b"#!"):
                path.chmod(0o700)
        return [top / source for source in self.sources]


def yaml(text: str | bytes, **options: object) -> Case:
    """Return the case of one file."""
    return Case({"hosts.yml": text}, **options)  # type: ignore[arg-type]


def printing(text: str) -> str:
    """Return a program that prints a text, whatever it is asked for."""
    return f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n"


FOUR_LEVELS = """\
all: {vars: {v: all, w: all, x: all, y: all, z: all}}
site:
  vars: {v: site, w: site, x: site, y: site}
  children:
    row:
      vars: {v: row, w: row, x: row}
      children:
        rack:
          vars: {v: rack, w: rack}
          hosts:
            h1: {v: host}
            h2:
"""

ODD_SCALARS = """\
all:
  hosts:
    h:
      bools: [yes, no, on, off, True, FALSE, y, n]
      octal: 0644
      decimal_with_zero: 0899
      new_octal: 0o17
      hexadecimal: 0x1F
      binary: 0b101
      base_60: 12:30:00
      base_60_float: 1:30.5
      scientific: 1e3
      scientific_float: 1.0e+3
      underscores: 1_000
      version: 1.10
      plus: +12
      dot: .5
      trailing: 5.
      tilde: ~
      empty:
      word: null
      quoted: "0644"
      single: 'it''s'
      escapes: "tab\\there \\x41 \\u00e9 \\U0001F600"
      percent: '%h'
      hash: a#b
      comment: a # b
      bang: '!x'
      colon: 'a: b'
      block: |
        two
          lines
      folded: >-
        one
        line
      kept: |+
        end

      list: [a, [b, {c: d}]]
      nested: {a: {b: {c: [1, 2.5, null]}}}
      infinite: [.inf, -.inf]
      template: '{{ inventory_hostname }}-{{ x }}'
      big: 123456789012345678901234567890
      "key with space": 1
      0x10_key: 1
"""

SCRIPT = """{
  "gpu": {"hosts": ["gb01", "gb02"], "vars": {"a": 1.50, "t": "{{ x }}"}, "children": ["rack"]},
  "rack": {"hosts": ["gb03"]},
  "old": ["gb04", "gb01"],
  "empty": {"hosts": [], "vars": {}},
  "all": {"vars": {"site": "lab", "n": 1e3}, "children": ["gpu", "ungrouped"]},
  "ungrouped": {"hosts": ["lone"]},
  "_meta": {"hostvars": {"gb01": {"u": "\\ud83d\\ude00", "z": null}, "nobody": {"x": 1}, "lone": {}}}
}"""

HOST_BY_HOST = """\
#!/usr/bin/env python3
import json, sys
if sys.argv[1] == "--list":
    print(json.dumps({"gpu": {"hosts": ["a", "b", "c"]}, "cpu": ["c", "d"]}))
else:
    print(json.dumps({"name": sys.argv[2], "from": "--host"} if sys.argv[2] != "d" else {}))
"""

CASES: dict[str, Case] = {
    "one host": yaml("all: {hosts: {h: }}\n"),
    "groups at the top": yaml("a: {hosts: {h1: , h2: }}\nb: {hosts: {h2: , h3: }}\n"),
    "nested children": yaml("a: {children: {b: {children: {c: {hosts: {h: }}, d: {hosts: {h: , i: }}}}}}\n"),
    "children named before they are defined": yaml("a: {children: {b: , c: }}\nc: {hosts: {h: }}\nb: {hosts: {i: }}\n"),
    "a child of two parents": yaml("a: {children: {c: }}\nb: {children: {c: {hosts: {h: {x: 1}}, vars: {y: 2}}}}\n"),
    "a diamond": yaml(
        "a: {children: {l: {children: {z: {hosts: {h: }}}}, r: {children: {z: }}}}\n"
        "l: {vars: {v: l}}\nr: {vars: {v: r}}\n"
    ),
    "all written out": yaml("all: {children: {ungrouped: {hosts: {u: }}, a: {hosts: {h: }}}, hosts: {x: }}\n"),
    "all comes last": yaml("a: {hosts: {h: }}\nb: {hosts: {i: }}\nall: {hosts: {x: , h: }, children: {b: }}\n"),
    "ungrouped and grouped": yaml("ungrouped: {hosts: {h: , u: }}\na: {hosts: {h: }}\nall: {hosts: {b: , a1: }}\n"),
    "variables of ungrouped": yaml("ungrouped: {vars: {v: u}}\nall: {hosts: {h: }, vars: {v: all}}\n"),
    "empty groups": yaml("a:\nb: {hosts: }\nc: {children: {d: }}\nall: {hosts: {h: }}\n"),
    "hosts that are all commented out": yaml("gpu:\n  hosts:\n    # n1\nall: {hosts: {h: }}\n"),
    "ranges with padding": yaml("a: {hosts: {'gb[01:04]': , 'n[008:011]': , 'm[8:11]': , 'k[8:011]': }}\n"),
    "ranges with steps": yaml("a: {hosts: {'n[1:10:3]': , 'p[00:20:10]': }}\n"),
    "ranges of letters": yaml("a: {hosts: {'x[a:e]': , 'y[a:i:4]': , 'z[x:C]': }}\n"),
    "several ranges in a name": yaml("a: {hosts: {'r[1:2]-n[01:03]-[a:b].site': {v: 1}}}\n"),
    "ranges without a begin": yaml("a: {hosts: {'n[:2]': }}\n"),
    "a range in front": yaml("all: {hosts: {'[1:3].rack.local': , '[01:03]gb': }}\n"),
    "addresses in ranges": yaml("all: {hosts: {'10.0.[1:2].[1:3]': }}\n"),
    "overlapping ranges": yaml("a: {hosts: {'n[1:3]': {v: 1}, 'n[2:4]': {v: 2}}}\n"),
    "ports behind names": yaml("all: {hosts: {'h:2222': , 'n[1:2]:2200': {v: 1}, 'p:22': {ansible_port: 23}}}\n"),
    "IPv6": yaml("all: {hosts: {'::1': , 'fe80::2': {v: 1}, '[2001:db8::5]:2200': }}\n"),
    "the same address with two ports": yaml(
        "all: {hosts: {a: {ansible_host: 10.0.0.1, ansible_port: 2201},"
        " b: {ansible_host: 10.0.0.1, ansible_port: 2202}}}\n"
    ),
    "the same port twice": yaml("a: {hosts: {'h:2222': }}\nb: {hosts: {'h:2222': }}\n"),
    "host and group of one name": yaml("gpu: {hosts: {gpu: , n: }, vars: {v: 1}}\nall: {vars: {w: 2}}\n"),
    "vars at four levels": yaml(FOUR_LEVELS),
    "a group given twice": yaml("all: {children: {a: {vars: {v: 1, w: 1}, hosts: {h: }}}}\na: {vars: {v: 2}}\n"),
    "a host given twice": yaml("a: {hosts: {h: {v: 1, w: 1}}}\nb: {hosts: {h: {v: 2}}}\n"),
    "siblings go by name": yaml("b: {vars: {v: b}, hosts: {h: }}\na: {vars: {v: a}, hosts: {h: }}\n"),
    "priority": yaml(
        "b: {vars: {v: b}, hosts: {h: }}\na: {vars: {v: a, ansible_group_priority: 10}, hosts: {h: }}\n"
        "c: {vars: {v: c, ansible_group_priority: '9'}, hosts: {h: }}\n"
        "d: {vars: {v: d, ansible_group_priority: -1}, hosts: {h: }}\n"
    ),
    "depth before priority": yaml(
        "b: {vars: {v: b, ansible_group_priority: 9}, children: {a: {vars: {v: a}, hosts: {h: }}}}\n"
    ),
    "depth is the longest way": yaml(
        "x: {children: {y: {children: {a: {vars: {v: a}}}}}}\nb: {vars: {v: b}, hosts: {h: }}\na: {hosts: {h: }}\n"
    ),
    "mappings replace mappings": yaml("a: {vars: {m: {x: 1, y: 1}}, hosts: {h: {m: {y: 2}}}}\n"),
    "odd scalars": yaml(ODD_SCALARS),
    "unicode": yaml("größe: {vars: {name: Ærøskøbing, 鍵: 値}, hosts: {h: {e: '😀', 'ключ': \"\\u2028\"}}}\n"),
    "a byte order mark and CRLF": yaml(
        b"\xef\xbb\xbfall:\r\n  hosts:\r\n    h:\r\n      v: |\r\n        a\r\n        b\r\n"
    ),
    "only carriage returns": yaml(b"all:\r  hosts:\r    h: {v: 1}\r"),
    "document marks": yaml("%YAML 1.1\n---\nall: {hosts: {h: }}\n...\n"),
    "anchors and merges": yaml(
        "all:\n  vars: {base: &b {x: 1, y: 1}, m: {<<: *b, y: 2}}\n  hosts:\n    h: &h {v: 1}\n    i: *h\n"
        "    j: {<<: [*h, *b], v: 2}\n"
    ),
    "one host as text": yaml("a: {hosts: h, children: b}\n"),
    "group names of all kinds": yaml("'a b': {hosts: {h: }}\nus-east-1: {hosts: {h: }}\n1st: {hosts: {i: }}\n"),
    "variables that Ansible sets itself": yaml(
        "all: {hosts: {h: {groups: x, playbook_dir: y, inventory_dir: z, v: 1}}}\n"
    ),
    "templates stay as they are": yaml(
        "all: {vars: {a: '{{ b }}', c: ['{{ a }}']}, hosts: {h: {b: '{% if x %}1{% endif %}'}}}\n"
    ),
    "JSON in a YAML file": yaml('{"a": {"hosts": {"h": {"n": 1e3, "t": "\\ud83d\\ude00", "s": "\\/"}}}}\n'),
    "JSON with tabs": Case({"hosts.json": '{\n\t"a": {\n\t\t"hosts": {"h": null}\n\t}\n}\n'}, ("hosts.json",)),
    "a file without extension": Case({"hosts": "all: {hosts: {h: }}\n"}, ("hosts",)),
    "a file named .yaml": Case({"hosts.yaml": "all: {hosts: {h: }}\n"}, ("hosts.yaml",)),
    "two files": Case(
        {
            "1.yml": "a: {hosts: {h: {v: 1, w: 1}}, vars: {x: 1}}\nz: {hosts: {i: }}\n",
            "2.yml": "a: {hosts: {h: {v: 2}, j: }, vars: {x: 2}, children: {z: }}\nall: {hosts: {i: , k: }}\n",
        },
        ("1.yml", "2.yml"),
    ),
    "two files, the other way": Case(
        {"1.yml": "a: {hosts: {h: {v: 1}}}\n", "2.yml": "b: {children: {a: }}\nall: {hosts: {h: {v: 2}}}\n"},
        ("2.yml", "1.yml"),
    ),
    "group_vars and host_vars": Case(
        {
            "hosts.yml": "a: {hosts: {h: {v: inventory, w: inventory}, i: }, vars: {x: group, y: group}}\n",
            "group_vars/all.yml": "x: all file\nz: all file\n",
            "group_vars/a.yml": "y: group file\nz: group file\n",
            "host_vars/h.yml": "w: host file\n",
            "host_vars/nobody.yml": "w: no\n",
            "group_vars/nothing.yml": "x: no\n",
        }
    ),
    "group_vars/all is stronger than a group's vars": Case(
        {"hosts.yml": "a: {hosts: {h: }, vars: {x: group}}\n", "group_vars/all": "x: all file\n"}
    ),
    "extensions of vars files": Case(
        {
            "hosts.yml": "a: {hosts: {h: }}\nb: {hosts: {h: }}\nc: {hosts: {h: }}\nd: {hosts: {h: }}\n",
            "group_vars/a": "a: 1\n",
            "group_vars/a.yml": "a: 2\n",
            "group_vars/b.yml": "b: 1\n",
            "group_vars/b.yaml": "b: 2\n",
            "group_vars/c.yaml": "c: 1\n",
            "group_vars/c.json": '{"c": 2}',
            "group_vars/d.json": '{"d": 1e3}',
            "group_vars/d.txt": "d: 2\n",
        }
    ),
    "directories of vars files": Case(
        {
            "hosts.yml": "a: {hosts: {h: }}\n",
            "group_vars/a/1.yml": "v: 1\nw: 1\n",
            "group_vars/a/2.json": '{"v": 2}',
            "group_vars/a/3": "x: 3\n",
            "group_vars/a/4.txt": "v: 4\n",
            "group_vars/a/.5.yml": "v: 5\n",
            "group_vars/a/6.yml~": "v: 6\n",
            "group_vars/a/deep/1.yml": "v: deep\ny: deep\n",
            "group_vars/a/not.deep/1.yml": "v: no\n",
            "group_vars/a.yml": "v: file\n",
            "host_vars/h/main.yaml": "z: 1\n",
        }
    ),
    "empty vars files": Case(
        {
            "hosts.yml": "a: {hosts: {h: {v: 1}}}\n",
            "group_vars/a.yml": "# nothing\n",
            "group_vars/all.yml": "",
            "host_vars/h.yml": "---\n",
        }
    ),
    "vars beside the playbook": Case(
        {
            "site/hosts.yml": "a: {hosts: {h: {u: inventory}}, vars: {v: inventory}}\n",
            "site/group_vars/all.yml": "v: site all\nw: site all\nx: site all\n",
            "site/group_vars/a.yml": "x: site a\ny: site a\n",
            "site/host_vars/h.yml": "z: site h\nu: site h\n",
            "play/group_vars/all.yml": "w: play all\nx: play all\ny: play all\nz: play all\n",
            "play/group_vars/a.yml": "y: play a\n",
            "play/host_vars/h.yml": "z: play h\n",
        },
        ("site/hosts.yml",),
        playbook_dir="play",
    ),
    "vars beside several inventories": Case(
        {
            "1/hosts.yml": "out: {children: {in: {hosts: {h: }}}}\n",
            "2/hosts.yml": "all: {hosts: {h: }}\n",
            "1/group_vars/in.yml": "v: 1 in\nw: 1 in\n",
            "2/group_vars/out.yml": "v: 2 out\n",
            "2/group_vars/all.yml": "w: 2 all\n",
            "1/host_vars/h.yml": "x: 1\n",
            "2/host_vars/h.yml": "x: 2\n",
        },
        ("1/hosts.yml", "2/hosts.yml"),
    ),
    "a directory given twice": Case(
        {
            "1/a.yml": "a: {hosts: {h: }}\n",
            "1/b.yml": "b: {hosts: {h: }}\n",
            "2/c.yml": "c: {hosts: {h: }}\n",
            "1/group_vars/all.yml": "v: 1\n",
            "2/group_vars/all.yml": "v: 2\n",
        },
        ("1/a.yml", "2/c.yml", "1/b.yml"),
    ),
    "a directory": Case(
        {
            "site/10-b.yml": "b: {hosts: {h: {v: 10}, i: }}\n",
            "site/02-a.yml": "a: {hosts: {h: {v: 2}}}\n",
            "site/group_vars/b.yml": "w: file\n",
            "site/host_vars/i/x.yml": "w: host\n",
            "site/hosts.yml.bak": "no",
            "site/hosts.yml~": "no",
            "site/.hidden.yml": "no",
            "site/ansible.cfg": "no",
            "site/README.md": "no",
            "site/run.retry": "no",
            "site/notes.txt": "no",
            "site/x.orig": "no",
            "site/sub/20-c.yml": "c: {children: {a: }}\n",
            "site/sub/group_vars/c.yml": "x: no\n",
            "site/vars_plugins/x.py": "no",
        },
        ("site",),
    ),
    "a directory with a program": Case(
        {
            "site/1.yml": "a: {hosts: {h: {v: 1}}, vars: {w: 1}}\n",
            "site/2.sh": printing('{"a": {"hosts": ["h", "i"]}, "_meta": {"hostvars": {"h": {"v": 2}}}}'),
        },
        ("site",),
    ),
    "a program": Case({"site.py": printing(SCRIPT)}, ("site.py",)),
    "a program without _meta": Case({"site.py": HOST_BY_HOST}, ("site.py",)),
    "a program with vars files": Case(
        {
            "site.sh": printing('{"a": {"hosts": ["h"], "vars": {"v": 1}}, "_meta": {"hostvars": {"h": {"w": 1}}}}'),
            "group_vars/a.yml": "v: 2\n",
            "host_vars/h.yml": "w: 2\n",
        },
        ("site.sh",),
    ),
    "an inventory as ansible-inventory prints it": Case(
        {
            "site.sh": printing(
                '{"_meta": {"hostvars": {"h": {"v": 1}}, "profile": "inventory_legacy"}, '
                '"all": {"children": ["ungrouped", "a"]}, "a": {"hosts": ["h"]}}'
            )
        },
        ("site.sh",),
    ),
    "a limit": yaml("a: {hosts: {'n[1:4]': {v: 1}}}\nb: {hosts: {n2: , x: }}\n", limit="n2,x"),
    "a limit with signs": yaml("a: {hosts: {'n[1:4]': }}\nb: {hosts: {n2: , x: }}\n", limit="a:!n3"),
    "extra variables": yaml("a: {hosts: {h: {v: 1}}}\n", extra=("v=2", "w=ab", "n=4")),
    "connection variables": yaml(
        "all: {vars: {ansible_user: k3, ansible_ssh_private_key_file: ~/k}, hosts: {h: {ansible_connection: local},"
        " i: {ansible_ssh_host: x, ansible_become: true}}}\n"
    ),
}
