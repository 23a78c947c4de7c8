"""A Python client of the coordination service: of ours and of jaxlib's own.

`DistributedRuntimeClient` has the methods of the class of that name in jaxlib, and blocks;
`coord_sim.client.aio` has the same for asyncio. Needs the extra `coordlab[server]`.
"""

from coord_sim.client.blocking import DistributedRuntimeClient

__all__ = ["DistributedRuntimeClient"]
