"""The demo's topics and the clients that write to them."""
