"""What may be overwritten, and is every host ready?"""
