"""What does a reader see? Table to picture, table to page."""
