"""The network between the processes and the services: latency, loss, and what faults do to it."""

from __future__ import annotations

from typing import Any, Final

from coord_sim.core.identifiers import seconds
from coord_sim.faults import Degrade, Partition, Refuse
from coord_sim.moments import SERVICE, Member
from coord_sim.schedule import Schedule
from coord_sim.sim.entropy import Entropy
from coord_sim.sim.event_queue import Action, EventQueue

RETRANSMISSION_NS: Final = seconds(0.2)
"""First wait before a lost packet is sent again; it doubles (TCP's usual minimum)."""

_RETRANSMISSIONS_MAX: Final = 8


class Connection:
    """A connection of one start of a process to its service.

    It delivers in order in each direction. What the former incarnation of the process had sent over its
    own connection may arrive before or after.

    Attributes:
      epoch: Counts resets; what was sent in an earlier epoch is lost.
      is_made: Whether the service has got anything over it in this epoch.
    """

    __slots__ = ("down_ns", "epoch", "is_made", "link", "up_ns")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.epoch = 0
        self.is_made = False
        self.up_ns = 0
        self.down_ns = 0


class Link:
    """The path between one process and the service.

    Attributes:
      is_good: Whether messages need no more than their latency.
      cut_up, cut_down: Whether nothing arrives at the service, at the process.
      refusals: How many faults refuse new connections.
    """

    __slots__ = (
        "_degraded",
        "_held",
        "_loss",
        "_low_ns",
        "_random",
        "_span_ns",
        "cut_down",
        "cut_up",
        "is_good",
        "refusals",
    )

    def __init__(self, schedule: Schedule, entropy: Entropy, process: int) -> None:
        self._random = entropy.stream(f"network/{process}").random
        self._low_ns = seconds(schedule.latency_min_s)
        self._span_ns = seconds(schedule.latency_max_s) - self._low_ns
        self._loss = schedule.loss
        self._degraded: list[Degrade] = []
        self._held: list[tuple[bool, Action, tuple[Any, ...]]] = []
        self.cut_up = False
        self.cut_down = False
        self.refusals = 0
        self.is_good = not self._loss

    def up_ns(self, connection: Connection, now_ns: int) -> int:
        """When a message to the service arrives over a good link."""
        arrival_ns = now_ns + self._low_ns + int(self._span_ns * self._random())
        if arrival_ns < connection.up_ns:  # noqa: PLR1730 - max() costs a call, here
            arrival_ns = connection.up_ns
        connection.up_ns = arrival_ns
        return arrival_ns

    def down_ns(self, connection: Connection, now_ns: int) -> int:
        """When a message to the process arrives over a good link."""
        arrival_ns = now_ns + self._low_ns + int(self._span_ns * self._random())
        if arrival_ns < connection.down_ns:  # noqa: PLR1730 - max() costs a call, here
            arrival_ns = connection.down_ns
        connection.down_ns = arrival_ns
        return arrival_ns

    # --- what is wrong with it -------------------------------------------------------------------

    def degrade(self, fault: Degrade) -> None:
        """Something is wrong with it from now on."""
        self._degraded.append(fault)
        self.is_good = False

    def mend(self, fault: Degrade) -> None:
        """That is over."""
        self._degraded.remove(fault)
        self.is_good = not self._degraded and not self._loss

    def hold(self, action: Action, *arguments: Any, is_up: bool) -> None:
        """Keeps what arrives while the link is cut, until it is not."""
        self._held.append((is_up, action, arguments))

    def cut(self, *, up: bool, down: bool) -> None:
        """Nothing arrives at one end, at both, or at neither any more: then what was held does."""
        self.cut_up, self.cut_down = up, down
        held, self._held = self._held, []
        for is_up, action, arguments in held:
            if up if is_up else down:
                self._held.append((is_up, action, arguments))
            else:
                action(*arguments)

    def arrivals_ns(self, connection: Connection, now_ns: int, *, is_up: bool) -> tuple[int, ...]:
        """When a message arrives over a bad link: once, or else the network is raw."""
        arrival_ns = now_ns + self._latency_ns() + self._wait_for_retransmissions(self._loss)
        is_raw = any(fault.raw for fault in self._degraded)
        copies = 1
        for fault in self._degraded:
            arrival_ns += seconds(fault.delay_s + fault.jitter_s * self._random())
            if fault.reorder and self._random() < fault.reorder:
                arrival_ns += int(RETRANSMISSION_NS * self._random())
            if fault.loss and is_raw:
                copies -= self._random() < fault.loss
            elif fault.loss:
                arrival_ns += self._wait_for_retransmissions(fault.loss)
            if fault.duplicate and self._random() < fault.duplicate:
                copies += 1  # Without `raw` the receiver drops it again.
        if is_raw:
            return tuple(arrival_ns + self._latency_ns() for _ in range(copies))
        if is_up:
            arrival_ns = connection.up_ns = max(arrival_ns, connection.up_ns)
        else:
            arrival_ns = connection.down_ns = max(arrival_ns, connection.down_ns)
        return (arrival_ns,)

    def _latency_ns(self) -> int:
        return self._low_ns + int(self._span_ns * self._random())

    def _wait_for_retransmissions(self, loss: float) -> int:
        waited_ns, wait_ns = 0, RETRANSMISSION_NS
        for _ in range(_RETRANSMISSIONS_MAX):
            if not loss or self._random() >= loss:
                break
            waited_ns += wait_ns
            wait_ns *= 2
        return waited_ns


class Network:
    """The links of all processes, and the partitions between all members."""

    def __init__(self, schedule: Schedule, queue: EventQueue, entropy: Entropy) -> None:
        self._queue = queue
        self._service_in = schedule.service_in
        self._links = [Link(schedule, entropy, p) for p in range(schedule.processes)]
        self._partitions: list[tuple[int, Partition]] = []

    def link(self, process: int) -> Link:
        """The path of a process to the service."""
        return self._links[process]

    def degrade(self, fault: Degrade) -> None:
        """Makes links bad, from now until its time is over."""
        links = self._links if fault.process is None else [self._links[fault.process]]
        for link in links:
            link.degrade(fault)
        self._queue.after(seconds(fault.for_s), self._mend, fault, links)

    def _mend(self, fault: Degrade, links: list[Link]) -> None:
        for link in links:
            link.mend(fault)

    def refuse(self, fault: Refuse) -> None:
        """Refuses new connections of a process, from now until its time is over."""
        link = self._links[fault.process]
        link.refusals += 1
        self._queue.after(seconds(fault.for_s), self._admit, link)

    def _admit(self, link: Link) -> None:
        link.refusals -= 1

    def partition(self, fault: Partition) -> None:
        """Separates two sides, from now until its time is over."""
        until_ns = self._queue.now_ns + seconds(fault.for_s)
        self._partitions.append((until_ns, fault))
        self._cut()
        self._queue.at(until_ns, self._cut)

    def _cut(self) -> None:
        now_ns = self._queue.now_ns
        self._partitions = [entry for entry in self._partitions if entry[0] > now_ns]
        for process, link in enumerate(self._links):
            link.cut(
                up=self.held_until_ns(process, SERVICE, now_ns) > now_ns,
                down=self.held_until_ns(SERVICE, process, now_ns) > now_ns,
            )

    def held_until_ns(self, sender: Member, receiver: Member, now_ns: int) -> int:
        """Until when messages from the one to the other wait; a time that is past if they do not."""
        inside = self._service_in
        if inside is not None and {sender, receiver} == {inside, SERVICE}:
            return 0  # They are one process.
        held_ns = 0
        for until_ns, fault in self._partitions:
            if until_ns <= held_ns or until_ns <= now_ns:
                continue
            if _separates(fault, sender, receiver) or (
                inside is not None
                and SERVICE in (sender, receiver)
                and _separates(
                    fault,
                    inside if sender == SERVICE else sender,
                    inside if receiver == SERVICE else receiver,
                )
            ):
                held_ns = until_ns
        return held_ns


def _separates(fault: Partition, sender: Member, receiver: Member) -> bool:
    def is_across(one: Member, another: Member) -> bool:
        if one not in fault.side:
            return False
        return another in fault.other if fault.other else another not in fault.side

    return is_across(sender, receiver) or (not fault.one_way and is_across(receiver, sender))
