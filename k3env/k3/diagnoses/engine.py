"""What it means when docker, podman or pyxis lack something that they need."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import Diagnosis

ENGINE = (
    Diagnosis(
        "container.runtime_missing",
        r"default OCI runtime \"[^\"]*\" not found|find runc path|OCI runtime \S+ not found"
        r"|runtime \"?\S+\"? not found|no such runtime|exec: \\*\"(runc|crun|kata-\w+"
        r"|nvidia-container-runtime\S*)\\*\"",
        "the engine's OCI runtime is not there: runc, crun or nvidia",
        "install runc or crun; for nvidia install nvidia-container-toolkit and run, as root, `nvidia-ctk "
        "runtime configure`; podman wants CDI instead",
        "NVIDIA/nvidia-docker#1544; podman#5711",
    ),
    Diagnosis(
        "container.credential_helper",
        r"error getting credentials|docker-credential-\S+.*(not found|no such file)"
        r"|credential helper .*not found",
        "the engine is told of a credential helper that is not installed",
        "remove credsStore and credHelpers from ~/.docker/config.json (or ~/.config/containers/auth.json), "
        "and log in again",
        "docker's own words",
    ),
    Diagnosis(
        "container.port",
        r"[Bb]ind for \S+ failed: port is already allocated|port is already allocated"
        r"|failed to bind (host )?port|ports are not available|cannot expose privileged port"
        r"|rootlessport .*(bind|listen)",
        "a port of the container is taken, or not allowed",
        "take another port, or the host's network (--network host); see who listens: `ss -ltnp`",
        "docker's and podman's own words",
    ),
    Diagnosis(
        "container.network_helper",
        r"(slirp4netns|pasta|netavark|aardvark\S*|CNI|cni)\b.*(not found|no such file|could not find|failed"
        r"|[Uu]nable to)|could not find (\"?slirp4netns|\"?pasta|\"?netavark)|failed to (create NAT chain"
        r"|set ?up ip6?tables)|iptables.*(failed|not found|No chain)",
        "the engine can't make the container's network: a helper is missing, or the firewall's tables are",
        "use the host's network (--network host); else install netavark and passt (slirp4netns), or "
        "restart docker after the firewall",
        "podman's and docker's own words",
        near=r"(?i)podman|docker|containers?\b|OCI|netns|network",
    ),
    Diagnosis(
        "container.storage_moved",
        r"database (static dir|configuration|run root|graph root|storage)\S* .*mismatch|does not match (our"
        r"|the) (static|graph|run)|database configuration mismatch",
        "podman's directories were moved, or are shared by nodes",
        "let graphroot and runroot in ~/.config/containers/storage.conf name what podman had before, or "
        "`podman system reset`",
        "podman's own words",
    ),
    Diagnosis(
        "container.flag",
        r"unknown (shorthand )?flag: |unknown docker command|is not a docker command",
        "this engine does not know an option: it is older, or another one",
        "see its version (`docker version`, `podman version`); for GPUs podman takes --device nvidia.com/gpu=all",
        "docker's and podman's own words",
    ),
    Diagnosis(
        "container.file",
        r"[Dd]ockerfile parse error|failed to read dockerfile|unknown instruction: |Unknown flag: (mount|link"
        r"|chmod)|no such file or directory: .*(Dockerfile|Containerfile)",
        "the engine does not take the Dockerfile: it is not there, or asks for a newer builder",
        "see its path; use a newer docker (with BuildKit), podman or buildah",
        "docker's own words; #530",
    ),
    Diagnosis(
        "container.program",
        r"executable file \S* ?not found|exec: \\*\"[^\"]+\": stat \S+: no such file"
        r"|enroot-switchroot: failed to execute|executable file `[^`]*` not found|exec failed: No such file"
        r"|execve\(\): .*: No such file",
        "the program is not in the image, or not in its PATH",
        "see the image and what is run in it; a shell that the image lacks: name another; the GPU's tools "
        "come with the NVIDIA Container Toolkit",
        "runc's, crun's and enroot's own words; NVIDIA/pyxis#61",
        near=r"(?i)OCI|runc|crun|container|docker|podman|pyxis|enroot|slurmstepd|execve",
    ),
    Diagnosis(
        "container.libs_in_image",
        r"nvidia-container-cli: mount error: .*file exists|libnvidia-ml\.so\.1: file exists",
        "the image holds files of a driver, where the toolkit wants to mount the node's",
        "use a clean image: it was made from a container with GPUs (docker commit, enroot export); remove "
        "libnvidia-* and libcuda.* from it",
        "NVIDIA/nvidia-docker#1551",
    ),
    Diagnosis(
        "container.seccomp",
        r"seccomp filter failed|seccomp.*(not supported|Function not implemented)|error loading seccomp",
        "the kernel, or the engine's seccomp library, is too old for the engine",
        "use a newer kernel, libseccomp and engine",
        "NVIDIA/pyxis #6, #42",
    ),
    Diagnosis(
        "container.fuse",
        r"fuse: (device not found|failed to open /dev/fuse|failed to exec fusermount)|modprobe fuse"
        r"|squashfuse.*(not found|failed)|fusermount3?: .*(not found|Operation not permitted)"
        r"|Failed to mount using squashfuse",
        "FUSE is not there, which mounts images for ordinary users",
        "load it (`modprobe fuse`), install fuse3, squashfuse and fuse-overlayfs; else unpack the image "
        "(`enroot create`)",
        "libfuse's own words",
    ),
)
