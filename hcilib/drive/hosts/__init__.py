"""Which hosts are there, what do they answer, and what do their counters say?"""
