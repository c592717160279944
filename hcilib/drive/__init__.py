"""The only room that reaches a host."""
