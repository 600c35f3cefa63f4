"""What the output of a failed git means."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import BY_GIT, EGRESS, Diagnosis
from k3env.k3.diagnoses.worktree import ON_DISK, WORKTREE

GIT = (
    Diagnosis(
        "git.disk",
        r"(?i:no space left on device|disk quota exceeded)",
        "the disk or the quota is full",
        "make room; see `df -h` and `df -i`",
        "git's own words",
    ),
    *WORKTREE,
    Diagnosis(
        "git.stale_handle",
        r"(?i:stale (nfs )?file handle)",
        "a file on a shared filesystem vanished while git used it",
        "see that no git works in this checkout on another node, then run it again",
        "open(2), ESTALE",
    ),
    Diagnosis(
        "git.memory",
        r"Out of memory, \w+ failed|mmap failed: Cannot allocate memory|died of signal 9|unable to create threaded",
        "git had too little memory, or too few threads",
        "run it where there is more; set pack.threads=1 and pack.windowMemory=256m in this user's git configuration",
        "git's own words",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.ownership",
        r"detected dubious ownership|unsafe repository",
        "the checkout belongs to another user, so git does not trust it",
        "run as its owner (k3_user), or, as this user, name it: git config --global --add safe.directory",
        "git, safe.directory",
    ),
    Diagnosis(
        "git.host_key",
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the git server's host key is unknown here, or has changed",
        "compare it with what the server's owner publishes, then add it to this user's ~/.ssh/known_hosts",
        "OpenSSH's own words",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.auth",
        r"Permission denied \(.*(publickey|password)|could not read (Username|Password)|terminal prompts disabled"
        r"|Authentication (failed|required)|Invalid username or (password|token)|Bad credentials"
        r"|[Cc]redentials for \S+ not found|UNPROTECTED PRIVATE KEY"
        r"|Bad owner or permissions|Too many authentication failures|no mutual signature|Load key \S+: "
        r"|requested URL returned error: 40[13]"
        r"|Repository not found|repository '.*' not found|requested URL returned error: 404",
        "the git server does not let us in, or has no such repository",
        "see the URL, and this user's key or credential helper; nobody is asked for a password",
        "git's own words; git hosts answer 'not found' to those who may not look",
        near=BY_GIT,
        passes=True,
    ),
    Diagnosis(
        "git.not_writable",
        r"^(error|fatal): .*(Permission denied|Read-only file system)|insufficient permission for adding an object",
        "this user may not write there",
        "run as the owner of the checkout (k3_user)",
        "git's own words",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.io",
        r"^(error|fatal): .*Input/output error",
        "the disk, or the server of a shared filesystem, fails",
        "see the kernel's log (`dmesg`), and the filesystem's state on other nodes; then run it again",
        "read(2), EIO; trapexit/mergerfs#626",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.no_commit",
        r"not our ref|couldn't find remote ref|unadvertised object|reference is not a tree|no such remote ref"
        r"|did not match any file\(s\) known to git|bad object [0-9a-f]{40}|Could not parse object"
        r"|but it did not contain [0-9a-f]{40}|Remote branch \S+ not found in upstream",
        "the repository has no such commit",
        "see commit and URL: a commit of a fork or of a pull request is not in the upstream repository; for a "
        "submodule, `git submodule sync --recursive`",
        "git's own words",
    ),
    Diagnosis(
        "git.ca_file",
        r"error setting certificate (verify locations|file)|Problem with the SSL CA cert",
        "the file of certificates that git is told to use can't be read",
        "mend GIT_SSL_CAINFO, SSL_CERT_FILE or http.sslCAInfo: they must name a file that is on this node, and in the "
        "container",
        "curl's own words; git-for-windows/git#363",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.certificate",
        r"certificate verification failed|SSL certificate problem|x509: certificate|local issuer certificate",
        "the git server's certificate is not trusted here",
        "set GIT_SSL_CAINFO to the site's certificate bundle in the task's environment",
        "git's own words",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.proxy",
        r"Received HTTP code \d+ from proxy|CONNECT tunnel failed|Could not resolve proxy|proxyconnect tcp"
        r"|HTTP code 407|returned error: 407|407 Proxy Authentication|Proxy CONNECT aborted",
        "the proxy does not let us through",
        "see https_proxy, http_proxy and no_proxy in the task's environment, and what the proxy allows",
        "curl's own words",
        near=BY_GIT,
        passes=True,
    ),
    Diagnosis(
        "git.busy",
        r"requested URL returned error: (429|5\d\d)|rate limit|batch response: (Service Unavailable|Bad Gateway|Gateway"
        r"|Internal|Too Many|Rate)|(Server|Client) error: \S+ from HTTP (429|5\d\d)",
        "the git server is overloaded, or limits us",
        "run it again later, or set trtllm_url to a mirror",
        "git's own words",
        near=BY_GIT,
        passes=True,
    ),
    Diagnosis(
        "git.lfs_missing",
        r"git-lfs: (command )?not found|'lfs' is not a git command|git-lfs filter-process: .*not found",
        "git-lfs is not installed",
        "install the package git-lfs (apt-get install git-lfs, dnf install git-lfs)",
        "git's own words",
    ),
    Diagnosis(
        "git.lfs_quota",
        r"over its data quota|exceeded its LFS budget",
        "the repository has used up its LFS quota",
        "use a mirror of the repository",
        "github's own words",
    ),
    Diagnosis(
        "git.lfs_object",
        r"Object does not exist on the server|Repository or object not found|remote missing object",
        "the server does not have an LFS file, or does not show it to us",
        "see that the mirror has the LFS files too (`git lfs push --all`)",
        "git-lfs's own words",
    ),
    Diagnosis(
        "git.lfs_url",
        r"unsupported protocol scheme|missing protocol: \"|Remote \"\S*\" does not exist|no remotes? (found|defined)",
        "Git LFS does not know from where to fetch: the repository is a path, or has no `origin`",
        "clone from a URL (trtllm_url), or name the server: `git config lfs.url URL` in the checkout",
        "git-lfs/git-lfs#2652",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.network",
        r"Could not resolve (host|hostname)|Failed to connect to|Connection (timed out|refused|reset)"
        r"|Network is unreachable|No route to host|early EOF|unexpected disconnect|RPC failed|the remote end hung up"
        r"|Connection closed by|Couldn't connect to server|Empty reply from server|unexpected eof|not closed cleanly"
        r"|transfer closed with|Operation timed out|Recv failure"
        r"|SSL_ERROR_SYSCALL|gnutls_handshake\(\) failed"
        r"|GnuTLS recv error|dial tcp|i/o timeout",
        "the git server is out of reach, or the connection broke",
        f"{EGRESS}; then run it again",
        "git's own words",
        near=BY_GIT,
        passes=True,
    ),
    Diagnosis(
        "git.lfs",
        r"failed to fetch some objects|Smudge error|[Ee]rror downloading object|smudge filter lfs failed"
        r"|batch (request|response): ",
        "Git LFS could not fetch a file",
        "run `git lfs pull` in the checkout, and see what `git lfs logs last` says",
        "git-lfs/git-lfs#1553",
        follows=True,
        passes=True,
    ),
    Diagnosis(
        "git.submodule_url",
        r"No url found for submodule path|Failed to recurse into submodule path|Unable to fetch in submodule path"
        r"|clone of '.*' into submodule path .* failed"
        r"|No submodule mapping found",
        "a submodule can't be fetched from where .gitmodules says",
        "run `git submodule sync --recursive` in the checkout, and see that the URL in .gitmodules is reached; a "
        "mirror "
        "needs the submodules too",
        "triton-inference-server/tensorrtllm_backend#717; grimoire/mmdetection-to-tensorrt#68",
    ),
    Diagnosis(
        "git.partial",
        r"did not send all necessary objects|could not fetch [0-9a-f]{40} from promisor remote|shallow file has changed"
        r"|error in object: unshallow|Failed to traverse parents",
        "the server gave less than the checkout needs: it knows no partial or shallow clones, or the checkout is cut",
        "clone it anew and whole; pip's clones are partial, so fetch a package from such a server by hand, and name "
        "its "
        "directory",
        "pypa/pip#11043",
    ),
    Diagnosis(
        "git.not_a_repository",
        r"does not appear to be a git repository|repository '.*' does not exist"
        r"|Could not read from remote repository",
        "there is no git repository at the URL",
        "see the URL",
        "git's own words",
        follows=True,
    ),
    Diagnosis(
        "git.transport",
        r"transport '\w+' not allowed",
        "git does not allow this kind of URL, here or in a submodule",
        "use https or ssh",
        "git, protocol.allow",
        near=BY_GIT,
    ),
    *ON_DISK,
)

GIT_ALONE = (
    Diagnosis(
        "git.not_empty",
        r"destination path '.*' already exists and is not an empty directory",
        "where git is to clone to, something else stands",
        "move it away, or name another directory",
        "git's own words",
    ),
    Diagnosis(
        "git.no_checkout",
        r"not a git repository",
        "the directory is no git checkout, or its .git leads to where nothing is",
        "see the path, and in a container that it is mounted; a worktree or submodule that was moved: clone it anew",
        "git's own words; builds of Python packages say it as well, and mean nothing by it",
    ),
    Diagnosis(
        "git.cut",
        r"index-pack failed|invalid index-pack output|fetch-pack: ",
        "what the server sent could not be taken in: the connection broke, or there was no room",
        "see `df -h` where the checkout is, then run it again",
        "git's own words",
        follows=True,
    ),
)
"""What means something where git itself was called, and nothing in the output of a build or of pip."""
