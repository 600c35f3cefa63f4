"""What the output of a failed uv means."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import EGRESS, Diagnosis

UV = (
    Diagnosis(
        "pip.uv_certificate",
        r"invalid peer certificate|UnknownIssuer",
        "the index's certificate is not trusted here",
        "let SSL_CERT_FILE name the site's certificate bundle in the task's environment; uv reads the "
        "system's with UV_NATIVE_TLS=1",
        "astral-sh/uv #6072, #6649",
    ),
    Diagnosis(
        "pip.uv_refused",
        r"HTTP status client error \((401|403|407)|Missing credentials for https?://",
        "the package index refuses us",
        "see the index's URL and its credentials (a netrc file, UV_INDEX_*_USERNAME and _PASSWORD), and "
        "what the proxy allows",
        "uv's own words",
        passes=True,
    ),
    Diagnosis(
        "pip.uv_busy",
        r"HTTP status (server error \(5\d\d|client error \(429)",
        "the package index is overloaded, or limits us",
        "run it again later, or name a mirror",
        "uv's own words",
        passes=True,
    ),
    Diagnosis(
        "pip.uv_gone",
        r"HTTP status client error \(404",
        "there is nothing at the URL of a package or of the index",
        "see the URL: a wheel may have been renamed or removed",
        "uv's own words",
        passes=True,
    ),
    Diagnosis(
        "pip.uv_network",
        r"error sending request for url|client error \(Connect\)|dns error: |tcp connect error"
        r"|error reading a body from connection|error decoding response body|due to network timeout"
        r"|UV_HTTP_TIMEOUT|Could not connect, are you offline|Network connectivity is disabled"
        r"|because the network was disabled|[Nn]etwork was disabled",
        "the package index is out of reach, or the connection broke",
        f"{EGRESS}; a larger UV_HTTP_TIMEOUT helps where it is slow",
        "astral-sh/uv #8450, #11216, #12730",
        passes=True,
    ),
    Diagnosis(
        "pip.uv_platform",
        r"has no wheels with a matching|no wheels (are available for|with a matching)|[Nn]o compatible tags"
        r"|doesn\'t have a (source distribution or )?wheel for the current platform",
        "a package has no wheel for this Python or processor: GB200 and GB300 hosts are aarch64",
        "ask for a version that has one, or name an index that has (PyTorch and NVIDIA have their own)",
        "uv's own words",
    ),
    Diagnosis(
        "pip.uv_not_found",
        r"Because .*(was not found in the (package registry|provided package locations|cache)|there (is"
        r"|are) no versions? of)",
        "no index has such a package or version",
        "see name and version, and the index: UV_INDEX_URL, UV_FIND_LINKS; uv takes a package from the "
        "first index that has its name (UV_INDEX_STRATEGY)",
        "uv's own words",
    ),
    Diagnosis(
        "pip.uv_python",
        r"(current )?Python version \(?[\d.]+\)? does not satisfy|depends on Python[<>=!~]"
        r"|requires-python.*(does not satisfy|incompatible)",
        "a package does not take the environment's Python",
        "ask for a version that does",
        "uv's own words",
    ),
    Diagnosis(
        "pip.uv_no_python",
        r"No virtual environment found|No interpreter found (for|in)|No Python (installation"
        r"|interpreter)s? .*found|Failed to inspect Python interpreter|Failed to query Python interpreter",
        "uv finds no Python, or no environment, to install into",
        "give it the environment's own: `uv pip install --python PATH`, or VIRTUAL_ENV; UV_SYSTEM_PYTHON=1 "
        "in a container of your own",
        "uv's own words",
    ),
    Diagnosis(
        "pip.uv_conflict",
        r"your requirements are unsatisfiable|requirements are unsatisfiable",
        "the requirements contradict each other",
        "loosen one of the named requirements, or install with no_deps",
        "uv's own words",
        follows=True,
    ),
    Diagnosis(
        "pip.uv_lock",
        r"Timeout \(\S+\) when waiting for lock|Failed to (acquire|create) lock|Could not acquire lock",
        "another uv holds the lock of the cache or the environment",
        "see that no uv hangs there on any node; keep UV_CACHE_DIR on a local disk",
        "uv's own words",
    ),
)
