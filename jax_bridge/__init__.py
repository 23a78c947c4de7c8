"""The protocol on real JAX processes: launch, kill, restart, record.

Needs the extra `coordlab[jax]`. Importing this package imports neither JAX nor gRPC.
"""
