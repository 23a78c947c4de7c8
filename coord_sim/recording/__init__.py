"""What recorders of the service's side and of the simulator share: requests and answers as events."""

from coord_sim.recording.operations import AnswerTexts, operation_of, response

__all__ = ["AnswerTexts", "operation_of", "response"]
