"""The usual case of a check of `live_processes`, compiled."""
