"""A page's sentences, tables and figures have the same numbers.

``pages`` reads a page, ``claims`` compares its numbers. ``quantities`` says which table has each
number of a sentence, ``drawn`` which column lists what a figure draws. tests/test_one_number.py
asks them.
"""
