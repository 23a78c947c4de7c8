"""Our service in the place of jaxlib's C++ one, in programs that know nothing of it.

`environment` makes every Python that a command starts execute `startup/sitecustomize.py`. That waits for
jaxlib and replaces the function that starts the C++ service (`hook`) by one that asks whoever listens on
a Unix socket to serve (`service`), in the words of `request`. Nothing else changes in the program.
"""
