"""The command line: composes recorders, simulator, bridge and checker. Above all other layers."""
