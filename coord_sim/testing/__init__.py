"""Help for the tests of programs that use the coordination service."""
