"""The rungs of JAX's fault-tolerance guide as scripts, each for `coordlab run` on either service."""
