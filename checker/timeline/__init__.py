"""Draws a history in the terminal: time runs down, every process has a lane.

    history --facts, words--> marks --rows--> rows --focus--> fewer rows --drawing--> lines

A *mark* is one thing to show; a *row* holds the marks of one moment, at most one a lane. All of it
is pure: no terminal is asked for its width, and nothing is printed.
"""

from checker.timeline.pen import CHARACTERS
from checker.timeline.picture import timeline, timeline_lines

__all__ = ["CHARACTERS", "timeline", "timeline_lines"]
