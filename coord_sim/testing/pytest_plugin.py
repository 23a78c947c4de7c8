"""The pytest plugin: simulations and servers as fixtures."""
