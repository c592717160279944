"""Stand-in hardware on this machine: the lab, a box of virtual nodes, Ceph on loopback.

hcilib finds these beds by name (entry points `hcilib.beds`) and imports nothing from here.
"""
