"""A contract for import-linter: some packages import the standard library and a few named ones, nothing else."""

from __future__ import annotations

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class OnlyLibrary(Contract):
    """Each module below `source_modules` imports only the standard library and packages in `allowed`."""

    source_modules = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at every direct import."""
        known = set(sys.stdlib_module_names) | set(self.allowed)
        broken: list[str] = []
        for source in self.source_modules:
            for module in sorted({source, *graph.find_descendants(source)}):
                for imported in sorted(graph.find_modules_directly_imported_by(module)):
                    if imported.split(".", 1)[0] not in known:
                        broken.append(f"{module} imports {imported}")
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name the imports that break it."""
        for line in check.metadata["broken"]:
            output.print_error(line)
