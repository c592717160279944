"""Sentences about an audit: claims that contradict tables, and numbers that break a law."""

from __future__ import annotations

import pandas as pd

from hcilib.analyse.physics.audit import TRUNCATED
from hcilib.say.curves.sweep import regimes_sentence
from hcilib.say.words import counted, listed

LAWS = {
    "little": "Little's law",
    "bandwidth": "throughput (IOPS × block size)",
    "cpu_efficiency": "IOPS per 1 % of a node's CPU",
    "ceiling": "the drives' maximum IOPS",
    "drives": "reads against the drives' counters",
}
"""Check of ``audit`` -> what it is in a sentence."""
VERDICTS = {
    "opposite": ("says the opposite of its tables", "say the opposite of its tables"),
    "off": ("differs from {tables}", "differ from {tables}"),
    "rounding": ("differs only by rounding", "differ only by rounding"),
    "holds": ("holds", "hold"),
    "not checkable": ("cannot be checked", "cannot be checked"),
}
"""Verdict on a claim -> what one claim does, and what several do; `{tables}` are named once."""


def audit_answer(audit: pd.DataFrame, regimes: pd.DataFrame, judged: pd.DataFrame, results: pd.DataFrame) -> str:
    """Return how many claims are wrong, how many checks fail, and where more load gives less.

    Parameters
    ----------
    audit : DataFrame
        As ``audit`` returns it.
    regimes : DataFrame
        As ``load_losses`` returns it, of the same results.
    judged : DataFrame
        As ``check_claims`` returns it. Empty where no claims were given.
    results : DataFrame
        The results that were checked.

    Returns
    -------
    str
        Two or three sentences. The first is the title of the page.

    Examples
    --------
    >>> results = hci.published().query("source == 'proxmox-2node-hci'")
    >>> claims = hci.check_claims(results, hci.published_claims(source="proxmox-2node-hci"), hci.published_facts())
    >>> hci.audit_answer(hci.audit(results), hci.load_losses(results), claims, results).split(". ")[0]
    '34 of 188 claims in the article differ from its own tables'
    """
    texts = [_claims(judged), _checks(audit, len(results)), regimes_sentence(regimes, results)]
    return " ".join(filter(None, texts))


def audit_facts(audit: pd.DataFrame, judged: pd.DataFrame) -> list[str]:
    """Return the verdicts on claims, the failed checks by law, and truncated numbers.

    Parameters
    ----------
    audit, judged : DataFrame
        As of ``audit_answer``.

    Returns
    -------
    list of str
        One sentence each.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"check": ["little", "little"], "ok": [True, False], "code": ["", "outside"]})
    >>> hci.audit_facts(rows, pd.DataFrame({"verdict": []}))
    ["1 check of Little's law fails."]
    """
    facts, asked = [], audit[audit["ok"].notna()]
    if len(judged):
        counts = judged["verdict"].value_counts().to_dict()
        tables = "them" if "opposite" in counts else "its tables"
        verdicts = [
            f"{counts[name]} {words[counts[name] > 1].format(tables=tables)}"
            for name, words in VERDICTS.items()
            if name in counts
        ]
        facts.append(f"Of {counted(len(judged), 'claim')} in the article, {listed(verdicts)}.")
    failed = asked.loc[~asked["ok"].astype(bool), "check"].value_counts()
    facts += [f"{counted(n, 'check')} of {LAWS.get(law, law)} fail{'s' * (n == 1)}." for law, n in failed.items()]
    if len(asked) and failed.empty:
        facts.append(f"Every check of {listed(LAWS.get(check, check) for check in asked['check'].unique())} holds.")
    if cut := int(audit["code"].eq(TRUNCATED).sum()):
        facts.append(f"{counted(cut, 'printed number')} {'was' if cut == 1 else 'were'} truncated, not rounded.")
    return facts


def _claims(judged: pd.DataFrame) -> str:
    """Return how many claims are wrong, or that all that can be checked follow from the tables."""
    count, wrong = len(judged), int(judged["verdict"].isin(["off", "opposite"]).sum())
    unknown = int(judged["verdict"].eq("not checkable").sum())
    if not count:
        return ""
    if count == unknown:
        return f"The article has {counted(count, 'claim')}, which its tables cannot confirm or refute."
    if wrong:
        verb = "differs from" if wrong == 1 else "differ from"
        first = f"{wrong} of {counted(count, 'claim')} in the article {verb} its own tables."
    else:
        all_ = f"All {count - unknown} checkable claims" if count - unknown > 1 else "The one checkable claim"
        first = f"{all_} in the article follow{'s' * (count - unknown == 1)} from its own tables."
    return first + (f" {unknown} cannot be checked." if unknown else "")


def _checks(audit: pd.DataFrame, rows: int) -> str:
    """Return how many checks of the rows fail."""
    asked, failed = int(audit["ok"].notna().sum()), int(audit["ok"].eq(False).sum())
    if not asked:
        return f"The {counted(rows, 'result')} lack the numbers for plausibility checks such as Little's law."
    laws = audit.loc[audit["ok"].notna(), "check"]
    example = LAWS.get(laws.iloc[0], laws.iloc[0])
    among = f"{counted(asked, 'plausibility check')} of {counted(rows, 'result')}"
    if failed:
        broken = audit.loc[audit["ok"].eq(False), "check"].unique()
        which = listed(LAWS.get(check, check) for check in broken)
        return (
            f"{failed} of {among} fail{'s' * (failed == 1)}. {'They concern' if failed > 1 else 'It concerns'} {which}."
        )
    return f"All {among} hold." if asked > 1 else f"The only plausibility check holds. It concerns {example}."
