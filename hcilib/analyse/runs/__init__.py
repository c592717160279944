"""What happened inside a run: its seconds, its latencies, its failures?"""
