"""What the output of a failed conan means."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import BY_CONAN, EGRESS, Diagnosis

CONAN = (
    Diagnosis(
        "build.conan_remotes",
        r"No remote '[^']*' defined|Remote '[^']*' (not found|can't be found|doesn't exist)"
        r"|Remote .*not found in remotes",
        "conan knows no remote of that name",
        "add it: `conan remote add NAME URL` with the environment's own conan; see CONAN_HOME",
        "conan's own words",
        near=BY_CONAN,
    ),
    Diagnosis(
        "build.conan_graph",
        r"Version conflict: |Version range '[^']*' .*could not be resolved|could not be resolved\b.*(conan"
        r"|requirement)|There was a dependency loop",
        "the recipes that conan found do not fit each other, or it found none in that range",
        "see the remotes (`conan remote list`) and conanfile.py; remove what an older checkout left in CONAN_HOME",
        "conan's own words",
    ),
    Diagnosis(
        "build.conan_binary",
        r"ERROR: Missing binary: |Can't find a '[^']*' package (binary )?for the specified"
        r"|ERROR: Missing prebuilt package",
        "conan has no binary of a package for this compiler and processor",
        "build it there: `conan install --build=missing`; see the profile (`conan profile show`)",
        "conan's own words",
    ),
    Diagnosis(
        "build.conan_answer",
        r"Response from remote is not json|Error downloading file|ConanConnectionError"
        r"|Server Error.*\[Remote: |ERROR: .*\[Remote: ",
        "a remote of conan's answers with something else: it is gone, refuses, or a proxy stands before it",
        "see the remote's URL with curl, its credentials (`conan remote login`), and https_proxy",
        "conan-io/conan #8293, #8869",
        passes=True,
    ),
    Diagnosis(
        "build.conan_profile",
        r"[Dd]efault (build )?profile '?[^']*'? (doesn't|does not) exist|[Pp]rofile not found: "
        r"|need to create a default profile",
        "conan has no profile in its home",
        "run `conan profile detect -f` with the environment's own conan and CONAN_HOME",
        "conan's own words",
    ),
    Diagnosis(
        "build.conan_required",
        r"[Cc]urrent Conan version \([\d.]+\) does not satisfy|requires (C|c)onan version"
        r"|[Rr]equired Conan version",
        "the checkout, or a recipe, asks for another version of conan",
        "have the environment's own conan first in PATH, of the version in requirements-dev.txt",
        "conan's own words",
    ),
    Diagnosis(
        "build.conan_compiler",
        r"is not a valid 'settings\.compiler|Invalid setting '",
        "conan does not know this compiler's version",
        "use the image's compiler, or write the version into settings.yml in CONAN_HOME",
        "conan's own words",
        near=BY_CONAN,
    ),
    Diagnosis(
        "build.conan",
        r"\bconan[\"']* (remote add|profile detect|install)\b.*returned non-zero|Failed to locate conan executable"
        r"|No module named '_sqlite3'|ConanException",
        "conan could not prepare the C++ dependencies; its home or a remote may be out of reach",
        "see that CONAN_HOME is writable, that Python has sqlite3, and that edge.urm.nvidia.com is reached where the "
        "checkout asks for it",
        "#3081; scripts/build_wheel.py",
        follows=True,
    ),
    Diagnosis(
        "build.conan_version",
        r"Invalid generator '|There are invalid packages|value not defined|conan profile: error",
        "another conan is found than the checkout's, or its profile knows no compiler",
        "have the environment's own conan first in PATH, and run `conan profile detect -f`",
        "compiler-explorer/asm-parser#38; BehaviorTree.CPP#836",
        near=BY_CONAN,
    ),
    Diagnosis(
        "build.conan_remote",
        r"Unable to connect to (remote )?\S+=http|ERROR: .*Package '\S+' not resolved|No remote defined"
        r"|Unable to find '\S+/\S+' in remotes"
        r"|ERROR: HTTPSConnectionPool|ERROR: .*Permission denied: '\S*\.conan2?|conan\S*: .*(sqlite3"
        r"|database is locked)"
        r"|ERROR: Conan.*cache",
        "conan does not reach a remote, or can't write its home",
        f"{EGRESS}; CONAN_HOME must name a directory that this user may write",
        "conan's own words",
        near=BY_CONAN,
        passes=True,
    ),
)
