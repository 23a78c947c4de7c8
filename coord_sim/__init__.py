"""A model of JAX's coordination service: the protocol core and its drivers.

Importing this package imports neither gRPC nor JAX.
"""
