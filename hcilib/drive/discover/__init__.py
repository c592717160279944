"""What is there to measure on: which disks, on which VM, on which node?"""
