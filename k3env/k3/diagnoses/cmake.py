"""What it means when CMake, make or ninja lack something."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import Diagnosis

CMAKE = (
    Diagnosis(
        "build.cmake_new",
        r"Compatibility with CMake < [\d.]+ has been removed",
        "a third-party project asks for a CMake older than this one still knows",
        "set CMAKE_POLICY_VERSION_MINIMUM=3.5 in the task's environment, or use CMake 3.31",
        "CMake 4.0, cmake_minimum_required",
    ),
    Diagnosis(
        "build.fetch_hash",
        r"HASH mismatch|Hash mismatch|does not match expected value|(sha256|sha1|md5) signature failed",
        "a download is not what the build expects: cut off, changed upstream, or a proxy's page",
        "remove it where it was kept, and run it again; see what the URL gives, and the proxy",
        "CMake, ExternalProject and file(DOWNLOAD); conan",
    ),
    Diagnosis(
        "build.fetch_step",
        r"(Build|CMake) step for \S+ failed",
        "CMake could not fetch, or prepare, a third-party source",
        "see the lines before: git, a download or a patch failed; a patch that was applied already: remove "
        "the _deps directory of the build",
        "CMake, FetchContent",
        follows=True,
    ),
    Diagnosis(
        "build.package",
        r"Could not find a package configuration file provided by|By not providing \"Find\w+\.cmake\""
        r"|The following required packages were not found|Could NOT find \w+ \(missing:"
        r"|but the target was not found|links? to target \S+ but the target was not found",
        "CMake does not find a package that the build needs",
        "install its development package, or name it: NAME_DIR, CMAKE_PREFIX_PATH; a Python package "
        "(pybind11, nanobind, torch) must be in the environment that builds",
        "CMake, find_package; pkg-config",
        follows=True,
    ),
    Diagnosis(
        "build.submodule_told",
        r"did not clone .*(the|recursive)|clone .*with --recursive|git submodule update --init"
        r"|[Ss]ubmodules? .*(missing|not (been )?(initiali[sz]ed|cloned|checked out|updated|populated))",
        "third-party sources are not in the checkout: its submodules were not fetched",
        "run `git submodule update --init --recursive` in the checkout, or set `submodules: true` in git_checkout",
        "what nanobind, xgrammar and others say in their CMakeLists.txt; PyPartMC#485",
        follows=True,
    ),
    Diagnosis(
        "build.no_file",
        r"needed by '[^']*', missing and no known rule to make it|No rule to make target '[^']*', needed by"
        r"|File \S+ does not exist\.|file SIZE requested of path that is not readable"
        r"|Cannot find source file:|file failed to open for reading|file COPY cannot find"
        r"|configure_file Problem configuring",
        "a file that the build needs is not there: an LFS file or a submodule that was not fetched, or a "
        "build directory of another commit",
        "run `git lfs pull` and `git submodule update --init --recursive` in the checkout; then remove cpp/build",
        "#2360; CMake, ninja and make",
        follows=True,
    ),
    Diagnosis(
        "build.no_target",
        r"No rule to make target '[^']*'\. +Stop|unknown target '",
        "what is built is not in the build directory: it was not configured, or is of another checkout",
        "see the directory; build by hand with --configure_cmake, or remove cpp/build",
        "make, ninja",
        follows=True,
    ),
    Diagnosis(
        "build.clock",
        r"(?i)clock skew detected.*(incomplete|restat)|manifest .*still dirty after 100 tries",
        "clocks of the node and of the file server differ, so the build configures itself again and again",
        "set the clocks right (chrony); then `touch` the checkout's files or remove cpp/build",
        "ninja's own words",
    ),
)
