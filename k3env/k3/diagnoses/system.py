"""What the output of any program means where its own table knows nothing: the words of the C library and the shell.

Those in LAST are said by the way as well: they count where they are among the last errors alone.
"""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import Diagnosis

SYSTEM = (
    Diagnosis(
        "system.lustre",
        r"transport endpoint shutdown|Transport endpoint is not connected|ESHUTDOWN|Host is down"
        r"|Remote I/O error|Structure needs cleaning",
        "a filesystem is gone: its server threw this node out, its helper died, or it is damaged",
        "see `findmnt -T PATH`, the kernel's log (`dmesg`), and the same path on other nodes; mount it anew",
        "the C library's words: ESHUTDOWN, ENOTCONN, EHOSTDOWN, EREMOTEIO, EUCLEAN",
    ),
    Diagnosis(
        "system.locks",
        r"[Nn]o locks available|Errno 37\b|os error 37\b|flock.*(not supported|Function not implemented)"
        r"|lock.*Function not implemented",
        "the filesystem gives no locks",
        "mount NFS with its lock service (NFS 4) and Lustre with -o flock, or keep what is locked on a local disk",
        "fcntl(2), ENOLCK",
    ),
    Diagnosis(
        "system.key_expired",
        r"Required key not available|Key has expired|Errno 12[678]\b|Ticket expired|No Kerberos credentials",
        "the ticket for a secured filesystem has run out",
        "take a new one (`kinit`) on that node, or use a service that keeps it fresh",
        "open(2), ENOKEY, EKEYEXPIRED",
    ),
    Diagnosis(
        "system.arguments",
        r"Argument list too long|E2BIG",
        "a command line or the environment is too long",
        "clear what fills the environment (`env | wc -c`), such as a long LD_LIBRARY_PATH or PATH",
        "execve(2), E2BIG",
    ),
    Diagnosis(
        "system.not_bash",
        r": (source|shopt|declare|pushd|mapfile|typeset|\[\[): (command )?not found|Syntax error: \"(\("
        r"|redirection)|[Bb]ad substitution|Illegal option -o pipefail|Syntax error: end of file unexpected",
        "a script for bash is run by another shell",
        "run it by bash: `bash SCRIPT`; as a batch script let it begin with #!/bin/bash",
        "dash's own words; sgl-project/sglang#3512",
    ),
    Diagnosis(
        "system.cross_link",
        r"Invalid cross-device link|os error 18\b|Errno 18\b",
        "a file is moved or linked between two filesystems",
        "let TMPDIR and the cache lie on the filesystem of what is made",
        "link(2), EXDEV",
    ),
    Diagnosis(
        "system.busy_file",
        r"Text file busy|\.nfs[0-9a-f]{8,}|Errno 26\b|Device or resource busy|Directory not empty",
        "a file is in use, here or on another node of a shared filesystem",
        "see who has it open (`fuser -v PATH`, on all nodes); end that, then run it again",
        "unlink(2), NFS",
        follows=True,
    ),
    Diagnosis(
        "system.newer_libraries",
        r"version `(GLIBC|GLIBCXX|CXXABI|GCC)_[\d.]+' not found",
        "a program or library was built on a newer system than the one it runs on",
        "run it in the image in which it was built, and keep conda's libraries out of LD_LIBRARY_PATH",
        "pytorch/pytorch #87279, #157709; NVIDIA/TensorRT #1124",
    ),
    Diagnosis(
        "system.memory",
        r"oom[-_]kill|Out of memory: Killed process|Exceeded .*memory limit|MemoryError\b|out of memory: Killed",
        "memory ran out: the node's, or what the job or container may use",
        "ask for more (--mem, the container's --memory), or start fewer processes",
        "Slurm's and the kernel's own words",
    ),
    Diagnosis(
        "system.disk",
        r"(?i:no space left on device|disk quota exceeded)|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        "make room where the named file lies; see `df -h`, `df -i` and the quota",
        "write(2), ENOSPC and EDQUOT",
    ),
    Diagnosis(
        "system.stale_handle",
        r"(?i:stale (nfs )?file handle)|Errno 116\b",
        "a file on a shared filesystem vanished while it was used",
        "see that nothing else works there, then run it again",
        "open(2), ESTALE",
    ),
    Diagnosis(
        "system.io",
        r"(?i:input/output error)|Errno 5\b",
        "the disk, or the server of a shared filesystem, fails",
        "see the kernel's log (`dmesg`), and the filesystem's state on other nodes; then run it again",
        "read(2), EIO",
    ),
    Diagnosis(
        "system.read_only",
        r"(?i:read-only file system)|Errno 30\b",
        "the filesystem can't be written: it is mounted read-only, or its disk has failed",
        "see `findmnt -T PATH`, in a container container.mounts, and the kernel's log",
        "open(2), EROFS",
    ),
    Diagnosis(
        "system.killed",
        r"died with <Signals\.SIGKILL: 9>|^Killed$|\bKilled +\S*(python[\d.]*|pip|cmake|ninja|g?make|git|conan)\b",
        "a program was killed (SIGKILL): by the kernel, where memory ran out, or by somebody",
        "see whether memory ran out: the kernel's log (`dmesg`), memory.events of the job's or container's cgroup; "
        "then give it more, or set trtllm_jobs lower (4 GiB for each job); else run it again",
        "signal(7); subprocess.CalledProcessError; bash",
        follows=True,
    ),
    Diagnosis(
        "system.ended",
        r"died with <Signals\.SIG(TERM|INT|HUP|QUIT|XCPU)|^(Terminated|Hangup)$",
        "a program was ended from outside: by a job's or container's end, a shutdown, or somebody",
        "see who ends what runs here (the job's time limit, `last -x`); then run it again",
        "signal(7); subprocess.CalledProcessError; bash",
        follows=True,
    ),
)

LAST = (
    Diagnosis(
        "system.static_tls",
        r"cannot allocate memory in static TLS block",
        "a library must be loaded before others: its thread-local storage finds no room",
        "set LD_PRELOAD to the named library (libgomp, libjemalloc) in the task's environment",
        "glibc, ld.so; aarch64",
    ),
    Diagnosis(
        "system.library",
        r"lib\S+\.so[\d.]*: cannot open shared object file|cannot load MPI library",
        "a shared library is not found: this is not the image that it was built in, or LD_LIBRARY_PATH lost an entry",
        "see with `ldd FILE | grep 'not found'` what is missing; run it in the image that it was built in, where "
        "nothing overwrites LD_LIBRARY_PATH; see the check system.container_libs",
        "#167, #218, #442, #6102, #7263; NVIDIA/nim-deploy #18",
    ),
    Diagnosis(
        "system.mixed_libraries",
        r"undefined symbol: |symbol lookup error",
        "two libraries are of different builds",
        "see which file is meant and where it lies: nothing of ~/.local, of conda or of another checkout may come "
        "before the environment's; see the check venv.shadowed",
        "triton-inference-server/tensorrtllm_backend#618",
    ),
    Diagnosis(
        "system.not_allowed",
        r"(?<!bashrc: )(?<!profile: )(?i:permission denied)(?! \(.*(publickey|password|keyboard))|Errno 13\b|EACCES",
        "this user may not read, write or run something",
        "see `namei -l PATH` for the named path; run as its owner (k3_user); for a program, see that its filesystem is "
        "not mounted noexec",
        "open(2), EACCES",
    ),
    Diagnosis(
        "system.no_program",
        r"^(.*: )?(line \d+: )?[\w.+-]+: command not found|^\S*sh: \d+: [\w./+-]+: not found"
        r"|executable file \S* ?not found in \$PATH|No such file or directory: '(python[\d.]+|[\w+-]+)'$",
        "a program is missing, or PATH does not lead to it",
        "install it, in the image where one is used, or mend PATH",
        "the shell's own words",
    ),
    Diagnosis(
        "system.usage",
        r"error: (unrecognized arguments|the following arguments are required|argument \S+: (invalid|expected))"
        r"|[Nn]o such option:? |unrecogni[sz]ed option |invalid option -- |[Gg]ot unexpected extra argument"
        r"|Missing option ",
        "a program does not take the options that it is called with: it is of another version than they are "
        "written for",
        "see its --help, and which one PATH leads to",
        "argparse's, click's and getopt's own words",
    ),
    Diagnosis(
        "system.network",
        r"Connection (refused|timed out|reset by peer)|Could not resolve host|Name or service not known"
        r"|[Nn]ame resolution|Network is unreachable|No route to host|Max retries exceeded"
        r"|Couldn't connect to server|Failed to connect to \S+ port|Operation timed out|i/o timeout"
        r"|curl: \((5|6|7|28|35|52|56)\)|wget: unable to resolve",
        "a server, or another node, is out of reach, or the connection broke",
        "see the named host and port: DNS, proxy (`https_proxy`, `no_proxy`), firewall, and whether "
        "something listens there",
        "the C library's and curl's words",
    ),
    Diagnosis(
        "system.crash",
        r"free\(\): |malloc\(\): |double free or corruption|corrupted (size|double-linked|unsorted)"
        r"|munmap_chunk\(\)|stack smashing|Signal: (Aborted|Segmentation|Bus|Illegal)|SIG(SEGV|BUS|ILL)\b"
        r"|Segmentation fault|Bus error|\(core dumped\)|Illegal instruction|died with <Signals\.SIG(SEGV|BUS|ILL|ABRT)",
        "a program crashed",
        "run it again; if it stays: for a bus error see the room in /dev/shm (system.shm), for an illegal instruction "
        "the processor that it was built for, else the program's versions",
        "signal(7)",
    ),
)
