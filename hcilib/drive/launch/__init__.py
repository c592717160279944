"""How does one step of fio run on a whole fleet at once, and how did it end?"""
