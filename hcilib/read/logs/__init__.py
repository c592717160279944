"""What do fio's logs say, second by second and bucket by bucket?"""
