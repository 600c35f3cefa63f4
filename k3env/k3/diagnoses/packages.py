"""What it means when a package can't be unpacked, described or built."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import BY_PIP, Diagnosis

PACKAGES = (
    Diagnosis(
        "pip.broken",
        r"cannot import name '(main|\w+)' from '?pip\b|No module named '?pip\._",
        "the environment's pip is damaged, or two versions of it are mixed",
        "make the environment anew, or mend it: `python -m ensurepip --upgrade`",
        "pip's own words",
    ),
    Diagnosis(
        "pip.user_site",
        r"Can(not| not) perform a '--user' install|User site-packages are not visible",
        "pip is told to install into ~/.local, which this environment does not see",
        "unset PIP_USER, and remove `user` from pip.conf",
        "pip's own words",
    ),
    Diagnosis(
        "pip.not_archive",
        r"cannot detect archive format|Cannot unpack file|is not a zip file|invalid Zip archive"
        r"|not a gzip file",
        "a download is no archive: mostly a page of a proxy or of a login",
        "see what the URL gives (`curl -LI URL`), and the proxy",
        "pip's own words",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.inconsistent",
        r"has inconsistent (name|version|metadata)|inconsistent with the wheel filename"
        r"|metadata .*does not match",
        "a package says another name or version of itself than was asked for",
        "see the requirement, and the file name of a wheel that was renamed",
        "pip's own words",
    ),
    Diagnosis(
        "pip.rust",
        r"can't find Rust compiler|[Cc]argo, the Rust package manager, is not installed|requires Rust"
        r"|rustc? .*is not supported by the following package",
        "a package is built from source, by a Rust compiler that is not there or too old",
        "ask for a version that has a wheel for this Python and processor, upgrade the environment's pip, "
        "or install Rust",
        "setuptools-rust's and maturin's own words",
    ),
    Diagnosis(
        "pip.damaged",
        r"^UnicodeDecodeError: |^RecursionError: |^json\.decoder\.JSONDecodeError: |^_csv\.Error: ",
        "the metadata of an installed package is damaged, of which one pip does not say",
        "move the environment aside and build it anew",
        "pip's traceback, through importlib.metadata",
        also=r"_internal/metadata/|importlib[./]_?metadata|direct_url",
    ),
    Diagnosis(
        "pip.metadata",
        r"error in \S+ setup command|must be a (string or list of strings|string or iterable"
        r"|list of strings)|invalid metadata|InvalidMetadata|Invalid metadata",
        "a package's own description is not what setuptools or pip takes",
        "ask for a newer version of it; for an old one, have an older setuptools and set no_build_isolation",
        "setuptools' own words",
        near=BY_PIP,
    ),
    Diagnosis(
        "pip.socks",
        r"Missing dependencies for SOCKS support|Unable to determine SOCKS version"
        r"|check_hostname requires server_hostname|Proxy URL had no scheme|Failed to parse: .*proxy",
        "the proxy's URL is not one that pip takes",
        "write it whole, with its scheme (http://HOST:PORT); for socks5 install PySocks without the proxy first",
        "pip's own words",
    ),
    Diagnosis(
        "pip.tls",
        r"(WRONG_VERSION_NUMBER|wrong version number|UNSAFE_LEGACY_RENEGOTIATION|ALERT_HANDSHAKE_FAILURE"
        r"|handshake failure|PROTOCOL_VERSION|tlsv1 alert|unsupported protocol\b(?! scheme)|DH_KEY_TOO_SMALL)",
        "a server, or a proxy before it, speaks another TLS than this program",
        "see https_proxy (its own URL begins with http:// mostly); an old server or an old OpenSSL: use "
        "another mirror, or a newer image",
        "OpenSSL's own words; conan-io/conan#14371",
        passes=True,
    ),
    Diagnosis(
        "pip.hash_missing",
        r"[Hh]ashes are required in --require-hashes mode",
        "a requirement has no hash, where all must have one",
        "add its hash to the file of requirements (`pip hash FILE`), or leave --require-hashes "
        "(PIP_REQUIRE_HASHES) out",
        "pip's own words",
    ),
)
