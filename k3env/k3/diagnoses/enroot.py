"""What the output of a failed enroot means."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import EGRESS, Diagnosis

ENROOT = (
    Diagnosis(
        "enroot.whiteouts",
        r"enroot-(aufs2ovlfs|mksquashovlfs): failed to",
        "enroot may not write an image's layers there",
        "install enroot+caps, and let temp name a directory on a local ext4 or xfs: NFS and Lustre take no whiteouts",
        "NVIDIA/enroot #10, #30, #44, #69, #141",
    ),
    Diagnosis(
        "enroot.reference",
        r"registry-1\.docker\.io/v2/[\w-]+\.[\w.-]+(:\d+)?/",
        "the registry in the image's name has no `#` behind it, so Docker Hub was asked",
        "write docker://REGISTRY#IMAGE:TAG, for pyxis REGISTRY#IMAGE:TAG",
        "NVIDIA/pyxis#39; NVIDIA/enroot#8",
    ),
    Diagnosis(
        "enroot.credentials",
        r"returned error code: 40[13]\b",
        "the registry does not give this image to this user",
        "give credentials: {secret: file:PATH}, with the line `machine nvcr.io login $oauthtoken password TOKEN`, and"
        " see that the source names the user: docker://$oauthtoken@nvcr.io#…",
        "NVIDIA/enroot #161, its doc/cmd/import.md",
    ),
    Diagnosis(
        "enroot.answer",
        r"Could not process JSON input",
        "the registry, or a proxy before it, answered with something else than a manifest: mostly it refuses",
        "see credentials, and https_proxy; old tokens lie in ~/.cache/enroot/.tokens.*: remove them",
        "NVIDIA/enroot #18, #143",
    ),
    Diagnosis(
        "enroot.no_image",
        r"returned error code: 404\b|Invalid image reference|\[ERROR\] Invalid argument: ",
        "there is no such image or tag",
        "see source: docker://REGISTRY#IMAGE:TAG, with `#` behind the registry",
        "NVIDIA/enroot, src/docker.sh",
    ),
    Diagnosis(
        "enroot.busy",
        r"returned error code: (429|5\d\d)\b",
        "the registry gives nothing at the moment",
        "run it again later; with credentials a registry allows more",
        "NVIDIA/enroot, src/docker.sh",
    ),
    Diagnosis(
        "enroot.disk",
        r"Write failed because|(Cannot write|mkdir|tar): .*(No space left on device|Disk quota exceeded)"
        r"|FATAL ERROR.*(No space|quota)",
        "no room, where layers are unpacked or where the image is written",
        "set temp to a larger local disk: three times the image is needed; see `df -h` and the quota of path",
        "NVIDIA/enroot #83, #187; NVIDIA/pyxis #53",
    ),
    Diagnosis(
        "enroot.checksum",
        r"^(\[ERROR\] )?Checksum mismatch",
        "a layer came broken",
        "run it again; see what stands between this node and the registry",
        "NVIDIA/enroot, src/docker.sh",
    ),
    Diagnosis(
        "enroot.tool",
        r"\[ERROR\] Command not found:|enroot-\w+: command not found",
        "a program that enroot imports with is missing",
        "install it: curl, jq, parallel, zstd, squashfs-tools, and all of enroot's own packages; for dockerd:// docker",
        "NVIDIA/enroot, src/common.sh; NVIDIA/pyxis #8",
    ),
    Diagnosis(
        "enroot.egress",
        r"curl: \((5|6|7|28|35|52|56|97)\)",
        "the registry can't be reached from this node",
        EGRESS,
        "curl's messages",
    ),
)
