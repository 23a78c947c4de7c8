"""Records the clients of programs that know nothing of it.

`preparation` makes a folder whose start-up file every Python executes that has it on its path. It waits
for jaxlib (`hook`), notes each client that the program makes, and gives it a recording of its own
(`program`), line by line (`lines`). `ends` sees from outside how recorded processes end.

What runs inside programs imports nothing but the standard library and this package: a program may have
a module called `checker` of its own.
"""
