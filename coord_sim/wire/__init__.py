"""The messages on the wire, and how the core's requests and answers become them and come from them."""
