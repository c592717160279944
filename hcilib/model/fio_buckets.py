"""fio's latency histogram: which bucket a latency falls into, what a bucket stands for, where a percentile lies.

fio counts in 29 groups of 64 buckets (stat.h): buckets of 1 ns below 128 ns, then 64 for every power of two, so that
the middle of a bucket is within 1/128 of every latency in it. What is slower than 17 s lands in the last.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

BITS = 6
"""2^6 buckets for every power of two."""
BUCKETS = 29 << BITS
TAIL = 10
"""I/Os that should lie beyond a percentile before it is more than the story of a few."""


def bucket_of(lat_ns: int) -> int:
    """The bucket of a latency in whole ns (stat.c, plat_val_to_idx)."""
    shift = lat_ns.bit_length() - 1 - BITS
    return min((shift << BITS) + (lat_ns >> shift), BUCKETS - 1) if shift > 0 else lat_ns


def midpoint(bucket: int) -> int:
    """The latency in ns that stands for a bucket, as fio's JSON prints it (stat.c, plat_idx_to_val)."""
    shift = max((bucket >> BITS) - 1, 0)
    within = bucket & ((1 << BITS) - 1)
    return (((1 << BITS) + within) << shift) + (1 << shift >> 1) if shift else bucket


MIDPOINTS = tuple(map(midpoint, range(BUCKETS)))
"""Of every bucket."""


def buckets_of(lat_ns: "np.ndarray") -> "np.ndarray":
    """`bucket_of` of an array of whole ns, any shape.

    The exponent of a float64 counts powers of two and the first six bits behind it count the 64th parts of one:
    together they are fio's number of the bucket, but for where it begins. What is slower than the last bucket gives
    more than that.
    """
    import numpy as np

    bits = lat_ns.astype(np.float64).view(np.int64)
    index = np.minimum((bits >> (52 - BITS)) - ((1023 + BITS - 1) << BITS), BUCKETS - 1)
    return np.where(lat_ns < 1 << BITS, lat_ns, index)


def ios_to_reach(percent: float, ios: "ArrayLike") -> "np.ndarray":
    """How many I/Os, the fastest first, are `percent` of all: a percentile is the bucket that holds the last of them.

    fio's own long double expression (stat.c, calc_clat_percentiles), so that even its ties are reproduced: 99.9 is a
    little more than 999 in a thousand.
    """
    import numpy as np

    return np.ceil(np.longdouble(percent) / 100 * np.asarray(ios).astype(np.longdouble)).astype(np.int64)
