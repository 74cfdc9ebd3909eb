"""The order in which xtrain trains on a stream of tokens, written down a second time.

Sequence g of a run is a function of (tokens in the stream, seq_len, seed, g): train/data/windows.h,
the shuffle in train/data/permutation.h, the random numbers in core/random.h.
"""

import math

MASK32 = 2**32 - 1
PHASE_SITE = 0x7068617365
SHUFFLE_SITE = 0x7065726d75746174
SHUFFLE_ROUNDS = 8


def philox4x32(key, counter_low, counter_high):
    """Philox4x32-10: four words of a 128-bit counter under a 64-bit key."""
    k0, k1 = key & MASK32, key >> 32
    c0, c1 = counter_low & MASK32, counter_low >> 32
    c2, c3 = counter_high & MASK32, counter_high >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


def draw(key, counter_low, counter_high):
    """The first 64 bits."""
    low, high, _, _ = philox4x32(key, counter_low, counter_high)
    return high << 32 | low


class Permutation:
    """A shuffle of 0..n-1: a Feistel network with cycle walking."""

    def __init__(self, n, seed, stream):
        self.n, self.key = n, draw(seed, stream, SHUFFLE_SITE)
        self.a = math.ceil(math.sqrt(n))
        self.b = -(-n // self.a)

    def __call__(self, index):
        while True:
            right, left = divmod(index, self.a)
            for round_ in range(0, SHUFFLE_ROUNDS, 2):
                left = (left + draw(self.key, right, round_) % self.a) % self.a
                right = (right + draw(self.key, left, round_ + 1) % self.b) % self.b
            index = right * self.a + left
            if index < self.n:
                return index


class TrainingOrder:
    """Where each sequence of a run begins in a stream of `tokens` tokens."""

    def __init__(self, tokens, seq_len, seed):
        self.tokens, self.seq_len, self.seed = tokens, seq_len, seed
        self.windows = (tokens - 1) // seq_len
        self.epoch = None

    def start_of(self, sequence):
        epoch, index = divmod(sequence, self.windows)
        if epoch != self.epoch:
            self.epoch = epoch
            self.phase = philox4x32(draw(self.seed, epoch, PHASE_SITE), 0, 0)[0] % self.seq_len
            self.shuffle = Permutation(self.windows, self.seed, epoch)
        return min(self.phase + self.shuffle(index) * self.seq_len, self.tokens - 1 - self.seq_len)
