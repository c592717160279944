"""What may the numbers be at all: ceilings, traffic, capacity, laws?"""
