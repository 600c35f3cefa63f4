"""What it means when git can't work in a checkout."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import BY_GIT, Diagnosis

WORKTREE = (
    Diagnosis(
        "git.ref_conflict",
        r"cannot lock ref '[^']*': '[^']*' exists; cannot create|refname conflict"
        r"|some local refs could not be updated",
        "a branch was replaced upstream by a directory of branches of its name",
        "run `git remote prune origin` in the checkout",
        "git's own words",
    ),
    Diagnosis(
        "git.alternates",
        r"unable to normalize alternate object path|object directory \S+ does not exist; check|alternates",
        "the checkout takes its objects from another one, which is gone or not mounted",
        "mount it at its own path, or clone anew without --reference and --shared",
        "git's own words",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.killed",
        r"Killed by signal (15|2|9)|fetch-pack died of signal|index-pack died of signal|died of signal (15"
        r"|2)",
        "git was ended from outside: a deadline, a cancelled job, or memory",
        "run it again with more time and memory; for a slow network see trtllm_url",
        "scream#2083; git's and ssh's own words",
    ),
    Diagnosis(
        "git.too_big",
        r"RPC failed; HTTP (413|414)|[Rr]equest [Ee]ntity [Tt]oo [Ll]arge",
        "the server, or a proxy before it, takes no request of that size",
        "fetch over ssh, or see the proxy",
        "git's own words",
    ),
    Diagnosis(
        "git.config",
        r"bad ((numeric|boolean) )?config (line|value|file line|variable)|unable to (access"
        r"|read) \'?\S*config\S*\'?: Permission|could not lock config file \S*(\.gitconfig|/git/config):"
        r"|\$HOME not set",
        "git can't read or write its configuration: a file of it is damaged, another user's, or HOME names "
        "no directory",
        "see `git config --list --show-origin`; let HOME name a directory of this user",
        "git's own words",
    ),
    Diagnosis(
        "git.path",
        r"error: invalid path '|File name too long|unable to create symlink",
        "the filesystem can't hold a file of the repository: its name or kind",
        "have the checkout on a local ext4 or xfs, or on NFS 4",
        "git's own words",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.old",
        r"unknown (option|switch) `|error: unknown option|git: '(?!lfs|remote)[\w-]+' is not a git command"
        r"|Unknown subcommand|[Uu]nknown repository extension|Expected git repo version"
        r"|unsupported repository|unable to parse (object|default)",
        "this git is older than what is asked of it, or than the git that made the checkout",
        "use a newer git (2.25 or later), the same on all nodes and in the image",
        "git's own words",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.moved",
        r"not a git repository: \S*/?\.git/(modules|worktrees)/"
        r"|Unable to find current .*revision in submodule path|Needed a single revision",
        "a submodule, or a worktree, of the checkout is cut off or was moved",
        "run `git submodule deinit -f PATH` and `git submodule update --init PATH`, or clone anew",
        "git's own words",
    ),
)
ON_DISK = (
    Diagnosis(
        "git.index",
        r"index file (corrupt|smaller than expected|open failed)|bad index file|bad (index file )?signature 0x"
        r"|bad index version",
        "the index of the checkout, or of a submodule, is damaged: a disk that was full, or a node that went down",
        "remove the file `git rev-parse --git-path index` names there, then run `git reset`: files stay as they are",
        "git, read-cache.c",
    ),
    Diagnosis(
        "git.corrupt",
        r"object file \S+ is empty|loose object \S+ .*is corrupt"
        r"|packfile \S+ .*cannot be|pack has bad object|inflate: data stream error|bad object HEAD",
        "files of git in the checkout are damaged: a disk that was full, or a node that went down",
        "move the checkout aside and clone it anew",
        "git's own words",
    ),
    Diagnosis(
        "git.lock",
        r"Unable to create '.*\.lock': File exists|config file .*: File exists"
        r"|Another git process seems to be running|cannot lock ref",
        "another git works in this checkout, or one was cut off",
        "see that no git runs there on any node, then remove the lock file",
        "git's own words",
    ),
    Diagnosis(
        "git.untracked",
        r"untracked working tree files would be (overwritten|removed)|The following (untracked|ignored) .*overwritten",
        "files that git does not track stand where the wanted commit has its own",
        "move them away",
        "git's own words",
    ),
    Diagnosis(
        "git.local_changes",
        r"Your local changes to the following files would be overwritten|commit your changes or stash them",
        "local changes stand where the wanted commit changes something",
        "commit or stash them",
        "git's own words",
    ),
    Diagnosis(
        "git.filesystem",
        r"chmod on .* failed|Unable to open \S+\.lock for writing|could not (lock config file|set 'core\.)"
        r"|fsync error|Bad file descriptor",
        "the filesystem refuses what git needs of it: locks, modes or renames",
        "have the checkout on a filesystem that grants them: a local one, Lustre mounted with -o flock, or NFS 4; see "
        "`findmnt -T PATH`",
        "trapexit/mergerfs#626; puphpet/puphpet#2671; lightgbm-org/LightGBM#4318",
        near=BY_GIT,
    ),
    Diagnosis(
        "git.no_helper",
        r"remote helper for 'https?'|'remote-https?' is not a git command|cannot run ssh: No such file",
        "this git lacks a part: https needs git-remote-https, ssh a client",
        "install git whole (apt-get install git, dnf install git) and openssh-client",
        "git's own words",
    ),
    Diagnosis(
        "git.write",
        r"unable to (write new[ _]index file|create temporary file|write (loose object|sha1|file))"
        r"|could not create work tree dir",
        "git could not write a file",
        "see room, quota and owner of the checkout: `df -h`, `df -i`",
        "datalad/datalad#3181",
        follows=True,
    ),
)
