"""A page's sentences and tables have the same numbers.

``pages`` reads a page, ``claims`` compares its numbers. ``quantities`` says which table has each
number of a sentence. tests/test_one_number.py asks them.
"""
