"""Philox 4x32-10 (Salmon et al., SC'11) and the 16 random bits of an element, addressed as in
conformance/oracle/core/philox.ts.
"""

MASK = 0xFFFFFFFF


def draw(counter, key):
    x, y, z, w = counter
    k0, k1 = key
    for _ in range(10):
        low, high = 0xD2511F53 * x, 0xCD9E8D57 * z
        x, y, z, w = high >> 32 ^ y ^ k0, high & MASK, low >> 32 ^ w ^ k1, low & MASK
        k0, k1 = k0 + 0x9E3779B9 & MASK, k1 + 0xBB67AE85 & MASK
    return x, y, z, w


def random16(seed, offset, index):
    """The 16 random bits of element `index` of a rowwise copy.

    Eight elements share a draw; two share a word, and the even one gets its low half.
    """
    block = index >> 3
    counter = (block & MASK, block >> 32, offset & MASK, offset >> 32)
    word = draw(counter, (seed & MASK, seed >> 32))[index >> 1 & 3]
    return word >> 16 if index & 1 else word & 0xFFFF


# The known-answer tests that Random123 publishes.
assert draw((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
assert draw((MASK,) * 4, (MASK,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
assert draw(*PI) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)
