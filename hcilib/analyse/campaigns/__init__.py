"""What does certainty cost, and has anything changed between campaigns?"""
