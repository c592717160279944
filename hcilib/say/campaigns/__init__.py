"""What does a campaign cost, and has anything changed?"""
