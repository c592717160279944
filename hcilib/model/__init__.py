"""What is a campaign?"""
