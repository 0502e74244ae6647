"""``mirror sandbox``: clusters that stay up until they are taken down."""
