"""Table to picture, table to page."""
