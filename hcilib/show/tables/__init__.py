"""How is a table printed?"""
