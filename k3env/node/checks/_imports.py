"""venv.import: the server's packages load, and a GPU runs a kernel of each. Only where it is asked for by its id."""

from __future__ import annotations

from typing import Optional

from k3env.node.checks import check, fail, passed, skip
from k3env.node.facts.imports import Imports, imports
from k3env.protocol.context import ON_REQUEST
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile


@check("venv.import", imports, scope="node", severity="fail", contexts=(ON_REQUEST,))
def loads(imports: Optional[Imports], profile: Profile) -> Finding:
    """torch, Triton, einops, fla, FlashInfer and TensorRT LLM are imported; with a GPU, three of them run a kernel.

    It takes from ten seconds to minutes, so that a glob never means it: name it, `verify: {checks: [venv.import]}`.
    """
    if imports is None:
        return skip("no whole environment; see venv.present")
    if imports.problems or not imports.ended:
        last = imports.done[-1] if imports.done else "the first import"
        found = [f"{what}: {problem}" for what, problem in imports.problems.items()]
        found += [] if imports.ended else [f"Python ended after {last}"]
        return fail(
            expected="every import, and every kernel, without an error",
            found="; ".join(found),
            remedy=f"see {imports.python} -c 'import tensorrt_llm' in the image; then run the tags `build` and `deps`",
            subject=imports.python,
        )
    told = ", ".join(imports.done)
    return passed(told, "" if imports.has_gpu else "no GPU is seen here, so that no kernel was run")
