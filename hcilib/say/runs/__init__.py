"""What happened in one run?"""
