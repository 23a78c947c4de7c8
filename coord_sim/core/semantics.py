"""The faces of the service: each deviation from the published semantics is a named switch.

`SHIPPED` is what jaxlib 0.10.2 and 0.12.0.1 do. `PUBLISHED` corrects each deviation, so that the JAX
guide's Formal Semantics holds. `NAIVE` is the guide's strawman: it answers at once from heartbeats.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """What the service does where the published semantics and the shipped code part ways.

    Attributes:
      name: As the command line says it.
      keeps_ghost_entries: A task's place in a round outlives its incarnation, and is counted for the
        next one (section 10, "ghost entry"). Else the place is lost with the incarnation.
      serves_stale_callers: Calls of an incarnation that is not the registered one are served as its
        successor's (section 1.1, "zombie"). Else they are refused.
      serves_dead_callers: Tasks that are in error or disconnected may wait in rounds and use the
        store (sections 7 and 10). Else they are refused.
      accepts_stale_heartbeats: In recoverable mode a heartbeat of another incarnation is answered OK
        and ignored (section 4). Else it fails, which ends the stale process.
      revives_the_dead: An incarnation that was declared dead may register again (section 2). Else
        dead is dead for good.
      declares_deaths_one_by_one: Deaths of one tick are declared one after the other, and a round may
        end in between (section 10). Else a round sees all of them or none.
      forgets_who_passed: A repeated arrival at a barrier that the caller has passed opens a new instance
        or fails the one after it (section 8). Else the caller is told again that it passed, which makes
        the call safe to repeat after a broken connection.
      waits_for_live_processes: `live_processes` is a barrier. Else it is answered at once.
    """

    name: str
    keeps_ghost_entries: bool = False
    serves_stale_callers: bool = False
    serves_dead_callers: bool = False
    accepts_stale_heartbeats: bool = False
    revives_the_dead: bool = False
    declares_deaths_one_by_one: bool = False
    forgets_who_passed: bool = False
    waits_for_live_processes: bool = True


SHIPPED = Semantics(
    name="shipped",
    keeps_ghost_entries=True,
    serves_stale_callers=True,
    serves_dead_callers=True,
    accepts_stale_heartbeats=True,
    revives_the_dead=True,
    declares_deaths_one_by_one=True,
    forgets_who_passed=True,
)
PUBLISHED = Semantics(name="published")
NAIVE = Semantics(name="naive", waits_for_live_processes=False)

SEMANTICS = {semantics.name: semantics for semantics in (SHIPPED, PUBLISHED, NAIVE)}
