"""What do fio's JSON and text say?"""
