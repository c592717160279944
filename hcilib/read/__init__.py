"""What do the files say? Files in, tables out: the only room that knows their formats."""
