"""What happens along the load?"""
