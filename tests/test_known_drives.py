"""On drives of known speed the numbers themselves are known, not only their ratios."""

import pytest

import hcilib as hci

SAMPLES = hci.ROOT / "data" / "samples"


def iops_of(rate: float, size: float, share: float = 1.0) -> float:
    """Return what one drive lets through of I/Os, of which so many are of the kind that it limits."""
    return rate / size / share


def test_a_comparison_on_known_drives_has_their_iops_and_their_ratios():
    """Two drives of 4 MiB/s: 2,048 IOPS of 4 KiB, and what they let through at once after a rest."""
    sources = [SAMPLES / "lab-single", SAMPLES / "lab-mirror"]
    results, speeds = hci.read_results(sources), hci.read_set_speeds(sources)
    assert set(speeds["read_bytes_per_s"]) == set(speeds["write_bytes_per_s"]) == {4 * 2**20}
    full = results[results["iodepth"] == results["iodepth"].max()]
    runtime_s, burst = full["runtime_s"].mean(), speeds["burst_s"].iloc[0]
    truth = {
        name: 2 * iops_of(4 * 2**20, 4096, share) * (1 + burst / runtime_s)
        for name, share in (("4k-randread", 1), ("4k-randrw70", 0.7), ("4k-randwrite", 1))
    }
    iops = hci.summarize(full, "iops").set_index(["system", "pattern"])["iops"]
    for name, expected in truth.items():
        assert iops["lab-single", name] == pytest.approx(expected, rel=0.02), name
    assert iops["lab-mirror", "4k-randwrite"] == pytest.approx(truth["4k-randwrite"] / 2, rel=0.02)
    assert iops["lab-mirror", "4k-randread"] == pytest.approx(truth["4k-randread"], rel=0.02)
    predicted = hci.predicted(full, speeds, hci.load_systems(), "lab-single")
    ratios = hci.compare(full, "lab-single").set_index("pattern")["ratio"]
    known = predicted[predicted["system"] == "lab-mirror"].set_index("pattern")["ratio"]
    assert known.round(3).to_dict() == {"4k-randread": 1, "4k-randrw70": 1, "4k-randwrite": 0.5}
    assert ratios.to_dict() == pytest.approx(known.to_dict(), rel=0.02)


def test_a_demand_within_a_limit_is_what_known_drives_let_through():
    """Never more than their rate, and at a p99 of 20 ms no less than nine tenths of it."""
    drives = hci.read_set_speeds(SAMPLES / "lab-demand")
    rate = drives.groupby("system")["read_bytes_per_s"].sum() / 4096
    assert set(rate) == {2048}
    held = hci.load_within(hci.read_results(SAMPLES / "lab-demand"), p99_ns=20e6)
    assert len(held) == 4
    for row in held.itertuples():
        halved = row.pattern == "4k-randwrite" and row.system == "lab-mirror"
        allowed = rate[row.system] / (2 if halved else 1)
        assert 0.9 * allowed <= row.iops_lo <= allowed, row


def test_a_loss_of_a_drive_s_speed_is_the_one_that_was_set():
    """lab-single-3 has drives of 3.52 MiB/s instead of 4: 12.1 % less, or a little less than that."""
    sources = [SAMPLES / f"lab-single{end}" for end in ("", "-2", "-3")]
    rate = [hci.read_set_speeds(source)["read_bytes_per_s"].iloc[0] for source in sources]
    found = hci.regression(hci.history(sources), "lab-single-3").query("verdict == 'regression'")
    assert len(found) == 3
    assert found["ratio"].tolist() == pytest.approx([rate[2] / rate[0]] * 3, abs=0.002)


def test_tenants_alone_get_what_their_drive_lets_through():
    """Of 4 MiB/s each: 70 % of 8 KiB reads, 4 KiB reads, 64 KiB reads; and together no more of it."""
    [rate] = set(hci.read_set_speeds(SAMPLES / "lab-neighbours")["read_bytes_per_s"])
    results = hci.read_results(SAMPLES / "lab-neighbours")
    own = results[~results["pattern"].str.contains("rate") & ~results["beside"].fillna("").str.contains("rate")]
    own = own.assign(beside=own["beside"].replace("", "alone").fillna("alone"))
    iops = hci.summarize(own, "iops", by=["tenant", "beside"]).set_index(["tenant", "beside"])["iops"]
    assert iops["database", "alone"] == pytest.approx(iops_of(rate, 8192, 0.7), rel=0.05)
    assert iops["desktops", "alone"] == pytest.approx(iops_of(rate, 4096), rel=0.05)
    assert iops["backup", "alone"] == pytest.approx(iops_of(rate, 65536), rel=0.05)
    shared = 0.7 * 8192 * iops["database", "backup, desktops"] + 65536 * iops["backup", "database, desktops"]
    assert shared == pytest.approx(rate, rel=0.1)
