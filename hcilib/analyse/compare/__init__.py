"""Which system is faster, where, by how much, and is it real?"""
