"""The processes of a fio server, as the script of hcilib.drive.hosts.processes prints them: pid, parent, session,
folder, command."""

SERVER = "10\t1\t10\t/\tfio --server=ip:192.0.2.11,8765 "
LINGERING = "11\t10\t10\t/\tfio --server=ip:192.0.2.11,8765 "
RUN = "12\t11\t10\t/\tfio --server=ip:192.0.2.11,8765 "
JOB = "13\t12\t13\t/\tfio --server=ip:192.0.2.11,8765 "
LOST_RUN = RUN.replace("12\t11", "12\t1")
