"""What it means when docker, podman, enroot or pyxis can't start a container."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import EGRESS, IMAGE_ARCH, Diagnosis
from k3env.k3.diagnoses.engine import ENGINE

CONTAINER = (
    Diagnosis(
        "container.user_namespaces",
        r"failed to create user namespace|unshare failed: |cannot clone: (Operation not permitted|Invalid argument)"
        r"|cannot (set up|create) .*user namespace|user namespaces are not enabled"
        r"|uid_map: (Operation not permitted)",
        "the kernel, or a security profile, lets this user make no user namespace",
        "raise user.max_user_namespaces; on Ubuntu see kernel.apparmor_restrict_unprivileged_userns, on Debian "
        "kernel.unprivileged_userns_clone (sysctl); see the check system.enroot_userns",
        "NVIDIA/pyxis #36, #37, #93; NVIDIA/enroot #61, its doc/requirements.md",
    ),
    Diagnosis(
        "container.subids",
        r"insufficient UIDs or GIDs available|not be enough IDs available|no subuid ranges found"
        r"|new[ug]idmap\W.*(not found|no such file|failed|not allowed|exit status)|cannot find new[ug]idmap"
        r"|cannot be mapped to a host ID|No subuid ranges",
        "a rootless engine has too few user ids for this user",
        "give the user a range of 65536 in /etc/subuid and /etc/subgid, install newuidmap (package uidmap or "
        "shadow-utils), then run `podman system migrate` as the user",
        "containers/podman #3421, #4921, #5751, #12715, #21130, #22092; its troubleshooting.md",
    ),
    *ENGINE,
    Diagnosis(
        "container.driver_too_old",
        r"unsatisfied condition: cuda|requirement error: .*cuda|unsatisfied condition: (brand|driver)"
        r"|unsupported CUDA version: driver|please update your driver to a newer version",
        "the image needs a newer NVIDIA driver than this node has",
        "upgrade the driver: CUDA 13 needs 580 or later; see the check gpu.driver.version",
        "NVIDIA/nvidia-container-toolkit; libnvidia-container, requirements",
    ),
    Diagnosis(
        "container.gpu",
        r"nvidia-container-cli: |could not select device driver|unresolvable CDI devices|setting up CDI devices"
        r"|failed to inject (CDI )?devices|unknown or invalid runtime name: nvidia"
        r"|nvidia-container-runtime\S*: (no such file|not found)|hooks\.d/98-nvidia\.sh exited with"
        r"|error (executing|running) hook .*nvidia|nvidia-container-(runtime-hook|toolkit)\S* .*(exit (code"
        r"|status)|failed)|nvidia-ctk\S*: .*(not found|no such file|failed)",
        "the engine can't put the GPUs into the container: no driver is loaded, or the NVIDIA Container Toolkit is not "
        "installed, not set up, or older than the driver",
        "see that `nvidia-smi` works on the node; install nvidia-container-toolkit, then, as root, `nvidia-ctk runtime "
        "configure` for docker, `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` for podman; see system.toolkit",
        "NVIDIA/nvidia-container-toolkit #131, #146, #183, #230, #679, #885",
    ),
    Diagnosis(
        "container.arch",
        r"no (matching manifest|image found in (image index|manifest list)|child with platform).*(for|in manifest)"
        r"|requested image's platform .* does not match|image operating system|exec format error|Exec format error",
        "the image, or a program in it, is for another processor: GB200 and GB300 hosts are aarch64",
        IMAGE_ARCH,
        "jenkins/current_image_tags.properties; docker's and podman's own words",
    ),
    Diagnosis(
        "container.engine",
        r"(Cannot connect to the (Docker|Podman) (daemon|socket)"
        r"|permission denied while trying to connect to the Docker"
        r"|Got permission denied while trying to connect to the Docker|unable to connect to Podman)",
        "the engine does not answer this user",
        "start docker, add the user to its group, or use enroot or podman",
        "docker's own words",
    ),
    Diagnosis(
        "container.disk",
        r"(blob|[Ll]ayer|/var/lib/(docker|containers)|containers/storage|overlay"
        r"|/hooks\.d/).*(?i:no space left on device)",
        "the disk on which the engine keeps images is full",
        "make room: `docker system df` and `podman system df` show what is kept, `enroot list` the containers; or keep "
        "images on a larger local disk",
        "docker's and podman's own words; NVIDIA/enroot #39",
    ),
    Diagnosis(
        "container.certificate",
        r"x509: certificate",
        "the registry's certificate is not trusted here",
        "put the site's certificate into /etc/docker/certs.d/HOST/ca.crt or /etc/containers/certs.d/HOST/ca.crt, or "
        "among the system's",
        "docker's and podman's own words",
    ),
    Diagnosis(
        "container.egress",
        r"(Error response from daemon|pinging container registry|/v2/).*(dial tcp|no such host|[Tt]imeout"
        r"|deadline exceeded"
        r"|request canceled|connection re(fused|set)|proxyconnect)",
        "the registry can't be reached from this node",
        f"{EGRESS}; dockerd has a proxy of its own, in its systemd unit",
        "docker's and podman's own words",
    ),
    Diagnosis(
        "container.rate_limit",
        r"toomanyrequests|pull rate limit|429 Too Many Requests",
        "the registry allows no more pulls at the moment",
        "log in to it (`docker login`, `podman login`), use a mirror, or run it again later",
        "docker's own words",
    ),
    Diagnosis(
        "container.credentials",
        r"unauthorized: |denied: (requested access|access forbidden|Your |403)|no basic auth credentials"
        r"|(requesting|reading) (bearer|manifest|blob|config|image|token)\b.*(unauthorized"
        r"|denied)\b|unable to retrieve auth token|fetch (oauth|anonymous) token"
        r"|failed to authorize"
        r"|status: 40[13] (Unauthorized|Forbidden)",
        "the registry does not give this image to this user",
        "log in as the user who runs this: `docker login nvcr.io`, `podman login nvcr.io`, name $oauthtoken, the API "
        "key as password; for enroot a line in ~/.config/enroot/.credentials",
        "docker's and podman's own words",
    ),
    Diagnosis(
        "container.cgroup",
        r"(OCI runtime|crun|runc).*cgroup|cgroup.*([Pp]ermission denied|[Rr]ead-only file system)|sd-bus call"
        r"|dial unix /run/user/\d+/bus",
        "the engine may not use control groups here",
        "run it in a session of its own (`loginctl enable-linger USER`), or use enroot",
        "podman's troubleshooting.md",
    ),
    Diagnosis(
        "container.runtime_dir",
        r"cannot create directory '[^']*enroot[^']*': |couldn't mkdir /run/pyxis|mkdir /run/\S+: permission denied"
        r"|creating runtime (static files )?directory|creating tmpdir: mkdir /run/|XDG_RUNTIME_DIR .*(not set"
        r"|not owned)"
        r"|couldn't mkdir \S*pyxis",
        "the engine's directories can't be made: there is no session of this user, or their parent is another's",
        "set ENROOT_RUNTIME_PATH and ENROOT_DATA_PATH to directories of the user, or run `loginctl enable-linger "
        "USER`; "
        "pyxis wants /run/pyxis, or its runtime_path; see the checks system.enroot_paths and system.pyxis",
        "NVIDIA/pyxis #4, #8, #12; NVIDIA/enroot, doc/configuration.md",
    ),
    Diagnosis(
        "container.overlay",
        r"not supported over \w+ at|backing file system is unsupported for this graph driver"
        r"|failed to mount overlay|fuse-overlayfs: (cannot mount|unknown option)|overlayfs: (maximum|failed)"
        r"|(processing tar file|ApplyLayer|lsetxattr|Llistxattr|mknod"
        r"|lchown).*([Oo]peration not (permitted|supported)|[Pp]ermission denied|[Ii]nvalid argument)",
        "images can't be kept on this filesystem: NFS and Lustre take no overlays, devices and extended attributes",
        "keep them on a local disk: graphroot in storage.conf for podman, data-root for docker, ENROOT_DATA_PATH for "
        "enroot",
        "containers/podman #3673, #8521; NVIDIA/enroot #30, #44",
    ),
    Diagnosis(
        "container.squashfs",
        r"Squashfs image uses \w+ compression|uses \w+ compression, (this is an? )?unsupported"
        r"|Failed to mount: .*\.sqsh"
        r"|Can't find a (valid )?SQUASHFS superblock|Invalid image format|(un)?squashfs.*(corrupt|[Rr]ead failed)",
        "this node can't read the squashfs image: its compressor is not known here, or the file is cut off",
        "import it with compressor: zstd, or gzip for old nodes (the module enroot_image does), and compare its size "
        "with the original's; see the checks system.image_compressor and system.image_sqsh",
        "NVIDIA/enroot #6",
    ),
    Diagnosis(
        "container.mount",
        r"enroot-mount: failed to mount|bind source path does not exist|statfs /\S+: no such file"
        r"|error mounting \"[^\"]+\" to rootfs|invalid mount config|Error: stat /\S+: no such file or directory",
        "a directory that is to be mounted is not on this node, or root may not look into it",
        "see container.mounts and that the checkout's path is on this node; a home on NFS with root_squash can't be "
        "mounted as root: set k3_user",
        "NVIDIA/enroot #140; docker's and podman's own words",
    ),
    Diagnosis(
        "container.name",
        r"container name \"?/?\S+\"? is already in use|name \S+ is (already )?in use|[Cc]ontainer already exists",
        "a container of that name is there already",
        "remove it, if nobody works in it (`docker rm NAME`, `podman rm NAME`, `enroot remove NAME`)",
        "docker's, podman's and enroot's own words",
    ),
    Diagnosis(
        "container.pyxis",
        r"unrecognized option '--container-|spank_pyxis\.so.*(not found|Incompatible|No such file)",
        "this Slurm has no pyxis, or it does not load",
        "see plugstack.conf and the check system.pyxis; without pyxis start enroot itself",
        "NVIDIA/pyxis, its wiki",
    ),
    Diagnosis(
        "container.policy",
        r"is rejected by policy",
        "this node's policy takes no images from that registry",
        "see /etc/containers/policy.json, and ~/.config/containers/policy.json",
        "containers/podman#9114",
    ),
    Diagnosis(
        "container.image",
        r"manifest unknown|pull access denied|No such file or directory: .*\.sqsh"
        r"|\[ERROR\] No such (file or directory|container)|initializing source docker://|not found: manifest"
        r"|a container with name \S+ does not exist|name unknown|invalid reference format"
        r"|short-name .* did not resolve",
        "the container image is not there",
        "see that `container.image` names an image that this node can pull, or a .sqsh path that it sees",
        "docker's, podman's and enroot's own words; NVIDIA/enroot #249",
    ),
)
