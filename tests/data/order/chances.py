"""What chance would give: how far an order of samples is from a random one, in standard deviations and p-values."""

import math

import numpy as np

CELLS = 16  # per axis: 256 cells hold four samples each, at least, of a thousand


def likely(p):
    """The threshold of all tests here: chance goes beyond it once in a hundred thousand tries, and seeds are fixed."""
    return p > 1e-5


def deviates(chi_square, freedom):
    """A chi-square as standard deviations of a normal variable (Wilson and Hilferty 1931); below 0: too even."""
    spread = 2 / (9 * freedom)
    return ((chi_square / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5


def chi_square(counts, expected):
    return ((counts - expected) ** 2 / expected).sum()


def even(counts):
    """Deviation of counts that should be equal but for chance."""
    return deviates(chi_square(counts, counts.sum() / counts.size), counts.size - 1)


def placed(table, items):
    """Deviation from even of a table of items by places, to which many permutations of so many items were added.

    Each fills rows and columns exactly, which leaves fewer degrees of freedom, and more in each.
    """
    squares = chi_square(table, table.sum() / table.size) * (items - 1) / items
    return deviates(squares, (table.shape[0] - 1) * (table.shape[1] - 1))


def tied(one, other, n):
    """Deviation of two orders' values at the same places from independence, in 16 x 16 cells of equal width."""
    return unrelated(one * CELLS // n, other * CELLS // n)


def unrelated(rows, columns):
    """Deviation of two labels, small integers, from independence; rows and columns are as full as they are."""
    shape = int(rows.max()) + 1, int(columns.max()) + 1
    table = np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return deviates(chi_square(table, expected), (table.shape[0] - 1) * (table.shape[1] - 1))


def correlated(one, other):
    """Deviation of Spearman's rank correlation of two permutations from 0."""
    return np.corrcoef(one, other)[0, 1] * (one.size - 1) ** 0.5


def gaps(order, distance):
    """Deviation of the differences modulo n of values so far apart: each but 0 is as likely as the others."""
    n = order.size
    found = np.bincount((order[distance:] - order[:-distance]) % n * 256 // n, minlength=256)
    chances = np.bincount(np.arange(1, n) * 256 // n, minlength=256) / (n - 1)
    return deviates(chi_square(found, chances * found.sum()), 255)


def p_of(deviation):
    """Probability that chance deviates as far, up or down."""
    return math.erfc(abs(deviation) / 2**0.5)


def p_of_all(deviations):
    """Probability that of so many standard normal variables one is as far out, or all are distributed as unevenly.

    The latter, Kolmogorov and Smirnov's test, sees what no single one shows: all a little too high, or too even.
    """
    chances = np.sort([math.erfc(-each / 2**0.5) / 2 for each in deviations])
    steps = np.arange(chances.size + 1) / chances.size
    distance = max((steps[1:] - chances).max(), (chances - steps[:-1]).max())
    scaled = (chances.size**0.5 + 0.12 + 0.11 / chances.size**0.5) * distance  # Stephens 1970
    uneven = 2 * sum((-1) ** (k - 1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, 101))
    far_out = chances.size * min(map(p_of, deviations))
    return 2 * min(uneven, far_out, 0.5)


def p_of_coincidences(counts):
    """Probability of numbers of coincidences this far from Poisson's with mean 1: the law of matching two orders."""
    found = np.bincount(np.minimum(counts, 4), minlength=5)
    chances = np.array([1, 1, 1 / 2, 1 / 6, 0]) / math.e
    chances[4] = 1 - chances.sum()
    return p_of(deviates(chi_square(found, chances * len(counts)), 4))
