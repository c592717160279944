"""What did the articles print?"""
