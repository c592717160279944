"""How do executed notebooks become a site that can be read and checked?"""
