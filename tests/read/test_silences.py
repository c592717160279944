"""When nobody did I/O: told from the distances of samples, never from whole seconds."""

import pandas as pd
import pytest

from hcilib.read.logs.fio_log import silences_from_logs


def write(folder, host, times, kind="iops", value=100, number=1):
    (folder / f"a_{kind}.{number}.log.{host}").write_text("".join(f"{t}, {value}, 1, 0, 0\n" for t in times))


def spans(folder, interval=None) -> list[tuple[float, float]]:
    found = silences_from_logs(folder, interval)
    return list(found[["from_s", "to_s"]].round(3).itertuples(index=False, name=None))


def steady(start, end, step=500):
    return list(range(start, end + 1, step))


def test_samples_left_out_are_silence_up_to_the_next_interval(tmp_path):
    write(tmp_path, "h1", [*steady(500, 5000), *steady(7000, 9000)])
    assert spans(tmp_path, 500) == [(5.0, 6.5)]
    assert silences_from_logs(tmp_path, 500)["resolution_s"].tolist() == [0.5]


def test_fio_that_looks_late_is_no_silence(tmp_path):
    late = [round(508.5 * k) for k in range(1, 60)]  # half an interval behind after a minute
    write(tmp_path, "h1", late)
    assert spans(tmp_path, 500) == [(0.0, 0.0)], "one row of no length, so that the resolution is known"


def test_a_zero_is_as_silent_as_no_sample(tmp_path):
    write(tmp_path, "h1", steady(500, 5000))
    with (tmp_path / "a_iops.1.log.h1").open("a") as log:
        log.writelines(["5500, 0, 1, 0, 0\n", "6000, 0, 1, 0, 0\n", "6500, 9, 1, 0, 0\n"])
    assert spans(tmp_path, 500) == [(5.0, 6.0)]


def test_what_one_vm_did_was_no_silence_of_the_fleet(tmp_path):
    write(tmp_path, "h1", [*steady(500, 3000), *steady(6000, 9000)])
    write(tmp_path, "h2", [*steady(500, 4000), *steady(7000, 9000)])
    assert spans(tmp_path, 500) == [(4.0, 5.5)]
    write(tmp_path, "h3", steady(500, 9000))
    assert spans(tmp_path, 500) == [(0.0, 0.0)]


def test_a_vm_that_never_came_back_hides_no_silence_of_the_others(tmp_path):
    write(tmp_path, "h1", [*steady(500, 5000), *steady(7000, 9000)])
    write(tmp_path, "h2", steady(500, 4000))
    assert spans(tmp_path, 500) == [(5.0, 6.5)]


def test_zeros_to_the_end_are_a_silence(tmp_path):
    write(tmp_path, "h1", steady(500, 5000))
    with (tmp_path / "a_iops.1.log.h1").open("a") as log:
        log.writelines(f"{t}, 0, 1, 0, 0\n" for t in steady(5500, 9000))
    assert spans(tmp_path, 500) == [(5.0, 8.5)]


def test_no_logs_say_nothing(tmp_path):
    found = silences_from_logs(tmp_path)
    assert pd.isna(found["resolution_s"]).all()
    assert found["to_s"].tolist() == [pytest.approx(0)]
