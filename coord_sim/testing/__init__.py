"""Help for the tests of programs that use the coordination service.

- `pytest_plugin`: the fixtures `simulation` and `coordination_server`; loads itself into pytest.
- `strategies`: Hypothesis strategies for fault plans, schedules, programs and histories.
- `state_machine`: a `RuleBasedStateMachine` to subclass, over a simulation that is stepped.
- `scripts`: programs as data, which both of them use.

`docs/testing.md` shows how. Nothing is imported here, so that pytest starts fast.
"""
