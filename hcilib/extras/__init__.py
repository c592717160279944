"""How are load generators made from a template, and removed again, they alone?"""
