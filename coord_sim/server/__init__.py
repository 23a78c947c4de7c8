"""The coordination service over gRPC, wire-compatible with jaxlib 0.10.2 to 0.12.

Needs the extra `coordlab[server]`.
"""
