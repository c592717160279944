"""A power failure loses what was acknowledged where something makes it so, and nothing where the same is without it:
real parts."""

import pytest
from losses import CONTROLS, suffered

pytestmark = [pytest.mark.box, pytest.mark.deep]


@pytest.mark.parametrize(
    "loss", CONTROLS, ids=lambda loss: f"{loss.system}-{loss.protocol}-{loss.drive_cache}-{loss.read[:5]}"
)
def test_what_ignores_or_outruns_a_flush_is_seen_to_lose_and_what_does_not_keeps(loss, box_programs, tmp_path):
    verdicts = suffered(loss, tmp_path)
    assert list(verdicts["verdict"]) == (["lost"] if loss.loses else ["kept"])
    assert verdicts["checked"].item() == 32
    assert (verdicts["lost"] + verdicts["torn"] + verdicts["foreign"] > 0).all() == loss.loses
