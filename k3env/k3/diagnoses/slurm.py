"""What it means when Slurm does not start a run, or ends it."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import Diagnosis

SLURM = (
    Diagnosis(
        "run.slurm_controller",
        r"Unable to contact slurm controller|slurm_load_\w+ error|Zero Bytes were transmitted"
        r"|Protocol authentication error|[Mm]unge (encode|decode) failed|Invalid (job|user) credential"
        r"|Socket timed out on send/recv",
        "Slurm's daemons are not reached, or munge does not prove who asks",
        "see `scontrol ping`, munged and the clocks on both nodes; in a container mount /run/munge and "
        "/etc/slurm; see slurm.munge",
        "Slurm's own words",
    ),
    Diagnosis(
        "run.slurm_launch",
        r"Task launch for StepId=?\S* failed|task \d+ launch failed|launch failed: "
        r"|Unable to create step for job|error: Unable to confirm allocation|couldn\'t chdir to",
        "Slurm could not start the step on a node",
        "see `scontrol show node NAME`, and slurmd's log there; the working directory must be on the node; "
        "what srun inherits from an outer step: unset SLURM_*",
        "Slurm's own words",
        follows=True,
    ),
    Diagnosis(
        "run.cancelled",
        r"CANCELLED AT \S+ DUE TO (NODE FAILURE|PREEMPTION|JOB REQUEUE)|DUE to SIGNAL|Job has been cancelled"
        r"|NODE_FAIL",
        "the job was ended from outside: its node failed, or others came first",
        "see `sacct -j JOB -o State,ExitCode,Reason%40`, and the node (`scontrol show node NAME`)",
        "Slurm's own words",
    ),
    Diagnosis(
        "run.exclusive_options",
        r"srun: (fatal|error): .*(mutually exclusive|invalid option|unrecognized option|Invalid argument)"
        r"|sbatch: (fatal|error): .*(unrecognized option|mutually exclusive)",
        "Slurm does not take the options that it is called with",
        "see them beside `srun --help` of this version, and what SLURM_* and SRUN_* variables add",
        "Slurm's own words",
    ),
    Diagnosis(
        "run.account",
        r"Invalid account or account/partition combination",
        "Slurm knows no such account: the scripts' `${account}` is not replaced by anybody",
        "give sbatch --account=NAME before the script's path",
        "examples/kimi_k3/*.sbatch",
    ),
    Diagnosis(
        "run.inherited",
        r"set by two different environment variables|CPU binding outside of job step allocation"
        r"|Unable to satisfy cpu bind request",
        "an srun within a step took over the outer one's SLURM_ variables",
        "unset SLURM_CPU_BIND, SLURM_CPU_BIND_LIST, SLURM_CPU_BIND_TYPE, SLURM_CPUS_PER_TASK and SLURM_TRES_PER_TASK "
        "before it",
        "Slurm's own words; ishandhanani/srt-slurm#125",
    ),
    Diagnosis(
        "run.argument",
        r"^(\S+\.(sh|slurm|sbatch): |Error: |ERROR: )?(U|u)nknown argument:? ",
        "options behind the script's path are the script's, not sbatch's",
        "put sbatch's options before the script's path",
        "examples/kimi_k3/perf_sweep",
    ),
    Diagnosis(
        "run.time_limit",
        r"DUE TO TIME LIMIT",
        "the job's time was over: loading the weights alone takes 10 to 15 minutes, longer when cold",
        "ask for more time (--time), and stage the weights before",
        "examples/kimi_k3/README.md, troubleshooting",
    ),
    Diagnosis(
        "run.slurm",
        r"^(sbatch|srun|salloc): error: .*(Invalid (partition|qos|generic|feature|node|job|time)"
        r"|Requested node config|not available|violates|Unable to (allocate|create)|Socket timed out|credential)",
        "Slurm does not grant, or does not reach, what was asked for",
        "see `sinfo`, `scontrol show partition`, `sacctmgr show assoc user=$USER`; see the checks slurm.node and "
        "slurm.munge",
        "Slurm's own words",
    ),
)
