"""Which testbeds can this machine be by itself, and how are they started and ended?"""
