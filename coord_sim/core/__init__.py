"""The protocol without I/O, clock or randomness: requests and time in, effects out."""
