"""Points of the curve of X25519, for those who would change a public key and keep its secrets."""

from __future__ import annotations

PRIME = 2**255 - 19


def root(square: int) -> int | None:
    """A square root modulo 2^255 - 19."""
    found = pow(square, (PRIME + 3) // 8, PRIME)
    for candidate in (found, found * pow(2, (PRIME - 1) // 4, PRIME) % PRIME):
        if candidate * candidate % PRIME == square % PRIME:
            return candidate
    return None


def on_curve(u: int) -> tuple[int, int]:
    """A point of v^2 = u^3 + 486662 u^2 + u with that u."""
    v = root((u**3 + 486662 * u**2 + u) % PRIME)
    assert v is not None
    return u % PRIME, v


def plus(one: tuple[int, int], two: tuple[int, int]) -> tuple[int, int]:
    """Of two points that are neither equal nor opposite."""
    slope = (two[1] - one[1]) * pow(two[0] - one[0], -1, PRIME) % PRIME
    u = (slope**2 - 486662 - one[0] - two[0]) % PRIME
    return u, (slope * (one[0] - u) - one[1]) % PRIME


# Of order 2, 4 and 8.
SMALL = (
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
)
