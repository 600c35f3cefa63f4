"""What the output of a failed pip means."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import BY_PIP, Diagnosis
from k3env.k3.diagnoses.index import INDEX, NOT_FOUND
from k3env.k3.diagnoses.packages import PACKAGES
from k3env.k3.diagnoses.uv import UV

PIP = (
    *UV,
    *PACKAGES,
    Diagnosis(
        "pip.externally_managed",
        r"externally-managed-environment",
        "the system's Python refuses pip: it is managed by the distribution (PEP 668)",
        "build in a TensorRT LLM image (`container`); or, on a machine of your own, set PIP_BREAK_SYSTEM_PACKAGES=1 in "
        "the task's environment",
        "PEP 668",
    ),
    Diagnosis(
        "pip.no_venv",
        r"ensurepip is not available|No module named (venv|virtualenv|ensurepip)",
        "the base interpreter can't make a virtual environment",
        "install its venv package (apt-get install python3-venv)",
        "Debian's python3-venv",
    ),
    Diagnosis(
        "pip.missing",
        r"No module named '?pip\b(?![._])",
        "the environment has no pip",
        "move the environment aside and build it anew",
        "pip's own words",
        near=BY_PIP,
    ),
    *INDEX,
    Diagnosis(
        "pip.stub",
        r"RuntimeError: Bad params|wheel[_-]stub|nvidia[_-]stub|Installing NVIDIA's wheel",
        "a package of NVIDIA on PyPI is a stub: what it fetches from pypi.nvidia.com is not reached, or not there",
        "set PIP_EXTRA_INDEX_URL=https://pypi.nvidia.com in the task's environment, and see that it has a wheel for "
        "this "
        "Python and processor",
        "#777, #914, #1423, #2542",
    ),
    Diagnosis(
        "pip.old_setuptools",
        r"module 'pkgutil' has no attribute 'ImpImporter'|has no attribute 'install_layout'"
        r"|cannot import name 'Mapping' from 'collections'|No module named '(distutils|imp)'",
        "a package is too old for this Python, or is built by a setuptools that is",
        "ask for a newer version, which has wheels for this Python; else upgrade the environment's pip and setuptools",
        "python/cpython#111822; pypa/pip#12416",
    ),
    Diagnosis(
        "pip.new_setuptools",
        r"No module named 'pkg_resources'|license_files.*(must|error|invalid|unexpected)|(must"
        r"|error|invalid|unexpected).*license_files|setuptools .*is (too new|not supported)"
        r"|`?project\.license`? must be|use_2to3 is invalid|invalid pyproject\.toml config",
        "a package can't be built by this version of setuptools",
        "have another in the environment (setuptools<81 still has pkg_resources) and set no_build_isolation; or ask "
        "for "
        "a newer version of the package",
        "setuptools' history; HZQ950419/Math-LLaVA#12",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.platform",
        r"is not a supported wheel on this platform|Unsupported platform tag|has unsupported tags",
        "a wheel is for another Python or processor: GB200 and GB300 hosts are aarch64",
        "have wheels for this processor and the environment's Python",
        "pip's own words",
    ),
    Diagnosis(
        "pip.python",
        r"requires a different Python|requires Python '?[<>=~!]|Python version [\d.]+ (is )?not supported",
        "a package does not take the environment's Python",
        "ask for a version that does",
        "pip's own words",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.index_refused",
        r"\b(401|403) Client Error|HTTP error 40[13] while getting",
        "the package index refuses us",
        "see the index's URL and its credentials (a netrc file, or index_url as a secret)",
        "pip's own words",
        near=BY_PIP,
        passes=True,
    ),
    Diagnosis(
        "pip.index_credentials",
        r"401 Error, Credentials not correct",
        "the package index does not take our name and password",
        "see the index's URL and its credentials (a netrc file, or index_url as a secret)",
        "pip's own words: a warning, then an index without versions",
        also=NOT_FOUND,
    ),
    Diagnosis(
        "pip.gone",
        r"\b404 Client Error|because of HTTP error 404|HTTP error 404 while getting",
        "there is nothing at the URL of a package or of the index",
        "see the URL: index_url ends in /simple/ mostly; a wheel may have been renamed or removed",
        "pip's own words",
        near=BY_PIP,
        passes=True,
    ),
    Diagnosis(
        "pip.no_ssl",
        r"SSL module is not available",
        "the base interpreter was built without ssl",
        "use another Python: the distribution's, or the image's",
        "pip's own words",
    ),
    Diagnosis(
        "pip.too_deep",
        r"resolution-too-deep|ResolutionTooDeep",
        "pip gave up the search for versions that fit each other",
        "pin the packages that it tries again and again, or install with no_deps",
        "pip's own words",
    ),
    Diagnosis(
        "pip.requirement",
        r"Invalid requirement|InvalidRequirement|InvalidVersion|Invalid version: |not a valid wheel filename"
        r"|Invalid wheel filename|Could not open requirements file|require-hashes mode, all requirements",
        "a requirement, a version or a file of requirements is not what pip takes",
        "see the named requirement; a version that is not of PEP 440 in an installed package: uninstall that package",
        "pip's own words",
    ),
    Diagnosis(
        "pip.no_project",
        r"is not installable\. Neither|does not appear to be a Python project|Multiple top-level packages discovered",
        "there is no Python project at that path, or a wrong directory was named",
        "see the path; in a checkout it is the directory with setup.py or pyproject.toml",
        "pip's and setuptools' own words",
    ),
    Diagnosis(
        "pip.old_editable",
        r"missing the 'build_editable' hook|editable mode (currently )?requires a setup"
        r"|Cannot install in editable mode",
        "pip or setuptools in the environment is too old for an editable install",
        "upgrade them: `python -m pip install -U pip 'setuptools>=64'` with the environment's python",
        "pip's own words; PEP 660",
    ),
    Diagnosis(
        "pip.broken_package",
        r"invalid-installed-package|expected string or bytes-like object.*packaging|Ignoring invalid distribution"
        r"|No \.egg-info directory found|Error parsing (requirements|dependencies) ",
        "the metadata of an installed package is damaged: an installation was cut off",
        "remove the named .dist-info (or the `~name` directories) from the environment's site-packages, and run it "
        "again",
        "pip's own words",
        also=r"^ERROR: |Traceback",
    ),
    Diagnosis(
        "pip.conflict",
        r"ResolutionImpossible|conflicting dependencies",
        "the requirements contradict each other, or a constraint of this machine's pip",
        "loosen one of the named requirements, or install with no_deps",
        "pip's own words",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.no_match",
        r"No matching distribution found for|Could not find a version that satisfies the requirement",
        "the index has no such package or version for this Python and processor",
        "see name and version (one that was yanked is not taken), index_url and find_links, and the environment's "
        "Python; "
        "where no versions are known at all, whether the index, or the proxy, is reached",
        "pip's own words",
        follows=True,
    ),
    Diagnosis(
        "pip.hash",
        r"DO NOT MATCH THE HASHES|hash mismatch",
        "a download is not what it should be",
        "run it again with no_cache; if it stays, the mirror is wrong",
        "pip's own words",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.no_record",
        r"uninstall-no-record-file|RECORD file (was )?not found|It is a distutils installed project"
        r"|uninstall-distutils-installed-package",
        "an installed package has no list of its files, so pip can't remove it",
        "in a container of your own, set PIP_IGNORE_INSTALLED=1 in the task's environment; never remove by hand what "
        "the "
        "distribution's packages own; in a virtual environment remove its files and its .dist-info",
        "pip's own words; pypa/get-pip#226, pypa/pip#4805",
    ),
    Diagnosis(
        "pip.build_requirement",
        r"BackendUnavailable|Cannot import ['`][\w.]+['`]|ModuleNotFoundError: No module named '(setuptools|wheel"
        r"|packaging|tvm_ffi|apache_tvm_ffi|hatchling|scikit_build_core|pybind11|nanobind|ninja"
        r"|numpy|Cython|cython)\b"
        r"|invalid command 'bdist_wheel'",
        "with no_build_isolation, what the package is built with must be in the environment, and is not",
        "install its build requirements first (for FlashInfer: setuptools>=77, packaging>=24.2, apache-tvm-ffi)",
        "pip's own words; FlashInfer, pyproject.toml",
        near=BY_PIP,
        passes=True,
    ),
    Diagnosis(
        "pip.not_writable",
        r"Permission denied: '/[^']*/(site|dist)-packages|Could not install packages due to an \w+: \[Errno 13\]"
        r"|\[Errno 13\].*([/.]pip[/-]|/\.venv)",
        "this user may not write there",
        "run as the owner of the environment (k3_user); in a container, use one whose Python this user may write, or "
        "that has virtualenv>=20.29.1 installed",
        "pip's own words",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.disk",
        r"(?i:no space left on device|disk quota exceeded)|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        "make room there, and in pip's temporary directory (TMPDIR)",
        "pip's own words",
    ),
    Diagnosis(
        "pip.stale_handle",
        r"(?i:stale (nfs )?file handle)|Errno 116\b",
        "a file on a shared filesystem vanished while it was used",
        "see that nothing else writes into this environment, then run it again",
        "pytorch#173679",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.option",
        r"no such option: ",
        "the environment's pip is too old for an option",
        "upgrade it: `python -m pip install -U 'pip>=23'` with the environment's python",
        "pip's own words",
        near=BY_PIP,
    ),
)
