"""What do drives, layouts, networks and prices allow?"""
