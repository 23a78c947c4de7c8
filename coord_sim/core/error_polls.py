"""PollForError: how clients learn of errors (design note, section 5).

Without recoverability an error is sent to every waiting poll, and the first one is kept for all later
polls; fate is shared because each client ends itself. With recoverability nothing is propagated.
"""

from __future__ import annotations

from coord_sim.core.effects import Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.status import Code, Status


class ErrorPolls:
    """One waiting poll per task, and the error that all later polls are given."""

    def __init__(self) -> None:
        self.propagated: Status | None = None
        self.anybody_polled = False
        self._polls: dict[TaskId, tuple[CallId, Incarnation]] = {}

    def wait(self, call: CallId, task: TaskId, incarnation: Incarnation) -> list[Reply]:
        """Lets a poll wait; a newer poll of the same task replaces an older one."""
        if self.propagated is not None:
            return [Reply(call, self.propagated)]
        replies = self.end(task, cancelled("new request from the same task"))
        self._polls[task] = (call, incarnation)
        return replies

    def propagate(self, error: Status) -> list[Reply]:
        """Tells every waiting poll of the job's first error, which later polls are told too."""
        if self.propagated is not None:
            return []
        self.propagated = error
        polls = list(self._polls.values())
        self._polls.clear()
        return [Reply(call, error) for call, _ in polls]

    def end(self, task: TaskId, status: Status) -> list[Reply]:
        """Ends the waiting poll of one task."""
        poll = self._polls.pop(task, None)
        return [] if poll is None else [Reply(poll[0], status)]

    def end_stale(self, task: TaskId, incarnation: Incarnation, status: Status) -> list[Reply]:
        """Ends the waiting poll of a task if another incarnation than `incarnation` sent it."""
        poll = self._polls.get(task)
        if poll is None or poll[1] == incarnation:
            return []
        return self.end(task, status)

    def hang_up(self, call: CallId) -> None:
        """Forgets a poll whose client has gone."""
        for task, poll in self._polls.items():
            if poll[0] == call:
                del self._polls[task]
                return

    def waiting_calls(self) -> list[CallId]:
        """The waiting polls."""
        return [call for call, _ in self._polls.values()]


def cancelled(reason: str) -> Status:
    """How a poll ends that has nothing to tell: the C++ client then lives on and never polls again."""
    return Status(code=Code.CANCELLED, message=f"Cancelled error polling because: {reason}")
