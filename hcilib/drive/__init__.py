"""How are hosts reached, made to measure, and left as they were? The only room that reaches one."""
