"""What does a load do to a rate: where does it peak, bend, cross?"""
