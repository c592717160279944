"""How busy were the nodes and their networks?"""
