"""The messages that JAX, jaxlib and those around them print when a job fails: what each means.

Source: what the clients and services of jaxlib 0.10.2 and 0.12.0.1 print (`recorded`: it stands in
the logs under `tests/data/logs`, which `tests/explain` makes again with the jaxlib that is installed),
and public reports of users (`reported`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from jax_bridge.explain.classes import FailureClass
from jax_bridge.platforms import CANCELLED

USER = FailureClass.USER_ERROR
INFRASTRUCTURE = FailureClass.INFRASTRUCTURE
PREEMPTION = FailureClass.PREEMPTION
TEARDOWN = FailureClass.TEARDOWN
UNKNOWN = FailureClass.UNKNOWN


class Role(Enum):
    """What a message is in the story of a failure."""

    ORIGIN = "origin"
    """Whoever prints it, or whom it names, began."""
    SYMPTOM = "symptom"
    """Something is wrong; others' logs say what."""
    ECHO = "echo"
    """Printed because somebody else failed."""
    HARMLESS = "harmless"
    """Noise of a job that ends in good order."""


@dataclass(frozen=True, slots=True)
class KnownMessage:
    """A row of the table.

    Attributes:
      name: Identifies it.
      hints: Every such message holds one of these texts; they are looked for first, as that is quick.
      pattern: Finds it in the text of an entry; named groups are what it tells.
      role, failure_class: What it is, and whose business.
      meaning: In words.
      remedy: What to do.
      recorded: Whether a recorded log shows it; else it is known from reports alone.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    role: Role
    failure_class: FailureClass
    meaning: str
    remedy: str
    recorded: bool


@dataclass(frozen=True, slots=True)
class Found:
    """A known message in a text.

    Attributes:
      message: Which.
      offset: Where in the text it begins.
      fields: What it tells.
    """

    message: KnownMessage
    offset: int
    fields: dict[str, str]


def _row(  # noqa: PLR0917 - the columns of the table, in order
    name: str,
    hints: str | tuple[str, ...],
    pattern: str,
    role: Role,
    failure_class: FailureClass,
    meaning: str,
    remedy: str,
    *,
    recorded: bool = True,
) -> KnownMessage:
    return KnownMessage(
        name,
        (hints,) if isinstance(hints, str) else hints,
        re.compile(pattern, re.DOTALL | re.MULTILINE),
        role,
        failure_class,
        meaning,
        remedy,
        recorded,
    )


_FATAL = r"Terminating process because the JAX distributed service detected fatal errors"
_TASK = r"(?:/job:\S*?/task:)?"
_MISSING = (
    r"(?:.*?# of tasks that reached the barrier: (?P<arrived>\d+)/(?P<all>\d+))?"
    r"(?:.*?The first task at the barrier: " + _TASK + r"(?P<first>\d+))?"
    r"(?:.*?Some timed out task names:\n(?P<missing>(?:\S*?\d+\n?)+))?"
)

_CONNECTION_ENDED = (
    r"Connection reset|Connection refused|Broken pipe|Socket closed|Stream removed|GOAWAY"
    r"|[Ff]ailed to connect|keepalive watchdog"
)

_GLOO = tuple(words for words in CANCELLED if words.startswith("Gloo"))
_GLOO_FAILED = "|".join(re.escape(words) for words in _GLOO if words.endswith("failed"))
_GLOO_TIMED_OUT = "|".join(re.escape(words) for words in _GLOO if words.endswith("timed out"))

KNOWN_MESSAGES = (
    # --- registration ------------------------------------------------------------------------------
    _row(
        "registration-timeout",
        "[Init]Wait_for_all_tasks_to_register",
        r"Barrier timed out\. Id: \[Init\]Wait_for_all_tasks_to_register::\d+" + _MISSING,
        Role.SYMPTOM,
        INFRASTRUCTURE,
        "the service waited for all processes to register, and some never did",
        "see whether the missing processes were started, and whether they reach the address; "
        "a slow start needs a longer initialization_timeout",
    ),
    _row(
        "no-registration",
        "RegisterTask",
        r"DEADLINE_EXCEEDED: Deadline Exceeded.*?RPC: /\S*CoordinationService/RegisterTask",
        Role.SYMPTOM,
        INFRASTRUCTURE,
        "the process asked to register until initialization_timeout + 5 s was over: the service was "
        "not reached (refused, no reply, wrong name), or it waited for other processes",
        "`coordlab doctor --attach ADDRESS` says which of these it is",
    ),
    _row(
        "registration-failed-for-all",
        "cluster registration failed",
        r"Stopping coordination service as cluster registration failed.*?set to: (?P<timeout>\S+?)\.?$",
        Role.ECHO,
        INFRASTRUCTURE,
        "the service gave up on registration; it stays up, and refuses everybody",
        "start the whole job again, the service too",
    ),
    _row(
        "different-incarnation",
        "different incarnation",
        _TASK + r"(?P<task>\d+) unexpectedly tried to connect with a different incarnation",
        Role.ORIGIN,
        INFRASTRUCTURE,
        "a second start of a process tried to join while the service still knows the first: it was "
        "restarted alone, a child process registered under the same number, or another job's "
        "process reached this service",
        "restart all processes together, or set jax_enable_recoverability; keep `initialize` out of "
        "what children import; give each job and each attempt an address of its own",
    ),
    _row(
        "still-in-error",
        "unexpectedly tried to connect while it is already in error",
        _TASK + r"(?P<task>\d+) unexpectedly tried to connect while it is already in error",
        Role.ECHO,
        INFRASTRUCTURE,
        "a process that was declared failed keeps asking to register",
        "restart all processes together",
    ),
    _row(
        "unexpected-task",
        "Unexpected task registered",
        r"Unexpected task registered with task(?:_name)?=" + _TASK + r"(?P<task>-?\d+)",
        Role.ORIGIN,
        USER,
        "a process registered under a number that this job does not have: it belongs to another, "
        "larger job that uses the same address, or num_processes differs between processes",
        "give each job an address of its own; pass the same num_processes everywhere",
    ),
    _row(
        "wrong-service",
        "wrong service incarnation",
        r"wrong service incarnation: requested (?P<requested>\d+), currently (?P<current>\d+)",
        Role.ORIGIN,
        INFRASTRUCTURE,
        "the service was restarted, or two services share one address: the process speaks to "
        "another one than it registered with",
        "start the whole job again; scope the address to the attempt",
        recorded=False,
    ),
    # --- addresses ---------------------------------------------------------------------------------
    _row(
        "address-in-use",
        ("Address already in use", "No address added"),
        r"No address added out of total \d+ resolved for '(?P<address>[^']*)'|Address already in use",
        Role.ORIGIN,
        INFRASTRUCTURE,
        "the service could not listen: another program holds the port, or the address is not this "
        "machine's",
        "end the other program (an orphan of an earlier job?), or choose another port",
    ),
    _row(
        "service-not-started",
        "Failed to start RPC server",
        r"Failed to start RPC server",
        Role.SYMPTOM,
        INFRASTRUCTURE,
        "process 0 could not start the service",
        "the message before says why; check the bind address",
    ),
    _row(
        "name-not-resolved",
        (
            "DNS",
            "omain name",
            "name resolution",
            "service not known",
            "getaddrinfo",
            "No address assoc",
        ),
        r"Domain name not found|DNS (?:resolution|query|cache)\S* failed|Name or service not known"
        r"|Temporary failure in name resolution|getaddrinfo failed|No address associated with hostname",
        Role.ORIGIN,
        INFRASTRUCTURE,
        "the host name of an address does not resolve",
        "see whether the name exists yet where the process runs; use an IP address",
        recorded=False,
    ),
    _row(
        "proxies-set",
        "JAX detected proxy variable",
        r"JAX detected proxy variable\(s\) in the environment as distributed setup: (?P<names>.*?)\. ",
        Role.SYMPTOM,
        USER,
        "proxy variables are set; gRPC sends traffic to the service through the proxy",
        "unset them, or put the service's host into no_proxy",
    ),
    # --- failure detection -------------------------------------------------------------------------
    _row(
        "tasks-unhealthy",
        "stopped sending heartbeats",
        r"The following tasks are unhealthy \(stopped sending heartbeats\):\n"
        r"(?P<tasks>(?:\S*?\d+\n)+)",
        Role.ECHO,
        INFRASTRUCTURE,
        "the service heard no heartbeat of these processes (at most three are named) for longer than "
        "heartbeat_timeout_seconds",
        "the logs of the named processes say more",
    ),
    _row(
        "heartbeat-timeout",
        "heartbeat timeout",
        r"Task " + _TASK + r"(?P<task>\d+) heartbeat timeout",
        Role.ECHO,
        INFRASTRUCTURE,
        "the service heard no heartbeat of a process for longer than heartbeat_timeout_seconds",
        "the log of that process says more",
    ),
    _row(
        "heartbeat-unanswered",
        "/Heartbeat",
        r"DEADLINE_EXCEEDED.*?RPC: /\S*CoordinationService/Heartbeat",
        Role.SYMPTOM,
        INFRASTRUCTURE,
        "the service did not answer a heartbeat for half of heartbeat_timeout_seconds: it stood still "
        "(process 0 was stopped, swapped, or its machine overloaded), or the network swallowed it",
        "look at process 0 and its machine; a longer heartbeat_timeout_seconds bears longer stalls",
    ),
    _row(
        "service-lost",
        "Failed to send RPC to coordination service",
        r"Failed to send RPC to coordination service\. Either the leader task was"
        r"(?:.*?UNAVAILABLE:(?P<detail>[^\n]*))?",
        Role.SYMPTOM,
        INFRASTRUCTURE,
        "the connection to the service ended: process 0 died or left, or this connection was reset",
        "if all processes say so look at process 0, if one alone at its network",
    ),
    _row(
        "call-lost-service",
        "RuntimeError: ",
        r"\b(?:Jax|Xla)RuntimeError: (?:(?:UNAVAILABLE|CANCELLED|ABORTED): (?![^\n]*Gloo)[^\n]*"
        rf"(?:{_CONNECTION_ENDED}|\nAdditional GRPC error information from remote target coordination_)"
        r"|INTERNAL: Coordination service has stopped)",
        Role.SYMPTOM,
        INFRASTRUCTURE,
        "a call of the service failed, as the connection to it had ended: process 0 died or left, or "
        "this connection was reset",
        "if all processes say so look at process 0, if one alone at its network",
        recorded=False,
    ),
    _row(
        "call-after-failure",
        "Agent must be in CONNECTED state",
        r"Agent must be in CONNECTED state\. It is currently in ERROR",
        Role.ECHO,
        UNKNOWN,
        "a call was made when the job had failed already",
        "look for what was earlier",
        recorded=False,
    ),
    _row(
        "polled-error",
        "Polled an error from coordination service",
        r"Polled an error from coordination service",
        Role.ECHO,
        UNKNOWN,
        "the service told this process of an error, its own or somebody else's",
        "the message that follows names it",
    ),
    _row(
        "process-terminated",
        "Terminating process because the JAX distributed service",
        _FATAL,
        Role.ECHO,
        UNKNOWN,
        "the client ends its process (signal SIGABRT), as the default is that all fail together",
        "the status at its end names the error",
    ),
    _row(
        "error-propagated",
        "Use error polling to propagate",
        r"Use error polling to propagate the following error to all tasks",
        Role.ECHO,
        UNKNOWN,
        "the service tells all processes of an error",
        "the status at its end names the error",
    ),
    _row(
        "not-polling",
        "has not sent request to poll for error",
        r"has not sent request to poll for error\. Error will not be propagated to these tasks: "
        r"(?P<tasks>[\d, ]+)",
        Role.ECHO,
        UNKNOWN,
        "the service cannot tell these processes of an error, as they do not listen any more",
        "look at the error itself, and at why these processes ended",
        recorded=False,
    ),
    # --- barriers, keys ----------------------------------------------------------------------------
    _row(
        "barrier-timeout",
        "Barrier timed out. Id: ",
        r"Barrier timed out\. Id: (?!\[Init\]|Shutdown::)(?P<barrier>.*?)::(?P<counter>\d+)\."
        + _MISSING,
        Role.SYMPTOM,
        USER,
        "not all processes reached a barrier within the time-out of the first that did",
        "see what the missing ones did; all must call the same barriers in the same order",
    ),
    _row(
        "barrier-instance",
        "the service thinks it is the",
        r"Barrier \((?P<barrier>.*?)::(?P<counter>\d+)\).*?the service thinks it is the "
        r"(?P<expected>\d+)-th instance",
        Role.ORIGIN,
        USER,
        "processes have used a barrier a different number of times (after one of them timed out, "
        "say); the barrier fails for all",
        "use a new barrier id after a time-out, and call each id equally often everywhere",
    ),
    _row(
        "barrier-conflict",
        "Conflicting tasks specified",
        r"Conflicting tasks specified for the same barrier",
        Role.ORIGIN,
        USER,
        "processes wait at one barrier with different lists of participants",
        "pass the same participants everywhere",
        recorded=False,
    ),
    _row(
        "barrier-failed",
        "Barrier failed because: ",
        r"Barrier failed because: (?!.*heartbeat timeout)(?P<why>[^\n]*)",
        Role.ECHO,
        INFRASTRUCTURE,
        "a participant of a barrier failed",
        "the log of that process says more",
        recorded=False,
    ),
    _row(
        "key-exists",
        "already exists.",
        r"ALREADY_EXISTS: key (?P<key>.*?) already exists\.",
        Role.ORIGIN,
        USER,
        "a key was set twice without allow_overwrite; keys outlive who wrote them",
        "set it with allow_overwrite=True, or put the step or the start into its name",
    ),
    _row(
        "key-timeout",
        "GetKeyValue() timed out",
        r"GetKeyValue\(\) timed out with key: (?P<key>.*?) and duration: (?P<duration>\S+)",
        Role.SYMPTOM,
        USER,
        "nobody set a key that a process waited for",
        "see what the process that should set it did",
    ),
    # --- shutdown ----------------------------------------------------------------------------------
    _row(
        "shutdown-timeout",
        "Shutdown::",
        r"Barrier timed out\. Id: Shutdown::\d+::\d+" + _MISSING,
        Role.SYMPTOM,
        TEARDOWN,
        "some processes left and waited shutdown_timeout_seconds for the others, which did not leave; "
        "a process that raised waits there as well",
        "look first for an exception in the log of whoever left first; else let all processes end "
        "together, or raise shutdown_timeout_seconds",
    ),
    _row(
        "shutdown-failed",
        "Shutdown barrier",
        r"Shutdown barrier (?:in coordination service )?has failed",
        Role.ECHO,
        TEARDOWN,
        "leaving together failed",
        "the status inside the message says why",
    ),
    _row(
        "disconnect-failed",
        "Failed to disconnect from coordination service",
        r"Failed to disconnect from coordination service with status",
        Role.ECHO,
        TEARDOWN,
        "a process could not leave in good order, as the job had failed before or the service was gone",
        "look for what was earlier",
    ),
    _row(
        "preemption-notice-unread",
        "Failed to retrieve preemption notice",
        r"Failed to retrieve preemption notice",
        Role.HARMLESS,
        TEARDOWN,
        "a pending read was cut when the service stopped",
        "nothing: this is noise of a job that ends",
        recorded=False,
    ),
    _row(
        "preemption-barrier-uncancelled",
        "Failed to cancel preemption barrier",
        r"Failed to cancel preemption barrier: [^\n]*non-existent barrier",
        Role.ECHO,
        TEARDOWN,
        "the preemption service ended, as the service was gone or the job had failed",
        "look for what was earlier",
        recorded=False,
    ),
    _row(
        "job-watch-failed",
        "WatchJobStateAsync failed",
        r"WatchJobStateAsync failed",
        Role.HARMLESS,
        TEARDOWN,
        "a pending watch was cut when the service stopped",
        "nothing, if the job was complete",
        recorded=False,
    ),
    # --- preemption --------------------------------------------------------------------------------
    _row(
        "sigterm",
        "SIGTERM caught",
        r"SIGTERM caught at",
        Role.ORIGIN,
        PREEMPTION,
        "a process was told to end (SIGTERM), and JAX's preemption service noticed",
        "run the job again from its checkpoint",
    ),
    _row(
        "cancelled-by-scheduler",
        "CANCELLED",
        r"slurmstepd: error: .*?CANCELLED AT \S+ DUE TO (?P<why>PREEMPTION|NODE FAILURE)",
        Role.ORIGIN,
        PREEMPTION,
        "the scheduler took the machines away",
        "run the job again from its checkpoint",
        recorded=False,
    ),
    _row(
        "time-limit",
        "DUE TO TIME LIMIT",
        r"slurmstepd: error: .*?CANCELLED AT \S+ DUE TO TIME LIMIT",
        Role.ORIGIN,
        USER,
        "the job ran into its time limit",
        "ask for more time, and run it again from its checkpoint",
        recorded=False,
    ),
    _row(
        "program-not-started",
        (
            "can't open file",
            "can't find '__main__' module",
            "finding module specification",
            ": No module named",
            "Non-UTF-8 code",
        ),
        r"\bpython[\w.]*: (?:can't open file '|can't find '__main__' module in |No module named "
        r"|Error while finding module specification for )|^SyntaxError: Non-UTF-8 code starting with",
        Role.ORIGIN,
        USER,
        "Python could not start the program: it is not where the command says, or cannot be read",
        "compare the command with what is on that machine (working directory, mounts, PYTHONPATH)",
        recorded=False,
    ),
    # --- use of jax.distributed --------------------------------------------------------------------
    _row(
        "initialized-twice",
        "should only be called once",
        r"distributed\.initialize should only be called once",
        Role.ORIGIN,
        USER,
        "jax.distributed.initialize() was called a second time",
        "call it once; `jax.distributed.is_initialized()` tells whether it was",
    ),
    _row(
        "initialized-late",
        "must be called before any JAX c",
        r"jax\.distributed\.initialize\(\) must be called before any JAX c",
        Role.ORIGIN,
        USER,
        "jax.distributed.initialize() was called after JAX had set up its back end",
        "call it first, before any computation, jax.devices() or import that does one",
    ),
    _row(
        "not-initialized",
        "Distributed system is not available",
        r"Distributed system is not available",
        Role.ORIGIN,
        USER,
        "jax.distributed.initialize() was never called",
        "call it at the beginning of the program, in every process",
        recorded=False,
    ),
    _row(
        "process-id-invalid",
        ("process_id must", "process_id and"),
        r"process_id and num_processes must be nonnegative, with process_id < num_processes"
        r"|process_id must be a nonnegative int",
        Role.ORIGIN,
        USER,
        "process_id or num_processes is wrong",
        "process_id counts from 0 to num_processes - 1",
    ),
    _row(
        "address-missing",
        "coordinator_address should be defined",
        r"coordinator_address should be defined",
        Role.ORIGIN,
        USER,
        "no coordinator address was given, and no cluster was detected",
        "pass coordinator_address, num_processes and process_id",
    ),
    _row(
        "preemption-service-off",
        "Preemption sync manager has not been initialized",
        r"Preemption sync manager has not been initialized",
        Role.ORIGIN,
        USER,
        "reached_preemption_sync_point() was called without the preemption service",
        "call jax.distributed.initialize() first, and leave jax_enable_preemption_service on",
    ),
    # --- devices, memory, disks --------------------------------------------------------------------
    _row(
        "peer-closed-collective",
        "Gloo",
        rf"(?:{_GLOO_FAILED})(?![^\n]*[Tt]imed out)",
        Role.ECHO,
        INFRASTRUCTURE,
        "a process died inside a collective on CPU",
        "the log of that process says more",
    ),
    _row(
        "collective-timeout",
        "Gloo",
        rf"(?:{_GLOO_FAILED})[^\n]*[Tt]imed out|{_GLOO_TIMED_OUT}",
        Role.SYMPTOM,
        UNKNOWN,
        "a collective on CPU waited too long for another process",
        "see what the other processes did; psum_scatter waits 30 s whatever the flags say",
        recorded=False,
    ),
    _row(
        "collective-cancelled",
        "is not connected",
        r"Task with incarnation id \d+ is not connected",
        Role.ECHO,
        INFRASTRUCTURE,
        "a collective on GPUs was cancelled, as a process of it is not in the job any more",
        "the log of that process says more",
        recorded=False,
    ),
    _row(
        "nccl-failed",
        "NCCL",
        r"NCCL operation .*? failed|ncclRemoteError|ncclSystemError|ncclInternalError",
        Role.SYMPTOM,
        INFRASTRUCTURE,
        "a collective on GPUs failed, mostly because another process did",
        "look for an earlier error; NCCL_DEBUG=INFO says more",
        recorded=False,
    ),
    _row(
        "out-of-device-memory",
        "RESOURCE_EXHAUSTED",
        r"RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate)",
        Role.ORIGIN,
        USER,
        "the memory of a device did not suffice",
        "use smaller arrays, or more devices",
        recorded=False,
    ),
    _row(
        "out-of-memory",
        ("ut of memory", "oom", "MemoryError"),
        r"[Oo]ut of memory: Killed process|oom[-_]kill|Detected \d+ oom|^MemoryError",
        Role.ORIGIN,
        USER,
        "the memory of the machine did not suffice; the system killed a process",
        "use less memory, or ask for more",
        recorded=False,
    ),
    _row(
        "disk-full",
        ("Errno", "No space left", "quota exceeded"),
        r"\[?Errno (?:28|122)\]?|No space left on device|Disk quota exceeded",
        Role.ORIGIN,
        INFRASTRUCTURE,
        "a disk is full",
        "make room, and run the job again",
    ),
    _row(
        "crashed",
        ("Fatal Python error", "*** SIG"),
        r"Fatal Python error: (?P<what>[^\n]*)|\*\*\* SIG(?:SEGV|BUS|ILL|FPE) received",
        Role.ORIGIN,
        UNKNOWN,
        "the process crashed in native code",
        "the stack below it says where",
        recorded=False,
    ),
)


def find_known(text: str) -> Iterator[Found]:
    """The known messages in the text of an entry, in the order of the table."""
    for message in KNOWN_MESSAGES:
        if any(hint in text for hint in message.hints) and (match := message.pattern.search(text)):
            fields = {name: value for name, value in match.groupdict().items() if value is not None}
            yield Found(message, match.start(), fields)


def by_name(name: str) -> KnownMessage:
    """The row of that name.

    Raises:
      StopIteration: there is none.
    """
    return next(message for message in KNOWN_MESSAGES if message.name == name)


def numbers_in(names: str) -> tuple[int, ...]:
    """The processes in a list of tasks, one a line: `2` or `/job:jax_worker/replica:0/task:2`."""
    return tuple(sorted({int(number) for number in re.findall(r"(\d+)$", names, re.MULTILINE)}))
