"""How does a table look as a picture?"""
