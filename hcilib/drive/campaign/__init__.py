"""What is done next, what was done already, and where is it kept?"""
