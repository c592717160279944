"""What do DiskSPD's results say, in the words of fio's?"""
