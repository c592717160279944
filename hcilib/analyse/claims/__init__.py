"""Do an article's sentences follow from its own tables?"""
