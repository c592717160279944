"""What do the files say that somebody already has, whichever tool wrote them?"""
