"""Who is faster, and who is first?"""
