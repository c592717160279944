"""What does fio's JSON say, of any version?"""
