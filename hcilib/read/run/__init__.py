"""What was measured in a run directory, and may it count?"""
