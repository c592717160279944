"""What follows from the tables? Table in, table out, pure: the only room that knows statistics and physics."""
