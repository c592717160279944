"""Systems by their labels in the texts of judged claims."""

from hcilib.analyse.claims.claims import check_claims
from hcilib.read.published import published, published_claims, published_facts


def test_labels_replace_whole_names_only():
    labels = {"s2d-nmap-mirror": "S2D mirror", "s2d-nmap-mirror-parity": "S2D both", "starwind-rdma-hyperv": "StarWind"}
    claims = published_claims().query("id == 155 or id == 156")
    judged = check_claims(published(), claims, published_facts(), labels).set_index("id")
    assert (
        judged.loc[155, "finding"]
        == "claimed 278 % higher, is 177.7 %; 278 % is StarWind as a percentage of S2D mirror"
    )
    assert judged.loc[156, "what"].startswith("StarWind: Mean latency")
    assert judged.loc[156, "what"].endswith("against S2D both")


def test_no_labels_for_no_claims():
    assert check_claims(published(), published_claims().head(0), None, {"a": "b"}).empty
