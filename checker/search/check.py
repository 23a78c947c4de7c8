"""Checks the operations of a history against a specification, object by object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from checker.collector import collector_paused
from checker.compiling import is_installed
from checker.linearization import Linearization, ObjectOrder
from checker.operations import Operations
from checker.search.budget import MEMORY_BYTES_MAX, Budget
from checker.search.choice import driver_for
from checker.search.explanation import anomaly_of
from checker.search.object_search import Decision, ObjectSearch
from checker.search.problem import LEFT_OUT, Kinds, Problem, classify, split
from checker.search.steps import first_state
from checker.search.words import words_of
from checker.specification import Guarded, SetSpecification, Specification
from checker.verdict import Invalid, Unknown, Valid, Verdict

PLAIN_STEPS_MAX = 200_000
"""Configurations that plain Python may make before the compiled searches are worth their start."""


def check_operations(
    operations: Operations,
    spec: Specification | SetSpecification,
    *,
    timeout_s: float | None = None,
    steps_max: int | None = None,
    memory_bytes_max: int = MEMORY_BYTES_MAX,
    paranoid: bool = False,
    compiled: bool | None = None,
) -> Verdict:
    """Decides whether operations are linearizable.

    Args:
      operations: The history.
      spec: What each object promises.
      timeout_s: Seconds after which the verdict is `Unknown`.
      steps_max: Configurations after which the verdict is `Unknown`, for results that do not depend on
        the machine; compiled searches are not used then.
      memory_bytes_max: Memory for the search, above which the verdict is `Unknown`.
      paranoid: Whether to search without pruning rules, and to replay the witness.
      compiled: Whether to use the compiled searches; None: where they pay.

    Returns:
      `Valid` with a `Linearization`, `Invalid` with an anomaly, or `Unknown`.

    Raises:
      MalformedHistory: an operation that the specification does not know.
      SpecificationError: the specification broke its own rules.
    """
    budget = Budget(timeout_s=timeout_s, steps_max=steps_max, memory_bytes_max=memory_bytes_max)
    kinds = classify(operations, spec)
    if isinstance(spec, SetSpecification):
        from checker.search.set_search import check_set

        return check_set(operations, spec, kinds, budget)
    with collector_paused():
        check = _Check(operations, spec, kinds, budget, paranoid=paranoid)
        plain_only = paranoid or steps_max is not None or compiled is False
        return check.run(None if plain_only else compiled is True)


@dataclass(slots=True)
class _Found:
    """A decision that is not a plain yes."""

    search: ObjectSearch
    decision: Decision


class _Check:
    def __init__(
        self,
        operations: Operations,
        spec: Specification,
        kinds: Kinds,
        budget: Budget,
        *,
        paranoid: bool,
    ) -> None:
        self._operations = operations
        self._spec = spec
        self._kinds = kinds
        self._budget = budget
        self._paranoid = paranoid
        used: list[list[int]] = [[] for _ in kinds.keys]
        for kind, part in enumerate(kinds.part):
            if part != LEFT_OUT:
                used[part].append(kind)
        self._words = [
            words_of(spec, operations.kinds, its_kinds, kinds.counts) for its_kinds in used
        ]

    def run(self, compiled: bool | None) -> Verdict:
        """Decides. `compiled`: whether to insist on the compiled searches; None: never use them."""
        if compiled is not None:
            driver = self._driver(insist=compiled)
            if driver is not None:
                return self._run_compiled(driver)
            if is_installed():
                return self._run_plain(may_switch=True)
        return self._run_plain(may_switch=False)

    def _driver(self, *, insist: bool) -> ModuleType | None:
        return driver_for(len(self._operations), insist=insist, wait_s=self._budget.remaining_s)

    def _run_plain(self, *, may_switch: bool) -> Verdict:
        searches = [self._plain_object(problem) for problem in split(self._operations, self._kinds)]
        undecided: _Found | None = None
        algorithm = ""
        for search in searches:
            budget = self._budget.slice(PLAIN_STEPS_MAX) if may_switch else self._budget
            decision = search.decide(budget)
            algorithm = algorithm or decision.algorithm
            if decision.valid is False:
                return self._invalid(search, decision)
            if decision.valid is None:
                if may_switch and budget.steps >= PLAIN_STEPS_MAX:
                    driver = self._driver(insist=True)
                    if driver is not None:
                        return self._run_compiled(driver)
                undecided = undecided or _Found(search, decision)
        if undecided is not None:
            return _unknown(undecided)
        return self._valid(lambda: searches, algorithm)

    def _run_compiled(self, driver: ModuleType) -> Verdict:
        words: dict[int, Guarded] = {}
        for its_words in self._words:
            words.update(its_words or {})
        part = [p if p >= 0 and self._words[p] is not None else LEFT_OUT for p in self._kinds.part]
        columns = driver.Columns(
            self._operations, part, len(self._kinds.keys), words, first_state(self._spec)
        )
        check = driver.CompiledCheck(columns, self._budget)
        undecided: _Found | None = None
        plain: dict[int, ObjectSearch] = {}
        suspects = split(self._operations, self._kinds, frozenset(check.not_valid()))
        for problem in sorted(suspects, key=lambda suspect: suspect.part):
            number = problem.part
            search = self._compiled_object(driver, check, problem)
            refuted = (
                None if check.is_decided(number) else search.refute(check.explained_by(number))
            )
            decision = refuted or check.decision(number)
            if decision.valid:
                continue
            if decision.reason == driver.TOO_MANY_OPEN:
                search = plain[number] = self._plain_object(problem)
                decision = search.decide(self._budget)
                if decision.valid:
                    continue
            if decision.valid is False:
                return self._invalid(search, decision)
            undecided = undecided or _Found(search, decision)
        tables: dict[int, ObjectSearch] = {}
        for problem in split(self._operations, self._kinds, self._without_words()):
            search = tables[problem.part] = driver.TableObject(
                problem, self._spec, self._operations.kinds
            )
            decision = search.decide(self._budget)
            if decision.valid is False:
                return self._invalid(search, decision)
            if decision.valid is None:
                undecided = undecided or _Found(search, decision)
        if undecided is not None:
            return _unknown(undecided)

        def searches() -> Iterator[ObjectSearch]:
            for problem in split(self._operations, self._kinds):
                other = tables.get(problem.part) or plain.get(problem.part)
                yield other or self._compiled_object(driver, check, problem)

        name = driver.SEARCH_NAME if len(tables) < len(self._words) else driver.TABLE_SEARCH_NAME
        return self._valid(searches, name)

    def _without_words(self) -> frozenset[int]:
        return frozenset(part for part, words in enumerate(self._words) if words is None)

    def _plain_object(self, problem: Problem) -> ObjectSearch:
        return ObjectSearch(
            problem,
            self._spec,
            self._operations.kinds,
            self._words[problem.part],
            paranoid=self._paranoid,
        )

    def _compiled_object(self, driver: ModuleType, check: Any, problem: Problem) -> ObjectSearch:
        words = self._words[problem.part]
        assert words is not None
        search: ObjectSearch = driver.CompiledObject(
            check, problem, self._spec, self._operations.kinds, words
        )
        return search

    def _invalid(self, search: ObjectSearch, decision: Decision) -> Invalid:
        return Invalid(anomaly_of(self._operations, search, decision), decision.algorithm)

    def _valid(self, searches: Callable[[], Iterable[ObjectSearch]], algorithm: str) -> Valid:
        def find() -> tuple[ObjectOrder, ...]:
            return tuple(
                ObjectOrder(search.problem.key, tuple((index,) for index in search.order()))
                for search in searches()
            )

        witness = Linearization(self._operations, self._spec, find)
        if self._paranoid:
            witness.verify()
        return Valid(witness, algorithm)


def _unknown(found: _Found) -> Unknown:
    problem, decision = found.search.problem, found.decision
    which = "" if problem.key is None else f"object {problem.key!r:.80}: "
    responded = sum(1 for event in problem.events if event < 0)
    without = len(problem.numbers) - responded
    reason = f"{which}{decision.reason}"
    if without:
        reason += f"; {without} of {len(problem.numbers)} operations have no known outcome"
    return Unknown(reason, decision.events_done, len(problem.events), decision.algorithm)
