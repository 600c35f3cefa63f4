"""What the image file must be."""

from __future__ import annotations

from typing import Optional

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts.image import COMPRESSORS, Architecture, Image, Unpacker, architecture, image, unpacker
from k3env.node.facts.inside import Inside, inside
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Profile

NO_IMAGE = "no image file in this play: the variable container names none"
IN_CONTAINER = "in a container the image's file can't be seen: run it outside of it"
# Not in an image that is being made: the file would be its own.
_CONTEXTS = ("job", "login")
_AGAIN = "copy it again, or remove it and import it: invoke stage --tags image"


@check("system.image_sqsh", image, inside, scope="static", severity="fail", contexts=_CONTEXTS)
def image_sqsh(image: Image, inside: Inside, profile: Profile) -> Finding:
    """The image is a whole squashfs file, by an absolute path."""
    if image.path is None:
        return skip(NO_IMAGE)
    if not image.path.startswith("/"):
        return fail(
            expected="an absolute path of an image file",
            found=image.path,
            remedy="write the path from / on: pyxis takes a bare NAME.sqsh for an image in a registry",
        )
    if image.size is None and inside.container is not None:
        return skip(IN_CONTAINER)
    problem = _unlike(image)
    if problem is not None:
        return problem
    return passed(f"squashfs {image.version}, {image.compressor}, {image.bytes_used} bytes")


@check("system.image_compressor", image, unpacker, inside, scope="static", severity="fail", contexts=_CONTEXTS)
def image_compressor(image: Image, unpacker: Unpacker, inside: Inside, profile: Profile) -> Finding:
    """What unpacks images on this machine knows the image's compressor."""
    if image.path is None:
        return skip(NO_IMAGE)
    if not image.magic:
        return skip("no squashfs: see system.image_sqsh")
    if unpacker.program is None and inside.container is not None:
        return skip(IN_CONTAINER)
    if unpacker.program is None:
        return unknown("no unsquashfs in PATH to ask which compressors it knows: it is in the package squashfs-tools")
    if isinstance(unpacker.compressors, Unreadable):
        return unknown(unpacker.compressors.reason)
    if image.compressor not in unpacker.compressors:
        return fail(
            expected=f"one of {', '.join(unpacker.compressors)}",
            found=image.compressor,
            remedy="import the image again with another one: ENROOT_SQUASH_OPTIONS='-comp zstd -noD'"
            if image.compressor in COMPRESSORS.values()
            else _AGAIN,
        )
    return passed(image.compressor)


@check("system.image_arch", architecture, inside, scope="static", severity="fail", contexts=_CONTEXTS)
def image_arch(architecture: Architecture, inside: Inside, profile: Profile) -> Finding:
    """The image's programs are for the nodes' CPUs."""
    if architecture.image is None:
        return skip(NO_IMAGE)
    if isinstance(architecture.image, Unreadable) and inside.container is not None:
        return skip(f"{IN_CONTAINER}; {architecture.image.reason}")
    if isinstance(architecture.image, Unreadable):
        return unknown(architecture.image.reason)
    wanted = profile.system.image_arch
    if wanted is None and profile.context == "login":
        return skip(
            f"the image is for {architecture.image}; a login node may be of another kind than the others:"
            " set system: image_arch in the site file"
        )
    wanted = wanted or architecture.here
    if architecture.image != wanted:
        return fail(
            expected=f"programs for {wanted}",
            found=f"programs for {architecture.image}",
            remedy=f"import the image of that architecture: invoke stage --tags image, with image_arch {wanted}",
        )
    return passed(architecture.image)


def _unlike(image: Image) -> Optional[Finding]:
    """Return how the file is not what it should be."""
    if image.size is None:
        return fail(expected=f"the file {image.path}", found="no such file", remedy="mend the variable container")
    if not image.magic:
        return fail(expected="a squashfs file", found=f"{image.size} bytes of something else", remedy=_AGAIN)
    if not 0 < image.bytes_used <= image.size:
        return fail(
            expected=f"{image.bytes_used} bytes or more, by its superblock",
            found=f"{image.size} bytes: it was cut",
            remedy=_AGAIN,
        )
    return None
